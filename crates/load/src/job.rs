//! A request to be sent and its result.

use crate::clock::Moment;

/// A request to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Job {
    /// Which of [`crate::prepare::Prepared::kinds`].
    pub kind: usize,
    /// When it should be sent.
    pub due: Moment,
    /// It is not part of the warm-up.
    pub counted: bool,
}

/// Why a request failed.
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
    /// Length of the decoded body.
    pub length: u64,
    /// When its request was sent.
    pub sent: Moment,
    /// When its first byte was received.
    pub first_byte: Moment,
    /// When its last byte was received.
    pub end: Moment,
    /// The server's own account of where the time went.
    pub timing: Option<crate::timing::Timing>,
}
