//! Time within a run: nanoseconds since its start.

use std::time::{Duration, Instant};

/// Nanoseconds since the start of the run.
pub(crate) type Moment = u64;

/// Later than any other moment.
pub(crate) const NEVER: Moment = u64::MAX;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock(Instant::now())
    }

    pub(crate) fn now(self) -> Moment {
        nanoseconds(self.0.elapsed())
    }

    /// Returns the moment as an [`Instant`], for timers.
    pub(crate) fn instant(self, moment: Moment) -> Instant {
        self.0
            .checked_add(Duration::from_nanos(moment))
            .unwrap_or_else(|| self.0 + Duration::from_secs(86_400 * 365))
    }
}

/// Returns a duration in nanoseconds; saturates at about 500 years.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

/// Returns the microseconds between two moments, rounded to the nearest, at least 1.
pub(crate) fn micros(from: Moment, to: Moment) -> u64 {
    ((to.saturating_sub(from) + 500) / 1000).max(1)
}
