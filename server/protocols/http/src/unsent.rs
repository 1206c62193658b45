//! Bounds how much written data may wait in the system's buffers: [`Unsent`], of one TCP connection.
//!
//! Why: each listener bounds it by [`net::UNSENT`], so that clients that read nothing cost little. For a fast
//! reader that is too little: the server would be woken eight times per mebibyte, and the connection would
//! run dry in between.
//!
//! Contract:
//! 1. A client that has acknowledged [`PROOF`] on this connection gets [`WIDE`] when it leaves no room, until
//!    it has received everything written.
//! 2. At most [`MOST`] connections of the process have that much at a time. This bounds the system's memory
//!    for clients that first read fast and then stop.

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{IoSlice, Read};
    use std::net::TcpListener;
    use std::time::Duration;
    use tokio::net::TcpStream;

    /// Writes until the socket takes no more for a moment. Returns the number of bytes.
    async fn fill(stream: &TcpStream) -> usize {
        let piece = [7; 64 << 10];
        let mut written = 0;
        while tokio::time::timeout(Duration::from_millis(100), stream.writable()).await.is_ok() {
            written += Transport::try_write(stream, &[IoSlice::new(&piece)], false).unwrap_or(0);
        }
        written
    }

    #[test]
    fn a_client_is_given_more_when_it_has_taken_enough() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let accepted = listener.accept().unwrap().0;
            accepted.set_nonblocking(true).unwrap();
            let stream = TcpStream::from_std(accepted).unwrap();
            stream.bound_unsent(UNSENT);
            let unsent = Unsent::default();
            let mut written = fill(&stream).await;
            unsent.widen(&stream);
            assert!(!unsent.wide.get(), "the client has read nothing of {written} bytes");
            let mut taken = vec![0; 64 << 10];
            let mut read = 0;
            while read < 2 * PROOF as usize {
                read += client.read(&mut taken).unwrap();
                written += fill(&stream).await;
            }
            let before = COUNT.load(Ordering::Relaxed);
            unsent.widen(&stream);
            assert!(unsent.wide.get() && COUNT.load(Ordering::Relaxed) == before + 1);
            assert!(
                fill(&stream).await > 2 * UNSENT as usize,
                "there is room for more, after {written} bytes"
            );
            unsent.narrow(&stream);
            assert!(!unsent.wide.get() && COUNT.load(Ordering::Relaxed) == before);
        });
    }
}
