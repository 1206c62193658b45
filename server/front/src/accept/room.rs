//! Makes room for a new connection when the server is full, and ends connections that have not sent a request
//! when it drains.
//!
//! Contract:
//! 1. The connections of all threads are displaced in one order (`http::Rank`). Within a rank, those of the
//!    own thread go first.
//! 2. A new connection waits up to [`PATIENCE`] for another to leave if transfers have just paused or
//!    handshakes are in progress. At most [`WAITING`] connections of a thread wait.
//! 3. A front that drains waits [`DRAIN_TIME`] for TLS and QUIC handshakes and for PROXY headers. Later it
//!    can close such connections without loss, because they have sent no request.

use super::acceptor::Acceptor;
use super::admission::MakeRoom;
use crate::pipeline::Pipeline;
use http::{Context, Rank};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_millis(600);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
const WAITING: usize = 64;
/// Time-out, during shutdown, for connections that have not reached HTTP.
const DRAIN_TIME: Duration = Duration::from_millis(500);

impl Acceptor {
    /// Closes a connection of this rank and of this thread. Returns `false` if there is none.
    pub(crate) fn displace(&self, rank: Rank) -> bool {
        let displaced = self.context.displace(rank);
        if displaced {
            self.recorder.displaced();
        }
        displaced
    }

    /// Makes room by closing a connection of any thread. Returns `false` if none can be closed. `is_free`:
    /// whether there is room without that.
    pub(crate) async fn make_room(&self, is_free: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        let mut waiting = None;
        loop {
            // A connection may have ended by itself meanwhile.
            if is_free() {
                return true;
            }
            for rank in Rank::ALL {
                if self.displace(rank) || self.admission.displace_elsewhere(self.index, rank).await {
                    return true;
                }
            }
            if begun.elapsed() >= PATIENCE || !self.context.room_changes_soon() {
                return false;
            }
            if waiting.is_none() {
                // The clone counts this connection among those that wait.
                let count = Rc::strong_count(&self.waiting);
                if count > WAITING {
                    return false;
                }
                waiting = Some(self.waiting.clone());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Closes connections for other threads. Never returns.
pub(crate) async fn serve_others(
    context: Rc<Context<Pipeline>>,
    recorder: stats::Recorder,
    mut requests: mpsc::UnboundedReceiver<MakeRoom>,
) {
    while let Some(MakeRoom { rank, reply }) = requests.recv().await {
        if context.displace(rank) {
            recorder.displaced();
            // Without a receiver, the requesting thread has given up.
            let _ = reply.send(());
        }
    }
}

/// Waits for handshakes and PROXY headers, at most for [`DRAIN_TIME`].
pub(crate) async fn drain_arrivals(context: &Context<Pipeline>) {
    let begun = Instant::now();
    while context.arrivals() > 0 && begun.elapsed() < DRAIN_TIME {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    context.end_arrivals();
}
