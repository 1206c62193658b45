//! The record of upgrades: the one in progress, the last one, and the counts by outcome.
//!
//! A successful upgrade ends the program that counted it. The counts are therefore handed over with the
//! sockets and the new program adds the upgrade that started it, so the counters grow by one and miss no
//! upgrade.

use super::Predecessor;
use stats::{Ended, ReloadStage, Running, UpgradeOutcome, UpgradesSnapshot};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Instant, SystemTime};

/// Clones share one record.
#[derive(Clone)]
pub(crate) struct UpgradeRecord(Rc<RefCell<Recorded>>);

struct Recorded {
    told: UpgradesSnapshot,
    /// The start of the upgrade in progress, or of the upgrade that started this program.
    begun: Instant,
}

impl UpgradeRecord {
    /// Creates the record of a program that has just started. `predecessor`: the old program of an upgrade.
    pub(crate) fn new(predecessor: Option<&Predecessor>) -> UpgradeRecord {
        let mut told = UpgradesSnapshot::default();
        let (failed, done) = predecessor.map(Predecessor::upgrades).unwrap_or_default();
        told.counts.add(UpgradeOutcome::Failed, failed);
        told.counts.add(UpgradeOutcome::Done, done);
        UpgradeRecord(Rc::new(RefCell::new(Recorded { told, begun: Instant::now() })))
    }

    /// Records progress. The first step begins the upgrade.
    pub(crate) fn step(&self, stage: ReloadStage, text: &str) {
        let mut recorded = self.0.borrow_mut();
        let before = recorded.told.running.take();
        if before.is_none() {
            recorded.begun = Instant::now();
        }
        let started_at = before.map_or_else(SystemTime::now, |before| before.started_at);
        recorded.told.running = Some(Running { stage, text: text.to_owned(), started_at });
    }

    /// Ends the waiting of a queued upgrade, which now begins or is refused.
    pub(crate) fn waited(&self) {
        self.0.borrow_mut().told.running = None;
    }

    /// Records the end of the upgrade in progress, or of the one that started this program.
    pub(crate) fn ended(&self, outcome: UpgradeOutcome, text: &str) {
        let mut recorded = self.0.borrow_mut();
        let took = recorded.begun.elapsed();
        recorded.told.ended(Ended::new(outcome, text, took, SystemTime::now()));
    }

    /// Returns the failed and successful upgrades so far, for the new program.
    pub(crate) fn counted(&self) -> (u64, u64) {
        let counts = &self.0.borrow().told.counts;
        (counts.of(UpgradeOutcome::Failed), counts.of(UpgradeOutcome::Done))
    }

    pub(crate) fn snapshot(&self) -> UpgradesSnapshot {
        self.0.borrow().told.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_told_from_its_first_step_to_its_end() {
        let record = UpgradeRecord::new(None);
        record.step(ReloadStage::Starting, "process 7 is started");
        let begun = record.snapshot().running.unwrap();
        record.step(ReloadStage::Booting, "the app is loaded");
        let running = record.snapshot().running.unwrap();
        assert_eq!((running.stage, running.started_at), (ReloadStage::Booting, begun.started_at));
        record.ended(UpgradeOutcome::Failed, "it did not boot");
        let told = record.snapshot();
        assert_eq!((record.counted(), told.running), ((1, 0), None));
        assert_eq!(told.last.unwrap().text, "it did not boot");
        record.step(ReloadStage::Waiting, "the program before finishes its requests");
        record.waited();
        assert_eq!((record.counted(), record.snapshot().running), ((1, 0), None));
    }
}
