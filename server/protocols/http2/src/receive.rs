//! Parses bytes into frames, and handles DATA frames.
//!
//! Contract:
//! 1. A frame that is completely in the input is read from there. Only partial frames are copied.
//! 2. The data of a DATA frame is passed on as it arrives; its header has been checked before that.
//! 3. A frame's size and place in the sequence are checked when its header has arrived.

use crate::connection::{Connection, Reading};
use crate::frame::{self, HEADER, Header, MAX_PAYLOAD, PREFACE};
use crate::streams::{Closed, NO_LENGTH, Sending};
use crate::{ConnectionError, ErrorCode, Event, StreamId};
use fieldcode::{DataFrames, Flood};

pub(crate) fn error(code: ErrorCode, reason: &'static str) -> ConnectionError {
    ConnectionError { code, reason, flood: None }
}

pub(crate) fn protocol(reason: &'static str) -> ConnectionError {
    error(ErrorCode::PROTOCOL_ERROR, reason)
}

pub(crate) fn frame_size(reason: &'static str) -> ConnectionError {
    error(ErrorCode::FRAME_SIZE_ERROR, reason)
}

impl Connection {
    pub(crate) fn read(
        &mut self,
        mut input: &[u8],
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        while !input.is_empty() {
            match self.reading {
                Reading::Preface => input = self.preface(input)?,
                Reading::Data { .. } => input = self.data_payload(input, events),
                Reading::Over => return Ok(()),
                Reading::Frames if self.partial.is_empty() => {
                    let need = self.need(input)?;
                    let Some((frame, rest)) = input.split_at_checked(need) else {
                        self.partial.extend_from_slice(input);
                        self.waiting_since.get_or_insert(self.now);
                        return Ok(());
                    };
                    self.frame(frame, events)?;
                    input = rest;
                }
                Reading::Frames => {
                    let missing = self.need(&self.partial)? - self.partial.len();
                    let (piece, rest) = input.split_at(missing.min(input.len()));
                    self.partial.extend_from_slice(piece);
                    input = rest;
                    if self.partial.len() >= HEADER && self.need(&self.partial)? == self.partial.len() {
                        let frame = std::mem::take(&mut self.partial);
                        let result = self.frame(&frame, events);
                        self.keep_partial(frame);
                        result?;
                    }
                }
            }
        }
        Ok(())
    }

    fn preface<'a>(&mut self, input: &'a [u8]) -> Result<&'a [u8], ConnectionError> {
        let rest = &PREFACE[self.partial.len()..];
        let n = rest.len().min(input.len());
        if input[..n] != rest[..n] {
            return Err(protocol("the first bytes are not the preface of HTTP/2"));
        }
        self.partial.extend_from_slice(&input[..n]);
        if self.partial.len() == PREFACE.len() {
            self.partial = Vec::new();
            self.reading = Reading::Frames;
        }
        Ok(&input[n..])
    }

    /// Returns how many bytes of the frame at the front are needed at once; at least a header.
    #[inline]
    fn need(&self, bytes: &[u8]) -> Result<usize, ConnectionError> {
        let Some(header) = Header::parse(bytes) else { return Ok(HEADER) };
        if header.len > MAX_PAYLOAD {
            return Err(frame_size("a frame larger than SETTINGS_MAX_FRAME_SIZE"));
        }
        match &self.block {
            None if header.kind == frame::CONTINUATION => {
                return Err(protocol("a CONTINUATION without HEADERS"));
            }
            Some(block) if header.kind != frame::CONTINUATION || header.stream != block.stream => {
                return Err(protocol("a header section that is interrupted by another frame"));
            }
            _ => {}
        }
        if header.kind == frame::DATA {
            let padded = usize::from(header.has(frame::PADDED));
            return if padded > header.len {
                Err(frame_size("a padded DATA frame without the length of its padding"))
            } else {
                Ok(HEADER + padded)
            };
        }
        Ok(HEADER + header.len)
    }

    /// Handles a frame; of a DATA frame, the part that [`Connection::need`] returns.
    #[inline]
    fn frame(&mut self, frame: &[u8], events: &mut impl FnMut(Event<'_>)) -> Result<(), ConnectionError> {
        let Some(header) = Header::parse(frame) else { return Ok(()) };
        let payload = &frame[HEADER..];
        // The preface continues with SETTINGS (RFC 9113 section 3.4); only then does its time-out end.
        if self.is_in_preface && (header.kind != frame::SETTINGS || header.has(frame::ACK)) {
            return Err(protocol("the first frame is not SETTINGS"));
        }
        match header.kind {
            frame::DATA => self.data_frame(header, payload, events)?,
            frame::HEADERS => self.headers(header, payload, events)?,
            frame::CONTINUATION => self.continuation(header, payload, events)?,
            frame::PRIORITY => self.priority(header, payload, events)?,
            frame::RST_STREAM => self.rst_stream(header, payload, events)?,
            frame::SETTINGS => self.settings(header, payload)?,
            frame::PUSH_PROMISE => return Err(protocol("PUSH_PROMISE from a client")),
            frame::PING => self.ping(header, payload)?,
            frame::GOAWAY => self.goaway_frame(header, payload, events)?,
            frame::WINDOW_UPDATE => self.window_update(header, payload, events)?,
            frame::PRIORITY_UPDATE => self.priority_update(header, payload)?,
            // RFC 9113 section 5.5.
            _ => self.budget.spend(Flood::Ignored, 1)?,
        }
        if self.block.is_some() {
            self.waiting_since.get_or_insert(self.now);
        } else {
            self.waiting_since = None;
        }
        Ok(())
    }

    /// Handles the header of a DATA frame, with the length of its padding (RFC 9113 section 6.1).
    fn data_frame(
        &mut self,
        header: Header,
        payload: &[u8],
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        if header.stream == 0 {
            return Err(protocol("DATA on stream 0"));
        }
        let around = payload.first().map_or(0, |&padding| usize::from(padding) + 1);
        let Some(len) = header.len.checked_sub(around) else {
            return Err(protocol("a padding longer than its frame"));
        };
        if self.is_idle_stream(header.stream) {
            return Err(protocol("DATA on an idle stream"));
        }
        let size = header.len as u32;
        if size > self.receive_window {
            return Err(error(
                ErrorCode::FLOW_CONTROL_ERROR,
                "more data than the connection's window allows",
            ));
        }
        self.receive_window -= size;
        let end = header.has(frame::END_STREAM);
        let frames = DataFrames::one(len as u64);
        // The end of a body may be small, and so are the messages of a WebSocket: however many there are, flow
        // control bounds what is held of a tunnel.
        let is_free = end || (len > 0 && self.is_tunnel(header.stream));
        self.budget.data(if is_free { frames.without_cost() } else { frames })?;
        let name = self.accept_data(header, size, len, end, events)?;
        self.reading = Reading::Data { stream: name, left: len, padding: around.saturating_sub(1), end };
        if let Some(name) = name {
            self.credit(name, around);
            if len == 0 && end {
                self.end_of_body(name);
                events(Event::Data { stream: name, data: &[], end: true });
            }
        }
        if header.len == payload.len() {
            self.reading = Reading::Frames;
        }
        Ok(())
    }

    fn is_tunnel(&self, stream: u32) -> bool {
        self.streams.find(stream).and_then(|name| self.streams.get(name)).is_some_and(|stream| stream.connect)
    }

    /// Returns the stream that gets the data; `None`: it is dropped.
    fn accept_data(
        &mut self,
        header: Header,
        size: u32,
        len: usize,
        end: bool,
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<Option<StreamId>, ConnectionError> {
        let Some(name) = self.streams.find(header.stream) else {
            self.credit_connection(size);
            self.on_closed(header.stream)?;
            return Ok(None);
        };
        let Some(stream) = self.streams.get_mut(name) else { return Ok(None) };
        if !stream.receiving {
            self.credit_connection(size);
            self.stream_error(name, ErrorCode::STREAM_CLOSED, "DATA after the end of the body", events)?;
            return Ok(None);
        }
        if size > stream.receive_window {
            self.credit_connection(size);
            self.stream_error(
                name,
                ErrorCode::FLOW_CONTROL_ERROR,
                "more data than the stream's window allows",
                events,
            )?;
            return Ok(None);
        }
        if stream.refused.is_some() {
            // The stream's window is not opened again.
            stream.receive_window -= size;
            self.credit_connection(size);
            if end {
                self.end_of_body(name);
            } else {
                self.discarded(name, size);
            }
            return Ok(None);
        }
        stream.receive_window -= size;
        stream.unconsumed += size;
        if stream.left != NO_LENGTH {
            let fits = stream.left.checked_sub(len as u64).filter(|&left| !end || left == 0);
            let Some(left) = fits else {
                let reason = "a body whose length is not its Content-Length";
                self.stream_error(name, ErrorCode::PROTOCOL_ERROR, reason, events)?;
                return Ok(None);
            };
            stream.left = left;
        }
        Ok(Some(name))
    }

    /// Handles bytes of a DATA frame's payload.
    fn data_payload<'a>(&mut self, input: &'a [u8], events: &mut impl FnMut(Event<'_>)) -> &'a [u8] {
        let Reading::Data { stream, left, padding, end } = &mut self.reading else { return input };
        let (stream, end) = (*stream, *end);
        let (data, rest) = input.split_at((*left).min(input.len()));
        *left -= data.len();
        let skipped = if *left == 0 { (*padding).min(rest.len()) } else { 0 };
        *padding -= skipped;
        let end = end && *left == 0;
        if *left == 0 && *padding == 0 {
            self.reading = Reading::Frames;
        }
        if !data.is_empty()
            && let Some(stream) = stream.filter(|&stream| self.is_open(stream))
        {
            if end {
                self.end_of_body(stream);
            }
            events(Event::Data { stream, data, end });
        }
        &rest[skipped..]
    }

    /// Ends the client's half of a stream.
    pub(crate) fn end_of_body(&mut self, name: StreamId) {
        if let Some(stream) = self.streams.get_mut(name) {
            stream.receiving = false;
            if stream.sending == Sending::Done {
                self.close(name, Closed::Ended);
            }
        }
    }

    /// Returns whether the client has not used the number yet. Even numbers stay idle: the server opens no streams.
    #[inline]
    pub(crate) fn is_idle_stream(&self, id: u32) -> bool {
        id > self.streams.seen || id.is_multiple_of(2)
    }

    /// Handles a frame other than HEADERS on a closed stream (RFC 9113 section 5.1).
    pub(crate) fn on_closed(&mut self, id: u32) -> Result<(), ConnectionError> {
        match self.streams.how_closed(id) {
            Some(Closed::Ended) => Err(error(ErrorCode::STREAM_CLOSED, "a frame on a stream that has ended")),
            Some(Closed::ByClient) => {
                self.budget.spend(Flood::StreamErrors, 1)?;
                self.budget.spend(Flood::Unread, 1)?;
                self.control(frame::RST_STREAM, 0, id, &ErrorCode::STREAM_CLOSED.0.to_be_bytes());
                Ok(())
            }
            // The client may have sent the frame before it knew.
            Some(Closed::ByServer) | None => Ok(self.budget.spend(Flood::Ignored, 1)?),
        }
    }

    /// Resets a stream because of an error of the client.
    pub(crate) fn stream_error(
        &mut self,
        stream: StreamId,
        code: ErrorCode,
        reason: &'static str,
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        self.reset(stream, code);
        events(Event::Reset { stream, code, reason: Some(reason) });
        self.budget.spend(Flood::StreamErrors, 1)?;
        Ok(self.budget.spend(Flood::Unread, 1)?)
    }
}
