//! A field section while it is being decoded: each field is judged as it comes (RFC 9113 sections 8.1 to 8.3).
//!
//! Contract:
//! 1. The first mistake decides. After it, and beyond a limit, fields are counted but not kept, because the compression's state
//!    needs the whole section.
//! 2. Kept are at most `max_header_bytes` of text and `max_headers` fields.
//! 3. Rules are those of `h1`, where both have one.

use crate::request::{Refusal, RequestHead};
use crate::syntax::{decimal, is_authority, is_target, is_token, trim};
use crate::{Expect, HeadLimits, Name};
use handler::{Failure, Fields, Span};

/// Room in a request's text for fields that filters add: an id and a time.
const SPARE_TEXT: usize = 160;
/// Longest method, as in HTTP/1.
const MAX_METHOD: usize = 32;
/// What a field counts beside its name and value (RFC 9113 section 6.5.2).
const OVERHEAD: usize = 32;
/// A section of this many times a limit is an attack.
const BOMB: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Request,
    Trailers,
    /// Nothing is kept or judged.
    Skip,
}

/// A section so far.
#[derive(Debug)]
pub struct Section {
    mode: Mode,
    text: Vec<u8>,
    slots: Vec<(Span, Span)>,
    refusal: Option<Refusal>,
    /// Counted as RFC 9113 section 6.5.2 does.
    size: usize,
    /// Fields without pseudo-fields.
    count: usize,
    method: Option<Span>,
    scheme: Option<Span>,
    authority: Option<Span>,
    path: Option<Span>,
    host: Option<Span>,
    priority: Span,
    /// Slot of the first cookie, and whether there are more.
    cookie: Option<usize>,
    more_cookies: bool,
    content_length: Option<u64>,
    expect: Expect,
}

impl Section {
    /// The section of a request that will have about that much text and that many fields.
    #[inline]
    pub fn request(text: usize, fields: usize) -> Section {
        let text = Vec::with_capacity(text + SPARE_TEXT);
        Section::new(Mode::Request, text, Vec::with_capacity(fields))
    }

    /// A trailer section: it is judged, and nothing of it is kept.
    pub fn trailers() -> Section {
        Section::new(Mode::Trailers, Vec::new(), Vec::new())
    }

    /// A section that nobody wants: it is decoded only because the compression's state needs it.
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
            host: None,
            priority: Span::default(),
            cookie: None,
            more_cookies: false,
            content_length: None,
            expect: Expect::Nothing,
        }
    }

    /// The text: decoders append a field's name and value to it, then call [`Section::decoded`].
    #[inline]
    pub fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Adds a field that a table knows: `field` is its name, `name_len` bytes, and its value; `good` says whether the value is
    /// well-formed ([`crate::is_field_value`]).
    ///
    /// # Errors
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
        // The names of pseudo-fields are not needed.
        let skip = if kind.is_pseudo() { name_len } else { 0 };
        let start = self.text.len() as u32;
        self.text.extend_from_slice(&field[skip..]);
        let name = Span { start, len: (name_len - skip) as u32 };
        let value = Span { start: start + name.len, len: (field.len() - name_len) as u32 };
        self.judge(kind, name, value, good, limits);
        Ok(())
    }

    /// Adds the field whose name, `name_len` bytes, and value have been appended to the text at `start`.
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

    /// Counts a field; whether it is kept.
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
            self.refusal = Some(Refusal { failure: Failure::client(status, reason), malformed: false });
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
            Name::Method | Name::Scheme | Name::Authority | Name::Path => self.pseudo(kind, value, limits),
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
                    // It is there already.
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

    /// The request, when the section is complete. `end`: it has no body.
    ///
    /// # Errors
    /// It is malformed or beyond a limit.
    pub fn finish_request(mut self, end: bool) -> Result<RequestHead, Refusal> {
        if self.refusal.is_none()
            && let Err((status, reason)) = self.check(end)
        {
            if status == 400 { self.malformed(reason) } else { self.refuse(status, reason) }
        }
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        if self.more_cookies {
            self.join_cookies();
        }
        let (method, scheme, target) = (self.method, self.scheme, self.path);
        let target = target.unwrap_or_default();
        let bytes = target.slice(&self.text);
        let (path, query) = match memchr::memchr(b'?', bytes) {
            Some(at) => {
                let (at, after) = (at as u32, at as u32 + 1);
                (
                    Span { start: target.start, len: at },
                    Span { start: target.start + after, len: target.len - after },
                )
            }
            None => (target, Span { start: target.start + target.len, len: 0 }),
        };
        Ok(RequestHead {
            method: method.unwrap_or_default(),
            scheme: scheme.unwrap_or_default(),
            authority: self.authority.or(self.host).unwrap_or_default(),
            target,
            path,
            query,
            priority: self.priority,
            content_length: self.content_length,
            expect: self.expect,
            fields: Fields::from_parts(self.text, self.slots),
        })
    }

    /// The verdict on a trailer section.
    ///
    /// # Errors
    /// It is malformed or beyond a limit.
    pub fn finish_trailers(self) -> Result<(), Refusal> {
        self.refusal.map_or(Ok(()), Err)
    }

    /// What can be said only at the end (RFC 9113 sections 8.1.1, 8.3.1 and 8.5).
    fn check(&self, end: bool) -> Result<(), (u16, &'static str)> {
        let Some(method) = self.method else { return Err((400, "no :method")) };
        let method = method.slice(&self.text);
        if !is_token(method) {
            return Err((400, "a :method that is not a token"));
        }
        if method == b"CONNECT" {
            return if self.scheme.is_none() && self.path.is_none() && self.authority.is_some() {
                Err((501, "CONNECT: this is not a proxy"))
            } else {
                Err((400, "a CONNECT has :authority, and neither :scheme nor :path"))
            };
        }
        let Some(scheme) = self.scheme else { return Err((400, "no :scheme")) };
        let Some(path) = self.path else { return Err((400, "no :path")) };
        let (scheme, path) = (scheme.slice(&self.text), path.slice(&self.text));
        if !scheme.eq_ignore_ascii_case(b"https") && !scheme.eq_ignore_ascii_case(b"http") {
            return Err((400, "a :scheme other than http and https"));
        }
        if !(path.first() == Some(&b'/') || path == b"*" && method == b"OPTIONS") {
            return Err((400, "a :path begins with /, or is * for OPTIONS"));
        }
        if !is_target(path) {
            return Err((400, "a :path has visible bytes only, and no fragment"));
        }
        if self.authority.or(self.host).is_none() {
            return Err((400, "neither :authority nor Host"));
        }
        if end && self.content_length.is_some_and(|length| length > 0) {
            return Err((400, "a Content-Length without a body"));
        }
        if method.len() > MAX_METHOD {
            return Err((501, "a method of more than 32 bytes"));
        }
        Ok(())
    }

    /// RFC 9113 section 8.2.3: handlers see one Cookie field.
    fn join_cookies(&mut self) {
        let Some(first) = self.cookie else { return };
        let Section { text, slots, .. } = self;
        let is_cookie = |text: &[u8], name: Span| name.slice(text) == b"cookie";
        let start = text.len() as u32;
        text.extend_from_slice(b"cookie");
        for (at, &(name, value)) in slots.iter().enumerate().skip(first) {
            if is_cookie(text, name) {
                if at > first {
                    text.extend_from_slice(b"; ");
                }
                text.extend_from_within(value.start as usize..(value.start + value.len) as usize);
            }
        }
        let name = Span { start, len: 6 };
        let value = Span { start: start + 6, len: text.len() as u32 - start - 6 };
        let mut at = 0;
        slots.retain(|(name, _)| {
            at += 1;
            at - 1 <= first || !is_cookie(text, *name)
        });
        slots[first] = (name, value);
    }
}

/// A section that is beyond the limits by far: stop decoding, and end the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bomb;
