//! Whether memory has room for new code beside the old.
//!
//! Why: a reload needs a second template and at least one more worker for a while. Where that does not fit, the kernel would end
//! processes in the middle of it; better to say so before anything happens.
//!
//! Contract: pure. What is measured is in [`Figures`]; without a figure for what is available, everything fits.

/// Bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// What processes may still take; `None` when unknown.
    pub available: Option<u64>,
    /// What a template takes: memory of its own, that which it shares with its workers included. A second one shares none of it.
    pub template: u64,
    /// What the end of the old template gives back: what no worker shares with it.
    pub template_alone: u64,
    /// What one worker takes beside what it shares.
    pub worker: u64,
}

impl Figures {
    /// Whether a second template and `workers` more workers fit.
    ///
    /// # Errors
    /// They do not; the text has the figures, and what to do.
    pub fn fits(&self, workers: usize) -> Result<(), String> {
        let needed = self.template.saturating_add(self.worker.saturating_mul(workers as u64));
        let Some(available) = self.available.filter(|available| *available < needed) else { return Ok(()) };
        let plural = if workers == 1 { "worker" } else { "workers" };
        Err(format!(
            "not enough memory for the new code beside the old: a second template and {workers} {plural} need about {} MiB ({} + \
             {workers} x {}), and {} MiB are available; nothing was changed. `firebrick reload --in-place` lets old workers leave \
             first, with no way back",
            mib(needed),
            mib(self.template),
            mib(self.worker),
            mib(available),
        ))
    }

    /// In place: how many of `workers` old ones stay until the new code is loaded, so that it and one worker of it fit. One leaves at
    /// least, and one stays, whatever the figures say.
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
