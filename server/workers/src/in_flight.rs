//! A request in flight, as `GET /requests` and the record of a worker's death show it.
//!
//! Nothing is recorded for this purpose while requests are served. Front threads keep the REQUEST frame of
//! each request anyway, in case the worker dies before starting it; the description is made from that frame.

use crate::os;
use queue::Serial;
use stats::KeptRequest;
use std::time::Duration;

/// A request that is queued or sent to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlight {
    /// `None` while it is in the queue.
    pub sent: Option<Sent>,
    pub method: String,
    /// The path as sent, without the query. Bytes that are not printable ASCII are escaped.
    pub path: String,
    /// When it was submitted, in microseconds of the monotonic clock.
    pub asked_us: u64,
    /// Whether the response has started.
    pub responding: bool,
}

/// The worker and link that a request was sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    pub serial: Serial,
    /// The number of the link, which is the number of the front thread.
    pub link: u16,
    /// The id of the request on that link.
    pub id: u32,
}

impl InFlight {
    /// Returns the time since the request was submitted, in microseconds.
    pub fn age_us(&self) -> u64 {
        os::monotonic_us().saturating_sub(self.asked_us)
    }
}

/// A request that a worker had taken up and not finished when it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) link: u16,
    pub(crate) id: u32,
    pub(crate) method: String,
    /// The path and query, for the log.
    pub(crate) target: String,
    /// The path alone.
    pub(crate) path: String,
    /// The time since it was submitted.
    pub(crate) age: Duration,
    /// Whether its client has at least the head of a response.
    pub(crate) answered: bool,
    /// Whether it failed because of the worker's death.
    pub(crate) failed: bool,
    /// A copy, if such requests are kept.
    pub(crate) kept: Option<KeptRequest>,
}
