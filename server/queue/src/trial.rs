//! The share of requests that a worker on trial gets.

use crate::ticket::Serial;

#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) serial: Serial,
    /// In thousandths of all requests.
    share: u64,
    /// Requests since the trial began: all of them, and those that the worker on trial got.
    all: u64,
    given: u64,
}

impl Trial {
    pub(crate) fn new(serial: Serial, share: u32) -> Trial {
        Trial { serial, share: share.into(), all: 0, given: 0 }
    }

    /// Returns whether the next request goes to the worker on trial.
    pub(crate) fn is_due(&self) -> bool {
        self.given * 1000 < self.share * (self.all + 1)
    }

    /// Counts a request that went to worker `serial`.
    pub(crate) fn went_to(&mut self, serial: Serial) {
        self.all += 1;
        self.given += u64::from(serial == self.serial);
    }
}
