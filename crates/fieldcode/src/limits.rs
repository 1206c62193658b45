//! Bounds on request heads, and what a client expects: the same for all versions.

/// Bounds on a request head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadLimits {
    /// Request line and header fields together, in bytes (431 beyond). In HTTP/2 and HTTP/3 each field counts 32 bytes
    /// more than its name and value (RFC 9113 section 6.5.2).
    pub max_header_bytes: usize,
    /// Number of header fields (431 beyond).
    pub max_headers: usize,
    /// Request target, in bytes (414 beyond).
    pub max_uri: usize,
    /// Whether fields with `_` in their names are passed on instead of being dropped.
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

/// What a client expects before it sends its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Expect {
    /// Nothing.
    #[default]
    Nothing,
    /// 100 (Continue).
    Continue,
    /// Something unknown.
    Unknown,
}
