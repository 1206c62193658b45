//! Handles the header sections of clients: requests and trailers (RFC 9113 sections 6.2, 6.10 and 8).

use crate::connection::{Block, Connection, Going};
use crate::frame::{self, Header, MAX_WINDOW, number, unpadded};
use crate::hpack::DecodeError;
use crate::receive::{error, frame_size, protocol};
use crate::streams::{Closed, NO_LENGTH, Sending, Stream};
use crate::{ConnectionError, ErrorCode, Event, StreamId};
use fieldcode::Flood;
use fieldcode::{HEADS, Priority, REFUSED};
use fieldcode::{RequestHead, Section, SectionRefusal};
use net::Unread;

/// CONTINUATION frames that any section may have.
const CONTINUATIONS: usize = 8;
/// One more frame is allowed per this many bytes of max_header_bytes.
const CONTINUATION_BYTES: usize = 1 << 10;
/// The most text and fields to reserve memory for before a head is decoded.
const USUAL_TEXT: usize = 2 << 10;
const USUAL_FIELDS: usize = 32;

impl Connection {
    pub(crate) fn headers(
        &mut self,
        header: Header,
        payload: &[u8],
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        if header.stream.is_multiple_of(2) {
            return Err(protocol("HEADERS on a stream that clients cannot open"));
        }
        let Some(mut fragment) = unpadded(payload, header.has(frame::PADDED)) else {
            return Err(protocol("a padding longer than its frame"));
        };
        let mut self_dependent = false;
        if header.has(frame::HAS_PRIORITY) {
            let Some((priority, rest)) = fragment.split_at_checked(5) else {
                return Err(frame_size("HEADERS that end inside their priority"));
            };
            self_dependent = number(priority) & MAX_WINDOW == header.stream;
            fragment = rest;
        }
        let end = header.has(frame::END_STREAM);
        if header.has(frame::END_HEADERS) {
            return self.section(header.stream, end, self_dependent, fragment, events);
        }
        if fragment.is_empty() {
            self.budget.spend(Flood::EmptyHeaders, 1)?;
        }
        let (stream, bytes) = (header.stream, fragment.to_vec());
        self.block = Some(Box::new(Block { stream, end, self_dependent, frames: 0, bytes }));
        Ok(())
    }

    pub(crate) fn continuation(
        &mut self,
        header: Header,
        payload: &[u8],
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        let Some(mut block) = self.block.take() else { return Ok(()) };
        if payload.is_empty() {
            self.budget.spend(Flood::EmptyHeaders, 1)?;
        }
        let max_bytes = self.limits.head.max_header_bytes;
        block.frames += 1;
        block.bytes.extend_from_slice(payload);
        if block.frames > CONTINUATIONS + max_bytes / CONTINUATION_BYTES
            || block.bytes.len() > max_bytes.saturating_mul(2)
        {
            return Err(Flood::Continuations.into());
        }
        if header.has(frame::END_HEADERS) {
            return self.section(block.stream, block.end, block.self_dependent, &block.bytes, events);
        }
        self.block = Some(block);
        Ok(())
    }

    /// Handles a complete section.
    fn section(
        &mut self,
        id: u32,
        end: bool,
        self_dependent: bool,
        block: &[u8],
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        if id > self.streams.seen {
            self.streams.seen = id;
            return self.open(id, end, self_dependent, block, events);
        }
        let Some(name) = self.streams.find(id) else {
            return match self.streams.how_closed(id) {
                Some(Closed::ByServer) => {
                    self.budget.spend(Flood::Ignored, 1)?;
                    self.skip(block)
                }
                Some(Closed::ByClient | Closed::Ended) => {
                    Err(error(ErrorCode::STREAM_CLOSED, "HEADERS on a stream that has ended"))
                }
                None => Err(protocol("HEADERS on a stream with a lower number than the one before")),
            };
        };
        let mistake = match self.streams.get(name) {
            Some(stream) if !stream.receiving => Some("HEADERS after the end of the body"),
            Some(stream) if stream.refused.is_some() => None,
            // RFC 9113 section 8.5.
            Some(stream) if stream.connect => {
                self.skip(block)?;
                let reason = "HEADERS in a tunnel";
                return self.stream_error(name, ErrorCode::PROTOCOL_ERROR, reason, events);
            }
            _ => return self.trailers_section(name, end, self_dependent, block, events),
        };
        self.skip(block)?;
        match mistake {
            Some(reason) => self.stream_error(name, ErrorCode::STREAM_CLOSED, reason, events),
            None => {
                if end {
                    self.end_of_body(name);
                }
                Ok(self.budget.spend(Flood::Ignored, 1)?)
            }
        }
    }

    /// Decodes a section that is not used, because the compression's state needs it.
    fn skip(&mut self, block: &[u8]) -> Result<(), ConnectionError> {
        self.decode(block, &mut Section::skipped())
    }

    fn decode(&mut self, block: &[u8], section: &mut Section) -> Result<(), ConnectionError> {
        self.decoder.decode(block, section, &self.limits.head).map_err(|mistake| match mistake {
            DecodeError::Malformed(reason) => error(ErrorCode::COMPRESSION_ERROR, reason),
            DecodeError::Bomb => Flood::Headers.into(),
        })
    }

    fn trailers_section(
        &mut self,
        name: StreamId,
        end: bool,
        self_dependent: bool,
        block: &[u8],
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        let mut section = Section::trailers();
        self.decode(block, &mut section)?;
        let left = self.streams.get(name).map_or(NO_LENGTH, |stream| stream.left);
        let mistake = if self_dependent {
            Some("a stream that depends on itself")
        } else if !end {
            Some("trailers that do not end the stream")
        } else if section.finish_trailers().is_err() {
            Some("malformed trailers, or more than are allowed")
        } else if left != NO_LENGTH && left > 0 {
            Some("a body whose length is not its Content-Length")
        } else {
            None
        };
        if let Some(reason) = mistake {
            return self.stream_error(name, ErrorCode::PROTOCOL_ERROR, reason, events);
        }
        self.end_of_body(name);
        events(Event::Trailers { stream: name });
        Ok(())
    }

    /// Opens a new stream.
    #[inline]
    fn open(
        &mut self,
        id: u32,
        end: bool,
        self_dependent: bool,
        block: &[u8],
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        if self.going == Going::Final || self.streams.len() >= self.limits.max_streams as usize {
            self.skip(block)?;
            return self.refuse(id);
        }
        self.streams.last = id;
        let changes = self.decoder.changes();
        if !self_dependent && let Some(head) = self.repeat.find(block, end, changes) {
            return self.opened(id, end, head, events);
        }
        let mut section = Section::request(self.usual.0, self.usual.1);
        self.decode(block, &mut section)?;
        if self_dependent {
            let name = self.insert(id, end, 0, NO_LENGTH, Priority::default());
            self.reset(name, ErrorCode::PROTOCOL_ERROR);
            self.budget.spend(Flood::Unread, 1)?;
            return Ok(self.budget.spend(Flood::StreamErrors, 1)?);
        }
        match section.finish_request(end) {
            Ok(head) => {
                if self.decoder.changes() == changes {
                    self.repeat.remember(block, end, changes, &head);
                }
                self.opened(id, end, head, events)
            }
            Err(refusal) => self.refused(id, end, refusal, events),
        }
    }

    /// Opens a stream with a request that can be served.
    #[inline]
    fn opened(
        &mut self,
        id: u32,
        end: bool,
        head: RequestHead,
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        if !self.has_room_for(&head) {
            return self.refuse(id);
        }
        self.request(id, end, head, events);
        Ok(())
    }

    /// Returns whether the heads of all open streams stay within limits. A few bytes that refer to one field
    /// in the client's table can make a head of 64 KiB, which a handler holds while it waits for a window.
    #[inline]
    fn has_room_for(&self, head: &RequestHead) -> bool {
        let most = self.limits.head.max_header_bytes.saturating_mul(HEADS);
        self.streams.is_empty() || self.heads + head.fields.text().len() <= most
    }

    #[inline]
    fn request(&mut self, id: u32, end: bool, head: RequestHead, events: &mut impl FnMut(Event<'_>)) {
        // The next head will probably be like the recent ones; a long one is forgotten again.
        let (text, fields) = (head.fields.text().len(), head.fields.len());
        let like = |now: usize, before: usize, most: usize| now.max(before - before / 8).min(most);
        self.usual = (like(text, self.usual.0, USUAL_TEXT), like(fields, self.usual.1, USUAL_FIELDS));
        let left = if end { NO_LENGTH } else { head.content_length.unwrap_or(NO_LENGTH) };
        let mut priority = Priority::default();
        if head.priority.len > 0 {
            priority = Priority::parse(head.priority.slice(head.fields.text()));
        }
        if !self.early_priorities.is_empty()
            && let Some(at) = self.early_priorities.iter().position(|&(early, _)| early == id)
        {
            priority = self.early_priorities.remove(at).1;
        }
        self.budget.earn(Flood::Priorities, 2);
        self.heads += text;
        let stream = self.insert(id, end, text as u32, left, priority);
        if head.websocket
            && let Some(found) = self.streams.get_mut(stream)
        {
            found.connect = true;
        }
        events(Event::Request { stream, head, end });
    }

    fn insert(&mut self, id: u32, end: bool, head: u32, left: u64, priority: Priority) -> StreamId {
        self.streams.insert(Stream {
            id,
            receiving: !end,
            connect: false,
            sending: Sending::Nothing,
            priority,
            wants: false,
            queued: false,
            refused: None,
            head,
            send_window: self.initial_window as i32,
            receive_window: self.limits.stream_window,
            unconsumed: 0,
            credit: 0,
            left,
            stalled: None,
            sent: 0,
            unlooked: 0,
            unread: Unread::of_stream(),
            owed: false,
        })
    }

    /// Refuses a stream that must not be opened now: the client repeats its request elsewhere or later (RFC
    /// 9113 section 8.7).
    #[cold]
    fn refuse(&mut self, id: u32) -> Result<(), ConnectionError> {
        // A stream after the last one of GOAWAY does not count as accepted.
        if self.going != Going::Final {
            self.streams.last = id;
        }
        self.budget.spend(Flood::Ignored, REFUSED)?;
        self.budget.spend(Flood::Unread, 1)?;
        self.streams.remember_reset(id);
        self.control(frame::RST_STREAM, 0, id, &ErrorCode::REFUSED_STREAM.0.to_be_bytes());
        Ok(())
    }

    /// Reports a request that may get a response, but no handler.
    #[cold]
    fn refused(
        &mut self,
        id: u32,
        end: bool,
        refusal: SectionRefusal,
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        let stream = self.insert(id, end, 0, NO_LENGTH, Priority::default());
        if let Some(found) = self.streams.get_mut(stream) {
            let code = if refusal.malformed { ErrorCode::PROTOCOL_ERROR } else { ErrorCode::NO_ERROR };
            found.refused = Some(code);
        }
        events(Event::Refused { stream, failure: refusal.failure });
        Ok(self.budget.spend(Flood::StreamErrors, 1)?)
    }
}
