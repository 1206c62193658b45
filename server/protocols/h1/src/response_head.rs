//! Parses response heads: lines to a checked [`ResponseHead`], resumable at any byte.
//!
//! Why not a crate: an origin is trusted no more than a client. Ambiguous input is refused (RFC 9112 without
//! its leniencies), and any split of the same bytes gives the same result.
//!
//! Contract:
//! 1. A line ends with CRLF. Any other CR or LF is refused, and so are folded lines and versions other than
//!    HTTP/1.0 and 1.1.
//! 2. Checked bytes are not read again.
//! 3. `Ok(Some(end))` is returned once, for a head that determines its body unambiguously.
//! 4. Hop-by-hop fields are left out (RFC 9110 section 7.6.1).

use crate::field::{self, Options, lists};
use crate::framing::{Framing, Judge};
use crate::lines::Lines;
use crate::syntax;
use handler::Span;

/// The most header fields of a response.
const MAX_FIELDS: usize = 256;
/// The initial room for fields.
const USUAL_FIELDS: usize = 16;
/// The length of `HTTP/1.x NNN`.
const STATUS_LINE: usize = 12;

/// The description of a malformed head.
type Mistake = &'static str;

/// A complete head. Spans count from its first byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseHead {
    /// 100 to 999.
    pub status: u16,
    /// Names and values of the fields that may be passed on.
    pub slots: Vec<(Span, Span)>,
    /// The end of the body according to the fields; request method and status take precedence.
    pub framing: Framing,
    /// The origin keeps the connection open.
    pub persistent: bool,
    /// The origin's keep-alive time-out in seconds, if it gives one.
    pub keep_alive: Option<u64>,
    /// The protocol that a 101 switches to.
    pub upgrade: Option<Span>,
}

/// The state between two packets.
#[derive(Debug)]
pub struct ResponseParser {
    has_status: bool,
    lines: Lines,
    fields: usize,
    status: u16,
    is_http10: bool,
    slots: Vec<(Span, Span)>,
    judge: Judge,
    framing: Framing,
    options: Options,
    keep_alive: Option<u64>,
    upgrade: Option<Span>,
    /// `Connection` fields that name other fields.
    connection: Vec<Span>,
}

impl Default for ResponseParser {
    fn default() -> ResponseParser {
        ResponseParser::new()
    }
}

impl ResponseParser {
    /// Creates a parser at the start of a head.
    pub fn new() -> ResponseParser {
        ResponseParser {
            has_status: false,
            lines: Lines::default(),
            fields: 0,
            status: 0,
            is_http10: false,
            slots: Vec::new(),
            judge: Judge::default(),
            framing: Framing::Close,
            options: Options::default(),
            keep_alive: None,
            upgrade: None,
            connection: Vec::new(),
        }
    }

    /// Continues to parse. `text` is everything so far, with the same first byte in each call. Returns where
    /// the head ends; `None` if more bytes are needed.
    ///
    /// # Errors
    /// Describes the mistake, for the log.
    pub fn advance(&mut self, text: &[u8], max_bytes: usize) -> Result<Option<usize>, &'static str> {
        loop {
            if !self.has_status {
                check_beginning(text)?;
            }
            let complete = self.lines.scan(text);
            if self.lines.size(complete) > max_bytes {
                return Err("a head larger than max_response_head");
            }
            if !complete {
                return Ok(None);
            }
            let (line, offset) = self.lines.take(text).ok_or("a line in the head that ends without CR")?;
            if !self.has_status {
                self.status_line(line)?;
            } else if line.is_empty() {
                let framing = self.judge.framing().map_err(|mistake| mistake.reason())?;
                self.framing = framing.unwrap_or(Framing::Close);
                return Ok(Some(self.lines.end()));
            } else {
                self.field(line, offset)?;
            }
        }
    }

    /// Returns the head after [`ResponseParser::advance`] has returned its end. `text` must be that call's text.
    pub fn finish(mut self, text: &[u8]) -> ResponseHead {
        if self.options.names {
            let named = std::mem::take(&mut self.connection);
            self.slots.retain(|(name, _)| {
                !named.iter().any(|list| lists(list.slice(text), name.slice(text)))
                    || name.slice(text).eq_ignore_ascii_case(b"content-length")
            });
        }
        ResponseHead {
            status: self.status,
            slots: self.slots,
            framing: self.framing,
            persistent: self.options.persistent(self.is_http10),
            keep_alive: self.keep_alive,
            upgrade: self.upgrade,
        }
    }

    fn status_line(&mut self, line: &[u8]) -> Result<(), Mistake> {
        // `check_beginning` has checked everything but the end.
        let [.., minor, b' ', a, b, c] = line.get(..STATUS_LINE).ok_or("a status line without a status")?
        else {
            return Err("a status line without a status");
        };
        let digits = [a, b, c];
        if !digits.iter().all(|digit| digit.is_ascii_digit()) || *a == b'0' {
            return Err("a status that is not three digits from 100 on");
        }
        match line.get(STATUS_LINE..) {
            // The blank is required, but many servers omit it together with the reason.
            None | Some([]) => {}
            Some([b' ', reason @ ..]) if syntax::is_value(reason) => {}
            Some([b' ', ..]) => return Err("a control byte in the reason phrase"),
            Some(_) => return Err("a status that is not three digits from 100 on"),
        }
        self.status = digits.iter().fold(0, |status, digit| status * 10 + u16::from(**digit - b'0'));
        self.is_http10 = *minor == b'0';
        self.has_status = true;
        self.slots.reserve_exact(USUAL_FIELDS);
        Ok(())
    }

    fn field(&mut self, line: &[u8], offset: u32) -> Result<(), Mistake> {
        self.fields += 1;
        if self.fields > MAX_FIELDS {
            return Err("more than 256 header fields");
        }
        let (name, value) = field::split(line)?;
        let name_len = name.len();
        let name_span = Span { start: offset, len: name_len as u32 };
        let mut value_span = Span::of(line, value);
        value_span.start += offset;
        let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
        let keep = match name_len {
            2 => !is(b"te"),
            7 if is(b"upgrade") => {
                self.upgrade = Some(value_span);
                matches!(self.status, 101 | 426)
            }
            7 => !is(b"trailer"),
            10 if is(b"connection") => {
                self.options.add(value);
                if self.options.names {
                    self.connection.push(value_span);
                }
                false
            }
            10 if is(b"keep-alive") => {
                self.keep_alive = timeout(value);
                false
            }
            14 if is(b"content-length") => {
                self.judge.content_length(value).map_err(|mistake| mistake.reason())?;
                true
            }
            16 => !is(b"proxy-connection"),
            17 if is(b"transfer-encoding") => {
                self.judge.transfer_encoding(value, self.is_http10).map_err(|mistake| mistake.reason())?;
                false
            }
            18 => !is(b"proxy-authenticate"),
            _ => true,
        };
        if keep {
            self.slots.push((name_span, value_span));
        }
        Ok(())
    }
}

/// Refuses anything but HTTP/1.0 and HTTP/1.1 as early as possible.
fn check_beginning(text: &[u8]) -> Result<(), Mistake> {
    const BEGINNING: &[u8] = b"HTTP/1.";
    let n = text.len().min(BEGINNING.len());
    if text[..n] != BEGINNING[..n] {
        return Err("the first bytes are not those of an HTTP/1 response");
    }
    match text.get(BEGINNING.len()) {
        None | Some(b'0' | b'1') => {}
        Some(_) => return Err("a version other than HTTP/1.0 and HTTP/1.1"),
    }
    match text.get(BEGINNING.len() + 1) {
        None | Some(b' ') => Ok(()),
        Some(_) => Err("a version other than HTTP/1.0 and HTTP/1.1"),
    }
}

/// Returns the `timeout` parameter of a `Keep-Alive` field, in seconds.
fn timeout(value: &[u8]) -> Option<u64> {
    value.split(|&b| b == b',').find_map(|parameter| {
        let (name, seconds) = parameter.split_at_checked(parameter.iter().position(|&b| b == b'=')?)?;
        let is_it = syntax::trim(name).eq_ignore_ascii_case(b"timeout");
        if is_it { syntax::decimal(syntax::trim(&seconds[1..])) } else { None }
    })
}

/// Parses the head at the start of `text` as if it had arrived in pieces that end at `cuts` and at its end.
/// Returns where it ends, or `None` if more bytes are needed. For fuzzers and tests.
///
/// # Errors
/// Describes the mistake.
pub fn judge_response_head(
    text: &[u8],
    cuts: &[usize],
    max_bytes: usize,
) -> Result<Option<usize>, &'static str> {
    let mut parser = ResponseParser::new();
    for &cut in cuts {
        if let Some(end) = parser.advance(&text[..cut], max_bytes)? {
            return Ok(Some(end));
        }
    }
    parser.advance(text, max_bytes)
}
