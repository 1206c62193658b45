//! Divides the CPUs: server and load generator get separate ones if the server gets fewer than all.
//!
//! A child inherits the CPU affinity of the thread that starts it, so the calling thread changes its own for
//! that moment.

use sys::process::{affinity, run_on};

/// A division of the machine's CPUs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cpus {
    /// `None` if nothing is divided.
    divided: Option<Divided>,
    /// Number of CPUs available to the server.
    pub(crate) server: f64,
    /// The number of all CPUs.
    pub(crate) all: f64,
}

#[derive(Debug, Clone)]
struct Divided {
    all: Vec<usize>,
    server: Vec<usize>,
    load: Vec<usize>,
}

impl Cpus {
    /// Divides the CPUs: `wanted` for the server, rounded up to whole ones, out of `available`.
    pub(crate) fn divide(wanted: Option<f64>, available: u32) -> Cpus {
        let all = f64::from(available.max(1));
        let whole = wanted.map_or(all, |wanted| wanted.ceil().clamp(1.0, all));
        let undivided = Cpus { divided: None, server: all, all };
        if whole >= all {
            return undivided;
        }
        let every = affinity(None).unwrap_or_default();
        match every.split_at_checked(whole as usize) {
            Some((server, load)) if !load.is_empty() => {
                let (server, load) = (server.to_vec(), load.to_vec());
                Cpus { divided: Some(Divided { all: every, server, load }), server: whole, all }
            }
            _ => undivided,
        }
    }

    /// Calls a function that starts a server.
    pub(crate) fn for_server<T>(&self, start: impl FnOnce() -> T) -> T {
        self.on(|divided| &divided.server, start)
    }

    /// Calls a function that starts threads of the load generator.
    pub(crate) fn for_load<T>(&self, start: impl FnOnce() -> T) -> T {
        self.on(|divided| &divided.load, start)
    }

    fn on<T>(&self, which: impl Fn(&Divided) -> &[usize], act: impl FnOnce() -> T) -> T {
        let Some(divided) = &self.divided else { return act() };
        // If this fails, the results are those of all CPUs, which the CPU column shows.
        run_on(which(divided));
        let result = act();
        run_on(&divided.all);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(target_os = "linux", not(firebrick_portable)))]
    #[test]
    fn server_and_load_generator_use_different_cpus() {
        let here = || affinity(None).unwrap();
        let count = here().len() as u32;
        let cpus = Cpus::divide(Some(0.5), count);
        if count < 2 {
            assert!(cpus.divided.is_none(), "one CPU cannot be divided");
            return;
        }
        assert_eq!((cpus.server, cpus.all), (1.0, f64::from(count)));
        let server = cpus.for_server(here);
        let load = cpus.for_load(here);
        assert_eq!((server.len(), load.len() as u32), (1, count - 1));
        assert!(server.iter().all(|cpu| !load.contains(cpu)));
        assert_eq!(here().len() as u32, count, "the affinity is restored");
    }

    #[test]
    fn all_cpus_are_not_divided() {
        assert!(Cpus::divide(None, 4).divided.is_none());
        assert!(Cpus::divide(Some(64.0), 4).divided.is_none());
        assert_eq!(Cpus::divide(Some(64.0), 4).server, 4.0);
    }
}
