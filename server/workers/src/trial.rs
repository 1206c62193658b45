//! The trial of new code: whether memory has room for it beside the old ([`Figures`]), and whether it performs
//! as well, by the requests that both served in the same time ([`verdict`]). Pure.
//!
//! Why the memory: during a reload there is a second template and at least one more worker. If they do not
//! fit, the kernel would kill processes in the middle of the reload, so it is refused before it begins.
//!
//! Contract:
//! 1. Only results worse than those of the old code count against the new code: an app that has always failed
//!    can be reloaded.
//! 2. Far more memory than the old code's workers use also counts as worse.
//! 3. There is no verdict before [`ENOUGH`] requests or the end of the trial, because the first requests with
//!    cold caches prove little.
//! 4. If the available memory is unknown, everything fits.

use queue::Tally;
use std::time::Duration;

/// The number of requests of the new code that make its failures and its time meaningful.
pub const ENOUGH: u64 = 50;
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
pub fn verdict(new: Tally, old: Tally, over: bool) -> Option<Result<String, String>> {
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

/// How much more memory a new worker may use than the old ones, which have already grown.
const LARGER: u64 = 2;
const LARGER_BY: u64 = 64 << 20;

/// Compares the resident memory of a new worker with that of the old ones, in bytes.
///
/// # Errors
/// Fails if the new worker needs far more memory. The message contains both figures.
pub fn weigh(new: u64, old: &[u64]) -> Result<(), String> {
    let mean = old.iter().sum::<u64>().checked_div(old.len() as u64).unwrap_or_default();
    if mean == 0 || new <= mean * LARGER + LARGER_BY {
        return Ok(());
    }
    Err(format!(
        "a worker takes {} MiB of resident memory, one of the old code {} MiB",
        new >> 20,
        mean >> 20
    ))
}

/// Memory figures in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// The memory that processes may still take; `None` if unknown.
    pub available: Option<u64>,
    /// The memory of a template, including the part that it shares with its workers. A second template shares
    /// none of it.
    pub template: u64,
    /// The memory that the end of the old template frees, that is, the part that no worker shares.
    pub template_alone: u64,
    /// The memory of one worker beyond the shared part.
    pub worker: u64,
}

impl Figures {
    /// Checks whether a second template and `workers` more workers fit.
    ///
    /// # Errors
    /// Fails if they do not fit. The message has the figures and the remedy.
    pub fn fits(&self, workers: usize) -> Result<(), String> {
        let needed = self.template.saturating_add(self.worker.saturating_mul(workers as u64));
        let Some(available) = self.available.filter(|available| *available < needed) else { return Ok(()) };
        let plural = if workers == 1 { "worker" } else { "workers" };
        Err(format!(
            "not enough memory to load the new code while the old code serves: a second template and {workers} {plural} need about {} \
             MiB ({} + {workers} x {}), and {} MiB are available; nothing was changed. `firebrick reload --in-place` stops old \
             workers first; it cannot be undone",
            mib(needed),
            mib(self.template),
            mib(self.worker),
            mib(available),
        ))
    }

    /// Returns how many of `workers` old workers stay in place while the new code is loaded, so that the new
    /// template and one worker fit. At least one leaves and at least one stays, whatever the figures are.
    pub fn staying(&self, workers: usize) -> usize {
        let needed = self.template.saturating_add(self.worker);
        let available = self.available.unwrap_or(u64::MAX).saturating_add(self.template_alone);
        let missing = needed.saturating_sub(available);
        let leaving = if missing == 0 { 1 } else { missing.div_ceil(self.worker.max(1)).max(1) };
        let most = workers.saturating_sub(1);
        workers - usize::try_from(leaving).unwrap_or(most).min(most)
    }
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn far_more_memory_is_refused() {
        assert_eq!(weigh(164 * MIB, &[40 * MIB, 60 * MIB]), Ok(()), "twice the mean and 64 MiB");
        let error = weigh(165 * MIB, &[40 * MIB, 60 * MIB]).unwrap_err();
        assert!(error.contains("165 MiB") && error.contains("50 MiB"), "{error}");
        assert_eq!(weigh(165 * MIB, &[]), Ok(()), "there is nothing to compare with");
        assert_eq!(weigh(165 * MIB, &[0]), Ok(()), "the system does not tell");
    }

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

    fn figures(available: u64) -> Figures {
        let available = Some(available * MIB);
        Figures { available, template: 200 * MIB, template_alone: 10 * MIB, worker: 60 * MIB }
    }

    #[test]
    fn what_fits_is_not_held_up() {
        assert_eq!(figures(260).fits(1), Ok(()));
        assert_eq!(Figures { available: None, ..figures(0) }.fits(100), Ok(()));
    }

    #[test]
    fn what_does_not_fit_is_said_with_figures() {
        let why = figures(259).fits(1).unwrap_err();
        for part in ["260 MiB (200 + 1 x 60)", "259 MiB are available", "--in-place", "nothing was changed"] {
            assert!(why.contains(part), "{why}");
        }
        assert!(figures(300).fits(2).unwrap_err().contains("2 workers need about 320 MiB"));
    }

    #[test]
    fn as_many_leave_as_are_in_the_way() {
        assert_eq!(figures(1_000).staying(4), 3, "one leaves: it is not beside");
        assert_eq!(figures(191).staying(4), 3, "59 are missing, 60 come back");
        assert_eq!(figures(189).staying(4), 2);
        assert_eq!(figures(0).staying(4), 1, "one stays");
        assert_eq!(figures(0).staying(1), 1);
    }

    proptest! {
        #[test]
        fn one_stays_and_more_memory_lets_more_stay(available: u64, more: u64, template: u64, worker: u64, workers in 1usize..100) {
            let of = |available| Figures { available: Some(available), template, template_alone: 0, worker };
            let (less, more) = (of(available).staying(workers), of(available.saturating_add(more)).staying(workers));
            prop_assert!((1..=workers.max(2) - usize::from(workers > 1)).contains(&less));
            prop_assert!(more >= less);
        }
    }
}
