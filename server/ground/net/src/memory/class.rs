//! The classes of memory that are counted.

/// The uses of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryClass {
    /// Connections: their state, and unsent bytes for their sockets.
    Connections,
    /// Bodies of requests, also in files if their folder is in memory (tmpfs).
    Requests,
    /// Responses that clients have not taken.
    Responses,
    /// Parts of files that streams of HTTP/3 have read from a disk.
    Streams,
    /// The buffers of QUIC: received bytes that no handler has read, and sent bytes that clients have not acknowledged.
    Quic,
    /// Files in memory: bodies of responses (memfd), also in files if their folder is in memory (tmpfs).
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

impl MemoryClass {
    pub const COUNT: usize = 11;
    /// All classes, in order.
    pub const ALL: [MemoryClass; MemoryClass::COUNT] = [
        MemoryClass::Connections,
        MemoryClass::Requests,
        MemoryClass::Responses,
        MemoryClass::Streams,
        MemoryClass::Quic,
        MemoryClass::Files,
        MemoryClass::Cache,
        MemoryClass::Sites,
        MemoryClass::Handlers,
        MemoryClass::Encoders,
        MemoryClass::Other,
    ];

    /// Returns the name in figures and messages.
    pub fn name(self) -> &'static str {
        match self {
            MemoryClass::Connections => "connections",
            MemoryClass::Requests => "requests",
            MemoryClass::Responses => "responses",
            MemoryClass::Streams => "streams",
            MemoryClass::Quic => "quic",
            MemoryClass::Files => "files",
            MemoryClass::Cache => "cache",
            MemoryClass::Sites => "sites",
            MemoryClass::Handlers => "handlers",
            MemoryClass::Encoders => "encoders",
            MemoryClass::Other => "other",
        }
    }
}
