//! The rules that the doors of the hub beside the WebSocket share: which pages may read a response, and how a request is refused.
//!
//! Contract:
//! 1. A page of another origin gets nothing, unless `hub.origins` names its origin. Requests without `Origin` pass: browsers send it with
//!    each request of another origin whose response a script can read.
//! 2. Each refusal says why, in its text.

use bytes::Bytes;
use handler::{Exchange, Failure, Fields, Request, Response};

/// For how many seconds browsers may remember which fields scripts of other origins may send.
const REMEMBERED: &[u8] = b"600";

/// A page of another origin that may read the response.
pub(super) struct OtherOrigin {
    name: Box<[u8]>,
    /// `hub.origins` names it, rather than all.
    is_named: bool,
}

impl OtherOrigin {
    /// Lets the page read the response, if there is one that may.
    pub(super) fn mark_all(other: Option<&OtherOrigin>, allowed: &[String], fields: &mut Fields) {
        if !allowed.is_empty() {
            fields.push(b"Vary", b"Origin");
        }
        other.iter().for_each(|other| other.mark(fields));
    }

    fn mark(&self, fields: &mut Fields) {
        match self.is_named {
            true => {
                fields.push(b"Access-Control-Allow-Origin", &self.name);
                fields.push(b"Access-Control-Allow-Credentials", b"true");
            }
            false => fields.push(b"Access-Control-Allow-Origin", b"*"),
        }
    }
}

/// Returns a response whose text says why.
pub(super) fn refusal(status: u16, why: &str) -> Response {
    let mut response = Response::text(status, "text/plain; charset=utf-8", format!("{why}\n"));
    response.fields.push(b"Cache-Control", b"no-store");
    response
}

/// Refuses a request without the right token.
pub(super) fn unauthorized(why: &str) -> Response {
    let mut response = refusal(401, why);
    response.fields.push(b"WWW-Authenticate", b"Bearer");
    response
}

/// Reads a publisher's body whole.
///
/// # Errors
/// The response: it has more than `longest` bytes, or breaks off.
pub(super) async fn read_body(exchange: &mut Exchange, longest: usize) -> Result<Vec<u8>, Box<Response>> {
    let mut body = Vec::new();
    while let Some(part) = exchange.incoming.data().await {
        match part {
            Ok(part) if body.len() + part.len() > longest => {
                return Err(Box::new(refusal(413, &format!("a message has at most {longest} bytes"))));
            }
            Ok(part) => body.extend_from_slice(&part),
            Err(error) => return Err(Box::new(Failure::from(error).into_response())),
        }
    }
    Ok(body)
}

/// Refuses a method that the door does not have.
pub(super) fn wrong_method(why: &str, methods: &[u8]) -> Response {
    let mut response = refusal(405, why);
    response.fields.push(b"Allow", methods);
    response
}

/// Returns the id that the client has sent in the field `Last-Event-ID`.
pub(super) fn last_event_id(request: &Request) -> Option<&[u8]> {
    request.fields.get("last-event-id").map(<[u8]>::trim_ascii).filter(|id| !id.is_empty())
}

/// Whether a media type or range is this one, whatever its parameters are.
pub(super) fn is_type(value: &[u8], essence: &str) -> bool {
    let end = value.iter().position(|byte| *byte == b';').unwrap_or(value.len());
    value[..end].trim_ascii().eq_ignore_ascii_case(essence.as_bytes())
}

/// Responds to the question of a browser before it sends a request with further fields (Fetch, section 3.3.5).
pub(super) fn preflight(is_other: bool, methods: &[u8], names: &[u8]) -> Response {
    let mut response = Response::empty(204);
    response.fields.push(b"Allow", methods);
    if is_other {
        response.fields.push(b"Access-Control-Allow-Methods", methods);
        response.fields.push(b"Access-Control-Allow-Headers", names);
        response.fields.push(b"Access-Control-Max-Age", REMEMBERED);
    }
    response
}

/// Returns the origin of a page of another origin that may read the response; `None` for the server's own pages and for clients that are
/// no browsers.
///
/// # Errors
/// The origin, if it is not allowed.
pub(super) fn other_origin(request: &Request, allowed: &[String]) -> Result<Option<OtherOrigin>, String> {
    let Some(origin) = request.fields.get("origin").map(<[u8]>::trim_ascii) else { return Ok(None) };
    if is_own(origin, request) {
        return Ok(None);
    }
    let is_named = allowed.iter().any(|known| origin.eq_ignore_ascii_case(known.as_bytes()));
    match is_named || allowed.iter().any(|known| known == "*") {
        true => Ok(Some(OtherOrigin { name: origin.into(), is_named })),
        false => Err(origin.escape_ascii().to_string()),
    }
}

/// Whether an origin is the one that the request was sent to.
fn is_own(origin: &[u8], request: &Request) -> bool {
    let scheme: &[u8] = if request.https { b"https://" } else { b"http://" };
    let default: &[u8] = if request.https { b":443" } else { b":80" };
    let plain = |authority: &[u8]| authority.strip_suffix(default).unwrap_or(authority).to_ascii_lowercase();
    origin.strip_prefix(scheme).is_some_and(|authority| plain(authority) == plain(request.authority()))
}

/// Returns a response in JSON that no cache keeps.
pub(super) fn json(text: String) -> Response {
    let mut response = Response::text(200, "application/json", Bytes::from(text));
    response.fields.push(b"Cache-Control", b"no-store");
    response
}
