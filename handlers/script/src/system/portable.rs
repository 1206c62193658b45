//! The part for other systems.

use std::time::{Duration, Instant};

pub(crate) struct ThreadClock(Instant);

impl ThreadClock {
    pub(crate) fn of_this_thread() -> ThreadClock {
        ThreadClock(Instant::now())
    }

    pub(crate) fn read(&self) -> Duration {
        self.0.elapsed()
    }
}
