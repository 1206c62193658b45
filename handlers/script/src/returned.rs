//! Reads a handler's return value as a response: [`Returned`].

use crate::failure;
use bytes::Bytes;
use handler::{After, Body, Failure, Fields, Response};
use mruby::Reader;

/// Hop-by-hop fields, which handlers cannot set (RFC 9110 section 7.6.1).
const CONNECTION: [&[u8]; 6] =
    [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te"];

pub(crate) enum Returned {
    /// A complete response.
    Response(Response),
    /// A response with the body of the held response of this number.
    PassThrough(Response, i64),
    /// Status 399: the next link responds; the fields are added to that response.
    Fallthrough(Vec<(Vec<u8>, Vec<u8>)>),
}

/// The status with which a handler leaves the response to the next link.
const FALLTHROUGH: i64 = 399;

/// Reads `[status, [name, value …], [part …]]`, or the number of a held response in place of the parts.
///
/// # Errors
/// The value is not a response, or the response cannot be sent.
pub(crate) fn read(tape: &[u8]) -> Result<Returned, Failure> {
    let mut reader = Reader::new(tape);
    let head = (reader.array() == Some(3)).then(|| Some((reader.int()?, reader.array()? / 2))).flatten();
    let Some((status, count)) = head else { return Err(not_a_response()) };
    let mut pairs = std::iter::from_fn(|| Some((reader.text()?, reader.text()?))).take(count);
    if status == FALLTHROUGH {
        return Ok(Returned::Fallthrough(
            pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
        ));
    }
    let fields = fields(&mut pairs)?;
    if let Some(number) = reader.int() {
        // A 101 response can only come from an upstream that has upgraded the connection.
        let head = match status {
            101 => Response { after: After::EndStream, ..Response::new(101, fields, Body::Empty) },
            status => response(status, fields, Body::Empty)?,
        };
        return Ok(Returned::PassThrough(head, number));
    }
    let mut body = body(&mut reader).ok_or_else(not_a_response)?;
    if let Some(length) = shorter(&fields, body.len()) {
        body.truncate(length);
    }
    response(status, fields, if body.is_empty() { Body::Empty } else { Body::Bytes(body) })
        .map(Returned::Response)
}

/// Reads the parts of a body.
fn body(reader: &mut Reader<'_>) -> Option<Bytes> {
    match reader.array()? {
        0 => Some(Bytes::new()),
        1 => Some(Bytes::copy_from_slice(reader.text()?)),
        count => {
            let mut whole = Vec::new();
            for _ in 0..count {
                whole.extend_from_slice(reader.text()?);
            }
            Some(whole.into())
        }
    }
}

/// Returns the Content-Length if it is less than `length`: no more bytes are sent, as in H2O.
fn shorter(fields: &Fields, length: usize) -> Option<usize> {
    let content_length = std::str::from_utf8(fields.get("content-length")?).ok()?;
    content_length.parse().ok().filter(|content_length| *content_length < length)
}

fn not_a_response() -> Failure {
    failure::handler("a handler returned something that is not a Rack response")
}

/// Returns a response if the status is valid.
pub(crate) fn response(status: i64, fields: Fields, body: Body) -> Result<Response, Failure> {
    match u16::try_from(status) {
        Ok(status @ 200..=599) => Ok(Response::new(status, fields, body)),
        _ => Err(failure::handler(format!("a handler returned the status {status}; 200 to 599 can be sent"))),
    }
}

/// Returns fields in the form in which they are sent: names in lower case, one field per line of a value (Rack 2).
pub(crate) fn fields<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<Fields, Failure> {
    let mut fields = Fields::with_capacity(8, 256);
    for (name, value) in pairs {
        let (mut short, mut long) = ([0; 48], Vec::new());
        let lower = match short.get_mut(..name.len()) {
            Some(short) => short,
            None => {
                long.resize(name.len(), 0);
                &mut long[..]
            }
        };
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        if CONNECTION.contains(&&*lower) {
            continue;
        }
        if !h1::is_token(name) {
            return Err(failure::handler(format!("a handler set a field named \"{}\"", name.escape_ascii())));
        }
        for line in value.split(|byte| *byte == b'\n') {
            if line.iter().any(|byte| matches!(byte, 0 | b'\r')) {
                return Err(failure::handler(format!(
                    "a handler set {} to a value with a control character: \"{}\"",
                    name.escape_ascii(),
                    line.escape_ascii()
                )));
            }
            fields.push(lower, line.trim_ascii());
        }
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mruby::Tape;

    fn returned(
        status: i64,
        fields: &[&str],
        body: impl FnOnce(&mut Tape) -> &mut Tape,
    ) -> Result<Returned, Failure> {
        let mut tape = Tape::new();
        tape.array(3).int(status).array(fields.len() as u32);
        for text in fields {
            tape.str(text);
        }
        body(&mut tape);
        read(tape.as_bytes())
    }

    #[test]
    fn a_response_is_read() {
        let long = "X-".to_owned() + &"Long-".repeat(20);
        let texts = ["Content-Type", "text/plain", "Connection", "close", "X-A", "1\n 2", &long, ""];
        let read = returned(201, &texts, |tape| tape.array(2).str("ab").str("c")).unwrap();
        let Returned::Response(response) = read else { panic!("a response") };
        assert_eq!(response.status, 201);
        let fields: Vec<_> =
            response.fields.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        let long = long.to_lowercase();
        let expected = [("content-type", "text/plain"), ("x-a", "1"), ("x-a", "2"), (long.as_str(), "")];
        let expected: Vec<_> =
            expected.iter().map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec())).collect();
        assert_eq!(fields, expected);
        let Body::Bytes(body) = response.body else { panic!("a body in memory") };
        assert_eq!(&body[..], b"abc");
    }

    #[test]
    fn a_body_is_cut_to_its_content_length() {
        for (length, body) in [("2", "ab"), ("3", "abc"), ("9", "abc"), ("x", "abc")] {
            let read =
                returned(200, &["Content-Length", length], |tape| tape.array(2).str("ab").str("c")).unwrap();
            let Returned::Response(Response { body: Body::Bytes(sent), .. }) = read else { panic!("a body") };
            assert_eq!(&sent[..], body.as_bytes(), "{length}");
        }
    }

    #[test]
    fn fallthrough_and_passed_through_bodies() {
        let read = returned(399, &["x-fallthru-set-a", "b"], |tape| tape.array(0));
        assert!(
            matches!(read, Ok(Returned::Fallthrough(pairs)) if pairs == [(b"x-fallthru-set-a".to_vec(), b"b".to_vec())])
        );
        assert!(matches!(returned(200, &[], |tape| tape.int(7)), Ok(Returned::PassThrough(_, 7))));
        assert!(matches!(
            returned(101, &[], |tape| tape.int(7)),
            Ok(Returned::PassThrough(Response { after: After::EndStream, .. }, 7))
        ));
    }

    #[test]
    fn invalid_responses_are_errors() {
        let reason =
            |read: Result<Returned, Failure>| read.err().map(|failure| failure.reason.into_owned()).unwrap();
        fn empty(tape: &mut Tape) -> &mut Tape {
            tape.array(0)
        }
        assert!(reason(returned(99, &[], empty)).contains("status 99"));
        assert!(reason(returned(101, &[], empty)).contains("status 101"));
        assert!(reason(returned(200, &["a b", "c"], empty)).contains("\"a b\""));
        assert!(reason(returned(200, &["a", "c\r"], empty)).contains("control character"));
        for body in [Tape::nil, |tape: &mut Tape| tape.array(1).int(1)] as [fn(&mut Tape) -> &mut Tape; 2] {
            assert!(reason(returned(200, &[], |tape| body(tape))).contains("not a Rack response"));
        }
        assert!(reason(read(b"")).contains("not a Rack response"));
        assert!(reason(read(b"n")).contains("not a Rack response"));
    }
}
