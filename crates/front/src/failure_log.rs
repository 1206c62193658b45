//! Lines of the error log about requests that failed.

use handler::{Failure, Fault, Request};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Least time between two lines about connections without a request: what is full stays full for a while.
const PAUSE: Duration = Duration::from_secs(1);

/// Writes failures to the error log, for one thread.
pub(crate) struct FailureLog {
    write: Box<dyn Fn(&str)>,
    /// The last line about a connection without a request.
    last: Cell<Option<Instant>>,
}

impl FailureLog {
    /// A log that passes its lines to `write`.
    pub(crate) fn new(write: Box<dyn Fn(&str)>) -> FailureLog {
        FailureLog { write, last: Cell::new(None) }
    }

    /// Writes a line unless the client is at fault: its mistakes show in the status; ours are for the operator.
    pub(crate) fn write(&self, failure: &Failure, request: Option<&Request>) {
        if failure.fault == Fault::Client {
            return;
        }
        let (status, reason) = (failure.status, &failure.reason);
        let Some(request) = request else {
            let now = Instant::now();
            if self.last.get().is_none_or(|last| now.duration_since(last) >= PAUSE) {
                self.last.set(Some(now));
                (self.write)(&format!("{status} for a connection without a request: {reason}"));
            }
            return;
        };
        let (method, target) = (request.method().escape_ascii(), request.target().escape_ascii());
        (self.write)(&format!("{status} for {method} {target}: {reason}"));
    }
}
