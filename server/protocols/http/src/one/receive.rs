//! Receives a request head: from the socket to a [`Request`] that owns its text.

use super::body_state::forget;
use super::link::Link;
use crate::room::RoomState;
use h1::{RequestHead, RequestParser};
use handler::{Failure, Fields, Peer, Request, Version};
use net::{Lane, Transport};
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Instant;

/// Room in a request's text for the fields that filters add: an id and a time.
const SPARE_TEXT: usize = 160;

pub(crate) struct Received {
    pub(crate) head: RequestHead,
    pub(crate) text: Vec<u8>,
    /// When the first byte was seen.
    pub(crate) started: Instant,
    /// When the last byte was seen.
    pub(crate) arrived: Instant,
}

/// Why there is no head.
pub(crate) enum NoHead {
    /// No byte has arrived: wait without a buffer.
    Idle,
    /// The client has disconnected or was too slow, or the connection has to make room.
    Closed,
    /// The head is refused: send a response and close the connection.
    Refused(Failure, Instant),
}

/// The result of parsing the bytes so far.
enum Parsed {
    Partial,
    Complete(Vec<u8>),
    Ended,
}

pub(crate) async fn head<S: Transport>(link: &Link<S>) -> Result<Received, NoHead> {
    let mut parser = RequestParser::new();
    let mut started = None;
    if !link.input.borrow().is_empty() {
        started = Some(Instant::now());
        let parsed = parse_input(link, &mut parser);
        if let Some(received) = settle(parsed, link.shared.timers.now(), &mut parser, &mut started)? {
            return Ok(received);
        }
    }
    loop {
        match link.read(|bytes| parse(link, &mut parser, bytes)) {
            Ok(parsed) => {
                if let Some(received) = settle(parsed, link.shared.timers.now(), &mut parser, &mut started)? {
                    return Ok(received);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let Some(since) = started else { return Err(NoHead::Idle) };
                link.timer.arm(Lane::Read, since + link.shared.settings().timeouts.header);
                if !link.readable(RoomState::Unproved).await {
                    return Err(if parser.has_begun() && !link.is_displaced() {
                        let failure = Failure::client(408, "the head took longer than timeouts.header");
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

/// Returns the head, or the reason why there is none, or `None` if more bytes are needed.
fn settle(
    parsed: Result<Parsed, Failure>,
    now: Instant,
    parser: &mut RequestParser,
    started: &mut Option<Instant>,
) -> Result<Option<Received>, NoHead> {
    let since = *started.get_or_insert(now);
    match parsed {
        Ok(Parsed::Complete(text)) => {
            let head = std::mem::replace(parser, RequestParser::new()).finish();
            Ok(Some(Received { head, text, started: since, arrived: now }))
        }
        Ok(Parsed::Partial) => Ok(None),
        Ok(Parsed::Ended) if parser.has_begun() => Err(NoHead::Refused(
            Failure::client(400, "the client closed the connection inside a head"),
            since,
        )),
        Ok(Parsed::Ended) => Err(NoHead::Closed),
        Err(failure) => Err(NoHead::Refused(failure, since)),
    }
}

/// Parses newly read bytes, in place if nothing was read ahead.
fn parse<S: Transport>(link: &Link<S>, parser: &mut RequestParser, bytes: &[u8]) -> Result<Parsed, Failure> {
    if bytes.is_empty() {
        return Ok(Parsed::Ended);
    }
    let mut input = link.input.borrow_mut();
    if !input.is_empty() {
        input.extend_from_slice(bytes);
        drop(input);
        return parse_input(link, parser);
    }
    match parser.advance(bytes, &link.shared.head_limits())? {
        Some(end) => {
            input.extend_from_slice(&bytes[end..]);
            Ok(Parsed::Complete(own(&bytes[parser.start()..end])))
        }
        None => {
            input.extend_from_slice(bytes);
            Ok(Parsed::Partial)
        }
    }
}

fn parse_input<S: Transport>(link: &Link<S>, parser: &mut RequestParser) -> Result<Parsed, Failure> {
    let mut input = link.input.borrow_mut();
    let Some(end) = parser.advance(&input, &link.shared.head_limits())? else { return Ok(Parsed::Partial) };
    let text = own(&input[parser.start()..end]);
    forget(&mut input, end);
    Ok(Parsed::Complete(text))
}

fn own(head: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(head.len() + SPARE_TEXT);
    text.extend_from_slice(head);
    text
}

impl Received {
    /// Builds the request that handlers see.
    pub(crate) fn request<S: Transport>(&mut self, link: &Link<S>, peer: &Rc<Peer>) -> Request {
        let line = &self.head.line;
        let (text, slots) = (std::mem::take(&mut self.text), std::mem::take(&mut self.head.slots));
        Request {
            version: line.version,
            switchable: line.version == Version::Http11,
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
