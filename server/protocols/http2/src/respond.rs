//! Sends responses: heads, bodies and trailers, and chooses the stream that sends next.

use crate::StreamId;
use crate::connection::Connection;
use crate::error::ErrorCode;
use crate::frame::{self, END_HEADERS, END_STREAM, HEADER, MAX_PAYLOAD};
use crate::hpack::Encoder;
use crate::kept;
use crate::streams::{Closed, Sending, Stream};
use bytes::Bytes;
use fieldcode::Flood;
use handler::{Fields, Kept};

/// Pieces of bodies below this are copied next to their frame's header.
const COPY_BELOW: usize = 8 << 10;
/// WINDOW_UPDATE frames that a DATA frame may cause.
const UPDATES_PER_DATA: u32 = 4;

/// Completes the header section whose HEADERS frame, with a header, begins at `start`. Further frames follow
/// if it is long.
fn finish_section(text: &mut Vec<u8>, start: usize, stream: u32) {
    if text.len() - start - HEADER <= MAX_PAYLOAD {
        frame::set_len(text, start);
        text[start + 4] |= END_HEADERS;
        return;
    }
    let rest = text.split_off(start + HEADER + MAX_PAYLOAD);
    frame::set_len(text, start);
    let mut pieces = rest.chunks(MAX_PAYLOAD).peekable();
    while let Some(piece) = pieces.next() {
        let flags = if pieces.peek().is_none() { END_HEADERS } else { 0 };
        frame::header(text, piece.len(), frame::CONTINUATION, flags, stream);
        text.extend_from_slice(piece);
    }
}

impl Connection {
    /// Sends an informational response (100, 103). Fields as in [`Connection::head`]. Does nothing after the head.
    pub fn interim(&mut self, stream: StreamId, status: u16, fields: &Fields) {
        if self.streams.get(stream).is_none_or(|found| found.sending != Sending::Nothing) {
            return;
        }
        let Connection { output, encoder, .. } = self;
        output.text(|text| {
            let start = text.len();
            frame::header(text, 0, frame::HEADERS, 0, stream.id);
            encoder.begin(text);
            Encoder::status(text, status);
            Encoder::fields(text, fields);
            finish_section(text, start, stream.id);
        });
    }

    /// Sends a response's head. `end`: it has no body (HEAD, 204, 304, an empty one). Returns `false` if the
    /// stream is gone, or has had its head.
    ///
    /// Names are written in lower case. `connection`, `keep-alive`, `proxy-connection`, `transfer-encoding`,
    /// `upgrade` and `content-length` are left out; `content_length` is written if it is given, and `date`
    /// (IMF-fixdate) unless the fields have one. Malformed fields (`h1::fields_are_clean`) are left out as
    /// well. Frozen fields are encoded once.
    #[inline]
    pub fn head(
        &mut self,
        stream: StreamId,
        status: u16,
        fields: &Fields,
        date: &[u8],
        content_length: Option<u64>,
        end: bool,
    ) -> bool {
        let Some(found) = self.streams.get_mut(stream).filter(|found| found.sending == Sending::Nothing)
        else {
            return false;
        };
        found.sending = Sending::Body;
        let Connection { output, encoder, .. } = self;
        output.text(|text| {
            let start = text.len();
            text.reserve(128);
            frame::header(text, 0, frame::HEADERS, if end { END_STREAM } else { 0 }, stream.id);
            encoder.begin(text);
            Encoder::status(text, status);
            let dated = Encoder::fields(text, fields);
            if !dated {
                encoder.date(text, date);
            }
            if let Some(length) = content_length {
                Encoder::content_length(text, length);
            }
            finish_section(text, start, stream.id);
        });
        if end {
            self.finish(stream);
        }
        true
    }

    /// Sends a response with a kept body in one copy. Returns `false` if it has to be sent by
    /// [`Connection::head`] and [`Connection::data`], because the fields are not all frozen, the date is new,
    /// the body is empty or large, or there is no room for it.
    #[inline]
    pub fn kept(&mut self, stream: StreamId, status: u16, fields: &Fields, body: &Kept, date: &[u8]) -> bool {
        let len = body.body().len();
        let may = len < COPY_BELOW && len <= self.send_window.max(0) as usize;
        let Some(date) = self.encoder.short_date(date).filter(|_| may) else { return false };
        let fits = |found: &&mut Stream| {
            found.sending == Sending::Nothing
                && found.refused.is_none()
                && len <= found.send_window.max(0) as usize
        };
        let Some(found) = self.streams.get_mut(stream).filter(fits) else { return false };
        let Some(message) = kept::Message::of(body, status, fields) else { return false };
        found.sending = Sending::Body;
        self.output.text(|text| message.write(text, stream.id, date));
        self.sent(stream, len);
        self.finish(stream);
        true
    }

    /// Returns how many body bytes the stream may send now: the smaller one of both windows; 0 without a head
    /// or without a stream.
    #[inline]
    pub fn room(&self, stream: StreamId) -> usize {
        let window = match self.streams.get(stream) {
            Some(found) if found.sending == Sending::Body => found.send_window,
            _ => 0,
        };
        window.min(self.send_window).max(0) as usize
    }

    /// Marks a stream that has body bytes to send. [`Connection::next_sender`] will return it once, when
    /// there is room. The end of a body alone needs no turn: [`Connection::data`] sends it at any time.
    pub fn ready(&mut self, stream: StreamId) {
        if let Some(found) = self.streams.get_mut(stream).filter(|found| found.sending == Sending::Body) {
            found.wants = true;
            self.may_stall = true;
            self.enqueue(stream);
        }
    }

    /// Puts a stream that wants to send into the schedule, if it may.
    #[inline]
    pub(crate) fn enqueue(&mut self, name: StreamId) {
        let Some(stream) = self.streams.get_mut(name) else { return };
        if stream.wants && !stream.queued && stream.send_window > 0 {
            stream.queued = true;
            self.schedule.push(name, stream.priority);
        }
    }

    /// Returns the most urgent ready stream that has room in both windows, and how much it should send now,
    /// at least 1 byte. The stream is not ready any more: call [`Connection::ready`] again if it has more.
    /// Streams are served by urgency (RFC 9218); those of the same urgency in order of their numbers,
    /// incremental ones in turns.
    pub fn next_sender(&mut self) -> Option<(StreamId, usize)> {
        while self.send_window > 0 {
            let name = self.schedule.pop()?;
            let Some(stream) = self.streams.get_mut(name) else { continue };
            stream.queued = false;
            // The stream may have ended since. A change of SETTINGS may have closed its window; then it waits
            // for the next change.
            if stream.wants && stream.send_window > 0 {
                stream.wants = false;
                let room = stream.send_window.min(self.send_window) as usize;
                let turn = if stream.priority.incremental { room.min(MAX_PAYLOAD) } else { room };
                return Some((name, turn));
            }
        }
        None
    }

    /// Sends body bytes as far as both windows allow and returns the rest. `end`: the body ends with them, if
    /// there is no rest. May be called right after [`Connection::head`] without [`Connection::ready`]: a
    /// small response then needs no turn. An empty `data` with `end` needs no window. Bytes for a stream that
    /// is gone, or has had no head, are dropped (the rest is empty).
    #[inline]
    #[must_use]
    pub fn data(&mut self, stream: StreamId, mut data: Bytes, end: bool) -> Bytes {
        if self.streams.get(stream).is_none_or(|found| found.sending != Sending::Body) {
            return Bytes::new();
        }
        let mut room = self.room(stream);
        while room > 0 && !data.is_empty() {
            let n = data.len().min(room).min(MAX_PAYLOAD);
            let piece = if n == data.len() { std::mem::take(&mut data) } else { data.split_to(n) };
            let last = end && data.is_empty();
            let flags = if last { END_STREAM } else { 0 };
            if n < COPY_BELOW {
                self.output.text(|text| {
                    frame::header(text, n, frame::DATA, flags, stream.id);
                    text.extend_from_slice(&piece);
                });
            } else {
                self.output.text(|text| frame::header(text, n, frame::DATA, flags, stream.id));
                self.output.by_reference(piece);
            }
            room -= n;
            self.sent(stream, n);
            if last {
                self.finish(stream);
                return data;
            }
        }
        if end && data.is_empty() {
            self.control(frame::DATA, END_STREAM, stream.id, &[]);
            self.finish(stream);
        }
        data
    }

    /// Sends one DATA frame whose payload `write` appends to the output: at most as many bytes as its second
    /// argument, which is at most `most`, a frame (16 KiB) and [`Connection::room`]. `write` is not called if
    /// that is 0. It returns whether the body ends with these bytes; nothing is sent if it appends nothing
    /// and the body continues. Returns the number of bytes sent.
    ///
    /// Bytes beyond the allowed number are cut off: that is a mistake of the caller.
    pub fn data_with(
        &mut self,
        stream: StreamId,
        most: usize,
        write: impl FnOnce(&mut Vec<u8>, usize) -> bool,
    ) -> usize {
        let most = most.min(self.room(stream)).min(MAX_PAYLOAD);
        if most == 0 {
            return 0;
        }
        let (n, end) = self.output.text(|text| {
            let start = text.len();
            frame::header(text, 0, frame::DATA, 0, stream.id);
            let end = write(text, most);
            text.truncate(start + HEADER + most);
            let n = text.len().saturating_sub(start + HEADER);
            if n == 0 && !end {
                text.truncate(start);
            } else {
                frame::set_len(text, start);
                text[start + 4] = if end { END_STREAM } else { 0 };
            }
            (n, end)
        });
        self.sent(stream, n);
        if end {
            self.finish(stream);
        }
        n
    }

    /// Sends trailers, which end the body. Fields as in [`Connection::head`], without date.
    pub fn trailers(&mut self, stream: StreamId, fields: &Fields) {
        if self.streams.get(stream).is_none_or(|found| found.sending != Sending::Body) {
            return;
        }
        let Connection { output, encoder, .. } = self;
        output.text(|text| {
            let start = text.len();
            frame::header(text, 0, frame::HEADERS, END_STREAM, stream.id);
            encoder.begin(text);
            Encoder::fields(text, fields);
            finish_section(text, start, stream.id);
        });
        self.finish(stream);
    }

    /// Takes sent bytes from both windows.
    #[inline]
    fn sent(&mut self, stream: StreamId, n: usize) {
        // At most a window, which has 31 bits.
        let size = n as i32;
        self.send_window -= size;
        if let Some(found) = self.streams.get_mut(stream) {
            found.send_window -= size;
            found.unlooked = found.unlooked.saturating_add(n as u32);
        }
        self.budget.earn(Flood::WindowUpdates, UPDATES_PER_DATA);
        self.budget.earn(Flood::Pings, 1);
    }

    /// Ends the server's half of a stream.
    fn finish(&mut self, name: StreamId) {
        let Some(stream) = self.streams.get_mut(name) else { return };
        stream.sending = Sending::Done;
        stream.wants = false;
        let receiving = stream.receiving;
        match stream.refused {
            Some(ErrorCode::NO_ERROR) if receiving => self.discard(name, self.now),
            Some(code) if code != ErrorCode::NO_ERROR => self.reset(name, code),
            Some(_) => self.close(name, Closed::Ended),
            None => {
                self.budget.earn_response();
                if !receiving {
                    self.close(name, Closed::Ended);
                }
            }
        }
    }
}
