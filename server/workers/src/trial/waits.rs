//! How much longer the requests of a worker on trial wait for a processor than those of the others. Pure.
//!
//! Why: where more programs want to compute than there are processors, a worker that has few requests waits longer for its turn than busy ones, and
//! its caches are cold. That is not the release's fault, and in a busy machine it is more than the margins of the comparison.
//!
//! Contract: the figure is a mean over the requests since the trial began, in microseconds; 0 where the system does not tell, and where the
//! worker waits less than the others.

use queue::Serial;
use std::collections::BTreeMap;

/// The waits of a worker for a processor since it began, in nanoseconds, and its requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct WorkerWaits {
    pub(crate) waited_ns: u64,
    pub(crate) requests: u64,
}

/// The waits at the beginning of a trial.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProcessorWaits(BTreeMap<Serial, WorkerWaits>);

impl ProcessorWaits {
    pub(crate) fn since(begun: BTreeMap<Serial, WorkerWaits>) -> ProcessorWaits {
        ProcessorWaits(begun)
    }

    /// Returns how much longer a request of worker `new` has waited on average, in microseconds.
    pub(crate) fn excess_us(&self, new: Serial, now: &BTreeMap<Serial, WorkerWaits>) -> f64 {
        let mean = |is_new: bool| {
            let of_side = now.iter().filter(|(serial, _)| (**serial == new) == is_new);
            let sum = of_side.fold(WorkerWaits::default(), |sum, (serial, waits)| {
                let begun = self.0.get(serial).copied().unwrap_or_default();
                WorkerWaits {
                    waited_ns: sum.waited_ns + waits.waited_ns.saturating_sub(begun.waited_ns),
                    requests: sum.requests + waits.requests.saturating_sub(begun.requests),
                }
            });
            (sum.requests > 0).then(|| sum.waited_ns as f64 / sum.requests as f64 / 1e3)
        };
        let (Some(of_new), Some(of_old)) = (mean(true), mean(false)) else { return 0.0 };
        (of_new - of_old).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(all: &[(Serial, u64, u64)]) -> BTreeMap<Serial, WorkerWaits> {
        let entry = |&(serial, waited_ns, requests)| (serial, WorkerWaits { waited_ns, requests });
        all.iter().map(entry).collect()
    }

    #[test]
    fn the_excess_is_that_of_a_request() {
        let begun = ProcessorWaits::since(waits(&[(1, 9_000_000, 50), (2, 0, 0), (7, 1_000_000, 3)]));
        let now = waits(&[(1, 19_000_000, 60), (2, 20_000_000, 10), (7, 21_000_000, 13)]);
        assert!((begun.excess_us(7, &now) - 500.0).abs() < 1e-6, "2 ms and 1.5 ms");
        assert!(begun.excess_us(1, &now).abs() < 1e-6, "less than the others");
    }

    #[test]
    fn without_figures_there_is_none() {
        let begun = ProcessorWaits::default();
        assert!(begun.excess_us(7, &waits(&[])).abs() < 1e-6);
        assert!(begun.excess_us(7, &waits(&[(7, 5, 1)])).abs() < 1e-6, "no other worker");
        assert!(
            begun.excess_us(7, &waits(&[(7, 0, 10), (1, 0, 10)])).abs() < 1e-6,
            "the system does not tell"
        );
        let begun = ProcessorWaits::since(waits(&[(7, 500, 0)]));
        assert!(begun.excess_us(7, &waits(&[(7, 5, 1), (1, 0, 1)])).abs() < 1e-6, "a thread has ended");
    }
}
