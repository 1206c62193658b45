//! Parses the head of an HTTP/1 response, as far as it matters for the connection. Strict: ambiguous heads
//! are rejected.

/// The rule for finding the end of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After this many bytes.
    Length(u64),
    Chunked,
    /// At the end of the connection.
    UntilClose,
}

/// The parts of a head that matter for the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    /// 100 to 999.
    pub status: u16,
    /// The framing of the body.
    pub framing: Framing,
    /// Whether the connection can carry another request.
    pub keep_alive: bool,
}

impl Head {
    /// Returns whether this is an interim response (1xx), after which another head follows.
    pub(crate) fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }
}

/// The most fields in a head; more are rejected.
pub(crate) const MOST_FIELDS: usize = 128;

/// Parses a complete head, including its empty line. `to_head`: the request was HEAD, so there is no body.
/// Calls `field` with the name and value of each field.
///
/// # Errors
/// The reason why the head is invalid.
pub(crate) fn parse(bytes: &[u8], to_head: bool, field: &mut dyn FnMut(&str, &[u8])) -> Result<Head, String> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Ok(_) => return Err("the response head ends in the wrong place".to_owned()),
        Err(error) => return Err(format!("the response is not HTTP: {}", describe(error))),
    }
    let status = response.code.unwrap_or(0);
    if status < 100 || status == 101 {
        return Err(format!("unexpected status {status}"));
    }
    let mut framing = FramingFields::default();
    for header in response.headers.iter() {
        framing.take(header.name, header.value)?;
        field(header.name, header.value);
    }
    framing.judge(status, response.version == Some(1), to_head)
}

fn describe(error: httparse::Error) -> String {
    match error {
        httparse::Error::TooManyHeaders => format!("it has more than {MOST_FIELDS} fields"),
        error => error.to_string(),
    }
}

/// The fields that decide on framing and persistence.
#[derive(Default)]
struct FramingFields {
    length: Option<u64>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl FramingFields {
    fn take(&mut self, name: &str, value: &[u8]) -> Result<(), String> {
        match name.len() {
            10 if name.eq_ignore_ascii_case("connection") => self.connection(value),
            14 if name.eq_ignore_ascii_case("content-length") => return self.content_length(value),
            17 if name.eq_ignore_ascii_case("transfer-encoding") => return self.transfer_encoding(value),
            _ => {}
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',') {
            let option = option.trim_ascii();
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(value);
        let length = match text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => text.parse().ok(),
            false => None,
        };
        let Some(length) = length else { return Err(format!("Content-Length: {text} is not a number")) };
        match self.length.replace(length) {
            Some(other) if other != length => Err("two different Content-Length fields".to_owned()),
            _ => Ok(()),
        }
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), String> {
        if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
            let text = String::from_utf8_lossy(value);
            return Err(format!("Transfer-Encoding: {text} is not supported, only chunked is"));
        }
        self.chunked = true;
        Ok(())
    }

    fn judge(&self, status: u16, version_1_1: bool, to_head: bool) -> Result<Head, String> {
        if self.chunked && self.length.is_some() {
            return Err("both Content-Length and Transfer-Encoding".to_owned());
        }
        if self.chunked && !version_1_1 {
            return Err("Transfer-Encoding in an HTTP/1.0 response".to_owned());
        }
        let bare = to_head || status < 200 || status == 204 || status == 304;
        let framing = match self.length {
            _ if bare => Framing::Length(0),
            _ if self.chunked => Framing::Chunked,
            Some(length) => Framing::Length(length),
            None => Framing::UntilClose,
        };
        let keep_alive = !self.close && (version_1_1 || self.keep_alive) && framing != Framing::UntilClose;
        Ok(Head { status, framing, keep_alive })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(head: &str) -> Result<Head, String> {
        parse(head.as_bytes(), false, &mut |_, _| {})
    }

    #[test]
    fn framing_and_persistence() {
        for (head, framing, keep_alive) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", Framing::Length(5), true),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nConnection: x, Close\r\n\r\n",
                Framing::Length(5),
                false,
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", Framing::Length(5), true),
            ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n", Framing::Length(5), false),
            (
                "HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n\r\n",
                Framing::Length(5),
                true,
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n", Framing::Chunked, true),
            ("HTTP/1.1 200 OK\r\n\r\n", Framing::UntilClose, false),
            ("HTTP/1.1 204 No\r\n\r\n", Framing::Length(0), true),
            ("HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\n", Framing::Length(0), true),
            ("HTTP/1.1 103 Early\r\n\r\n", Framing::Length(0), true),
        ] {
            let read = read(head).expect(head);
            assert_eq!((read.framing, read.keep_alive), (framing, keep_alive), "{head}");
        }
        let to_head = parse(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true, &mut |_, _| {});
        assert_eq!(to_head.map(|head| head.framing), Ok(Framing::Length(0)));
    }

    #[test]
    fn invalid_heads() {
        for (head, why) in [
            ("hello\r\n\r\n", "not HTTP"),
            ("HTTP/2.0 200 OK\r\n\r\n", "not HTTP"),
            ("HTTP/1.1 99 No\r\n\r\n", "not HTTP"),
            ("HTTP/1.1 101 Switching\r\n\r\n", "101"),
            ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", "not a number"),
            ("HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n", "not a number"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "not a number"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", "two different"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "both"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "gzip"),
            ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0"),
            ("HTTP/1.1 200 OK\r\nA: 1\r\n folded: 2\r\n\r\n", "not HTTP"),
        ] {
            let error = read(head).expect_err(head);
            assert!(error.contains(why), "{head}: {error}");
        }
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: 1\r\n".repeat(MOST_FIELDS + 1));
        assert!(read(&many).expect_err("too many").contains("128"));
    }
}
