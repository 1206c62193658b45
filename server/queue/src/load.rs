//! The figures of a queue.

use crate::waits::Waits;
use std::time::Duration;

/// The number of requests that got no seat, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refusals {
    /// `max_queue` requests were waiting.
    pub full: u64,
    /// The predicted wait was too long.
    pub early: u64,
    /// The request waited for too long.
    pub expired: u64,
}

/// The load since the last call of [`Dispatch::take_load`](crate::Dispatch::take_load).
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// The waits of the requests that got a seat.
    pub waits: Waits,
    /// The time in the app of the requests whose waits for the GVL were measured, in microseconds.
    pub app_us: u64,
    /// The GVL waits of those requests, in microseconds.
    pub gvl_us: u64,
    /// The number of those requests.
    pub measured: u32,
    /// The response times, if there is an objective.
    pub responses: Responses,
}

/// Response times against an objective.
#[derive(Debug, Clone, Default)]
pub struct Responses {
    /// The times until responses began.
    pub times: Waits,
    /// The number of responses that began after the time of the objective.
    pub late: u64,
    /// The requests that ended.
    pub ended: u64,
    /// Their time in the app, in microseconds.
    pub app_us: u64,
}

impl Responses {
    /// Counts a response that began after `time`.
    pub(crate) fn began(&mut self, time: Duration, objective: Duration) {
        self.times.record(time);
        self.late += u64::from(time > objective);
    }

    /// Counts a request that was in the app for `app`.
    pub(crate) fn ended(&mut self, app: Duration) {
        self.ended += 1;
        self.app_us += u64::try_from(app.as_micros()).unwrap_or(u64::MAX);
    }
}
