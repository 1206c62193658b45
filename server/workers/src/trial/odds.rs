//! The evidence that events (failures, slow requests) are more frequent in the new release than in the old one.
//!
//! Why not a test with a level of significance: the verdict is looked at again and again while requests arrive, and with such a test each look
//! is another chance for a false alarm. The evidence here is a likelihood ratio, mixed over the possible effects, given the numbers of
//! requests and of events (Fisher's noncentral hypergeometric distribution against the central one). If both releases are equal, its mean is 1,
//! so it exceeds `1/a` with a probability of at most `a`: an e-value (Ramdas, Grünwald, Vovk and Shafer, "Game-theoretic statistics
//! and safe anytime-valid inference", 2023). It falls again when further requests show nothing, so looks add little: the tests of
//! [`super::comparison`] count the false alarms of trials that are looked at a hundred times.
//!
//! Contract: nothing is assumed of how frequent events are, or how the figures of requests are distributed.

/// How many times as large the odds of an event may have become; the evidence is the mean over these.
const RATIOS: [f64; 7] = [1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0];

/// Requests, and the events among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EventCounts {
    pub(super) events: u64,
    pub(super) requests: u64,
}

/// Returns the natural logarithm of the evidence. Without requests of both releases, and without events, there is none (0).
pub(super) fn log_evidence(new: EventCounts, old: EventCounts) -> f64 {
    let events = new.events + old.events;
    let (least, most) = (events.saturating_sub(old.requests), events.min(new.requests));
    if least >= most {
        return 0.0;
    }
    // The sums of the probabilities of all numbers of events in the new release, weighted by each ratio; in logarithms, relative to the first.
    let mut log = 0.0;
    let mut plain = LogSum::of(0.0);
    let mut weighted = RATIOS.map(|ratio| LogSum::of(least as f64 * ratio.ln()));
    for at in least..most {
        let [more, left, rest, also] =
            [at + 1, new.requests - at, events - at, old.requests - (events - at) + 1].map(|n| n as f64);
        log += (left * rest / (more * also)).ln();
        plain.add(log);
        for (sum, ratio) in weighted.iter_mut().zip(RATIOS) {
            sum.add(log + more_log(at + 1, ratio));
        }
    }
    let mut mean = LogSum::of(f64::NEG_INFINITY);
    for (sum, ratio) in weighted.iter().zip(RATIOS) {
        mean.add(more_log(new.events, ratio) + plain.log() - sum.log());
    }
    mean.log() - (RATIOS.len() as f64).ln()
}

fn more_log(events: u64, ratio: f64) -> f64 {
    events as f64 * ratio.ln()
}

/// Returns the logarithm of the evidence of two independent observations, if only the first may be valid or both: the mean of the first alone and of their
/// product, which is an e-value again. A second observation that cannot show the fault takes little from the first.
pub(super) fn combined(first: f64, second: f64) -> f64 {
    let mut sum = LogSum::of(first);
    sum.add(first + second);
    sum.log() - std::f64::consts::LN_2
}

/// The logarithm of a sum of numbers that are too large or small for a float.
#[derive(Debug, Clone, Copy)]
struct LogSum {
    most: f64,
    /// The sum, divided by the largest.
    sum: f64,
}

impl LogSum {
    fn of(log: f64) -> LogSum {
        LogSum { most: log, sum: 1.0 }
    }

    fn add(&mut self, log: f64) {
        if log > self.most {
            self.sum = self.sum * (self.most - log).exp() + 1.0;
            self.most = log;
        } else {
            self.sum += (log - self.most).exp();
        }
    }

    fn log(&self) -> f64 {
        self.most + self.sum.ln()
    }
}

/// Returns about how many requests of the new release must all be events until the logarithm of the evidence is `wanted`, if none of the old
/// one's are. `share`: the new release's share of the requests.
pub(super) fn events_needed(wanted: f64, share: f64) -> u64 {
    let most = RATIOS[RATIOS.len() - 1];
    let of_each = (most / (most * share + (1.0 - share))).ln();
    ((wanted + (RATIOS.len() as f64).ln()) / of_each).ceil().max(1.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn evidence(new: (u64, u64), old: (u64, u64)) -> f64 {
        let counts = |(events, requests)| EventCounts { events, requests };
        log_evidence(counts(new), counts(old))
    }

    #[test]
    fn equal_rates_are_no_evidence_and_unequal_ones_are() {
        assert!(evidence((10, 100), (90, 900)) < 0.0);
        assert!(evidence((5, 1000), (0, 9000)) > 7.0, "{}", evidence((5, 1000), (0, 9000)));
        assert!(evidence((72, 100), (430, 900)) > 7.0, "{}", evidence((72, 100), (430, 900)));
        assert!(evidence((10, 100), (430, 900)) < -5.0, "fewer than expected are no evidence of more");
        for (new, old) in [((5, 10), (0, 0)), ((0, 0), (5, 10)), ((0, 10), (0, 10)), ((10, 10), (10, 10))] {
            assert_eq!(evidence(new, old), 0.0, "{new:?} {old:?}");
        }
    }

    /// The mean of the evidence over all outcomes is 1: what makes it an e-value.
    #[test]
    fn the_mean_of_the_evidence_is_one_if_nothing_has_changed() {
        let choose = |n: u64, k: u64| (0..k).fold(1.0, |ways, at| ways * (n - at) as f64 / (at + 1) as f64);
        for (new, old, events) in [(5u64, 50u64, 3u64), (20, 180, 100), (30, 10, 35), (40, 400, 4)] {
            let outcomes = events.saturating_sub(old)..=events.min(new);
            let mean: f64 = outcomes
                .map(|at| {
                    let chance = choose(new, at) * choose(old, events - at) / choose(new + old, events);
                    chance * evidence((at, new), (events - at, old)).exp()
                })
                .sum();
            assert!((mean - 1.0).abs() < 1e-6, "{events} events in {new} and {old} requests: {mean}");
        }
    }

    #[test]
    fn a_second_observation_adds_evidence_and_takes_little() {
        assert!((combined(6.0, 5.0) - (11.0 - std::f64::consts::LN_2)).abs() < 0.01);
        assert!((combined(9.0, -20.0) - (9.0 - std::f64::consts::LN_2)).abs() < 0.01);
        assert_eq!(combined(3.0, 0.0), 3.0, "none");
    }

    proptest! {
        #[test]
        fn more_events_of_the_new_release_are_more_evidence(
            new in 0u64..200, more_new in 1u64..200, old in 1u64..500, more_old in 0u64..500,
        ) {
            let (all_new, all_old) = (new + more_new, old + more_old);
            let (before, after) = (evidence((new, all_new), (old, all_old)), evidence((new + 1, all_new), (old - 1, all_old)));
            prop_assert!(before.is_finite() && after.is_finite());
            prop_assert!(after >= before - 1e-9, "{before} {after}");
        }

        #[test]
        fn the_needed_events_are_about_enough(wanted in 3.0f64..15.0, share in 0.02f64..0.3) {
            let needed = events_needed(wanted, share);
            let old = (needed as f64 * (1.0 - share) / share) as u64;
            prop_assert!(evidence((needed, needed), (0, old)) >= wanted - 3.0);
        }
    }
}
