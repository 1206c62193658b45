//! Decides whether the kernel's out-of-memory killer ended a worker. Pure: takes the kernel's counter and the
//! time.
//!
//! Why: to the parent, a kill by the kernel and a `kill -9` look the same. The kernel counts its kills in
//! each control group, so a death by signal 9 with a new count was the kernel's.
//!
//! Contract: each count explains one death at most. A count without a death within [`EXPIRES`] belongs to
//! another process of the group.

use std::time::{Duration, Instant};

/// How long a count waits for the death that it explains. An exit is reported almost at once.
const EXPIRES: Duration = Duration::from_secs(5);

/// The counter, and how many of its counts have been explained.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OomKills {
    counted: Option<u64>,
    explained: u64,
    /// When the counter last grew.
    since: Instant,
}

/// The counter at one death.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OomCount {
    /// The counts that earlier deaths explain; `None` if the kernel has no such counter.
    pub(crate) before: Option<u64>,
    /// The counter now.
    pub(crate) after: Option<u64>,
}

impl OomCount {
    /// Returns whether the kernel killed the worker.
    pub(crate) fn is_kill(self) -> bool {
        self.after > self.before
    }
}

impl OomKills {
    /// Starts with the current counter.
    pub(crate) fn new(counted: Option<u64>, now: Instant) -> OomKills {
        OomKills { counted, explained: counted.unwrap_or(0), since: now }
    }

    /// Updates the counter. Called at intervals, so that an old count is not taken for a new one.
    pub(crate) fn read(&mut self, counted: Option<u64>, now: Instant) {
        if counted > self.counted {
            self.since = now;
        } else if now.saturating_duration_since(self.since) >= EXPIRES {
            self.explained = counted.unwrap_or(0);
        }
        self.counted = counted;
    }

    /// Returns the verdict on a death that was noticed now. `killed`: whether the kernel may have killed the
    /// worker.
    pub(crate) fn death(&mut self, counted: Option<u64>, killed: bool, now: Instant) -> OomCount {
        self.read(counted, now);
        let verdict = OomCount { before: counted.map(|counted| self.explained.min(counted)), after: counted };
        if killed && verdict.is_kill() {
            self.explained += 1;
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_count_explains_one_death() {
        let now = Instant::now();
        let mut kills = OomKills::new(Some(3), now);
        assert!(!kills.death(Some(3), true, now).is_kill(), "kill -9");
        assert_eq!(kills.death(Some(5), true, now), OomCount { before: Some(3), after: Some(5) });
        assert_eq!(kills.death(Some(5), true, now), OomCount { before: Some(4), after: Some(5) });
        assert!(!kills.death(Some(5), true, now).is_kill(), "both counts are explained");
    }

    #[test]
    fn a_death_by_something_else_explains_no_count() {
        let now = Instant::now();
        let mut kills = OomKills::new(Some(0), now);
        kills.death(Some(1), false, now);
        assert!(kills.death(Some(1), true, now).is_kill());
    }

    #[test]
    fn a_count_that_no_death_follows_expires() {
        let now = Instant::now();
        let mut kills = OomKills::new(Some(0), now);
        kills.read(Some(1), now);
        kills.read(Some(1), now + EXPIRES / 2);
        assert!(kills.death(Some(1), true, now + EXPIRES / 2).is_kill());
        kills.read(Some(2), now + EXPIRES);
        kills.read(Some(2), now + EXPIRES * 2);
        assert!(!kills.death(Some(2), true, now + EXPIRES * 2).is_kill());
    }

    #[test]
    fn without_a_counter_nothing_is_said() {
        let now = Instant::now();
        let mut kills = OomKills::new(None, now);
        assert_eq!(kills.death(None, true, now), OomCount::default());
        assert!(!OomCount::default().is_kill());
    }
}
