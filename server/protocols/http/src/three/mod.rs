//! Serves HTTP/3 connections (RFC 9114). Each request is a QUIC stream with its own task.
//!
//! Why a task per request, unlike HTTP/2: QUIC has flow control, priorities and loss recovery per stream, and
//! quinn wakes each stream separately.
//!
//! Contract:
//! 1. A request is answered once, or its stream is reset. It is reported to `Handler::finished` once.
//! 2. A handler that panics ends only its stream.
//! 3. Memory is bounded. Uploads: by QUIC's windows, which stay small until a handler reads a body and open
//!    as it reads. Downloads: by the connection's send window. Heads: by limits per request and per
//!    connection.
//! 4. A connection ends after `keep_alive` of idle time, with GOAWAY while the server drains, or for an
//!    error. A slow reader gets the time to read the data already sent; a client that vanishes after the end
//!    began is not waited for.
//! 5. Actions that a client may repeat have HTTP/2's budgets ([`fieldcode::Budget`]). A flood ends the
//!    connection (H3_EXCESSIVE_LOAD).

mod body;
mod buffers;
mod client;
mod connection;
mod exchange;
mod file;
mod hub;
mod priorities;
mod receiving;
mod silence;
mod tunnel;
mod windows;

use crate::context::Context;
use handler::{Handler, Peer};
use std::rc::Rc;

pub async fn serve<H: Handler + 'static>(
    connection: quic::quinn::Connection,
    peer: Rc<Peer>,
    context: Rc<Context<H>>,
) {
    connection::serve(connection, peer, context).await;
}
