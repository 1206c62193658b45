//! Connections that are held open, instead of requests that are answered: Server-Sent Events and WebSockets.
//!
//! A run opens all connections, and counts from when each has been opened or has failed once, or
//! [`STRAGGLERS`] after the last of these. Connections that the server closes are opened again, so that their number
//! stays the same. HTTP/1.1 only.
//!
//! Contract: memory is bounded by connection: bytes are read into one buffer for each thread and are not kept, except
//! for messages that a regular expression is to match (up to [`LONGEST_MATCHED`]).

mod connection;
mod event_stream;
mod events;
mod frame;
mod outcome;
mod replies;
mod run;
mod tally;
mod web_socket;

pub use outcome::{HoldOutcome, Interval};
pub use run::run;

use std::time::Duration;

use bytes::Bytes;

use crate::scenario::{Request, Timeouts, Transport};
use crate::think::Think;

/// If no connection was opened for this long, the run counts without the missing ones.
const STRAGGLERS: Duration = Duration::from_millis(500);
/// The longest beginning of a message that a regular expression sees, in bytes.
pub const LONGEST_MATCHED: usize = 64 * 1024;

/// The connections to hold, and for how long.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The requests that open connections, in turn; never empty. Bodies and weights are not used.
    pub requests: Vec<Request>,
    pub transport: Transport,
    /// `request` is the time limit for the head of the response and for a reply to a message.
    pub timeouts: Timeouts,
    /// The number of connections.
    pub connections: usize,
    /// The length of the counted part.
    pub duration: Duration,
    pub threads: usize,
    pub talk: Talk,
}

/// The traffic of the connections.
#[derive(Debug, Clone)]
pub enum Talk {
    /// Server-Sent Events.
    Events,
    WebSocket(Conversation),
}

/// The client's part of a WebSocket.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// Messages that are sent once, after the handshake.
    pub first: Vec<Message>,
    /// Messages that are sent in turn in the counted part; may be empty.
    pub send: Vec<Message>,
    pub pace: Pace,
    pub reply: Reply,
}

/// A message to send.
#[derive(Debug, Clone)]
pub struct Message {
    /// In text, `${user}` is the number of the connection from 1, `${turn}` that of the message.
    pub content: Bytes,
    pub binary: bool,
}

/// When a connection sends its next message.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// This often each second on each connection, whether or not replies arrive.
    Rate(f64),
    /// After the reply to the last message, and a pause.
    AfterReply(Think),
}

/// Which message of the server replies to a message.
#[derive(Debug, Clone)]
pub enum Reply {
    /// The same message.
    Echo,
    /// The next message.
    Next,
    /// The next message that matches.
    Matching(regex::bytes::Regex),
    /// None.
    None,
}

/// Reads bytes as frames and as an event stream, in one piece and cut in two; for fuzzing.
///
/// # Panics
/// The results differ.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8], cut: usize) {
    frame::fuzz(bytes, cut);
    event_stream::fuzz(bytes, cut);
}
