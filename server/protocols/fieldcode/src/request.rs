//! Holds a request's head: the result of checking a field section.

use crate::Expect;
use handler::{Failure, Fields, Span};

/// Room in a request's text for fields that filters add: an id and a time.
pub(crate) const SPARE_TEXT: usize = 160;

/// A checked request head. All spans are into `fields.text()`, which has spare room for fields that filters add.
#[derive(Debug, Clone)]
pub struct RequestHead {
    /// `:method`, a token of at most 32 bytes; never CONNECT. An Extended CONNECT has `GET` here.
    pub method: Span,
    /// `:scheme`: `http` or `https`, in any case. This is the client's claim; only the connection knows
    /// whether it is true.
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
    /// Whether this is an Extended CONNECT for a WebSocket (RFC 8441, RFC 9220), the only protocol that is accepted.
    pub websocket: bool,
    /// The declared length of the body; `None` for an Extended CONNECT, which has no body.
    pub content_length: Option<u64>,
    /// The value of `Expect`.
    pub expect: Expect,
    /// The fields, with names in lower case. `host` occurs exactly once: it is supplied from `:authority`.
    /// Cookies are joined.
    pub fields: Fields,
}

impl RequestHead {
    /// Returns a copy with the same spare room.
    pub fn repeated(&self) -> RequestHead {
        RequestHead { fields: self.fields.with_room(SPARE_TEXT), ..*self }
    }
}

/// Why a field section is not a request that can be served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionRefusal {
    /// The response that the client may get.
    pub failure: Failure,
    /// The section breaks the protocol (RFC 9113 section 8.1.1), so its stream is reset; otherwise it only
    /// exceeds a limit.
    pub malformed: bool,
}
