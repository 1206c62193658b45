//! HTTP/3 connections (RFC 9114): each request is a stream of QUIC and a task of its own.
//!
//! Why a task per request, other than in HTTP/2: QUIC has flow control, priorities and loss recovery per stream, and quinn wakes
//! each stream by itself.
//!
//! Contract:
//! 1. A request is answered once, or its stream is reset; it is reported to `Handler::finished` once.
//! 2. A handler that panics ends its stream only.
//! 3. Memory is bounded: uploads by QUIC's windows, which are small until a handler reads a body, and open as it takes the bytes;
//!    downloads by the send window of the connection; heads by the limits, each one and all of a connection.
//! 4. A connection ends when it has been idle for `keep_alive`, by GOAWAY while the server drains, or for an error. A client that reads
//!    slowly keeps what it has not read; once the connection ends, a client that has vanished is not waited for.
//! 5. What a client may do often has the budgets of HTTP/2 ([`fieldcode::Budget`]); a flood ends its connection (H3_EXCESSIVE_LOAD).

mod body;
mod connection;
mod exchange;
mod file;
mod hub;
mod life;
mod priorities;
mod receiving;
mod silence;
mod unread;
mod windows;

use crate::context::Context;
use handler::{Handler, Peer};
use std::rc::Rc;

/// Serves one connection until it ends.
pub async fn serve<H: Handler + 'static>(
    connection: quic::quinn::Connection,
    peer: Rc<Peer>,
    context: Rc<Context<H>>,
) {
    connection::serve(connection, peer, context).await;
}
