//! Finds the cache's request fields in one pass: a hit should cost little more than its response.

use handler::Fields;
use representation::conditions::{is_condition, is_precondition};

/// Fields that an app builds its URLs from although no Vary names them. A client could send such a field with
/// its own host name, and all clients would get its links (cache poisoning). They select a variant only for
/// trusted proxies; a response to another client that sends one is not kept
/// ([`Refusal::Forwarded`](crate::storable::Refusal::Forwarded)).
const FORWARDING: [&str; 13] = [
    "forwarded",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-scheme",
    "x-forwarded-server",
    "x-forwarded-ssl",
    "x-host",
    "x-http-method-override",
    "x-original-host",
    "x-original-url",
    "x-rewrite-url",
];

/// Returns whether an app may build its URLs from a field.
#[inline]
pub(crate) fn is_forwarding(name: &[u8]) -> bool {
    name.first().is_some_and(|first| matches!(first | 0x20, b'x' | b'f'))
        && FORWARDING.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// The kinds of fields that a request has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FieldSummary {
    /// A condition (RFC 9110 section 13.1).
    pub(crate) condition: bool,
    /// A condition for the origin alone: If-Match, If-Unmodified-Since.
    pub(crate) precondition: bool,
    pub(crate) range: bool,
    /// Cache-Control or Pragma.
    pub(crate) directives: bool,
    pub(crate) upgrade: bool,
    pub(crate) authorization: bool,
    /// Whether the request has a field that an app may build its links from; see [`is_forwarding`].
    pub(crate) forwarding: bool,
}

impl FieldSummary {
    pub(crate) fn of(fields: &Fields) -> FieldSummary {
        let mut summary = FieldSummary::default();
        for (name, _) in fields.iter() {
            let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
            match name.first().map(|first| first | 0x20) {
                Some(b'i') => {
                    summary.condition |= is_condition(name);
                    summary.precondition |= is_precondition(name);
                }
                Some(b'r') => summary.range |= is(b"range"),
                Some(b'c') => summary.directives |= is(b"cache-control"),
                Some(b'p') => summary.directives |= is(b"pragma"),
                Some(b'u') => summary.upgrade |= is(b"upgrade"),
                Some(b'a') => summary.authorization |= is(b"authorization"),
                Some(b'x' | b'f') => summary.forwarding |= is_forwarding(name),
                _ => {}
            }
        }
        summary
    }
}
