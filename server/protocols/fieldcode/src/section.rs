//! Checks a field section while it is decoded: each field as it arrives (RFC 9113 sections 8.1 to 8.3).
//!
//! Contract:
//! 1. The first mistake counts. After it, and beyond a limit, fields are counted but not kept, because the
//!    compression's state needs the whole section.
//! 2. At most `max_header_bytes` of text and `max_headers` fields are kept.
//! 3. The rules are those of `h1`, where both have one.

mod finish;

use crate::request::{SPARE_TEXT, SectionRefusal};
use crate::syntax::{decimal, is_authority, trim};
use crate::{Expect, HeadLimits, Name};
use handler::{Failure, Span};

/// The overhead of a field in addition to its name and value (RFC 9113 section 6.5.2).
const OVERHEAD: usize = 32;
/// A section of this many times a limit is an attack.
const BOMB: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Request,
    Trailers,
    /// Nothing is kept or checked.
    Skip,
}

/// A section so far.
#[derive(Debug)]
pub struct Section {
    mode: Mode,
    text: Vec<u8>,
    slots: Vec<(Span, Span)>,
    refusal: Option<SectionRefusal>,
    /// Counted as in RFC 9113 section 6.5.2.
    size: usize,
    /// Fields without pseudo-header fields.
    count: usize,
    method: Option<Span>,
    scheme: Option<Span>,
    authority: Option<Span>,
    path: Option<Span>,
    protocol: Option<Span>,
    host: Option<Span>,
    priority: Span,
    /// The slot of the first cookie, and whether there are more.
    cookie: Option<usize>,
    more_cookies: bool,
    content_length: Option<u64>,
    expect: Expect,
}

impl Section {
    /// Creates the section of a request of about that much text and that many fields.
    #[inline]
    pub fn request(text: usize, fields: usize) -> Section {
        let text = Vec::with_capacity(text + SPARE_TEXT);
        Section::new(Mode::Request, text, Vec::with_capacity(fields))
    }

    /// Creates a trailer section, which is checked but not kept.
    pub fn trailers() -> Section {
        Section::new(Mode::Trailers, Vec::new(), Vec::new())
    }

    /// Creates an unused section, which is decoded only because the compression's state needs it.
    pub fn skipped() -> Section {
        Section::new(Mode::Skip, Vec::new(), Vec::new())
    }

    #[inline]
    fn new(mode: Mode, text: Vec<u8>, slots: Vec<(Span, Span)>) -> Section {
        Section {
            mode,
            text,
            slots,
            refusal: None,
            size: 0,
            count: 0,
            method: None,
            scheme: None,
            authority: None,
            path: None,
            protocol: None,
            host: None,
            priority: Span::default(),
            cookie: None,
            more_cookies: false,
            content_length: None,
            expect: Expect::Nothing,
        }
    }

    /// Returns the text. Decoders append a field's name and value to it, then call [`Section::decoded`].
    #[inline]
    pub fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Adds a field of a table. `field`: its name, of `name_len` bytes, and its value. `good`: the value is
    /// well-formed ([`crate::is_field_value`]).
    ///
    /// # Errors
    /// The section is so far beyond the limits that decoding it must stop.
    /// The section is so far beyond the limits that decoding it must stop.
    #[inline]
    pub fn known(
        &mut self,
        kind: Name,
        field: &[u8],
        name_len: usize,
        good: bool,
        limits: &HeadLimits,
    ) -> Result<(), Bomb> {
        if !self.admit(kind, field.len(), limits)? {
            return Ok(());
        }
        // The names of pseudo-header fields are not needed.
        let skip = if kind.is_pseudo() { name_len } else { 0 };
        let start = self.text.len() as u32;
        self.text.extend_from_slice(&field[skip..]);
        let name = Span { start, len: (name_len - skip) as u32 };
        let value = Span { start: start + name.len, len: (field.len() - name_len) as u32 };
        self.judge(kind, name, value, good, limits);
        Ok(())
    }

    /// Adds the field whose name, of `name_len` bytes, and value have been appended to the text at `start`.
    ///
    /// # Errors
    /// As [`Section::known`].
    #[inline]
    pub fn decoded(
        &mut self,
        kind: Name,
        start: usize,
        name_len: usize,
        good: bool,
        limits: &HeadLimits,
    ) -> Result<(), Bomb> {
        let len = self.text.len() - start;
        if !self.admit(kind, len, limits)? {
            self.text.truncate(start);
            return Ok(());
        }
        let name = Span { start: start as u32, len: name_len as u32 };
        let value = Span { start: name.start + name.len, len: (len - name_len) as u32 };
        self.judge(kind, name, value, good, limits);
        Ok(())
    }

    /// Counts a field. Returns whether it is kept.
    #[inline]
    fn admit(&mut self, kind: Name, len: usize, limits: &HeadLimits) -> Result<bool, Bomb> {
        self.size += len + OVERHEAD;
        self.count += usize::from(!kind.is_pseudo());
        if self.size > limits.max_header_bytes || self.count > limits.max_headers {
            return self.beyond(limits);
        }
        Ok(self.refusal.is_none() && self.mode != Mode::Skip)
    }

    #[cold]
    fn beyond(&mut self, limits: &HeadLimits) -> Result<bool, Bomb> {
        if self.size > limits.max_header_bytes.saturating_mul(BOMB)
            || self.count > limits.max_headers.saturating_mul(BOMB)
        {
            return Err(Bomb);
        }
        self.refuse(
            431,
            if self.count > limits.max_headers {
                "more header fields than max_headers"
            } else {
                "the head is larger than max_header_bytes"
            },
        );
        Ok(false)
    }

    #[cold]
    fn refuse(&mut self, status: u16, reason: &'static str) {
        if self.refusal.is_none() {
            self.refusal =
                Some(SectionRefusal { failure: Failure::client(status, reason), malformed: false });
            self.text = Vec::new();
            self.slots = Vec::new();
        }
    }

    #[cold]
    fn malformed(&mut self, reason: &'static str) {
        if self.refusal.is_none() {
            self.refuse(400, reason);
            if let Some(refusal) = &mut self.refusal {
                refusal.malformed = true;
            }
        }
    }

    #[inline]
    fn judge(&mut self, kind: Name, name: Span, value: Span, good: bool, limits: &HeadLimits) {
        if !good && kind != Name::Malformed {
            return self.malformed("a control byte in a field value, or a blank at one of its ends");
        }
        if self.mode == Mode::Trailers {
            return self.trailer(kind);
        }
        match kind {
            Name::Plain => self.slots.push((name, value)),
            Name::Method | Name::Scheme | Name::Authority | Name::Path | Name::Protocol => {
                self.pseudo(kind, value, limits);
            }
            _ => self.special(kind, name, value, limits),
        }
    }

    fn pseudo(&mut self, kind: Name, value: Span, limits: &HeadLimits) {
        if self.count > 0 {
            return self.malformed("a pseudo-field after other fields");
        }
        let (place, name) = match kind {
            Name::Method => (&mut self.method, "more than one :method"),
            Name::Scheme => (&mut self.scheme, "more than one :scheme"),
            Name::Authority => (&mut self.authority, "more than one :authority"),
            Name::Protocol => (&mut self.protocol, "more than one :protocol"),
            _ => (&mut self.path, "more than one :path"),
        };
        if place.replace(value).is_some() {
            return self.malformed(name);
        }
        match kind {
            Name::Authority => {
                if !is_authority(value.slice(&self.text)) {
                    return self.malformed("a malformed :authority");
                }
                let start = self.text.len() as u32;
                self.text.extend_from_slice(b"host");
                self.text.extend_from_within(value.start as usize..(value.start + value.len) as usize);
                let host = Span { start, len: 4 };
                self.slots.push((host, Span { start: start + 4, len: value.len }));
            }
            Name::Path if value.len as usize > limits.max_uri => {
                self.refuse(414, "the target is longer than max_uri");
            }
            _ => {}
        }
    }

    fn special(&mut self, kind: Name, name: Span, value: Span, limits: &HeadLimits) {
        let text = value.slice(&self.text);
        match kind {
            Name::UnknownPseudo => return self.malformed("a pseudo-field that requests do not have"),
            Name::Malformed => return self.malformed("a field name that is not a token in lower case"),
            Name::Connection => return self.malformed("a field about an HTTP/1 connection"),
            Name::Underscore if !limits.allow_underscore_headers => {
                self.text.truncate(name.start as usize);
                return;
            }
            Name::Te if !text.eq_ignore_ascii_case(b"trailers") => {
                return self.malformed("a TE other than trailers");
            }
            Name::Host => {
                if !is_authority(text) {
                    return self.malformed("a malformed Host");
                }
                if self.host.replace(value).is_some() {
                    return self.malformed("more than one Host");
                }
                if let Some(authority) = self.authority {
                    if !text.eq_ignore_ascii_case(authority.slice(&self.text)) {
                        return self.malformed("a Host that differs from :authority");
                    }
                    // The field exists already.
                    return;
                }
            }
            Name::ContentLength => {
                let Some(length) = decimal(text) else {
                    return self.malformed("a Content-Length that is not a number");
                };
                if self.content_length.replace(length).is_some() {
                    return self.malformed("more than one Content-Length");
                }
            }
            Name::Expect => {
                let known = |one: &[u8]| trim(one).eq_ignore_ascii_case(b"100-continue");
                if !text.split(|&b| b == b',').all(known) {
                    self.expect = Expect::Unknown;
                } else if self.expect == Expect::Nothing {
                    self.expect = Expect::Continue;
                }
            }
            Name::Priority if self.priority.len == 0 => self.priority = value,
            Name::Cookie if self.cookie.is_none() => self.cookie = Some(self.slots.len()),
            Name::Cookie => self.more_cookies = true,
            _ => {}
        }
        self.slots.push((name, value));
    }

    fn trailer(&mut self, kind: Name) {
        if kind.is_pseudo() {
            self.malformed("a pseudo-field in trailers");
        } else if kind == Name::Malformed {
            self.malformed("a trailer name that is not a token in lower case");
        } else if kind == Name::Connection {
            self.malformed("a trailer about an HTTP/1 connection");
        }
        self.text.clear();
    }

    /// Returns the result for a trailer section.
    ///
    /// # Errors
    /// The section is malformed or beyond a limit.
    pub fn finish_trailers(self) -> Result<(), SectionRefusal> {
        self.refusal.map_or(Ok(()), Err)
    }
}

/// A section that is far beyond the limits: stop decoding, and end the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bomb;
