//! Carries out full garbage collections between requests. [`crate::collections`] chooses the next worker, and
//! [`queue`] decides whether the others can serve without it.

use super::Supervisor;
use crate::messages::ThreadMessage;
use queue::{PassReason, Serial};
use std::time::{Duration, Instant};

impl Supervisor {
    /// Handles the report that a worker has finished its collection.
    pub(super) fn collected(&mut self, serial: Serial, took: Duration) {
        if self.subjects.collections.collected(serial, took) {
            self.rested(serial);
        }
        self.grant_collection();
    }

    /// Lets the next worker collect, if one is due and the others can do without it.
    pub(super) fn grant_collection(&mut self) {
        let (shared, workers) = (&self.shared, &self.workers);
        let rest = |serial| workers.get(&serial).is_some_and(|one| shared.dispatch(one.pool).rest(serial));
        let next = self.subjects.collections.next(rest, Instant::now());
        if let Some(serial) = next {
            self.shared.mailbox(0).post(ThreadMessage::Collect(serial));
        }
    }

    /// Lets a worker serve again if its collection takes too long, and lets the next worker collect. Called
    /// on each tick.
    pub(super) fn check_collections(&mut self, now: Instant) {
        if let Some(serial) = self.subjects.collections.overdue(now) {
            self.rested(serial);
        }
        self.grant_collection();
    }

    fn rested(&self, serial: Serial) {
        if let Some(worker) = self.workers.get(&serial) {
            self.shared.restore(worker.pool, serial, PassReason::Resting, Instant::now());
        }
    }
}
