//! Checks the head of the app's response.

use crate::reply::ReplyHead;
use h1::is_token;
use handler::Failure;

pub(super) fn is_status(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"status")
}

/// Refuses header fields that would become another field or another response (RFC 9110 section 5.5). Returns
/// whether there is a `Status` field.
pub(super) fn check(head: &ReplyHead) -> Result<bool, Failure> {
    let mut has_status = false;
    if head.status < 200 && !(head.status == 101 && head.stream.is_some()) {
        let why = format!("the app responded with status {}, which is not final", head.status);
        return Err(Failure::app(502, why));
    }
    for (name, value) in head.fields.iter() {
        if !is_token(name) {
            let why = format!("the app sent a header named {:?}", name.escape_ascii().to_string());
            return Err(Failure::app(502, why));
        }
        if value.iter().any(|&byte| matches!(byte, 0 | b'\r' | b'\n')) {
            let why = format!("the app's header {} has a line break or NUL in it", name.escape_ascii());
            return Err(Failure::app(502, why));
        }
        has_status |= is_status(name);
    }
    Ok(has_status)
}
