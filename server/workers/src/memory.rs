//! Keeps the figures of a worker's memory, and decides when to measure it again. Pure.
//!
//! Why two figures: resident memory (RSS) counts shared pages in full for each worker, so a limit on RSS
//! would hit the workers of a large app that share most of it. The proportional size (PSS) is correct, but
//! the kernel walks the page tables for it, about 20 ms per GiB, and delays the page faults of the process
//! meanwhile.
//!
//! Contract: RSS is read every [`RSS_EVERY`]. PSS is measured every [`PSS_EVERY`], and when it may have
//! crossed the limit: PSS grows by no more than RSS, unless a process that shared pages with the worker has
//! ended.

use std::time::{Duration, Instant};

/// The interval between two readings of RSS.
pub(crate) const RSS_EVERY: Duration = Duration::from_secs(2);
/// The interval between two measurements of PSS.
pub(crate) const PSS_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    rss: Option<u64>,
    pss: Option<Measured>,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    pss: u64,
    /// RSS at that time.
    rss: u64,
    at: Instant,
}

impl Memory {
    /// Records RSS in bytes.
    pub(crate) fn resident(&mut self, bytes: u64) {
        // A process that has just ended has no memory.
        if bytes > 0 {
            self.rss = Some(bytes);
        }
    }

    /// Records PSS in bytes.
    pub(crate) fn measured(&mut self, bytes: u64, now: Instant) {
        if bytes > 0 {
            self.pss = Some(Measured { pss: bytes, rss: self.rss.unwrap_or(bytes), at: now });
        }
    }

    /// Returns RSS as last read, in bytes.
    pub(crate) fn rss(&self) -> Option<u64> {
        self.rss
    }

    /// Returns PSS as last measured, in bytes.
    pub(crate) fn pss(&self) -> Option<u64> {
        self.pss.map(|measured| measured.pss)
    }

    /// Returns an upper bound of the current PSS: the last measurement plus the growth of RSS since.
    pub(crate) fn pss_at_most(&self) -> Option<u64> {
        let grown = |last: Measured| self.rss.map_or(0, |rss| rss.saturating_sub(last.rss));
        self.pss.map(|last| last.pss.saturating_add(grown(last)))
    }

    /// Returns whether PSS should be measured, if a PSS above `limit` bytes has consequences.
    pub(crate) fn is_due(&self, limit: Option<u64>, now: Instant) -> bool {
        let Some(rss) = self.rss else { return false };
        let Some(last) = self.pss else { return true };
        let grown = self.pss_at_most().unwrap_or(rss);
        let crossed = limit.is_some_and(|limit| grown > limit && last.pss <= limit);
        crossed || now.saturating_duration_since(last.at) >= PSS_EVERY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pss_is_measured_once_a_minute() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        assert!(!memory.is_due(None, now), "nothing is known of the process");
        memory.resident(100);
        assert!(memory.is_due(None, now));
        memory.measured(40, now);
        memory.resident(1_000);
        assert!(!memory.is_due(None, now + PSS_EVERY / 2));
        assert!(memory.is_due(None, now + PSS_EVERY));
    }

    #[test]
    fn pss_is_measured_when_it_may_have_crossed_the_limit() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        memory.resident(100);
        memory.measured(40, now);
        memory.resident(150);
        assert!(!memory.is_due(Some(90), now), "RSS is over the limit, PSS cannot be");
        memory.resident(151);
        assert!(memory.is_due(Some(90), now));
        memory.measured(60, now);
        assert!(!memory.is_due(Some(90), now), "it was the shared part that has grown");
        memory.resident(182);
        memory.measured(91, now);
        memory.resident(500);
        assert!(!memory.is_due(Some(90), now), "that it is over is known");
        assert!(memory.is_due(Some(135), now), "that it is over one and a half times the limit is not");
    }

    #[test]
    fn an_ended_process_leaves_the_last_figures() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        memory.resident(100);
        memory.measured(40, now);
        memory.resident(0);
        memory.measured(0, now);
        assert_eq!((memory.rss(), memory.pss()), (Some(100), Some(40)));
    }
}
