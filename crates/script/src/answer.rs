//! What a handler returned, as a response.

use bytes::Bytes;
use handler::{Body, Failure, FailureKind, Fields, Response};
use mruby::Reader;

/// Hop-by-hop fields: the connection is not the handler's (RFC 9110 section 7.6.1).
const CONNECTION: [&[u8]; 6] =
    [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te"];

/// What a handler said.
pub(crate) enum Said {
    /// All of its response.
    Whole(Response),
    /// A response with the body of the one of this number.
    Passing(Response, i64),
    /// The others shall answer; fields that were set with it.
    Nothing(Vec<(Vec<u8>, Vec<u8>)>),
}

/// The status by which a handler leaves the answer to those after it.
const FALLTHROUGH: i64 = 399;

/// Reads `[status, [name, value …], [part …]]`, or in the place of the parts the number of a response whose body it is.
///
/// # Errors
/// It is no response, or none that can be sent.
pub(crate) fn read(tape: &[u8]) -> Result<Said, Failure> {
    let mut reader = Reader::new(tape);
    let said = (reader.array() == Some(3)).then(|| Some((reader.int()?, reader.array()? / 2))).flatten();
    let Some((status, count)) = said else { return Err(no_response()) };
    let mut pairs = std::iter::from_fn(|| Some((reader.text()?, reader.text()?))).take(count);
    if status == FALLTHROUGH {
        return Ok(Said::Nothing(pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect()));
    }
    let fields = fields(&mut pairs)?;
    if let Some(number) = reader.int() {
        // A 101 without a body of its own: whoever was asked has upgraded the connection.
        let head = match status {
            101 => Response { status: 101, fields, body: Body::Empty, close: true },
            status => response(status, fields, Body::Empty)?,
        };
        return Ok(Said::Passing(head, number));
    }
    let mut body = body(&mut reader).ok_or_else(no_response)?;
    if let Some(length) = shorter(&fields, body.len()) {
        body.truncate(length);
    }
    response(status, fields, if body.is_empty() { Body::Empty } else { Body::Bytes(body) }).map(Said::Whole)
}

/// The parts of a body.
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

/// The length that the fields say, if it is less than `length`: no more is sent, as by H2O.
fn shorter(fields: &Fields, length: usize) -> Option<usize> {
    let said = std::str::from_utf8(fields.get("content-length")?).ok()?;
    said.parse().ok().filter(|said| *said < length)
}

fn no_response() -> Failure {
    bad("a handler returned no Rack response")
}

/// A response, if the status is one.
pub(crate) fn response(status: i64, fields: Fields, body: Body) -> Result<Response, Failure> {
    match u16::try_from(status) {
        Ok(status @ 200..=599) => Ok(Response { status, fields, body, close: false }),
        _ => Err(bad(&format!("a handler returned the status {status}; 200 to 599 can be sent"))),
    }
}

/// Fields that may be sent: names are lower-cased, values with line breaks are several fields (Rack 2).
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
        if !http::h1::is_token(name) {
            return Err(bad(&format!("a handler set a field named \"{}\"", name.escape_ascii())));
        }
        for line in value.split(|byte| *byte == b'\n') {
            if line.iter().any(|byte| matches!(byte, 0 | b'\r')) {
                return Err(bad(&format!(
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

fn bad(reason: &str) -> Failure {
    Failure::new(FailureKind::Internal, reason.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use mruby::Tape;

    fn said(
        status: i64,
        fields: &[&str],
        body: impl FnOnce(&mut Tape) -> &mut Tape,
    ) -> Result<Said, Failure> {
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
        let read = said(201, &texts, |tape| tape.array(2).str("ab").str("c")).unwrap();
        let Said::Whole(response) = read else { panic!("a response") };
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
    fn a_body_is_cut_to_the_length_that_was_said() {
        for (length, body) in [("2", "ab"), ("3", "abc"), ("9", "abc"), ("x", "abc")] {
            let read =
                said(200, &["Content-Length", length], |tape| tape.array(2).str("ab").str("c")).unwrap();
            let Said::Whole(Response { body: Body::Bytes(sent), .. }) = read else { panic!("a body") };
            assert_eq!(&sent[..], body.as_bytes(), "{length}");
        }
    }

    #[test]
    fn others_answer_after_399_or_with_a_body_of_theirs() {
        let read = said(399, &["x-fallthru-set-a", "b"], |tape| tape.array(0));
        assert!(
            matches!(read, Ok(Said::Nothing(pairs)) if pairs == [(b"x-fallthru-set-a".to_vec(), b"b".to_vec())])
        );
        assert!(matches!(said(200, &[], |tape| tape.int(7)), Ok(Said::Passing(_, 7))));
        assert!(matches!(
            said(101, &[], |tape| tape.int(7)),
            Ok(Said::Passing(Response { close: true, .. }, 7))
        ));
    }

    #[test]
    fn what_is_no_response_is_refused() {
        let reason =
            |read: Result<Said, Failure>| read.err().map(|failure| failure.reason.into_owned()).unwrap();
        fn empty(tape: &mut Tape) -> &mut Tape {
            tape.array(0)
        }
        assert!(reason(said(99, &[], empty)).contains("status 99"));
        assert!(reason(said(101, &[], empty)).contains("status 101"));
        assert!(reason(said(200, &["a b", "c"], empty)).contains("\"a b\""));
        assert!(reason(said(200, &["a", "c\r"], empty)).contains("control character"));
        for body in [Tape::nil, |tape: &mut Tape| tape.array(1).int(1)] as [fn(&mut Tape) -> &mut Tape; 2] {
            assert!(reason(said(200, &[], |tape| body(tape))).contains("no Rack response"));
        }
        assert!(reason(read(b"")).contains("no Rack response"));
        assert!(reason(read(b"n")).contains("no Rack response"));
    }
}
