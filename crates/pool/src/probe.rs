//! Creates the probe requests that the server itself sends to a worker on trial.

use crate::call::{Call, Carried};
use crate::dispatch::{SeatKind, Ticket};
use crate::reply::ReplyEvent;
use handler::Trace;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Instant;
use wire::request::{Encoder, Head, Put};

/// The ticket of all probe requests: they have no position in the queue and are never sent to another worker.
pub(crate) const TICKET: Ticket =
    Ticket { number: u64::MAX, thread: u16::MAX, slot: u32::MAX, kind: SeatKind::Thread };

/// Creates a GET request for `target` that appears to come from this machine. `kind_of` decides whether a
/// thread or a fiber serves it, as for a client's request with this path.
pub(crate) fn call(
    target: &str,
    kind_of: impl FnOnce(&[u8]) -> SeatKind,
    asked_us: u64,
    now: Instant,
) -> Rc<Call> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => ((0, path.len() as u32), (path.len() as u32 + 1, query.len() as u32)),
        None => ((0, target.len() as u32), (0, 0)),
    };
    let kind = kind_of(&target.as_bytes()[..path.1 as usize]);
    let head = Head {
        version: 11,
        https: false,
        remote_port: 0,
        measure: false,
        asked_us,
        method: b"GET",
        target: target.as_bytes(),
        path,
        query,
        remote_addr: b"127.0.0.1",
        server_name: b"localhost",
        server_port: b"80",
    };
    let mut frame = Vec::new();
    let mut encoder = Encoder::new(&mut frame, &head);
    encoder.field(b"host", b"localhost");
    encoder.field(b"user-agent", b"Firebrick reload");
    encoder.finish(Put::None);
    Rc::new(Call::new(frame, Carried::Nothing, Rc::new(Trace::default()), None, kind, now))
}

/// Returns the status of the response, or the reason why there is none.
pub(crate) async fn status(call: &Call) -> Result<u16, String> {
    loop {
        match poll_fn(|cx| call.reply.poll_event(cx)).await {
            ReplyEvent::Interim(..) | ReplyEvent::Postponed => {}
            ReplyEvent::Head(head) => return Ok(head.status),
            ReplyEvent::Hijacked(_) => return Err("the app took the connection over".to_owned()),
            ReplyEvent::Failed(failure) => return Err(failure.reason.to_string()),
        }
    }
}
