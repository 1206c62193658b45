//! What a request's fields say about the representation that it wants: one walk over them.

use crate::coding::Preferences;
use handler::Request;

/// Which fields that matter for files a request has.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wishes<'a> {
    /// Any of If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since.
    pub conditional: bool,
    /// The Range field of a GET; of two neither counts.
    pub range: Option<&'a [u8]>,
    /// There is an Accept-Encoding field.
    pub coding: bool,
}

impl<'a> Wishes<'a> {
    pub(crate) fn of(request: &'a Request) -> Wishes<'a> {
        let mut wishes = Wishes::default();
        let mut ranges = 0;
        for (name, value) in request.fields.iter() {
            match name.len() {
                5 if name.eq_ignore_ascii_case(b"range") => {
                    ranges += 1;
                    wishes.range = Some(value);
                }
                8 => wishes.conditional |= name.eq_ignore_ascii_case(b"if-match"),
                13 => wishes.conditional |= name.eq_ignore_ascii_case(b"if-none-match"),
                15 => wishes.coding |= name.eq_ignore_ascii_case(b"accept-encoding"),
                17 => wishes.conditional |= name.eq_ignore_ascii_case(b"if-modified-since"),
                19 => wishes.conditional |= name.eq_ignore_ascii_case(b"if-unmodified-since"),
                _ => {}
            }
        }
        // Ranges are for GET (RFC 9110 section 14.2).
        if ranges != 1 || request.method() != b"GET" {
            wishes.range = None;
        }
        wishes
    }

    /// Nothing but the file as it is.
    pub(crate) fn are_plain(&self, codable: bool) -> bool {
        !self.conditional && self.range.is_none() && !(self.coding && codable)
    }
}

/// What codings the client takes.
pub(crate) fn preferences(request: &Request) -> Preferences {
    Preferences::read(request.fields.all("accept-encoding"))
}
