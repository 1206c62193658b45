//! Defines the error codes of HTTP/3 (RFC 9114 section 8.1) and QPACK (RFC 9204 section 6), and the scope of an error.

use handler::Failure;

/// Error codes of streams and connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Code {
    /// The connection or stream is closed without an error.
    NoError = 0x100,
    /// A protocol violation that has no code of its own.
    GeneralProtocolError = 0x101,
    /// The server failed.
    InternalError = 0x102,
    /// A stream that is not allowed, such as a push stream of a client.
    StreamCreationError = 0x103,
    /// A critical stream was closed.
    ClosedCriticalStream = 0x104,
    /// A frame that is not allowed here.
    FrameUnexpected = 0x105,
    /// A frame of a wrong size or form.
    FrameError = 0x106,
    /// The peer makes the server work for nothing.
    ExcessiveLoad = 0x107,
    /// An identifier that is not allowed.
    IdError = 0x108,
    /// A setting that is not allowed.
    SettingsError = 0x109,
    /// The control stream does not begin with SETTINGS.
    MissingSettings = 0x10a,
    /// The request was not processed; it may be sent again.
    RequestRejected = 0x10b,
    /// The request or its response is no longer wanted.
    RequestCancelled = 0x10c,
    /// The client's stream ended inside a request.
    RequestIncomplete = 0x10d,
    /// A malformed message.
    MessageError = 0x10e,
    /// A field section cannot be decoded.
    QpackDecompressionFailed = 0x200,
    /// An instruction of the encoder stream that cannot be carried out.
    QpackEncoderStreamError = 0x201,
    /// An invalid instruction of the decoder stream.
    QpackDecoderStreamError = 0x202,
}

impl Code {
    /// Returns the number on the wire.
    pub fn number(self) -> u64 {
        self as u64
    }
}

/// An error of the peer, and its scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The connection ends.
    Connection(Code, &'static str),
    /// The stream ends; other streams are not affected.
    Stream(Code, &'static str),
    /// The request is refused with a response; further bytes of its stream are not wanted.
    Refused(Box<Failure>),
}
