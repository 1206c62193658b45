//! Collects, in one pass, a request's header fields that select a representation.

use handler::Request;
use representation::coding::Preferences;

/// The fields of a request that matter for files.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RequestedRepresentation<'a> {
    /// The request has any of If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since.
    pub conditional: bool,
    /// The Range field of a GET; ignored if there are two.
    pub range: Option<&'a [u8]>,
    /// The request has an Accept-Encoding field.
    pub coding: bool,
}

impl<'a> RequestedRepresentation<'a> {
    pub(crate) fn of(request: &'a Request) -> RequestedRepresentation<'a> {
        let mut requested = RequestedRepresentation::default();
        let mut ranges = 0;
        for (name, value) in request.fields.iter() {
            match name.len() {
                5 if name.eq_ignore_ascii_case(b"range") => {
                    ranges += 1;
                    requested.range = Some(value);
                }
                8 => requested.conditional |= name.eq_ignore_ascii_case(b"if-match"),
                13 => requested.conditional |= name.eq_ignore_ascii_case(b"if-none-match"),
                15 => requested.coding |= name.eq_ignore_ascii_case(b"accept-encoding"),
                17 => requested.conditional |= name.eq_ignore_ascii_case(b"if-modified-since"),
                19 => requested.conditional |= name.eq_ignore_ascii_case(b"if-unmodified-since"),
                _ => {}
            }
        }
        // Range is defined for GET only (RFC 9110 section 14.2).
        if ranges != 1 || request.method() != b"GET" {
            requested.range = None;
        }
        requested
    }

    /// Returns whether the request simply gets the uncompressed file.
    pub(crate) fn is_plain(&self, codable: bool) -> bool {
        !self.conditional && self.range.is_none() && !(self.coding && codable)
    }
}

/// Returns the codings that the client accepts.
pub(crate) fn preferences(request: &Request) -> Preferences {
    Preferences::read(request.fields.all("accept-encoding"))
}
