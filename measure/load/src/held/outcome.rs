//! The results of a run of held connections.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::Histogram;

/// The results. Connections and errors count over the whole run, traffic in the counted part.
#[derive(Debug, Clone, Default, Serialize)]
pub struct HoldOutcome {
    /// The length of the counted part.
    pub seconds: f64,
    /// The time in which the connections were opened, before the counted part.
    pub opening_seconds: f64,
    /// Connections that were opened; more than the wanted ones if the server has closed some.
    pub opened: u64,
    /// The most and the fewest connections that were open at once in the counted part, at full seconds.
    pub most_held: u64,
    pub fewest_held: u64,
    /// Open connections at the end of the counted part.
    pub held_at_end: u64,
    /// Connections that were opened again after the server had closed them.
    pub reconnects: u64,
    /// Connections that the server has closed in order: the end of a stream, or a close frame.
    pub closed_by_server: u64,
    /// Streams that the server does not want to be opened again (204).
    pub stopped_by_server: u64,
    /// Microseconds until a connection was open: TCP, TLS, and the head of the response.
    pub open_us: Histogram,
    /// Microseconds from the beginning of a connection to its first event or message.
    pub first_us: Histogram,
    /// Microseconds between an event or message and the one before on the same connection.
    pub gaps_us: Histogram,
    /// Events or messages.
    pub received: u64,
    /// Bytes of them as received, with their framing, without TLS.
    pub received_bytes: u64,
    /// Comments of event streams.
    pub comments: u64,
    /// Messages that were sent.
    pub sent: u64,
    pub sent_bytes: u64,
    /// Messages that were due, but not sent, because the server did not read.
    pub unsent: u64,
    /// Microseconds from when a message was due to its reply.
    pub round_trip_us: Histogram,
    /// Messages without a reply in time.
    pub unanswered: u64,
    /// Pings that were answered.
    pub pings: u64,
    /// Status codes of the server's close frames; 1005 stands for none (RFC 6455, 7.4.1).
    pub close_codes: BTreeMap<u16, u64>,
    /// Errors by text.
    pub errors: BTreeMap<String, u64>,
    /// Errors that are time-outs.
    pub timeouts: u64,
    /// The counted part, second by second.
    pub course: Vec<Interval>,
    /// The share of its time that the busiest thread of the load generator computed.
    pub busy: f64,
}

impl HoldOutcome {
    /// Returns the number of errors, without unanswered messages.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }
}

/// One second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Interval {
    /// Open connections at its end.
    pub held: u64,
    /// Connections that were opened in it.
    pub opened: u64,
    pub received: u64,
    pub sent: u64,
    pub errors: u64,
}
