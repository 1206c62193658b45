//! Room for a new connection when the server is full, and the end of connections that have not come as far as HTTP.
//!
//! Contract:
//! 1. The connections of all threads leave in one order (`http::Rank`), those of the own thread before those of others.
//! 2. A new connection waits up to [`PATIENCE`] for another one to leave when transfers have paused just now, or handshakes go on; at most
//!    [`WAITING`] of a thread wait.
//! 3. A front that drains waits [`DRAIN_TIME`] for handshakes of TLS and QUIC and for PROXY headers: a client that has not sent a request loses
//!    nothing after that.

use crate::accept::Acceptor;
use crate::admission::MakeRoom;
use crate::pipeline::Pipeline;
use http::{Context, Rank};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_millis(600);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
const WAITING: usize = 64;
/// While the server ends: how long clients may take until their connections have come as far as HTTP.
const DRAIN_TIME: Duration = Duration::from_millis(500);

impl Acceptor {
    /// Closes a connection of this rank and of this thread; `false` if there is none.
    pub(crate) fn displace(&self, rank: Rank) -> bool {
        let displaced = self.context.displace(rank);
        if displaced {
            self.recorder.displaced();
        }
        displaced
    }

    /// Makes room in place of a connection of any thread; `false` if none leaves. `is_free`: whether there is room without that.
    pub(crate) async fn make_room(&self, is_free: impl Fn() -> bool) -> bool {
        let begun = Instant::now();
        let mut waiting = None;
        loop {
            // One may have ended by itself meanwhile.
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
                // Counts it while it waits.
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

/// Closes connections for other threads; does not return.
pub(crate) async fn serve_others(
    context: Rc<Context<Pipeline>>,
    recorder: stats::Recorder,
    mut requests: mpsc::UnboundedReceiver<MakeRoom>,
) {
    while let Some(MakeRoom { rank, reply }) = requests.recv().await {
        if context.displace(rank) {
            recorder.displaced();
            // Without a receiver the thread that asked has given up.
            let _ = reply.send(());
        }
    }
}

/// Waits for handshakes and PROXY headers, but not for long.
pub(crate) async fn drain_arrivals(context: &Context<Pipeline>) {
    let begun = Instant::now();
    while context.arrivals() > 0 && begun.elapsed() < DRAIN_TIME {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    context.end_arrivals();
}
