//! A request's head: the result of judging a field section.

use crate::Expect;
use crate::section::SPARE_TEXT;
use handler::{Failure, Fields, Span};

/// A judged request head. All spans are into `fields.text()`, which has room to spare for fields that filters add.
#[derive(Debug, Clone)]
pub struct RequestHead {
    /// `:method`, a token of at most 32 bytes; never CONNECT.
    pub method: Span,
    /// `:scheme`: `http` or `https`, in any case. What the client claims; whether it is true only the connection knows.
    pub scheme: Span,
    /// `:authority`, else Host; a host with an optional port, never empty.
    pub authority: Span,
    /// `:path` as received: begins with `/`, or is `*` (OPTIONS only).
    pub target: Span,
    /// The target without its query.
    pub path: Span,
    /// The query without `?`.
    pub query: Span,
    /// The value of the first `priority` field (RFC 9218), empty if there is none.
    pub priority: Span,
    /// The declared length of the body.
    pub content_length: Option<u64>,
    /// What the client expects before it sends its body.
    pub expect: Expect,
    /// The fields, with names in lower case. `host` is there exactly once: it is supplied from `:authority`. Cookies are joined.
    pub fields: Fields,
}

impl RequestHead {
    /// A copy with the same room to spare.
    pub fn repeated(&self) -> RequestHead {
        RequestHead { fields: self.fields.with_room(SPARE_TEXT), ..*self }
    }
}

/// Why a field section is no request that can be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The response that the client may get.
    pub failure: Failure,
    /// Whether it breaks the protocol (RFC 9113 section 8.1.1), so that its stream is reset, rather than a limit.
    pub malformed: bool,
}
