//! Division of the CPUs: server and load generator get separate ones if the server gets fewer than there are.
//!
//! A child inherits the CPU affinity of the thread that starts it, so the calling thread changes its own for that
//! moment.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// A division of the machine's CPUs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cpus {
    /// `None` if nothing is divided.
    divided: Option<Divided>,
    /// Number of CPUs available to the server.
    pub(crate) server: f64,
    /// Number of CPUs in all.
    pub(crate) all: f64,
}

#[derive(Debug, Clone)]
struct Divided {
    all: CpuSet,
    server: CpuSet,
    load: CpuSet,
}

impl Cpus {
    /// `wanted` CPUs for the server, rounded up to whole ones; `available` is the number in all.
    pub(crate) fn divide(wanted: Option<f64>, available: u32) -> Cpus {
        let all = f64::from(available.max(1));
        let whole = wanted.map_or(all, |wanted| wanted.ceil().clamp(1.0, all));
        let undivided = Cpus { divided: None, server: all, all };
        if whole >= all {
            return undivided;
        }
        match sets(whole as usize) {
            Some(divided) => Cpus { divided: Some(divided), server: whole, all },
            None => undivided,
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

    fn on<T>(&self, which: impl Fn(&Divided) -> &CpuSet, act: impl FnOnce() -> T) -> T {
        let Some(divided) = &self.divided else { return act() };
        // If this fails, the results are those of all CPUs, which the CPU column shows.
        let _ = sched_setaffinity(None, which(divided));
        let result = act();
        let _ = sched_setaffinity(None, &divided.all);
        result
    }
}

fn sets(wanted: usize) -> Option<Divided> {
    let all = sched_getaffinity(None).ok()?;
    let (mut server, mut load) = (CpuSet::new(), CpuSet::new());
    let here = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
    for (at, cpu) in here.enumerate() {
        if at < wanted { server.set(cpu) } else { load.set(cpu) }
    }
    (load.count() > 0 && server.count() > 0).then_some(Divided { all, server, load })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_and_load_generator_use_different_cpus() {
        let count = sched_getaffinity(None).unwrap().count();
        let cpus = Cpus::divide(Some(0.5), count);
        if count < 2 {
            assert!(cpus.divided.is_none(), "one CPU cannot be divided");
            return;
        }
        assert_eq!((cpus.server, cpus.all), (1.0, f64::from(count)));
        let server = cpus.for_server(|| sched_getaffinity(None).unwrap());
        let load = cpus.for_load(|| sched_getaffinity(None).unwrap());
        assert_eq!((server.count(), load.count()), (1, count - 1));
        assert!((0..CpuSet::MAX_CPU).all(|cpu| !(server.is_set(cpu) && load.is_set(cpu))));
        assert_eq!(sched_getaffinity(None).unwrap().count(), count, "the affinity is restored");
    }

    #[test]
    fn all_cpus_are_not_divided() {
        assert!(Cpus::divide(None, 4).divided.is_none());
        assert!(Cpus::divide(Some(64.0), 4).divided.is_none());
        assert_eq!(Cpus::divide(Some(64.0), 4).server, 4.0);
    }
}
