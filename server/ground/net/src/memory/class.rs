//! The classes of memory that are counted.

/// The uses of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Connections: their state, and unsent bytes for their sockets.
    Connections,
    /// Bodies of requests.
    Requests,
    /// Responses that clients have not taken.
    Responses,
    /// Parts of responses that streams of HTTP/2 and HTTP/3 have taken ahead of their windows.
    Streams,
    /// What QUIC holds: received bytes that no handler has read, and sent bytes that clients have not acknowledged.
    Quic,
    /// Files in memory: bodies of responses (memfd), and temporary files if their folder is in memory (tmpfs).
    Files,
    /// The cache of responses.
    Cache,
    /// Files of sites that are kept in memory.
    Sites,
    /// The heaps of handlers on mruby.
    Handlers,
    /// Encoders of compressed responses.
    Encoders,
    /// Resident memory that no other class counts.
    Other,
}

impl Class {
    pub const COUNT: usize = 11;
    /// All classes, in order.
    pub const ALL: [Class; Class::COUNT] = [
        Class::Connections,
        Class::Requests,
        Class::Responses,
        Class::Streams,
        Class::Quic,
        Class::Files,
        Class::Cache,
        Class::Sites,
        Class::Handlers,
        Class::Encoders,
        Class::Other,
    ];

    /// Returns the name in figures and messages.
    pub fn name(self) -> &'static str {
        match self {
            Class::Connections => "connections",
            Class::Requests => "requests",
            Class::Responses => "responses",
            Class::Streams => "streams",
            Class::Quic => "quic",
            Class::Files => "files",
            Class::Cache => "cache",
            Class::Sites => "sites",
            Class::Handlers => "handlers",
            Class::Encoders => "encoders",
            Class::Other => "other",
        }
    }
}
