//! Targets and formats of logs.

use std::path::PathBuf;

/// The target of the access log, which has a line per request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// No access log.
    Off,
    /// Standard output, written `-`.
    Stdout,
    /// A file, absolute; appended to, reopened on HUP.
    File(PathBuf),
}

/// The target of errors, warnings and notices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorLog {
    /// Standard error, written `-`.
    Stderr,
    /// A file, absolute; appended to, reopened on HUP.
    File(PathBuf),
}

/// The format of a line in the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Apache's combined format, followed by queue, app and total time.
    Combined,
    Common,
    /// One JSON object per line.
    Json,
}
