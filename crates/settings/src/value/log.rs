//! Where log lines go and what shape they have.

use std::path::PathBuf;

/// Where a line per request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    /// Nowhere: no line is made.
    Off,
    /// Standard output, written `-`.
    Stdout,
    /// A file, absolute; appended to, reopened on HUP.
    File(PathBuf),
}

/// Where errors, warnings and notices go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorLog {
    /// Standard error, written `-`.
    Stderr,
    /// A file, absolute; appended to, reopened on HUP.
    File(PathBuf),
}

/// Shape of a line in the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Apache's combined format, followed by queue, app and total time.
    Combined,
    /// Apache's common format.
    Common,
    /// One JSON object per line.
    Json,
}
