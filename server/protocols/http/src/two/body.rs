//! Sends response bodies over HTTP/2: pulls them from their handler and hands them to the engine as far as
//! the windows allow.
//!
//! Contract:
//! 1. At most [`HOLD`] bytes of a stream, plus one whole chunk, are taken from the handler ahead of the
//!    window. While they wait they are counted. When memory is scarce, nothing is taken while the window is closed.
//! 2. The declared length is compared with the sent one. A truncated body never looks complete.

use super::client::StreamClient;
use super::file::{FileReader, FileStep};
use super::hub::Hub;
use super::tunnel::{Tunnel, TunnelStep};
use crate::context::ThreadShared;
use crate::message::{COUNTED, DeclaredLength};
use crate::scarcity::wake_when_less_scarce;
use bytes::Bytes;
use handler::held::{Amount, Hold};
use handler::{BodyStream, Chunk, Failure, Lender};
use http2::{Connection, StreamId};
use net::memory::{self, Level};
use std::collections::VecDeque;
use std::task::{Context, Poll};

/// Bytes of a stream gathered at a time.
const HOLD: usize = 64 << 10;
/// Chunks from this size on are sent as they are; smaller ones are joined in a frame.
const LARGE: usize = 8 << 10;

/// A body that has not been sent completely.
pub(super) enum Source {
    /// The rest of a body in memory, and its share of the counted resources: `None` if the bytes are shared with other responses, or are sent at
    /// once.
    Bytes(Bytes, Option<Hold>),
    File(Box<FileReader>),
    /// Pieces that arrive over time.
    Stream(Box<Pieces>),
    /// The far end of a WebSocket.
    Tunnel(Box<Tunnel>),
}

/// The state of a source.
pub(super) enum Pull {
    /// Nothing to send until the source wakes the task.
    Waiting,
    /// Bytes can be sent.
    Ready,
    /// END_STREAM must be sent, but the stream goes on: the client has not ended its half of a tunnel.
    EndStream,
    /// No more bytes; the end is sent or about to be sent.
    Ended,
    /// The body cannot be completed.
    Broken(Option<Failure>),
    /// The far end of a tunnel has broken off.
    Cancelled,
}

impl Source {
    /// Creates a body in memory that is not counted.
    pub(super) fn bytes(bytes: Bytes) -> Source {
        Source::Bytes(bytes, None)
    }

    /// Checks for data to send. `room`: bytes that the client accepts now. `status`: the response's status,
    /// for failures. `client` counts held resources; `hub` is its connection's.
    pub(super) fn pull(
        &mut self,
        cx: &mut Context<'_>,
        room: usize,
        status: u16,
        client: &StreamClient,
        hub: &Hub,
    ) -> Pull {
        match self {
            Source::Bytes(rest, _) if rest.is_empty() => Pull::Ended,
            Source::Bytes(..) => Pull::Ready,
            Source::File(file) if file.left() == 0 => Pull::Ended,
            Source::File(file) => match file.poll(cx) {
                Poll::Ready(true) => Pull::Ready,
                Poll::Ready(false) => Pull::Broken(None),
                Poll::Pending => Pull::Waiting,
            },
            Source::Stream(pieces) => pieces.pull(cx, room, status, client),
            Source::Tunnel(tunnel) => match tunnel.step(cx, hub, client) {
                TunnelStep::Waiting => Pull::Waiting,
                TunnelStep::Ready => Pull::Ready,
                TunnelStep::EndStream => Pull::EndStream,
                TunnelStep::Over => Pull::Ended,
                TunnelStep::Broken => Pull::Cancelled,
            },
        }
    }

    /// Sends at most `most` bytes. Returns how many, or `None` if the body cannot be completed.
    pub(super) fn send(
        &mut self,
        engine: &mut Connection,
        stream: StreamId,
        most: usize,
        shared: &ThreadShared,
    ) -> Option<usize> {
        match self {
            Source::Bytes(rest, _) => {
                let piece = rest.split_to(most.min(rest.len()));
                let len = piece.len();
                let unsent = engine.data(stream, piece, rest.is_empty());
                debug_assert!(unsent.is_empty(), "the engine has asked for that much");
                Some(len - unsent.len())
            }
            Source::File(file) => step(file.send(engine, stream, most, true, shared)),
            Source::Stream(pieces) => pieces.send(engine, stream, most, shared),
            Source::Tunnel(tunnel) => Some(tunnel.send(engine, stream, most)),
        }
    }
}

fn step(step: FileStep) -> Option<usize> {
    match step {
        FileStep::Sent(n) => Some(n),
        FileStep::Cold => Some(0),
        FileStep::Broken => None,
    }
}

impl Source {
    /// Returns whether this is a tunnel whose END_STREAM has been sent.
    pub(super) fn is_closed_tunnel(&self) -> bool {
        matches!(self, Source::Tunnel(tunnel) if tunnel.is_closed())
    }

    /// Returns whether the end has been sent.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Source::Bytes(..) | Source::File(_) => true,
            Source::Stream(pieces) => pieces.closed,
            Source::Tunnel(tunnel) => tunnel.is_closed(),
        }
    }
}

/// A body that arrives in pieces.
pub(super) struct Pieces {
    stream: Box<dyn BodyStream>,
    held: VecDeque<Bytes>,
    held_len: usize,
    /// Counts them while they wait for the window.
    hold: Option<Hold>,
    /// A part of a file behind the held pieces. Most bodies have none, and many wait for long.
    file: Option<Box<FileReader>>,
    /// An offer that is being declined.
    offer: Option<Box<dyn Lender>>,
    /// The end of the body, complete or broken off.
    end: Option<Result<(), Option<Failure>>>,
    /// The end has been sent.
    closed: bool,
    promised: DeclaredLength,
}

impl Pieces {
    pub(super) fn new(stream: Box<dyn BodyStream>, declared: Option<u64>) -> Box<Pieces> {
        Box::new(Pieces {
            stream,
            held: VecDeque::new(),
            held_len: 0,
            hold: None,
            file: None,
            offer: None,
            end: None,
            closed: false,
            promised: DeclaredLength::new(declared),
        })
    }

    fn pull(&mut self, cx: &mut Context<'_>, room: usize, status: u16, client: &StreamClient) -> Pull {
        if room == 0 && self.held_len == 0 && self.waits() {
            // The engine asks again when the client opens its window.
            wake_when_less_scarce(cx);
            return Pull::Ready;
        }
        let bound = room.clamp(1, HOLD);
        while self.end.is_none() && self.file.is_none() && self.held_len < bound {
            if let Some(lender) = &mut self.offer {
                // The offered bytes come in the next chunks.
                match lender.poll_lend(cx, None) {
                    Poll::Ready(Ok(_)) => self.offer = None,
                    Poll::Ready(Err(failure)) => self.end = Some(Err(Some(failure))),
                    Poll::Pending => break,
                }
                continue;
            }
            match self.stream.poll_chunk(cx) {
                Poll::Ready(None) => {
                    self.end =
                        Some(self.promised.missed(status).map_or(Ok(()), |failure| Err(Some(failure))));
                }
                Poll::Ready(Some(Err(failure))) => self.end = Some(Err(Some(failure))),
                Poll::Ready(Some(Ok(chunk))) => self.take(chunk, status, client),
                Poll::Pending => break,
            }
        }
        if self.held_len >= COUNTED && self.held_len > room {
            let held = Amount::of_memory(self.held_len as u64);
            match &self.hold {
                Some(hold) => hold.set(held),
                None => self.hold = client.hold(held),
            }
        }
        if self.held_len > 0 {
            return Pull::Ready;
        }
        if let Some(file) = &mut self.file {
            return match file.poll(cx) {
                Poll::Ready(true) => Pull::Ready,
                Poll::Ready(false) => Pull::Broken(None),
                Poll::Pending => Pull::Waiting,
            };
        }
        match &mut self.end {
            None => Pull::Waiting,
            Some(Ok(())) => Pull::Ended,
            Some(Err(failure)) => Pull::Broken(failure.take()),
        }
    }

    /// Returns whether nothing is taken ahead of the window, because memory is scarce. The end of a body
    /// needs no window, so a body is asked for that when its bytes have been sent, as far as their number is
    /// known.
    fn waits(&self) -> bool {
        self.end.is_none()
            && self.file.is_none()
            && self.offer.is_none()
            && self.promised.left() > 0
            && memory::level() >= Level::Waiting
    }

    fn take(&mut self, chunk: Chunk, status: u16, client: &StreamClient) {
        let len = chunk.len();
        let left = self.promised.left();
        match chunk {
            _ if len == 0 => return,
            Chunk::Offer(lender) => {
                self.offer = Some(lender);
                return;
            }
            _ if len > left => self.end = Some(Err(Some(self.promised.exceeded(status, len)))),
            _ => {}
        }
        let fits = len.min(left);
        self.promised.count(fits);
        match chunk {
            Chunk::Bytes(mut bytes) => {
                bytes.truncate(fits as usize);
                self.held_len += bytes.len();
                self.held.push_back(bytes);
            }
            Chunk::File(mut region) => {
                region.len = fits;
                let hold = if region.file.hold().is_none() { client.hold(Amount::FILE) } else { None };
                self.file = Some(Box::new(FileReader::new(region, hold)));
            }
            Chunk::Offer(_) => {}
        }
    }

    fn send(
        &mut self,
        engine: &mut Connection,
        stream: StreamId,
        most: usize,
        shared: &ThreadShared,
    ) -> Option<usize> {
        if self.held_len == 0 {
            let Some(file) = &mut self.file else { return Some(0) };
            let sent = step(file.send(engine, stream, most, false, shared))?;
            if file.left() == 0 {
                self.file = None;
            }
            return Some(sent);
        }
        let mut sent = 0;
        while sent < most && self.held_len > 0 {
            let n = match self.held.front_mut() {
                Some(front) if front.len() >= LARGE => {
                    let piece = front.split_to(front.len().min(most - sent));
                    let len = piece.len();
                    let last = self.end == Some(Ok(())) && self.held_len == len && self.file.is_none();
                    self.closed |= last;
                    len - engine.data(stream, piece, last).len()
                }
                _ => self.send_small(engine, stream, most - sent),
            };
            while self.held.front().is_some_and(Bytes::is_empty) {
                self.held.pop_front();
            }
            self.held_len -= n;
            sent += n;
            if n == 0 {
                break;
            }
        }
        if self.held_len == 0 {
            self.hold = None;
        }
        Some(sent)
    }

    /// Joins small chunks in one frame.
    fn send_small(&mut self, engine: &mut Connection, stream: StreamId, most: usize) -> usize {
        let (held, complete) = (&mut self.held, self.end == Some(Ok(())) && self.file.is_none());
        let closed = &mut self.closed;
        engine.data_with(stream, most, |text, room| {
            let mut room = room;
            while let Some(front) = held.front_mut() {
                let piece = front.split_to(front.len().min(room));
                text.extend_from_slice(&piece);
                room -= piece.len();
                if !front.is_empty() {
                    break;
                }
                held.pop_front();
            }
            *closed |= complete && held.is_empty();
            complete && held.is_empty()
        })
    }
}
