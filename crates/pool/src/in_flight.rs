//! The requests in flight, for `GET /requests`.
//!
//! Nothing is recorded for this while requests are served: front threads know their requests anyway, and describe each by its
//! REQUEST frame, which they keep in case the worker dies before it has started.

use crate::dispatch::Serial;
use crate::os;
use crate::shared::{Shared, ThreadMessage};
use std::time::Duration;
use tokio::sync::mpsc;

/// Front threads never wait, so one that has not replied by then has ended.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);

/// A request that is queued or sent to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InFlight {
    /// Where it was sent; `None` while it is in the queue.
    pub sent: Option<Sent>,
    /// Request method.
    pub method: String,
    /// Path as sent, without the query; bytes that are not printable ASCII are escaped.
    pub path: String,
    /// When it was submitted, microseconds of the monotonic clock.
    pub asked_us: u64,
    /// Whether the response has started.
    pub responding: bool,
}

/// Where a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The worker.
    pub serial: Serial,
    /// Number of the link, which is that of the front thread.
    pub link: u16,
    /// Request id on that link.
    pub id: u32,
}

impl InFlight {
    /// Microseconds since it was submitted.
    pub fn age_us(&self) -> u64 {
        os::monotonic_us().saturating_sub(self.asked_us)
    }
}

impl Shared {
    /// At most `limit` requests in flight, the oldest first.
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
