//! Lists the requests in flight, for `GET /requests`.
//!
//! Nothing is recorded for this list while requests are served. Front threads keep the REQUEST frame of each
//! request anyway, in case the worker dies before it has started, and describe the request from that frame.

use crate::messages::ThreadMessage;
use crate::os;
use crate::shared::Shared;
use queue::Serial;
use std::time::Duration;
use tokio::sync::mpsc;

/// Front threads never wait, so a thread that has not replied by then has ended.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);

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
    /// The number of the link, which is that of the front thread.
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

impl Shared {
    /// Returns up to `limit` requests in flight, the oldest first.
    pub async fn in_flight(&self, limit: usize) -> Vec<InFlight> {
        let (to, mut replies) = mpsc::unbounded_channel();
        self.to_all(|| ThreadMessage::List { limit, to: to.clone() });
        drop(to);
        let deadline = tokio::time::Instant::now() + REPLY_TIMEOUT;
        let mut all = Vec::new();
        while let Ok(Some(some)) = tokio::time::timeout_at(deadline, replies.recv()).await {
            all.extend(some);
        }
        all.sort_by_key(|one: &InFlight| one.asked_us);
        all.truncate(limit);
        all
    }
}
