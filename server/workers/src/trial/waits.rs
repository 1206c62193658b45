//! How much longer the requests of a worker on trial wait for a processor than those of the others. Pure.
//!
//! Why: where more programs want to compute than there are processors, a worker that has few requests waits longer for its turn than busy ones, and
//! its caches are cold. That is not the release's fault, and in a busy machine it is more than the margins of the comparison.
//!
//! Contract: the figure is a mean over the requests since the trial began, in microseconds; 0 where the system does not tell, and where the
//! worker waits less than the others.

use queue::Serial;
use std::collections::BTreeMap;

/// The time that each worker had waited for a processor when a trial began, in nanoseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProcessorWaits(BTreeMap<Serial, u64>);

impl ProcessorWaits {
    pub(crate) fn since(begun: BTreeMap<Serial, u64>) -> ProcessorWaits {
        ProcessorWaits(begun)
    }

    /// Returns how much longer a request of worker `new` has waited on average, in microseconds. `now`: the waits now; `requests`: those since the
    /// trial began, of that worker and of all others.
    pub(crate) fn excess_us(&self, new: Serial, now: &BTreeMap<Serial, u64>, requests: [u64; 2]) -> f64 {
        let waited = |is_new: bool| {
            let of_side = now.iter().filter(|(serial, _)| (**serial == new) == is_new);
            let since = |(serial, waited): (&Serial, &u64)| {
                waited.saturating_sub(self.0.get(serial).copied().unwrap_or_default())
            };
            of_side.map(since).sum::<u64>() as f64 / 1e3
        };
        if requests.contains(&0) {
            return 0.0;
        }
        let [of_new, of_old] = requests.map(|requests| requests as f64);
        (waited(true) / of_new - waited(false) / of_old).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(all: &[(Serial, u64)]) -> BTreeMap<Serial, u64> {
        all.iter().copied().collect()
    }

    #[test]
    fn the_excess_is_that_of_a_request() {
        let begun = ProcessorWaits::since(waits(&[(1, 9_000_000), (2, 0), (7, 1_000_000)]));
        let now = waits(&[(1, 19_000_000), (2, 20_000_000), (7, 21_000_000)]);
        assert!((begun.excess_us(7, &now, [10, 20]) - 500.0).abs() < 1e-6, "2 ms and 1.5 ms");
        assert!(begun.excess_us(1, &now, [10, 20]).abs() < 1e-6, "less than the others");
    }

    #[test]
    fn without_figures_there_is_none() {
        let begun = ProcessorWaits::default();
        assert!(begun.excess_us(7, &waits(&[]), [0, 0]).abs() < 1e-6);
        assert!(begun.excess_us(7, &waits(&[(7, 5)]), [1, 0]).abs() < 1e-6, "no other worker");
        assert!(
            begun.excess_us(7, &waits(&[(7, 0), (1, 0)]), [10, 10]).abs() < 1e-6,
            "the system does not tell"
        );
        let begun = ProcessorWaits::since(waits(&[(7, 500)]));
        assert!(begun.excess_us(7, &waits(&[(7, 5), (1, 0)]), [1, 1]).abs() < 1e-6, "a thread has ended");
    }
}
