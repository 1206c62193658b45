//! Defines the errors of the client: [`Error`].

/// The kind of an error. The first five are failures of the connection, the others are error replies by their
/// first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The connection could not be opened, or the server rejected user, password or database.
    CannotConnect,
    /// Connecting took longer than `connect_timeout`.
    ConnectTimeout,
    /// The connection was lost before the reply was complete. Whether the command was executed is unknown.
    ConnectionLost,
    /// No reply within the command's time-out.
    CommandTimeout,
    /// The connection is used in a way that it does not allow.
    Protocol,
    /// `WRONGTYPE`
    WrongType,
    /// `NOPERM`
    Permission,
    /// `NOSCRIPT`
    NoScript,
    /// `OOM`
    OutOfMemory,
    /// `READONLY`
    ReadOnly,
    /// Any other error reply.
    Command,
}

impl ErrorKind {
    pub(crate) fn of_reply(text: &[u8]) -> ErrorKind {
        match text.split(|byte| *byte == b' ').next().unwrap_or_default() {
            b"WRONGTYPE" => ErrorKind::WrongType,
            b"NOPERM" => ErrorKind::Permission,
            b"NOSCRIPT" => ErrorKind::NoScript,
            b"OOM" => ErrorKind::OutOfMemory,
            b"READONLY" => ErrorKind::ReadOnly,
            _ => ErrorKind::Command,
        }
    }
}

/// An error reply, or a failure of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    pub kind: ErrorKind,
    /// The server's words, or a sentence that names the server. Error replies need not be UTF-8.
    pub message: Vec<u8>,
}

impl Error {
    pub fn new(kind: ErrorKind, message: impl AsRef<[u8]>) -> Error {
        Error { kind, message: message.as_ref().to_vec() }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.message))
    }
}

impl std::error::Error for Error {}
