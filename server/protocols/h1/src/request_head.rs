//! Parses request heads: lines to a checked [`RequestHead`], resumable at any byte.
//!
//! Why not a crate: the parts that determine framing must be parsed strictly (RFC 9112 without its
//! leniencies), with the same result for any split into packets, and without starting over with each packet.
//! Lines are checked in order, each as soon as it is complete, so the first mistake determines the status.
//!
//! Contract:
//! 1. A line ends with CRLF; any other CR or LF is refused.
//! 2. Checked bytes are not read again.
//! 3. `Ok(Some(end))` is returned once, for a head with unambiguous framing.

use crate::field::{self, Options};
use crate::framing::{Framing, Judge, Mistake};
use crate::lines::Lines;
use crate::syntax;
use crate::target::{self, RequestLine};
use fieldcode::{Expect, HeadLimits};
use handler::{Failure, Span, Version};

/// The most blank lines that are skipped before a request line (RFC 9112 section 2.2).
const MAX_BLANK_LINES: usize = 8;
/// The initial room for fields.
const USUAL_FIELDS: usize = 16;

/// A complete head. Spans count from its first byte.
#[derive(Debug, Clone)]
pub struct RequestHead {
    pub line: RequestLine,
    /// Names and values of the header fields.
    pub slots: Vec<(Span, Span)>,
    /// The framing of the body; a request without a body has length 0.
    pub framing: Framing,
    /// The value of `Expect`.
    pub expect: Expect,
    /// The client keeps the connection open.
    pub persistent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Blank,
    RequestLine,
    Fields,
}

/// The state between two packets.
#[derive(Debug)]
pub struct RequestParser {
    phase: Phase,
    lines: Lines,
    fields: usize,
    line: RequestLine,
    slots: Vec<(Span, Span)>,
    host: Option<Span>,
    judge: Judge,
    framing: Framing,
    expect: Expect,
    options: Options,
}

fn bad(reason: &'static str) -> Failure {
    Failure::client(400, reason)
}

impl From<Mistake> for Failure {
    fn from(mistake: Mistake) -> Failure {
        let status = if mistake == Mistake::UnknownCoding { 501 } else { 400 };
        Failure::client(status, mistake.reason())
    }
}

impl Default for RequestParser {
    fn default() -> RequestParser {
        RequestParser::new()
    }
}

impl RequestParser {
    /// Creates a parser at the start of a head.
    pub fn new() -> RequestParser {
        RequestParser {
            phase: Phase::Blank,
            lines: Lines::default(),
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
            judge: Judge::default(),
            framing: Framing::Length(0),
            expect: Expect::Nothing,
            options: Options::default(),
        }
    }

    /// Returns whether a byte of a request has been seen.
    pub fn has_begun(&self) -> bool {
        self.phase != Phase::Blank
    }

    /// Returns the start of the head, after blank lines.
    pub fn start(&self) -> usize {
        self.lines.start()
    }

    /// Continues to parse. `text` is everything so far, with the same first byte in each call. Returns where
    /// the head ends; `None` if more bytes are needed.
    ///
    /// # Errors
    /// The response to a refused head.
    pub fn advance(&mut self, text: &[u8], limits: &HeadLimits) -> Result<Option<usize>, Failure> {
        if self.phase == Phase::Blank && !self.skip_blank_lines(text)? {
            return Ok(None);
        }
        loop {
            let complete = self.lines.scan(text);
            self.check_size(text, complete, limits)?;
            if !complete {
                return Ok(None);
            }
            let Some((line, offset)) = self.lines.take(text) else {
                return Err(bad("a line that ends without CR"));
            };
            if self.phase == Phase::RequestLine {
                self.line = target::parse(line, offset)?;
                self.slots.reserve_exact(USUAL_FIELDS);
                self.phase = Phase::Fields;
            } else if line.is_empty() {
                self.check_host(&text[self.lines.start()..])?;
                self.framing = self.judge.framing()?.unwrap_or(Framing::Length(0));
                return Ok(Some(self.lines.end()));
            } else {
                self.field(line, offset, limits)?;
            }
        }
    }

    /// Returns the head after [`RequestParser::advance`] has returned its end.
    pub fn finish(self) -> RequestHead {
        let persistent = self.options.persistent(self.is_http10());
        let RequestParser { line, slots, framing, expect, .. } = self;
        RequestHead { line, slots, framing, expect, persistent }
    }

    fn is_http10(&self) -> bool {
        self.line.version == Version::Http10
    }

    /// Returns whether a request begins; otherwise more bytes are needed.
    fn skip_blank_lines(&mut self, text: &[u8]) -> Result<bool, Failure> {
        let mut start = self.lines.start();
        loop {
            match &text[start..] {
                [b'\r', b'\n', ..] if start < 2 * MAX_BLANK_LINES => start += 2,
                [] | [b'\r'] => {
                    self.lines.begin(start);
                    return Ok(false);
                }
                [first, ..] if syntax::is_token_byte(*first) => break,
                _ => return Err(bad("the first byte cannot begin a request")),
            }
        }
        self.lines.begin(start);
        self.phase = Phase::RequestLine;
        Ok(true)
    }

    /// Checks the limits for all scanned bytes.
    fn check_size(&self, text: &[u8], complete: bool, limits: &HeadLimits) -> Result<(), Failure> {
        let mut bound = limits.max_header_bytes;
        let mut status = 431;
        if self.phase == Phase::RequestLine
            && let Some(method) = target::method_len(self.lines.partial(text))?
        {
            let around = method + b"  HTTP/1.1\r\n".len();
            if limits.max_uri.saturating_add(around) < bound {
                bound = limits.max_uri + around;
                status = 414;
            }
        }
        if self.lines.size(complete) > bound {
            let reason = if status == 414 {
                "the target is longer than max_uri"
            } else {
                "the head is larger than max_header_bytes"
            };
            return Err(Failure::client(status, reason));
        }
        Ok(())
    }

    fn field(&mut self, line: &[u8], offset: u32, limits: &HeadLimits) -> Result<(), Failure> {
        self.fields += 1;
        if self.fields > limits.max_headers {
            return Err(Failure::client(431, "more header fields than max_headers"));
        }
        let (name, value) = field::split(line).map_err(bad)?;
        if !limits.allow_underscore_headers && memchr::memchr(b'_', name).is_some() {
            return Ok(());
        }
        let name_span = Span { start: offset, len: name.len() as u32 };
        let mut value_span = Span::of(line, value);
        value_span.start += offset;
        self.slots.push((name_span, value_span));
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.host(value, value_span)?,
            6 if name.eq_ignore_ascii_case(b"expect") => self.expect(value),
            10 if name.eq_ignore_ascii_case(b"connection") => self.options.add(value),
            14 if name.eq_ignore_ascii_case(b"content-length") => self.judge.content_length(value)?,
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.judge.transfer_encoding(value, self.is_http10())?;
            }
            _ => {}
        }
        Ok(())
    }

    fn host(&mut self, value: &[u8], span: Span) -> Result<(), Failure> {
        if self.host.replace(span).is_some() {
            return Err(bad("more than one Host"));
        }
        // RFC 9112 section 3.2: only a version that need not send the field may leave it empty.
        if syntax::is_authority(value) || (value.is_empty() && self.is_http10()) {
            Ok(())
        } else {
            Err(bad("a malformed Host"))
        }
    }

    fn expect(&mut self, value: &[u8]) {
        if !field::members(value).all(|one| one.eq_ignore_ascii_case(b"100-continue")) {
            self.expect = Expect::Unknown;
        } else if self.expect == Expect::Nothing && !self.is_http10() {
            self.expect = Expect::Continue;
        }
    }

    fn check_host(&mut self, text: &[u8]) -> Result<(), Failure> {
        let authority = self.line.authority;
        let Some(host) = self.host else {
            return if self.is_http10() { Ok(()) } else { Err(bad("no Host")) };
        };
        if authority.len == 0 {
            self.line.authority = host;
        } else if host.slice(text) != authority.slice(text) {
            // RFC 9112 section 3.2.2: the field is ignored, and not passed on.
            for (_, value) in self.slots.iter_mut().filter(|(_, value)| *value == host) {
                *value = authority;
            }
        }
        Ok(())
    }
}

/// Parses the head at the start of `text` as if it had arrived in pieces that end at `cuts` and at its end.
/// Returns where it ends, or `None` if more bytes are needed. For fuzzers and tests.
///
/// # Errors
/// The response to a refused head.
pub fn judge_request_head(
    text: &[u8],
    cuts: &[usize],
    limits: &HeadLimits,
) -> Result<Option<usize>, Failure> {
    let mut parser = RequestParser::new();
    for &cut in cuts {
        if let Some(end) = parser.advance(&text[..cut], limits)? {
            return Ok(Some(end));
        }
    }
    parser.advance(text, limits)
}
