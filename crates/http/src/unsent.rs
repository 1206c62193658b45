//! Bounds how much written data may wait in the system's buffers: [`Unsent`], of one TCP connection.
//!
//! Why: each listener bounds it by [`net::UNSENT`], so that clients that read nothing cost little. For a fast reader that is too little: the server
//! would be woken eight times per mebibyte, and the connection would run dry in between.
//!
//! Contract:
//! 1. A client that has acknowledged [`PROOF`] on this connection gets [`WIDE`] when it leaves no room, until it has received everything written.
//! 2. At most [`MOST`] connections of the process have that much at a time. This bounds the system's memory for clients that first read fast and
//!    then stop.

use net::{Transport, UNSENT};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes that a client must have acknowledged: more than usually fit into the buffers of a client that reads nothing.
const PROOF: u64 = 512 << 10;
/// The bound for such a client, in bytes.
const WIDE: u32 = 1 << 20;
/// The most connections with the wide bound: 32 MiB in total.
const MOST: u32 = 32;

/// Connections of the process with the wide bound.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Whether a connection has the wide bound.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    wide: Cell<bool>,
}

impl Unsent {
    /// Widens the bound of a client that leaves no room, if it has read enough. The system then wakes the connection.
    #[cold]
    pub(crate) fn widen<S: Transport>(&self, stream: &S) {
        if self.wide.get() || COUNT.load(Ordering::Relaxed) >= MOST {
            return;
        }
        if stream.delivery().is_some_and(|delivery| delivery.acknowledged >= PROOF) && begin() {
            self.wide.set(true);
            stream.bound_unsent(WIDE);
        }
    }

    /// Restores the bound when the client has received everything.
    pub(crate) fn narrow<S: Transport>(&self, stream: &S) {
        if self.wide.replace(false) {
            COUNT.fetch_sub(1, Ordering::Relaxed);
            stream.bound_unsent(UNSENT);
        }
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if self.wide.get() {
            COUNT.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Counts one more connection, unless [`MOST`] is reached.
fn begin() -> bool {
    let more = |count| (count < MOST).then_some(count + 1);
    COUNT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}
