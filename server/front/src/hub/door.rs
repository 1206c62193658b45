//! The doors of the hub beside the WebSocket: Server-Sent Events and long polling at `{hub.path}/events`.
//!
//! Why: a page that only listens needs no WebSocket, and no call to the app: the names of its streams are signed.
//!
//! Contract:
//! 1. Only streams whose names are signed with `hub.secret` can be listened to. Without the secret the door is closed (404).
//! 2. A page of another origin gets nothing, unless `hub.origins` names its origin. Requests without `Origin` pass: browsers send it with
//!    each request of another origin whose response a script can read.
//! 3. Each refusal says why, in its text.

use super::events::{self, NoEvents};
use super::local::LocalHub;
use super::{count, poll};
use bytes::Bytes;
use cable::event::closing;
use cable::event_id::{EventId, StreamSet};
use cable::event_query::EventQuery;
use cable::signed::SignedNames;
use handler::{Body, Exchange, Fields, Request, Response};
use std::rc::Rc;
use std::sync::Arc;

/// The methods of the door.
const METHODS: &[u8] = b"GET, HEAD, OPTIONS";
/// Fields that scripts of other origins may send, and for how many seconds browsers may remember that.
const ALLOWED_FIELDS: &[u8] = b"Cache-Control, Last-Event-ID";
const REMEMBERED: &[u8] = b"600";

/// A request that may listen.
pub(super) struct Listening {
    pub(super) set: StreamSet,
    /// The place at which the client is.
    pub(super) id: Option<Claimed>,
    pub(super) refreshes: bool,
}

/// The id that a client has sent.
pub(super) enum Claimed {
    Id(EventId),
    /// It is not one of this server, so it cannot be known what the client has.
    Unknown,
}

/// A page of another origin that may read the response.
struct OtherOrigin {
    name: Box<[u8]>,
    /// `hub.origins` names it, rather than all.
    is_named: bool,
}

impl LocalHub {
    /// Whether a request is for the events.
    pub(super) fn has_events(&self, request: &Request) -> bool {
        request.path() == self.hub.events_path.as_bytes()
    }

    /// Responds to a request for events.
    pub(super) async fn events(self: Rc<Self>, exchange: Exchange) -> Response {
        let request = &exchange.request;
        let Some(secret) = &self.hub.secret else {
            return refusal(404, "there are no events here, because hub.secret is not set");
        };
        let other = match other_origin(request, &self.hub.origins) {
            Ok(other) => other,
            Err(origin) => {
                return refusal(403, &format!("the origin {origin} is not one of hub.origins"));
            }
        };
        let is_head = request.method() == b"HEAD";
        let mut response = match request.method() {
            b"OPTIONS" => preflight(other.is_some()),
            b"GET" | b"HEAD" => match self.listening(request, secret) {
                Err(refused) => *refused,
                Ok((listening, polls)) if polls => poll::respond(&self, exchange, listening, is_head).await,
                // A browser gives up after any other status, so a client that should come again gets an empty stream.
                Ok(_) if self.closing.get() => events::head(Body::Bytes(closing(events::retry()))),
                Ok(_) if is_head => events::head(Body::Stream(Box::new(NoEvents))),
                Ok((listening, _)) => {
                    // The trace gets the request now.
                    drop(exchange);
                    events::head(Body::Stream(Box::new(events::listen(&self, listening))))
                }
            },
            _ => {
                let mut response = refusal(405, "events are read by GET");
                response.fields.push(b"Allow", METHODS);
                response
            }
        };
        if !self.hub.origins.is_empty() {
            response.fields.push(b"Vary", b"Origin");
        }
        other.iter().for_each(|other| other.mark(&mut response.fields));
        response
    }

    /// Checks who listens to what. Returns whether it is a poll, too.
    fn listening(&self, request: &Request, secret: &SignedNames) -> Result<(Listening, bool), Box<Response>> {
        let query = EventQuery::parse(request.query(), self.hub.max_subscriptions)
            .map_err(|why| Box::new(refusal(400, &why)))?;
        let names = query.streams.iter().map(|signed| secret.verify(signed).map(Arc::from));
        let Some(names) = names.collect::<Option<Vec<Arc<str>>>>() else {
            count(&self.hub.counts.rejected);
            return Err(Box::new(refusal(403, "the name of a stream is not signed with hub.secret")));
        };
        let sent = request.fields.get("last-event-id").map(<[u8]>::trim_ascii).filter(|id| !id.is_empty());
        let id = sent.or(query.last_event_id.as_deref().map(str::as_bytes));
        let id = id.map(|id| {
            std::str::from_utf8(id).ok().and_then(EventId::parse).map_or(Claimed::Unknown, Claimed::Id)
        });
        let polls = query.polls || prefers_json(request);
        Ok((Listening { set: StreamSet::new(names), id, refreshes: query.refreshes }, polls))
    }
}

impl OtherOrigin {
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

/// Responds to the question of a browser before it sends a request with further fields (Fetch, section 3.3.5).
fn preflight(is_other: bool) -> Response {
    let mut response = Response::empty(204);
    response.fields.push(b"Allow", METHODS);
    if is_other {
        response.fields.push(b"Access-Control-Allow-Methods", METHODS);
        response.fields.push(b"Access-Control-Allow-Headers", ALLOWED_FIELDS);
        response.fields.push(b"Access-Control-Max-Age", REMEMBERED);
    }
    response
}

/// Whether a client asks for JSON and not for events.
fn prefers_json(request: &Request) -> bool {
    let names = |essence: &str| {
        request.fields.all("accept").flat_map(|value| value.split(|byte| *byte == b',')).any(|part| {
            let end = part.iter().position(|byte| *byte == b';').unwrap_or(part.len());
            part[..end].trim_ascii().eq_ignore_ascii_case(essence.as_bytes())
        })
    };
    names("application/json") && !names("text/event-stream")
}

/// Returns the origin of a page of another origin that may read the response; `None` for the server's own pages and for clients that are
/// no browsers.
///
/// # Errors
/// The origin, if it is not allowed.
fn other_origin(request: &Request, allowed: &[String]) -> Result<Option<OtherOrigin>, String> {
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

/// Returns a response in JSON that nobody keeps.
pub(super) fn json(text: String) -> Response {
    let mut response = Response::text(200, "application/json", Bytes::from(text));
    response.fields.push(b"Cache-Control", b"no-store");
    response
}
