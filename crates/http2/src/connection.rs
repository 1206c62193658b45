//! One connection: what it keeps, and its end.

use crate::discard::Discard;
use crate::frame::{self, MAX_WINDOW};
use crate::hpack::{Decoder, Encoder};
use crate::receive::{Block, Reading};
use crate::repeat::Repeat;
use crate::schedule::Schedule;
use crate::streams::{Closed, Streams};
use crate::{ConnectionError, ErrorCode, Event, Limits, StreamId};
use fieldcode::Budget;
use fieldcode::Priority;
use net::Output;
use std::collections::VecDeque;
use std::time::Instant;

/// The size of all windows before SETTINGS and WINDOW_UPDATE (RFC 9113 section 6.9.2).
pub(crate) const DEFAULT_WINDOW: u32 = 65_535;
/// The contents of the PING between both steps of a drain.
pub(crate) const DRAIN_PING: [u8; 8] = *b"draining";
/// A buffer for partial frames that is kept.
const KEPT_PARTIAL: usize = 1 << 10;

/// How far the server's side of an end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Going {
    /// Nothing has been said.
    Not,
    /// GOAWAY without a last stream was sent at that time.
    Announced(Instant),
    /// GOAWAY with the last stream was sent.
    Final,
}

/// The server's end of an HTTP/2 connection.
///
/// The caller reads from the socket and calls [`Connection::receive`]; after each turn it writes [`Connection::output`]. It does
/// not read while more than a turn's worth of output is unsent (64 KiB, say): heads of responses are not subject to flow
/// control, so a client that sends and never reads is held back by this alone.
///
/// Calls that name a stream which is gone do nothing, and say so where it matters.
#[derive(Debug)]
pub struct Connection {
    pub(crate) limits: Limits,
    pub(crate) output: Output,
    /// The latest time that is known.
    pub(crate) now: Instant,
    pub(crate) streams: Streams,
    /// Bytes of the heads of open streams.
    pub(crate) heads: usize,
    pub(crate) schedule: Schedule,
    /// Streams whose response has been sent and whose body is dropped, in order of their deadlines.
    pub(crate) discards: VecDeque<Discard>,
    pub(crate) decoder: Decoder,
    pub(crate) repeat: Repeat,
    pub(crate) encoder: Encoder,
    pub(crate) budget: Budget,
    pub(crate) reading: Reading,
    /// A frame, or the preface, that has not arrived completely.
    pub(crate) partial: Vec<u8>,
    /// The client's first SETTINGS are yet to come.
    pub(crate) is_in_preface: bool,
    /// A header section that has not arrived completely.
    pub(crate) block: Option<Box<Block>>,
    /// Since when the next frame, section or the preface has been incomplete.
    pub(crate) waiting_since: Option<Instant>,
    /// When SETTINGS were sent, until they are acknowledged.
    pub(crate) settings_sent: Option<Instant>,
    /// What the client may send on all streams.
    pub(crate) receive_window: u32,
    /// Given back by streams and not announced yet.
    pub(crate) credit: u32,
    /// What may be sent on all streams.
    pub(crate) send_window: i32,
    /// The client's SETTINGS_INITIAL_WINDOW_SIZE.
    pub(crate) initial_window: u32,
    /// PRIORITY_UPDATE frames for streams that are not open yet.
    pub(crate) early_priorities: Vec<(u32, Priority)>,
    /// Streams may be waiting for a window: each check finds out whether they are.
    pub(crate) may_stall: bool,
    /// What was sent since then the client may not have received.
    pub(crate) behind: Option<Instant>,
    pub(crate) going: Going,
    /// The client has sent GOAWAY.
    pub(crate) client_going: bool,
    /// Text and fields of recent heads.
    pub(crate) usual: (usize, usize),
    pub(crate) failed: Option<ConnectionError>,
}

impl Connection {
    /// A connection whose first bytes (the client's preface) are yet to come. The server's SETTINGS are in the output.
    pub fn new(mut limits: Limits, now: Instant) -> Connection {
        let window = |size: u32| size.clamp(DEFAULT_WINDOW, MAX_WINDOW);
        limits.stream_window = window(limits.stream_window);
        limits.connection_window = window(limits.connection_window);
        let mut connection = Connection {
            output: Output::default(),
            now,
            streams: Streams::default(),
            heads: 0,
            schedule: Schedule::default(),
            discards: VecDeque::new(),
            decoder: Decoder::new(),
            repeat: Repeat::default(),
            encoder: Encoder::new(),
            budget: Budget::new(now),
            reading: Reading::Preface,
            partial: Vec::new(),
            is_in_preface: true,
            block: None,
            waiting_since: Some(now),
            settings_sent: Some(now),
            receive_window: limits.connection_window,
            credit: 0,
            send_window: DEFAULT_WINDOW as i32,
            initial_window: DEFAULT_WINDOW,
            early_priorities: Vec::new(),
            may_stall: false,
            behind: None,
            going: Going::Not,
            client_going: false,
            usual: (512, 12),
            failed: None,
            limits,
        };
        connection.send_settings();
        connection
    }

    fn send_settings(&mut self) {
        let Limits { head, max_streams, stream_window, connection_window, .. } = &self.limits;
        let settings = [
            (frame::SETTING_MAX_CONCURRENT_STREAMS, *max_streams),
            (frame::SETTING_INITIAL_WINDOW_SIZE, *stream_window),
            (frame::SETTING_MAX_HEADER_LIST_SIZE, u32::try_from(head.max_header_bytes).unwrap_or(u32::MAX)),
            (frame::SETTING_NO_RFC7540_PRIORITIES, 1),
        ];
        self.output.text(|text| {
            frame::header(text, 6 * settings.len(), frame::SETTINGS, 0, 0);
            for (name, value) in settings {
                text.extend_from_slice(&name.to_be_bytes());
                text.extend_from_slice(&value.to_be_bytes());
            }
        });
        let more = connection_window - DEFAULT_WINDOW;
        if more > 0 {
            self.window_update_frame(0, more);
        }
    }

    /// Takes bytes that have arrived, all of them, and reports what they mean. Partial frames are kept inside.
    ///
    /// # Errors
    /// The connection is over: write the output, which ends with GOAWAY, and close. Streams get no further events.
    pub fn receive(
        &mut self,
        input: &[u8],
        now: Instant,
        events: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ConnectionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.now = now;
        self.budget.refill(now);
        if self.output.is_empty() {
            self.budget.earn(crate::Flood::Unread, u32::MAX);
        }
        self.read(input, events).map_err(|error| self.fail(error))
    }

    /// Ends the connection because of an error.
    pub(crate) fn fail(&mut self, error: ConnectionError) -> ConnectionError {
        self.send_goaway(error.code, error.reason);
        self.reading = Reading::Over;
        self.failed = Some(error);
        error
    }

    pub(crate) fn send_goaway(&mut self, code: ErrorCode, reason: &str) {
        let last = self.streams.last;
        self.output.text(|text| {
            frame::header(text, 8 + reason.len(), frame::GOAWAY, 0, 0);
            text.extend_from_slice(&last.to_be_bytes());
            text.extend_from_slice(&code.0.to_be_bytes());
            text.extend_from_slice(reason.as_bytes());
        });
        self.going = Going::Final;
    }

    /// Ends the connection: GOAWAY with the last stream that was taken. Nothing is received any more; responses that are being
    /// sent may go on as far as windows are open.
    pub fn goaway(&mut self, code: ErrorCode) {
        if self.failed.is_none() {
            self.send_goaway(code, "");
            self.reading = Reading::Over;
            self.waiting_since = None;
            self.settings_sent = None;
            self.reset_all_discards();
        }
    }

    /// Lets the client finish: GOAWAY without a last stream, then, a round trip or a second later, GOAWAY with the last stream.
    /// Streams after that one are refused. Close when [`Connection::is_drained`]. More calls do nothing.
    pub fn drain(&mut self, now: Instant) {
        if self.going != Going::Not {
            return;
        }
        self.going = Going::Announced(now);
        self.output.text(|text| {
            frame::header(text, 8, frame::GOAWAY, 0, 0);
            text.extend_from_slice(&MAX_WINDOW.to_be_bytes());
            text.extend_from_slice(&ErrorCode::NO_ERROR.0.to_be_bytes());
        });
        self.control(frame::PING, 0, 0, &DRAIN_PING);
    }

    /// The client has answered the PING of a drain: it knows.
    pub(crate) fn drained(&mut self) {
        if matches!(self.going, Going::Announced(_)) {
            self.send_goaway(ErrorCode::NO_ERROR, "");
        }
    }

    /// Whether no stream is open, and none will be: the last GOAWAY has been sent, or the client's received.
    pub fn is_drained(&self) -> bool {
        self.is_idle() && (self.going == Going::Final || self.client_going)
    }

    /// Bytes to write. Everything of a turn leaves in one write.
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Whether no stream is open.
    pub fn is_idle(&self) -> bool {
        self.streams() == 0
    }

    /// Streams that are open.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Whether a frame or a header section has arrived in part, or the preface is missing: the connection is not waiting between
    /// requests.
    pub fn is_receiving_frame(&self) -> bool {
        self.waiting_since.is_some()
    }

    /// Whether the client still sends this stream's body.
    pub fn is_receiving(&self, stream: StreamId) -> bool {
        self.streams.get(stream).is_some_and(|stream| stream.receiving)
    }

    /// Whether the stream is open in at least one direction.
    pub fn is_open(&self, stream: StreamId) -> bool {
        self.streams.get(stream).is_some()
    }

    /// Queues a small frame.
    pub(crate) fn control(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.output.text(|text| {
            frame::header(text, payload.len(), kind, flags, stream);
            text.extend_from_slice(payload);
        });
    }

    /// Takes a stream out. What it has not given back of the connection's window is given back.
    pub(crate) fn close(&mut self, name: StreamId, how: Closed) {
        let Some(stream) = self.streams.remove(name, how) else { return };
        if stream.queued {
            self.schedule.remove(name, stream.priority);
        }
        self.end_discard(name);
        self.heads -= stream.head as usize;
        self.credit_connection(stream.unconsumed);
    }

    /// Resets the stream. No event follows.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode) {
        if self.is_open(stream) {
            self.control(frame::RST_STREAM, 0, stream.id, &code.0.to_be_bytes());
            self.close(stream, Closed::ByServer);
        }
    }

    /// The handler has consumed `n` bytes of the stream's body: the client may send as many again. WINDOW_UPDATE is sent when it
    /// is worth a frame. What a stream has not given back when it closes is given back then.
    pub fn credit(&mut self, stream: StreamId, n: usize) {
        let half = self.limits.stream_window / 2;
        let Some(found) = self.streams.get_mut(stream) else { return };
        let n = u32::try_from(n).unwrap_or(u32::MAX).min(found.unconsumed);
        found.unconsumed -= n;
        found.credit += n;
        if found.receiving && found.credit >= half {
            let credit = std::mem::take(&mut found.credit);
            found.receive_window += credit;
            self.window_update_frame(stream.id, credit);
        }
        self.credit_connection(n);
    }

    pub(crate) fn credit_connection(&mut self, n: u32) {
        self.credit += n;
        if self.credit >= self.limits.connection_window / 2 {
            let credit = std::mem::take(&mut self.credit);
            self.receive_window += credit;
            self.window_update_frame(0, credit);
        }
    }

    pub(crate) fn window_update_frame(&mut self, stream: u32, more: u32) {
        self.control(frame::WINDOW_UPDATE, 0, stream, &more.to_be_bytes());
    }

    /// Keeps a buffer for partial frames if it is small.
    pub(crate) fn keep_partial(&mut self, mut partial: Vec<u8>) {
        if partial.capacity() <= KEPT_PARTIAL {
            partial.clear();
            self.partial = partial;
        }
    }
}
