//! A request on its way, and what became of it.

use crate::clock::Moment;

/// A request that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Job {
    /// Which of [`crate::prepare::Prepared::kinds`].
    pub kind: usize,
    /// When it was meant to be sent.
    pub due: Moment,
    /// It is no part of the warm-up.
    pub counted: bool,
}

/// Why there was no right answer.
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

/// A whole answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Answer {
    pub status: u16,
    /// Of the body, its coding undone.
    pub length: u64,
    /// When its request was sent.
    pub sent: Moment,
    /// When its first byte came.
    pub first_byte: Moment,
    /// When its last byte came.
    pub end: Moment,
    /// What the server says of where the time went.
    pub timing: Option<crate::timing::Timing>,
}
