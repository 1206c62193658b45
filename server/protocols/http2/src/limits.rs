//! Defines the limits on a client's actions.

use fieldcode::HeadLimits;
use std::time::Duration;

/// The limits of one connection. All of them are announced in SETTINGS where HTTP/2 has a parameter for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The limits on each request head. The heads of all open streams together may have 16 times
    /// `max_header_bytes`; streams beyond that are refused with REFUSED_STREAM.
    pub head: HeadLimits,
    /// The most open streams; more are refused with REFUSED_STREAM, which clients repeat by themselves.
    pub max_streams: u32,
    /// The bytes of a body that a client may send before they are consumed; 65,535 to 2^31-1 (clamped).
    pub stream_window: u32,
    /// The same for all streams together; 65,535 to 2^31-1 (clamped).
    pub connection_window: u32,
    /// How long the bytes of one frame, one header section, or the connection preface may take.
    pub header_timeout: Duration,
    /// How long the acknowledgement of SETTINGS may take.
    pub settings_timeout: Duration,
    /// How long a stream with data to send may wait for a window before it is reset.
    pub stall_timeout: Duration,
    /// The most request bytes that are read and dropped after a response was sent before the request's end.
    /// After that the stream is reset.
    pub discard_bytes: u32,
    /// The longest time for which they are read.
    pub discard_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            head: HeadLimits::default(),
            max_streams: 128,
            stream_window: 1 << 20,
            connection_window: 4 << 20,
            header_timeout: Duration::from_secs(30),
            settings_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(60),
            discard_bytes: 256 << 10,
            discard_timeout: Duration::from_secs(2),
        }
    }
}
