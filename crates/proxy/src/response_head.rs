//! Response heads: lines to a checked [`Head`], resumable at any byte.
//!
//! Why a parser of our own: an upstream is not to be believed more than a client. What could be read in two ways is refused
//! (RFC 9112 with every leniency refused), and any split of the same bytes gives the same answer.
//!
//! Contract:
//! 1. A line ends with CRLF; any other CR or LF is refused, and so are folded lines and what is not HTTP/1.0 or HTTP/1.1.
//! 2. Bytes that have been judged are not looked at again.
//! 3. `Ok(Some(end))` once, for a head whose body can be found in one way only.
//! 4. Of the fields, those that are for the next hop only are left out (RFC 9110 section 7.6.1).

use handler::Span;
use http::h1::syntax;

/// Header fields of a response.
const MAX_FIELDS: usize = 256;
/// Room for this many fields at first.
const USUAL_FIELDS: usize = 16;
/// `HTTP/1.x NNN`
const STATUS_LINE: usize = 12;

/// What is wrong with a head.
pub(crate) type Mistake = &'static str;

/// How the fields say that the body ends; what the request and the status say comes before that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Content-Length.
    Length(u64),
    /// The chunked coding.
    Chunked,
    /// The end of the connection.
    Close,
}

/// A complete head. Spans count from its first byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    /// 100 to 999.
    pub(crate) status: u16,
    /// Fields that may be passed on.
    pub(crate) slots: Vec<(Span, Span)>,
    pub(crate) framing: Framing,
    /// The upstream's side of whether the connection may be used again.
    pub(crate) persistent: bool,
    /// For how many seconds, if it says so.
    pub(crate) keep_alive: Option<u64>,
    /// The protocol that is switched to, of a 101.
    pub(crate) upgrade: Option<Span>,
}

/// The state between two packets.
#[derive(Debug)]
pub(crate) struct Parser {
    has_status: bool,
    line_start: usize,
    /// How far a line end has been looked for.
    scanned: usize,
    fields: usize,
    status: u16,
    is_http10: bool,
    slots: Vec<(Span, Span)>,
    length: Option<u64>,
    chunked: bool,
    close: bool,
    persists: bool,
    /// `Connection` names fields.
    names: bool,
    keep_alive: Option<u64>,
    upgrade: Option<Span>,
    connection: Vec<Span>,
}

impl Parser {
    pub(crate) fn new() -> Parser {
        Parser {
            has_status: false,
            line_start: 0,
            scanned: 0,
            fields: 0,
            status: 0,
            is_http10: false,
            slots: Vec::new(),
            length: None,
            chunked: false,
            close: false,
            persists: false,
            names: false,
            keep_alive: None,
            upgrade: None,
            connection: Vec::new(),
        }
    }

    /// Parses on. `text` is all there is so far, with the same first byte in each call. Returns where the head ends.
    pub(crate) fn advance(&mut self, text: &[u8], max_bytes: usize) -> Result<Option<usize>, Mistake> {
        loop {
            if !self.has_status {
                check_beginning(text)?;
            }
            let line_end = memchr::memchr(b'\n', &text[self.scanned..]).map(|at| self.scanned + at);
            self.scanned = line_end.map_or(text.len(), |at| at + 1);
            // A line that is not complete has at least its LF to come: it is refused exactly when the complete one would be.
            if self.scanned + usize::from(line_end.is_none()) > max_bytes {
                return Err("a head larger than max_response_head");
            }
            let Some(line_end) = line_end else { return Ok(None) };
            let [line @ .., b'\r'] = &text[self.line_start..line_end] else {
                return Err("a line in the head that ends without CR");
            };
            let offset = self.line_start as u32;
            self.line_start = line_end + 1;
            if !self.has_status {
                self.status_line(line)?;
            } else if line.is_empty() {
                return self.check_framing().map(|()| Some(line_end + 1));
            } else {
                self.field(line, offset)?;
            }
        }
    }

    /// Takes the head out after [`Parser::advance`] has returned its end. `text` is what it was given.
    pub(crate) fn finish(mut self, text: &[u8]) -> Head {
        if self.names {
            let named = std::mem::take(&mut self.connection);
            self.slots.retain(|(name, _)| {
                !named.iter().any(|list| lists(list.slice(text), name.slice(text)))
                    || name.slice(text).eq_ignore_ascii_case(b"content-length")
            });
        }
        let framing = match self.length {
            _ if self.chunked => Framing::Chunked,
            Some(length) => Framing::Length(length),
            None => Framing::Close,
        };
        Head {
            status: self.status,
            slots: self.slots,
            framing,
            persistent: !self.close && (!self.is_http10 || self.persists),
            keep_alive: self.keep_alive,
            upgrade: self.upgrade,
        }
    }

    fn status_line(&mut self, line: &[u8]) -> Result<(), Mistake> {
        // What `check_beginning` has seen is there, except for its end.
        let [.., minor, b' ', a, b, c] = line.get(..STATUS_LINE).ok_or("a status line without a status")?
        else {
            return Err("a status line without a status");
        };
        let digits = [a, b, c];
        if !digits.iter().all(|digit| digit.is_ascii_digit()) || *a == b'0' {
            return Err("a status that is not three digits from 100 on");
        }
        match line.get(STATUS_LINE..) {
            // The blank is required, but many leave it out with the reason.
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
        let name_len = syntax::token_len(line);
        match line.get(name_len) {
            _ if name_len == 0 => return Err("a field line without a name, or folded"),
            Some(b':') => {}
            _ => return Err("a byte that may not stand in a field name"),
        }
        let (name, value) = (&line[..name_len], syntax::trim(&line[name_len + 1..]));
        if !syntax::is_value(value) {
            return Err("a control byte in a field value");
        }
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
                self.connection(value, value_span);
                false
            }
            10 if is(b"keep-alive") => {
                self.keep_alive = timeout(value);
                false
            }
            14 if is(b"content-length") => self.content_length(value).map(|()| true)?,
            16 => !is(b"proxy-connection"),
            17 if is(b"transfer-encoding") => self.transfer_encoding(value).map(|()| false)?,
            18 => !is(b"proxy-authenticate"),
            _ => true,
        };
        if keep {
            self.slots.push((name_span, value_span));
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8], span: Span) {
        for option in value.split(|&b| b == b',').map(syntax::trim) {
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.persists = true;
            } else if !option.is_empty() && !option.eq_ignore_ascii_case(b"upgrade") {
                self.names = true;
            }
        }
        if self.names {
            self.connection.push(span);
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Mistake> {
        let length = syntax::decimal(value).ok_or("a Content-Length that is no number")?;
        if self.length.replace(length).is_some() {
            return Err("more than one Content-Length");
        }
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Mistake> {
        if self.is_http10 {
            return Err("Transfer-Encoding in HTTP/1.0");
        }
        if std::mem::replace(&mut self.chunked, true) {
            return Err("more than one Transfer-Encoding");
        }
        if value.eq_ignore_ascii_case(b"chunked") {
            Ok(())
        } else {
            Err("a Transfer-Encoding other than chunked, which nobody has asked for")
        }
    }

    fn check_framing(&self) -> Result<(), Mistake> {
        if self.chunked && self.length.is_some() {
            return Err("Content-Length with Transfer-Encoding");
        }
        Ok(())
    }
}

/// Refuses what is no HTTP/1.0 or HTTP/1.1 response as soon as that shows.
fn check_beginning(text: &[u8]) -> Result<(), Mistake> {
    const BEGINNING: &[u8] = b"HTTP/1.";
    let n = text.len().min(BEGINNING.len());
    if text[..n] != BEGINNING[..n] {
        return Err("what begins here is no HTTP/1 response");
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

/// Whether a comma-separated list has `name` in it.
pub(crate) fn lists(list: &[u8], name: &[u8]) -> bool {
    list.split(|&b| b == b',').any(|one| syntax::trim(one).eq_ignore_ascii_case(name))
}

/// The `timeout` parameter of a `Keep-Alive` field, in seconds.
fn timeout(value: &[u8]) -> Option<u64> {
    value.split(|&b| b == b',').find_map(|parameter| {
        let (name, seconds) = parameter.split_at_checked(parameter.iter().position(|&b| b == b'=')?)?;
        let is_it = syntax::trim(name).eq_ignore_ascii_case(b"timeout");
        if is_it { syntax::decimal(syntax::trim(&seconds[1..])) } else { None }
    })
}

/// Judges the head at the start of `text` as if it had come in pieces that end at `cuts` and at its end: where it ends, or
/// `None` when more would be needed. For fuzzers and other judges.
///
/// # Errors
/// What would be written to the log.
pub fn judge_response_head(
    text: &[u8],
    cuts: &[usize],
    max_bytes: usize,
) -> Result<Option<usize>, &'static str> {
    let mut parser = Parser::new();
    for &cut in cuts {
        if let Some(end) = parser.advance(&text[..cut], max_bytes)? {
            return Ok(Some(end));
        }
    }
    parser.advance(text, max_bytes)
}

#[cfg(test)]
#[path = "response_head_tests.rs"]
mod tests;
