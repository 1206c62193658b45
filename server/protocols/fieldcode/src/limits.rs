//! Defines the limits on request heads, and a client's expectation, for all versions.

/// The limits on a request head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadLimits {
    /// Request line and header fields together, in bytes (431 beyond). In HTTP/2 and HTTP/3 each field counts
    /// 32 bytes more than its name and value (RFC 9113 section 6.5.2).
    pub max_header_bytes: usize,
    /// The number of header fields (431 beyond).
    pub max_headers: usize,
    /// The request target, in bytes (414 beyond).
    pub max_uri: usize,
    /// Pass on fields with `_` in their names instead of dropping them.
    pub allow_underscore_headers: bool,
}

impl Default for HeadLimits {
    fn default() -> HeadLimits {
        HeadLimits {
            max_header_bytes: 64 << 10,
            max_headers: 100,
            max_uri: 16 << 10,
            allow_underscore_headers: false,
        }
    }
}

/// The `Expect` field of a request (RFC 9110 section 10.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expect {
    #[default]
    Nothing,
    /// 100 (Continue).
    Continue,
    Unknown,
}
