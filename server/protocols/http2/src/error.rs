//! Defines error codes (RFC 9113 section 7), and the error that ends a connection.

use fieldcode::Flood;
use std::fmt;

/// An error code of RST_STREAM and GOAWAY frames. Unknown codes are possible.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub u32);

impl ErrorCode {
    /// Graceful shutdown, or a stream that is not needed any more.
    pub const NO_ERROR: ErrorCode = ErrorCode(0);
    pub const PROTOCOL_ERROR: ErrorCode = ErrorCode(1);
    /// The server failed.
    pub const INTERNAL_ERROR: ErrorCode = ErrorCode(2);
    /// More bytes than the window allowed.
    pub const FLOW_CONTROL_ERROR: ErrorCode = ErrorCode(3);
    /// SETTINGS were not acknowledged in time.
    pub const SETTINGS_TIMEOUT: ErrorCode = ErrorCode(4);
    /// A frame on a stream that has ended.
    pub const STREAM_CLOSED: ErrorCode = ErrorCode(5);
    pub const FRAME_SIZE_ERROR: ErrorCode = ErrorCode(6);
    /// The request was not processed: the client may send it again.
    pub const REFUSED_STREAM: ErrorCode = ErrorCode(7);
    /// The stream is not needed any more.
    pub const CANCEL: ErrorCode = ErrorCode(8);
    /// The state of header compression is lost.
    pub const COMPRESSION_ERROR: ErrorCode = ErrorCode(9);
    /// The connection of a CONNECT failed.
    pub const CONNECT_ERROR: ErrorCode = ErrorCode(10);
    /// The peer's behaviour might exhaust the server.
    pub const ENHANCE_YOUR_CALM: ErrorCode = ErrorCode(11);
    /// The transport is not secure enough.
    pub const INADEQUATE_SECURITY: ErrorCode = ErrorCode(12);
    pub const HTTP_1_1_REQUIRED: ErrorCode = ErrorCode(13);

    /// Returns the name in RFC 9113 section 7; empty for unknown codes.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 14] = [
            "NO_ERROR",
            "PROTOCOL_ERROR",
            "INTERNAL_ERROR",
            "FLOW_CONTROL_ERROR",
            "SETTINGS_TIMEOUT",
            "STREAM_CLOSED",
            "FRAME_SIZE_ERROR",
            "REFUSED_STREAM",
            "CANCEL",
            "COMPRESSION_ERROR",
            "CONNECT_ERROR",
            "ENHANCE_YOUR_CALM",
            "INADEQUATE_SECURITY",
            "HTTP_1_1_REQUIRED",
        ];
        NAMES.get(self.0 as usize).copied().unwrap_or_default()
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            "" => write!(f, "error code {:#x}", self.0),
            name => f.write_str(name),
        }
    }
}

/// Why a connection ends. The GOAWAY frame is already in the output: write it, then close.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionError {
    /// The code of the GOAWAY frame.
    pub code: ErrorCode,
    /// For the log.
    pub reason: &'static str,
    /// The kind of flood, with [`ErrorCode::ENHANCE_YOUR_CALM`].
    pub flood: Option<Flood>,
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.reason)
    }
}

impl std::error::Error for ConnectionError {}

/// The client exceeds a budget.
impl From<Flood> for ConnectionError {
    #[cold]
    fn from(flood: Flood) -> ConnectionError {
        ConnectionError { code: ErrorCode::ENHANCE_YOUR_CALM, reason: flood.name(), flood: Some(flood) }
    }
}
