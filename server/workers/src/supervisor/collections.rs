//! Carries out full garbage collections between requests. [`crate::collections`] decides which worker is
//! next, [`queue`] whether the others can do without it.

use super::Supervisor;
use crate::messages::ThreadMessage;
use queue::{Reason, Serial};
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
        let shared = self.shared.clone();
        let next = self.subjects.collections.next(|serial| shared.rest(serial), Instant::now());
        if let Some(serial) = next {
            self.shared.mailbox(0).post(ThreadMessage::Collect(serial));
        }
    }

    /// Ends the rest of a worker whose collection takes too long, and lets the next one collect. Called on
    /// each tick.
    pub(super) fn check_collections(&mut self, now: Instant) {
        if let Some(serial) = self.subjects.collections.overdue(now) {
            self.rested(serial);
        }
        self.grant_collection();
    }

    fn rested(&self, serial: Serial) {
        self.shared.restore(serial, Reason::Resting, Instant::now());
    }
}
