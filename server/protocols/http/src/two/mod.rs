//! Serves HTTP/2 connections (RFC 9113): many concurrent exchanges in one task.
//!
//! Why one task: requests that arrive together are answered together, and their responses leave in one write;
//! nothing is passed between tasks.
//!
//! Contract:
//! 1. A turn reads once, polls the streams that were woken, and writes everything in one call.
//! 2. A handler that panics ends only its stream. Every stream is reported to [`Handler::finished`] once.
//! 3. Memory is bounded: uploads by the windows, downloads by the output of a turn. While the client does not
//!    read, the connection does not read either.
//! 4. An idle connection keeps no buffer.
//! 5. A client that closes its sending side has gone: it cannot open windows or acknowledge anything any
//!    more, so its requests end. In HTTP/1.1 such a client still gets its responses.

mod body;
mod client;
mod connection;
mod exchange;
mod file;
mod hub;
mod ready;
mod room;
mod slot;
mod tunnel;

use crate::context::{Context, ThreadShared};
use crate::room::RoomState;
use connection::{Conn, Over};
use handler::{Failure, Handler, Peer};
use net::{Lane, Transport};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long a client may take to read the last bytes before the connection is closed.
const LINGER: Duration = Duration::from_secs(2);
/// The same while the server drains, or when the connection makes room for another one.
const LINGER_DRAINING: Duration = Duration::from_millis(500);
/// The most bytes that are read and discarded meanwhile.
const LINGER_BYTES: usize = 8 << 20;

/// Serves one connection until it ends. `first`: bytes that were already read from it.
pub async fn serve<S: Transport, H: Handler + 'static>(
    stream: S,
    first: Vec<u8>,
    peer: Rc<Peer>,
    context: Rc<Context<H>>,
) {
    // Boxed: where the caller chooses between versions, the future of a connection that is not HTTP/2 stays small.
    let mut connection = Box::new(Conn::new(stream, peer, context));
    connection.receive(&first);
    drop(first);
    if poll_fn(|cx| connection.poll(cx)).await == Over::Linger {
        linger(&connection).await;
    }
}

/// Answers the first requests with `failure` and ends the connection, because the server has no room for it.
pub async fn refuse<S: Transport, H: Handler + 'static>(
    stream: S,
    peer: Rc<Peer>,
    context: Rc<Context<H>>,
    failure: Failure,
) {
    let mut connection = Box::new(Conn::new(stream, peer, context));
    connection.refuse(failure);
    if poll_fn(|cx| connection.poll(cx)).await == Over::Linger {
        linger(&connection).await;
    }
}

/// Closes the write direction and discards further bytes, within limits. A close with unread bytes would
/// reset the connection, and the client might lose the last responses.
async fn linger<S: Transport, H: Handler>(connection: &Conn<S, H>) {
    discard(connection).await;
    let hub = &connection.hub;
    connection.delivery.settle(&connection.stream, &hub.timer, &hub.shared).await;
}

async fn discard<S: Transport, H: Handler>(connection: &Conn<S, H>) {
    let (stream, timer) = (&connection.stream, &connection.hub.timer);
    let shared: &ThreadShared = &connection.hub.shared;
    stream.end_writing();
    let (room, key) = (&shared.room, timer.key());
    let time = if shared.draining.get() || room.is_chosen(key) { LINGER_DRAINING } else { LINGER };
    // The client has got its responses, so the connection is of low value now.
    room.busy(key);
    room.wait(key, RoomState::Unproved, shared.timers.recent());
    timer.arm(Lane::Read, Instant::now() + time);
    let mut left = LINGER_BYTES;
    while left > 0 && !timer.expired(Lane::Read) {
        match stream.try_read(&mut shared.scratch.borrow_mut()) {
            Ok(0) => return,
            Ok(n) => left = left.saturating_sub(n),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
        let readable = poll_fn(|cx| match stream.poll_readable(cx) {
            _ if connection.delivery.is_stalled(stream, timer, shared) => std::task::Poll::Ready(false),
            _ if room.is_chosen(key) => std::task::Poll::Ready(false),
            ready if ready.is_ready() => ready.map(|()| true),
            _ if timer.expired(Lane::Read) => std::task::Poll::Ready(false),
            _ => std::task::Poll::Pending,
        });
        if !readable.await {
            return;
        }
    }
}
