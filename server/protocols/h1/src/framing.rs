//! Checks framing (RFC 9112 section 6): determines the end of a message body from the header fields.
//!
//! Why one implementation: any difference between the framing accepted from clients and from origins, or
//! between accepted and forwarded framing, allows request or response smuggling.

use crate::{field, syntax};

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Content-Length.
    Length(u64),
    /// The chunked coding.
    Chunked,
    /// The end of the connection; in responses only.
    Close,
}

/// Why fields are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// The end of the body is missing or ambiguous.
    Malformed(&'static str),
    /// A well-formed transfer coding that is not implemented.
    UnknownCoding,
}

impl Mistake {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Mistake::Malformed(reason) => reason,
            Mistake::UnknownCoding => "a transfer coding other than chunked",
        }
    }
}

/// The fields that determine the framing, as they arrive.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    length: Option<u64>,
    chunked: bool,
}

impl Judge {
    /// Adds a `Content-Length` field.
    pub(crate) fn content_length(&mut self, value: &[u8]) -> Result<(), Mistake> {
        let Some(length) = syntax::decimal(value) else {
            return Err(Mistake::Malformed("a Content-Length that is not a number"));
        };
        if self.length.replace(length).is_some() {
            return Err(Mistake::Malformed("more than one Content-Length"));
        }
        Ok(())
    }

    /// Adds a `Transfer-Encoding` field.
    pub(crate) fn transfer_encoding(&mut self, value: &[u8], http10: bool) -> Result<(), Mistake> {
        if http10 {
            return Err(Mistake::Malformed("Transfer-Encoding in HTTP/1.0"));
        }
        if self.chunked {
            return Err(Mistake::Malformed("more than one Transfer-Encoding"));
        }
        if value.eq_ignore_ascii_case(b"chunked") {
            self.chunked = true;
            return Ok(());
        }
        let mut codings = field::members(value);
        let last = codings.next_back().unwrap_or_default();
        let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
        if !syntax::is_token(last) || !codings.all(|coding| syntax::is_token(coding) && !is_chunked(coding)) {
            return Err(Mistake::Malformed("a malformed Transfer-Encoding, or chunked not last or not once"));
        }
        Err(Mistake::UnknownCoding)
    }

    /// Returns the framing at the end of the head; `None` if no field determines it.
    pub(crate) fn framing(&self) -> Result<Option<Framing>, Mistake> {
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(Mistake::Malformed("Content-Length with Transfer-Encoding")),
            (true, None) => Ok(Some(Framing::Chunked)),
            (false, length) => Ok(length.map(Framing::Length)),
        }
    }
}
