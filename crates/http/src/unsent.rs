//! How much of what was written to a client may wait in the system: [`Unsent`], of one connection over TCP.
//!
//! Why: each listener bounds it by [`net::UNSENT`], so that clients that read nothing cost little. A client that reads fast would pay for that:
//! the server would be woken eight times for each mebibyte, and in between the connection would run dry.
//!
//! Contract:
//! 1. A client that has taken [`PROOF`] on this connection is given [`WIDE`] when it leaves no room, until it has everything that was written.
//! 2. At most [`MOST`] connections of the process have so much at a time. So it is known what clients can make the system keep that read fast
//!    at first, and then stop.

use net::{Transport, UNSENT};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes that a client has to have acknowledged: more than one that reads nothing usually has room for.
const PROOF: u64 = 512 << 10;
/// Bytes that wait for one that has.
const WIDE: u32 = 1 << 20;
/// Connections that have so much: 32 MiB together.
const MOST: u32 = 32;

/// Connections of the process that have been given more.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// What a connection has been given.
#[derive(Debug, Default)]
pub(crate) struct Unsent {
    wide: Cell<bool>,
}

impl Unsent {
    /// The client leaves no room: gives it more if it is one that takes what it is sent. The system wakes the connection then.
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

    /// The client has everything.
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

/// Counts one more connection, if there may be one.
fn begin() -> bool {
    let more = |count| (count < MOST).then_some(count + 1);
    COUNT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}
