//! A request to be sent and its result.

use crate::clock::Moment;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Job {
    /// The index into [`crate::prepare::Prepared::kinds`].
    pub kind: usize,
    /// The intended send time.
    pub due: Moment,
    /// Whether the request is outside of the warm-up.
    pub counted: bool,
}

/// The reason why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Connect,
    ConnectTimeout,
    Write,
    Read,
    Timeout,
    Status,
    Length,
    Body,
    CutOff,
}

/// A complete response.
#[derive(Debug, Clone, Default)]
pub(crate) struct Response {
    pub status: u16,
    /// The length of the decoded body.
    pub length: u64,
    /// The time when the request was sent.
    pub sent: Moment,
    /// The time when the first byte was received.
    pub first_byte: Moment,
    /// The time when the last byte was received.
    pub end: Moment,
    /// The server's own timings.
    pub timing: Option<crate::timing::Timing>,
}
