//! Holds the state of one connection, and ends it.

use crate::frame::{self, MAX_WINDOW};
use crate::hpack::{Decoder, Encoder};
use crate::repeat::Repeat;
use crate::schedule::Schedule;
use crate::streams::{Closed, Streams};
use crate::{ConnectionError, ErrorCode, Event, Limits, StreamId};
use fieldcode::{FloodBudget, Priority};
use net::Output;
use std::collections::VecDeque;
use std::time::Instant;

/// The size of all windows before SETTINGS and WINDOW_UPDATE (RFC 9113 section 6.9.2).
pub(crate) const DEFAULT_WINDOW: u32 = 65_535;
/// The contents of the PING between the two steps of a drain.
pub(crate) const DRAIN_PING: [u8; 8] = *b"draining";
/// The largest buffer for partial frames that is kept.
const KEPT_PARTIAL: usize = 1 << 10;

/// The phase of the server's side of a connection's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Going {
    /// No GOAWAY was sent.
    Not,
    /// GOAWAY without a last stream was sent at that time.
    Announced(Instant),
    /// GOAWAY with the last stream was sent.
    Final,
}

/// The kind of the next bytes.
#[derive(Debug)]
pub(crate) enum Reading {
    Preface,
    Frames,
    /// The payload of a DATA frame. Without a stream it is dropped.
    Data {
        stream: Option<StreamId>,
        left: usize,
        padding: usize,
        end: bool,
    },
    /// Nothing is read any more.
    Over,
}

/// A header section whose CONTINUATION frames have not all arrived.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) stream: u32,
    pub(crate) end: bool,
    pub(crate) self_dependent: bool,
    pub(crate) frames: usize,
    pub(crate) bytes: Vec<u8>,
}

/// A stream whose body is dropped.
#[derive(Debug)]
pub(crate) struct Discard {
    pub(crate) stream: StreamId,
    pub(crate) left: u32,
    pub(crate) until: Instant,
}

/// The server's end of an HTTP/2 connection.
///
/// The caller reads from the socket and calls [`Connection::receive`]; after each turn it writes
/// [`Connection::output`]. It must not read while more than a turn's worth of output is unsent (64 KiB, say):
/// response heads are not subject to flow control, so nothing else holds back a client that sends and never
/// reads.
///
/// Calls for a stream that is gone do nothing, and report that where it matters.
#[derive(Debug)]
pub struct Connection {
    pub(crate) limits: Limits,
    pub(crate) output: Output,
    /// The latest known time.
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
    pub(crate) budget: FloodBudget,
    pub(crate) reading: Reading,
    /// An incomplete frame, or the incomplete preface.
    pub(crate) partial: Vec<u8>,
    /// The client's first SETTINGS have not arrived.
    pub(crate) is_in_preface: bool,
    /// An incomplete header section.
    pub(crate) block: Option<Box<Block>>,
    /// Since when the next frame, section or the preface has been incomplete.
    pub(crate) waiting_since: Option<Instant>,
    /// When SETTINGS were sent, until they are acknowledged.
    pub(crate) settings_sent: Option<Instant>,
    /// The bytes that the client may send on all streams.
    pub(crate) receive_window: u32,
    /// Credited by streams and not announced yet.
    pub(crate) credit: u32,
    /// The bytes that may be sent on all streams.
    pub(crate) send_window: i32,
    /// The client's SETTINGS_INITIAL_WINDOW_SIZE.
    pub(crate) initial_window: u32,
    /// PRIORITY_UPDATE frames for streams that are not open yet.
    pub(crate) early_priorities: Vec<(u32, Priority)>,
    /// Streams may be waiting for a window; each check finds out.
    pub(crate) may_stall: bool,
    /// The client may not have received data sent since this time.
    pub(crate) behind: Option<Instant>,
    pub(crate) going: Going,
    /// The client has sent GOAWAY.
    pub(crate) client_going: bool,
    /// Text and fields of recent heads.
    pub(crate) usual: (usize, usize),
    pub(crate) failed: Option<ConnectionError>,
}

impl Connection {
    /// Creates a connection that expects the client's preface. The server's SETTINGS are in the output.
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
            budget: FloodBudget::new(now),
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
            (frame::SETTING_ENABLE_CONNECT_PROTOCOL, 1),
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

    /// Processes all of the received bytes, and reports events. Partial frames are kept inside.
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

    /// Ends the connection: sends GOAWAY with the last accepted stream. Nothing more is received. Responses
    /// in progress may continue as far as windows are open.
    pub fn goaway(&mut self, code: ErrorCode) {
        if self.failed.is_none() {
            self.send_goaway(code, "");
            self.reading = Reading::Over;
            self.waiting_since = None;
            self.settings_sent = None;
            self.reset_all_discards();
        }
    }

    /// Starts a graceful shutdown: sends GOAWAY without a last stream, then, a round trip or a second later,
    /// GOAWAY with the last stream. Later streams are refused. Close when [`Connection::is_drained`]. Further
    /// calls do nothing.
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

    /// Sends the final GOAWAY: the client has answered the PING of a drain, so it knows of the end.
    pub(crate) fn drained(&mut self) {
        if matches!(self.going, Going::Announced(_)) {
            self.send_goaway(ErrorCode::NO_ERROR, "");
        }
    }

    /// Returns whether no stream is or will be open: the last GOAWAY has been sent, or the client's received.
    pub fn is_drained(&self) -> bool {
        self.is_idle() && (self.going == Going::Final || self.client_going)
    }

    /// Returns the bytes to write. All bytes of a turn leave in one write.
    pub fn output(&mut self) -> &mut Output {
        &mut self.output
    }

    /// Returns whether no stream is open.
    pub fn is_idle(&self) -> bool {
        self.streams() == 0
    }

    /// Returns the number of open streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns whether a frame, a header section or the preface is incomplete, so the connection is not
    /// waiting between requests.
    pub fn is_receiving_frame(&self) -> bool {
        self.waiting_since.is_some()
    }

    /// Returns whether the client still sends this stream's body.
    pub fn is_receiving(&self, stream: StreamId) -> bool {
        self.streams.get(stream).is_some_and(|stream| stream.receiving)
    }

    /// Returns whether the stream is open in at least one direction.
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

    /// Removes a stream. Its share of the connection's window is credited.
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

    /// Credits `n` bytes of the stream's body that the handler has consumed: the client may send as many
    /// again. WINDOW_UPDATE is sent when it is worth a frame. When a stream closes, the rest is credited.
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
