//! Receiving a request head: from the socket to a [`Request`] that owns its text.

use super::head::{Head, Parser};
use super::link::{Link, forget};
use crate::timers::Lane;
use crate::transport::Transport;
use handler::{Failure, FailureKind as Kind, Fields, Peer, Request};
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Instant;

/// Room in a request's text for fields that filters add: an id and a time.
const SPARE_TEXT: usize = 160;

/// A head and what belongs to it.
pub(crate) struct Received {
    pub(crate) head: Head,
    pub(crate) text: Vec<u8>,
    /// When its first byte was seen.
    pub(crate) started: Instant,
    /// When its last byte was seen.
    pub(crate) arrived: Instant,
}

/// Why there is no head.
pub(crate) enum NoHead {
    /// Nothing has come: wait without a buffer.
    Idle,
    /// The client has gone, or has waited too long to say anything.
    Closed,
    /// To be answered, and the connection closed.
    Refused(Failure, Instant),
}

/// What one look at the bytes gave.
enum Look {
    Partial,
    Complete(Vec<u8>),
    Ended,
}

/// Receives the next head.
pub(crate) async fn head<S: Transport>(link: &Link<S>) -> Result<Received, NoHead> {
    let mut parser = Parser::new();
    let mut started = None;
    if !link.input.borrow().is_empty() {
        started = Some(Instant::now());
        let look = look_at_input(link, &mut parser);
        if let Some(received) = settle(look, link.shared.timers.now(), &mut parser, &mut started)? {
            return Ok(received);
        }
    }
    loop {
        match link.read(|bytes| look_at(link, &mut parser, bytes)) {
            Ok(look) => {
                if let Some(received) = settle(look, link.shared.timers.now(), &mut parser, &mut started)? {
                    return Ok(received);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let Some(since) = started else { return Err(NoHead::Idle) };
                link.timer.arm(Lane::Read, since + link.shared.limits.header_timeout);
                if !link.readable().await {
                    return Err(if parser.has_begun() {
                        let failure =
                            Failure::new(Kind::RequestTimeout, "the head took longer than header_timeout");
                        NoHead::Refused(failure, since)
                    } else {
                        NoHead::Closed
                    });
                }
            }
            Err(_) => return Err(NoHead::Closed),
        }
    }
}

/// Turns a look into a result, or into the wish for more bytes.
fn settle(
    look: Result<Look, Failure>,
    now: Instant,
    parser: &mut Parser,
    started: &mut Option<Instant>,
) -> Result<Option<Received>, NoHead> {
    let since = *started.get_or_insert(now);
    match look {
        Ok(Look::Complete(text)) => {
            let head = std::mem::replace(parser, Parser::new()).finish();
            Ok(Some(Received { head, text, started: since, arrived: now }))
        }
        Ok(Look::Partial) => Ok(None),
        Ok(Look::Ended) if parser.has_begun() => {
            Err(NoHead::Refused(Failure::new(Kind::BadRequest, "the client ended inside a head"), since))
        }
        Ok(Look::Ended) => Err(NoHead::Closed),
        Err(failure) => Err(NoHead::Refused(failure, since)),
    }
}

/// Parses bytes that have just been read: in place if nothing was there before.
fn look_at<S: Transport>(link: &Link<S>, parser: &mut Parser, bytes: &[u8]) -> Result<Look, Failure> {
    if bytes.is_empty() {
        return Ok(Look::Ended);
    }
    let mut input = link.input.borrow_mut();
    if !input.is_empty() {
        input.extend_from_slice(bytes);
        drop(input);
        return look_at_input(link, parser);
    }
    match parser.advance(bytes, &link.shared.limits)? {
        Some(end) => {
            input.extend_from_slice(&bytes[end..]);
            Ok(Look::Complete(own(&bytes[parser.start()..end])))
        }
        None => {
            input.extend_from_slice(bytes);
            Ok(Look::Partial)
        }
    }
}

fn look_at_input<S: Transport>(link: &Link<S>, parser: &mut Parser) -> Result<Look, Failure> {
    let mut input = link.input.borrow_mut();
    let Some(end) = parser.advance(&input, &link.shared.limits)? else { return Ok(Look::Partial) };
    let text = own(&input[parser.start()..end]);
    forget(&mut input, end);
    Ok(Look::Complete(text))
}

fn own(head: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(head.len() + SPARE_TEXT);
    text.extend_from_slice(head);
    text
}

impl Received {
    /// The request that handlers see.
    pub(crate) fn request<S: Transport>(&mut self, link: &Link<S>, peer: &Rc<Peer>) -> Request {
        let line = &self.head.line;
        let (text, slots) = (std::mem::take(&mut self.text), std::mem::take(&mut self.head.slots));
        Request {
            version: line.version,
            method: line.method,
            target: line.target,
            path: line.path,
            query: line.query,
            authority: line.authority,
            fields: Fields::from_parts(text, slots),
            variables: Vec::new(),
            peer: peer.clone(),
            https: peer.tls,
            received: link.shared.wall(self.arrived),
            arrived: self.arrived,
        }
    }
}
