//! Whether the kernel's out-of-memory killer ended a worker. Pure: its counter and the time go in.
//!
//! Why: a kill by the kernel and a `kill -9` look the same to the parent. The kernel counts its own in each control group, so a death
//! by signal 9 that comes with a new count was the kernel's.
//!
//! Contract: each count explains one death at most; one that no death follows within [`EXPIRES`] was another process of the group.

use std::time::{Duration, Instant};

/// How long a count waits for the death that it explains: an exit is reported within moments.
const EXPIRES: Duration = Duration::from_secs(5);

/// The counter, and how much of it has been explained.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OomKills {
    counted: Option<u64>,
    explained: u64,
    /// When the counter last grew.
    since: Instant,
}

/// What the counter says of one death.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// The counter as far as earlier deaths explain it; `None` where the kernel does not count.
    pub(crate) before: Option<u64>,
    /// The counter now.
    pub(crate) after: Option<u64>,
}

impl Verdict {
    /// Whether the kernel has killed.
    pub(crate) fn is_kill(self) -> bool {
        self.after > self.before
    }
}

impl OomKills {
    /// The counter as it is at the start.
    pub(crate) fn new(counted: Option<u64>, now: Instant) -> OomKills {
        OomKills { counted, explained: counted.unwrap_or(0), since: now }
    }

    /// The counter is read now and then, so that old counts are not taken for new ones.
    pub(crate) fn read(&mut self, counted: Option<u64>, now: Instant) {
        if counted > self.counted {
            self.since = now;
        } else if now.saturating_duration_since(self.since) >= EXPIRES {
            self.explained = counted.unwrap_or(0);
        }
        self.counted = counted;
    }

    /// What the counter says of a death that was noticed now; `killed`: whether it may have been the kernel's doing.
    pub(crate) fn death(&mut self, counted: Option<u64>, killed: bool, now: Instant) -> Verdict {
        self.read(counted, now);
        let verdict = Verdict { before: counted.map(|counted| self.explained.min(counted)), after: counted };
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
        assert_eq!(kills.death(Some(5), true, now), Verdict { before: Some(3), after: Some(5) });
        assert_eq!(kills.death(Some(5), true, now), Verdict { before: Some(4), after: Some(5) });
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
        assert_eq!(kills.death(None, true, now), Verdict::default());
        assert!(!Verdict::default().is_kill());
    }
}
