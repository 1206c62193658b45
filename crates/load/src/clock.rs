//! Time within a run: nanoseconds since it was started.

use std::time::{Duration, Instant};

/// Nanoseconds since the run was started.
pub(crate) type Moment = u64;

/// Later than everything.
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

    /// When that is for timers.
    pub(crate) fn instant(self, moment: Moment) -> Instant {
        self.0
            .checked_add(Duration::from_nanos(moment))
            .unwrap_or_else(|| self.0 + Duration::from_secs(86_400 * 365))
    }
}

/// At most five hundred years.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

/// Microseconds between two moments, rounded to the nearest, and at least one.
pub(crate) fn micros(from: Moment, to: Moment) -> u64 {
    ((to.saturating_sub(from) + 500) / 1000).max(1)
}
