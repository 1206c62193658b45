//! The verdict on all requests together, from the totals that the queue keeps of each worker.
//!
//! Why beside the comparison by route: it needs few requests, and sees what is bad everywhere at once.
//!
//! Contract:
//! 1. Only results worse than those of the old release count.
//! 2. There is no verdict before [`ENOUGH`] requests or the end of the trial, because the first requests with
//!    cold caches prove little.

use queue::Tally;
use std::time::Duration;

/// The number of requests of the new code that make its failures and its time meaningful.
const ENOUGH: u64 = 50;
/// Mean times are compared only if both sides have this many requests.
const COMPARABLE: u64 = 20;
/// The number of 5xx responses that may be an accident.
const ACCIDENTS: u64 = 2;
/// How much larger the share of failures may be.
const MORE_FAILURES: f64 = 0.02;
/// How much slower the new code may be, because the caches of a new process are cold.
const SLOWER: f64 = 3.0;
const SLOWER_BY: Duration = Duration::from_millis(50);

fn failing(tally: Tally) -> f64 {
    tally.failures as f64 / tally.requests.max(1) as f64
}

fn mean_ms(tally: Tally) -> f64 {
    tally.app_us as f64 / tally.requests.max(1) as f64 / 1e3
}

/// Returns the verdict on `new` compared with `old`, once there is one: a summary, or the reason to revert.
/// `over`: the trial's time is over.
pub(crate) fn verdict(new: Tally, old: Tally, over: bool) -> Option<Result<String, String>> {
    if new.requests < ENOUGH && !over {
        return None;
    }
    let percent = |tally: Tally| failing(tally) * 100.0;
    if new.failures > ACCIDENTS && failing(new) > failing(old) + MORE_FAILURES {
        return Some(Err(format!(
            "{} of {} requests failed with 5xx ({:.0} %; of the old code {:.0} %)",
            new.failures,
            new.requests,
            percent(new),
            percent(old)
        )));
    }
    let limit = mean_ms(old) * SLOWER + SLOWER_BY.as_secs_f64() * 1e3;
    if new.requests.min(old.requests) >= COMPARABLE && mean_ms(new) > limit {
        return Some(Err(format!(
            "its {} requests took {:.0} ms on average, those of the old code {:.0} ms",
            new.requests,
            mean_ms(new),
            mean_ms(old)
        )));
    }
    over.then(|| {
        Ok(match new.requests {
            0 => "no request came".to_owned(),
            requests => {
                format!(
                    "{requests} requests, {:.0} % failed, {:.1} ms on average",
                    percent(new),
                    mean_ms(new)
                )
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(requests: u64, failures: u64, ms: u64) -> Tally {
        Tally { requests, failures, app_us: requests * ms * 1000 }
    }

    #[test]
    fn nothing_is_decided_before_enough_requests_or_the_end_of_the_time() {
        assert_eq!(verdict(tally(ENOUGH - 1, 40, 1), tally(500, 0, 1), false), None);
        assert!(verdict(tally(ENOUGH, 40, 1), tally(500, 0, 1), false).is_some_and(|v| v.is_err()));
        assert!(verdict(tally(10, 5, 1), tally(50, 0, 1), true).is_some_and(|v| v.is_err()));
        assert_eq!(
            verdict(tally(ENOUGH, 0, 1), tally(500, 0, 1), false),
            None,
            "good is good only at the end"
        );
    }

    #[test]
    fn only_what_is_worse_counts() {
        let good = |new, old| verdict(new, old, true).is_some_and(|v| v.is_ok());
        assert!(good(tally(100, 30, 1), tally(900, 280, 1)), "it has always been so");
        assert!(good(tally(100, 2, 1), tally(900, 0, 1)), "an accident");
        assert!(!good(tally(100, 30, 1), tally(900, 0, 1)));
        assert!(good(tally(0, 0, 0), tally(0, 0, 0)));
    }

    #[test]
    fn cold_caches_are_forgiven_and_slowness_is_not() {
        let good = |new, old| verdict(new, old, true).is_some_and(|v| v.is_ok());
        assert!(good(tally(100, 0, 40), tally(900, 0, 2)));
        assert!(!good(tally(100, 0, 400), tally(900, 0, 20)));
        assert!(good(tally(3, 0, 4000), tally(900, 0, 20)), "too few to say");
    }
}
