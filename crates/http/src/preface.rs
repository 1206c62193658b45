//! Which version a plain connection speaks, where both are possible: HTTP/2 begins with a preface that is no request of
//! HTTP/1 (RFC 9113 section 3.4).

use crate::context::Context;
use crate::one::Link;
use crate::room::State;
use crate::{one, two};
use handler::{Handler, Peer};
use net::{Lane, Subnet, Transport};
use std::io::ErrorKind;
use std::rc::Rc;

/// What a client sends first, as far as it has to be seen: no method of HTTP/1 is called that.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// Serves one connection until it ends, in the version that its first bytes are of.
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

/// Reads until the version is known; `None` if the client has gone or says too little.
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
                if !link.readable(State::Unproved).await {
                    return None;
                }
            }
            Ok(_) => {}
            Err(_) => return None,
        }
    }
}
