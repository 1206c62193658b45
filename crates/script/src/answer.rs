//! What a handler returned, as a response.

use bytes::Bytes;
use handler::{Body, Failure, FailureKind, Fields, Response};
use mruby::Value;

/// Hop-by-hop fields: the connection is not the handler's (RFC 9110 section 7.6.1).
const CONNECTION: [&[u8]; 6] =
    [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade", b"te"];

/// `[status, [name, value …], [part …]]`, or in the place of the parts the number of a response whose body it is.
pub(crate) fn whole(out: &Value<'_>) -> Result<Response, Failure> {
    let Some([Value::Int(status), Value::Array(list), body]) = out.array() else {
        return Err(bad("a handler returned no Rack response"));
    };
    let parts = match body {
        Value::Array(parts) => parts.as_slice(),
        Value::Int(_) => &[],
        _ => return Err(bad("a handler returned no Rack response")),
    };
    let texts = list.chunks_exact(2);
    let pairs = texts.map(|pair| (pair[0].text().unwrap_or_default(), pair[1].text().unwrap_or_default()));
    let fields = fields(pairs)?;
    let body = match parts {
        [] => Bytes::new(),
        [one] => Bytes::copy_from_slice(one.text().unwrap_or_default()),
        many => many.iter().filter_map(Value::text).collect::<Vec<_>>().concat().into(),
    };
    if *status == 101 && held(out).is_some() {
        // Whoever was asked has upgraded the connection.
        return Ok(Response { status: 101, fields, body: Body::Empty, close: true });
    }
    response(*status, fields, if body.is_empty() { Body::Empty } else { Body::Bytes(body) })
}

/// The number of the response whose body a handler returned unread.
pub(crate) fn held(out: &Value<'_>) -> Option<i64> {
    match out.array()?.get(2)? {
        Value::Int(number) => Some(*number),
        _ => None,
    }
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
        let lower = name.to_ascii_lowercase();
        if CONNECTION.contains(&lower.as_slice()) {
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
            fields.push(&lower, line.trim_ascii());
        }
    }
    Ok(fields)
}

fn bad(reason: &str) -> Failure {
    Failure::new(FailureKind::Internal, reason.to_owned())
}
