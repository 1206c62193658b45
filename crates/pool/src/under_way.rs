//! Which requests are under way, told when somebody asks.
//!
//! Nothing is noted for this while requests are served: front threads know their requests anyway, and say of each what
//! its REQUEST frame says, which they keep in case the worker dies before it has begun.

use crate::dispatch::Serial;
use crate::os;
use crate::shared::{Letter, Shared};
use std::time::Duration;
use tokio::sync::mpsc;

/// Front threads never wait, so one that has not answered by then has ended.
const PATIENCE: Duration = Duration::from_millis(500);

/// A request that waits for a worker, or that a worker has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnderWay {
    /// Where it was sent; `None` while it is in the queue.
    pub sent: Option<Sent>,
    /// Request method.
    pub method: String,
    /// Path as sent, without the query; bytes that are not printable ASCII are escaped.
    pub path: String,
    /// When it asked for a worker, microseconds of the monotonic clock.
    pub asked_us: u64,
    /// Whether the response has begun.
    pub answering: bool,
}

/// Which worker a request was sent to, and as what it is known there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The worker.
    pub serial: Serial,
    /// Number of the link, which is that of the front thread.
    pub link: u16,
    /// Request id on that link.
    pub id: u32,
}

impl UnderWay {
    /// Microseconds since it asked for a worker.
    pub fn age_us(&self) -> u64 {
        os::monotonic_us().saturating_sub(self.asked_us)
    }
}

impl Shared {
    /// At most `limit` requests, the oldest first.
    pub async fn under_way(&self, limit: usize) -> Vec<UnderWay> {
        let (to, mut told) = mpsc::unbounded_channel();
        self.to_all(|| Letter::Tell { limit, to: to.clone() });
        drop(to);
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let mut all = Vec::new();
        while let Ok(Some(some)) = tokio::time::timeout_at(deadline, told.recv()).await {
            all.extend(some);
        }
        all.sort_by_key(|one: &UnderWay| one.asked_us);
        all.truncate(limit);
        all
    }
}
