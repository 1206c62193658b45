//! Detects the HTTP version of a plain connection: an HTTP/2 connection begins with a preface that is not a
//! valid HTTP/1 request (RFC 9113 section 3.4).

use crate::context::Context;
use crate::one::Link;
use crate::room::RoomState;
use crate::{one, two};
use handler::{Handler, Peer};
use net::{Lane, Subnet, Transport};
use std::io::ErrorKind;
use std::rc::Rc;

/// The part of the preface that is needed to detect HTTP/2. No HTTP/1 method has this name.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// Serves one connection until it ends, in the version of its first bytes.
pub async fn serve_either<S: Transport, H: Handler + 'static>(
    stream: S,
    peer: Rc<Peer>,
    context: Rc<Context<H>>,
) {
    let link = Link::new(stream, context.shared.clone(), Subnet::of(peer.remote.ip()));
    if !link.has_request(0).await {
        return;
    }
    let Some(first) = Box::pin(first_bytes(&link)).await else { return };
    if !first.starts_with(PREFACE) {
        link.input.borrow_mut().extend_from_slice(&first);
        drop(first);
        return one::Connection(link).serve(peer, context, ()).await;
    }
    if let Some(link) = Rc::into_inner(link) {
        Box::pin(two::serve(link.into_stream(), first, peer, context)).await;
    }
}

/// Reads until the version is known. Returns `None` if the client has disconnected or does not send enough in time.
async fn first_bytes<S: Transport>(link: &Link<S>) -> Option<Vec<u8>> {
    let mut first = Vec::new();
    link.timer.arm_in(Lane::Read, link.shared.settings().timeouts.header);
    loop {
        let read = link.read(|bytes| {
            first.extend_from_slice(bytes);
            bytes.len()
        });
        match read {
            Ok(0) => return Some(first).filter(|first| !first.is_empty()),
            Ok(_) if first.len() >= PREFACE.len() || !PREFACE.starts_with(&first) => return Some(first),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if !link.readable(RoomState::Unproved).await {
                    return None;
                }
            }
            Ok(_) => {}
            Err(_) => return None,
        }
    }
}
