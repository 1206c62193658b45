//! Exceptions of `Redis`: [`Fault`].

use ::redis::{Error, ErrorKind};
use mruby::Tape;

/// An exception to raise in Ruby.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    class: &'static str,
    message: Vec<u8>,
}

impl Fault {
    pub(super) fn new(class: &'static str, message: impl AsRef<[u8]>) -> Fault {
        Fault { class, message: message.as_ref().to_vec() }
    }

    pub(super) fn write(&self, tape: &mut Tape) {
        tape.fault(self.class, &self.message);
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault { class: class(error.kind), message: error.message }
    }
}

/// Returns the class of redis-rb for an error.
pub(super) fn class(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::CannotConnect => "Redis::CannotConnectError",
        ErrorKind::ConnectTimeout => "Redis::ConnectTimeoutError",
        ErrorKind::ConnectionLost => "Redis::ConnectionError",
        ErrorKind::CommandTimeout => "Redis::CommandTimeoutError",
        ErrorKind::Protocol => "Redis::ProtocolError",
        ErrorKind::WrongType => "Redis::WrongTypeError",
        ErrorKind::Permission => "Redis::PermissionError",
        ErrorKind::NoScript => "Redis::NoScriptError",
        ErrorKind::OutOfMemory => "Redis::OutOfMemoryError",
        ErrorKind::ReadOnly => "Redis::ReadOnlyError",
        ErrorKind::Command => "Redis::CommandError",
    }
}
