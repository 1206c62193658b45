//! Full collections between requests, carried out: [`crate::collections`] decides whose turn it is, [`crate::dispatch`] whether the
//! worker can be spared.

use super::Supervisor;
use crate::dispatch::Serial;
use crate::shared::ThreadMessage;
use std::time::{Duration, Instant};

impl Supervisor {
    /// A worker has carried out its collection.
    pub(super) fn collected(&mut self, serial: Serial, took: Duration) {
        if self.collections.collected(serial, took) {
            self.rested(serial);
        }
        self.grant_collection();
    }

    /// Lets the next worker collect, if one may.
    pub(super) fn grant_collection(&mut self) {
        let shared = self.shared.clone();
        let next = self.collections.next(|serial| shared.rest(serial), Instant::now());
        if let Some(serial) = next {
            self.shared.mailbox(0).post(ThreadMessage::Collect(serial));
        }
    }

    /// Called now and then: workers may have become free, or one takes too long.
    pub(super) fn check_collections(&mut self, now: Instant) {
        if let Some(serial) = self.collections.overdue(now) {
            self.rested(serial);
        }
        self.grant_collection();
    }

    fn rested(&self, serial: Serial) {
        let mut assigned = Vec::new();
        let now = Instant::now();
        self.shared.each(|dispatch| dispatch.rested(serial, now, &mut assigned)).for_each(drop);
        self.shared.deliver(&assigned);
    }
}
