//! Request heads: lines to a checked [`Head`], resumable at any byte.
//!
//! Why a parser of our own: what decides about framing must be strict (RFC 9112 with every leniency refused), must give the
//! same answer however the bytes were cut into packets, and must not start over with each packet. Lines are judged in
//! order, each as soon as it is complete, so the first thing wrong decides about the status.
//!
//! Contract:
//! 1. A line ends with CRLF; any other CR or LF is refused.
//! 2. Bytes that have been judged are not looked at again.
//! 3. `Ok(Some(end))` once, for a head whose framing can be read in one way only.

use super::syntax;
use super::target::{self, RequestLine};
use crate::Limits;
use handler::{Failure, FailureKind as Kind, Span, Version};

/// Blank lines that are passed over before a request line (RFC 9112 section 2.2).
const MAX_BLANK_LINES: usize = 8;
/// Room for this many fields at first.
const USUAL_FIELDS: usize = 16;

/// What a client expects before it sends its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Expect {
    #[default]
    Nothing,
    Continue,
    Unknown,
}

/// How the end of the body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked,
}

/// A complete head. Spans count from its first byte.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) line: RequestLine,
    pub(crate) slots: Vec<(Span, Span)>,
    pub(crate) framing: Framing,
    pub(crate) expect: Expect,
    /// The client's side of whether the connection may live on.
    pub(crate) persistent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Blank,
    RequestLine,
    Fields,
}

/// The state between two packets.
#[derive(Debug)]
pub(crate) struct Parser {
    phase: Phase,
    /// Where the head begins.
    start: usize,
    /// Where the current line begins.
    line_start: usize,
    /// How far a line end has been looked for.
    scanned: usize,
    fields: usize,
    line: RequestLine,
    slots: Vec<(Span, Span)>,
    host: Option<Span>,
    length: Option<u64>,
    chunked: bool,
    expect: Expect,
    close: bool,
    keep_alive: bool,
}

fn bad(reason: &'static str) -> Failure {
    Failure::new(Kind::BadRequest, reason)
}

impl Parser {
    pub(crate) fn new() -> Parser {
        Parser {
            phase: Phase::Blank,
            start: 0,
            line_start: 0,
            scanned: 0,
            fields: 0,
            line: RequestLine {
                version: Version::Http11,
                method: Span::default(),
                target: Span::default(),
                path: Span::default(),
                query: Span::default(),
                authority: Span::default(),
            },
            slots: Vec::new(),
            host: None,
            length: None,
            chunked: false,
            expect: Expect::Nothing,
            close: false,
            keep_alive: false,
        }
    }

    /// Whether a byte of a request has been seen.
    pub(crate) fn has_begun(&self) -> bool {
        self.phase != Phase::Blank
    }

    /// Where the head begins: behind blank lines.
    pub(crate) fn start(&self) -> usize {
        self.start
    }

    /// Parses on. `text` is all there is so far, with the same first byte in each call. Returns where the head ends.
    pub(crate) fn advance(&mut self, text: &[u8], limits: &Limits) -> Result<Option<usize>, Failure> {
        if self.phase == Phase::Blank && !self.skip_blank_lines(text)? {
            return Ok(None);
        }
        loop {
            let line_end = memchr::memchr(b'\n', &text[self.scanned..]).map(|at| self.scanned + at);
            self.scanned = line_end.map_or(text.len(), |at| at + 1);
            self.check_size(text, line_end.is_some(), limits)?;
            let Some(line_end) = line_end else { return Ok(None) };
            let [line @ .., b'\r'] = &text[self.line_start..line_end] else {
                return Err(bad("a line that ends without CR"));
            };
            let offset = (self.line_start - self.start) as u32;
            self.line_start = line_end + 1;
            if self.phase == Phase::RequestLine {
                self.line = target::parse(line, offset)?;
                self.slots.reserve_exact(USUAL_FIELDS);
                self.phase = Phase::Fields;
            } else if line.is_empty() {
                self.check_host(&text[self.start..])?;
                return self.check_framing().map(|()| Some(line_end + 1));
            } else {
                self.field(line, offset, limits)?;
            }
        }
    }

    /// Takes the head out after [`Parser::advance`] has returned its end.
    pub(crate) fn finish(self) -> Head {
        let framing = if self.chunked { Framing::Chunked } else { Framing::Length(self.length.unwrap_or(0)) };
        let persistent = !self.close && (self.line.version == Version::Http11 || self.keep_alive);
        Head { line: self.line, slots: self.slots, framing, expect: self.expect, persistent }
    }

    /// Whether a request begins; otherwise more bytes are needed.
    fn skip_blank_lines(&mut self, text: &[u8]) -> Result<bool, Failure> {
        loop {
            match &text[self.start..] {
                [b'\r', b'\n', ..] if self.start < 2 * MAX_BLANK_LINES => self.start += 2,
                [] | [b'\r'] => return Ok(false),
                [first, ..] if syntax::is_token_byte(*first) => break,
                _ => return Err(bad("what begins here is no request")),
            }
        }
        (self.line_start, self.scanned) = (self.start, self.start);
        self.phase = Phase::RequestLine;
        Ok(true)
    }

    /// Checks the bounds for all that has been scanned. A line that is not complete has at least its LF to come, so that
    /// it is refused exactly when the complete one would be.
    fn check_size(&self, text: &[u8], complete: bool, limits: &Limits) -> Result<(), Failure> {
        let missing = usize::from(!complete);
        let size = self.scanned - self.start + missing;
        let mut bound = limits.max_header_bytes;
        let mut kind = Kind::FieldsTooLarge;
        if self.phase == Phase::RequestLine {
            let line = &text[self.line_start..self.scanned];
            if let Some(method) = target::method_len(line)? {
                let around = method + b"  HTTP/1.1\r\n".len();
                if limits.max_uri.saturating_add(around) < bound {
                    bound = limits.max_uri + around;
                    kind = Kind::UriTooLong;
                }
            }
        }
        if size > bound { Err(Failure::new(kind, "larger than the limit")) } else { Ok(()) }
    }

    fn field(&mut self, line: &[u8], offset: u32, limits: &Limits) -> Result<(), Failure> {
        self.fields += 1;
        if self.fields > limits.max_headers {
            return Err(Failure::new(Kind::FieldsTooLarge, "more header fields than max_headers"));
        }
        let (name, value) = split_field(line)?;
        if !limits.allow_underscore_headers && memchr::memchr(b'_', name).is_some() {
            return Ok(());
        }
        let name_span = Span { start: offset, len: name.len() as u32 };
        let mut value_span = Span::of(line, value);
        value_span.start += offset;
        self.slots.push((name_span, value_span));
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(value, value_span),
            6 if name.eq_ignore_ascii_case(b"expect") => self.expect(value),
            10 if name.eq_ignore_ascii_case(b"connection") => self.connection(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => self.content_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => self.transfer_encoding(value),
            _ => Ok(()),
        }
    }

    fn host(&mut self, value: &[u8], span: Span) -> Result<(), Failure> {
        if self.host.replace(span).is_some() {
            return Err(bad("more than one Host"));
        }
        // RFC 9112 section 3.2; only a version that need not send it may leave it empty.
        if syntax::is_authority(value) || (value.is_empty() && self.line.version == Version::Http10) {
            Ok(())
        } else {
            Err(bad("a malformed Host"))
        }
    }

    fn expect(&mut self, value: &[u8]) -> Result<(), Failure> {
        let known =
            value.split(|&b| b == b',').all(|one| syntax::trim(one).eq_ignore_ascii_case(b"100-continue"));
        if !known {
            self.expect = Expect::Unknown;
        } else if self.expect == Expect::Nothing && self.line.version == Version::Http11 {
            self.expect = Expect::Continue;
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) -> Result<(), Failure> {
        for option in value.split(|&b| b == b',') {
            let option = syntax::trim(option);
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
        Ok(())
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Failure> {
        let Some(length) = syntax::decimal(value) else {
            return Err(bad("a Content-Length that is no number"));
        };
        if self.length.replace(length).is_some() {
            return Err(bad("more than one Content-Length"));
        }
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Failure> {
        if self.line.version == Version::Http10 {
            return Err(bad("Transfer-Encoding in HTTP/1.0"));
        }
        if self.chunked {
            return Err(bad("more than one Transfer-Encoding"));
        }
        if value.eq_ignore_ascii_case(b"chunked") {
            self.chunked = true;
            return Ok(());
        }
        let mut codings = value.split(|&b| b == b',').map(syntax::trim);
        let last = codings.next_back().unwrap_or_default();
        let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
        if !syntax::is_token(last) || !codings.all(|coding| syntax::is_token(coding) && !is_chunked(coding)) {
            return Err(bad("a malformed Transfer-Encoding, or chunked not last or not once"));
        }
        Err(Failure::new(Kind::NotImplemented, "a transfer coding other than chunked"))
    }

    fn check_host(&mut self, text: &[u8]) -> Result<(), Failure> {
        let authority = self.line.authority;
        let Some(host) = self.host else {
            let needed = self.line.version == Version::Http11;
            return if needed { Err(bad("no Host")) } else { Ok(()) };
        };
        if authority.len == 0 {
            self.line.authority = host;
        } else if host.slice(text) != authority.slice(text) {
            // RFC 9112 section 3.2.2: the field is ignored, and nobody behind us gets to see it.
            for (_, value) in self.slots.iter_mut().filter(|(_, value)| *value == host) {
                *value = authority;
            }
        }
        Ok(())
    }

    fn check_framing(&self) -> Result<(), Failure> {
        if self.chunked && self.length.is_some() {
            return Err(bad("Content-Length with Transfer-Encoding"));
        }
        Ok(())
    }
}

/// Name and value of a field line.
fn split_field(line: &[u8]) -> Result<(&[u8], &[u8]), Failure> {
    let name_len = syntax::token_len(line);
    match line.get(name_len) {
        _ if name_len == 0 => Err(bad("a field line without a name, or folded")),
        Some(b':') => {
            let value = syntax::trim(&line[name_len + 1..]);
            if syntax::is_value(value) {
                Ok((&line[..name_len], value))
            } else {
                Err(bad("a control byte in a field value"))
            }
        }
        _ => Err(bad("a byte that may not stand in a field name")),
    }
}
