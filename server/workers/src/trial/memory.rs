//! Whether memory has room for a new release beside the old one. Pure.
//!
//! Why: during a reload there is a second template and at least one more worker. If they do not fit, the
//! kernel would kill processes in the middle of the reload, so it is refused before it begins. If the available memory is unknown,
//! everything fits.

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
