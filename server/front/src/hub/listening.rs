//! The door of Server-Sent Events and long polling at `{hub.path}/events`.
//!
//! Why: a page that only listens needs no WebSocket, and no call to the app: the names of its streams are signed, or public.
//!
//! Contract: only streams whose names are signed with `hub.secret`, and those of `hub.public_streams`, can be listened to. Without both the door is closed (404). A client is a member
//! of a stream only by a token that the app has signed for it.

use super::door::{OtherOrigin, is_type, last_event_id, other_origin, preflight, refusal, wrong_method};
use super::events::{self, NoEvents};
use super::joining::{Claimed, Listening};
use super::listeners::ConnectionKey;
use super::local::LocalHub;
use super::present::new_session;
use super::{count, now_ms, poll};
use cable::event::closing;
use cable::event_id::{EventId, StreamSet};
use cable::event_query::EventQuery;
use cable::presence::PresenceJoin;
use handler::{Body, Exchange, Request, Response};
use std::rc::Rc;
use std::sync::Arc;

/// The methods of the door.
const METHODS: &[u8] = b"GET, HEAD, OPTIONS";
/// Fields that scripts of other origins may send.
const ALLOWED_FIELDS: &[u8] = b"Cache-Control, Last-Event-ID";

impl LocalHub {
    /// Whether a request is for the events.
    pub(super) fn has_events(&self, request: &Request) -> bool {
        request.path() == self.hub.events_path.as_bytes()
    }

    /// Responds to a request for events.
    pub(super) async fn events(self: Rc<Self>, exchange: Exchange) -> Response {
        let request = &exchange.request;
        if self.hub.secret.is_none() && self.hub.public.is_empty() {
            return refusal(
                404,
                "there are no events here, because hub.secret is not set, and hub.public_streams names none",
            );
        }
        let other = match other_origin(request, &self.hub.origins) {
            Ok(other) => other,
            Err(origin) => {
                return refusal(403, &format!("the origin {origin} is not one of hub.origins"));
            }
        };
        let is_head = request.method() == b"HEAD";
        let mut response = match request.method() {
            b"OPTIONS" => preflight(other.is_some(), METHODS, ALLOWED_FIELDS),
            b"GET" | b"HEAD" => match self.listening(request) {
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
            _ => wrong_method("events are read by GET", METHODS),
        };
        OtherOrigin::mark_all(other.as_ref(), &self.hub.origins, &mut response.fields);
        response
    }

    /// Checks who listens to what. Returns whether it is a poll, too.
    fn listening(&self, request: &Request) -> Result<(Listening, bool), Box<Response>> {
        let query = EventQuery::parse(request.query(), self.hub.max_subscriptions)
            .map_err(|why| Box::new(refusal(400, &why)))?;
        let names = query.streams.iter().map(|name| self.hub.stream_named(name).map(Arc::from));
        let Some(names) = names.collect::<Option<Vec<Arc<str>>>>() else {
            count(&self.hub.counts.rejected);
            return Err(Box::new(refusal(
                403,
                "the name of a stream is not signed with hub.secret, nor one of hub.public_streams",
            )));
        };
        let id = last_event_id(request).or(query.last_event_id.as_deref().map(str::as_bytes));
        let id = id.map(|id| {
            std::str::from_utf8(id).ok().and_then(EventId::parse).map_or(Claimed::Unknown, Claimed::Id)
        });
        let polls = query.polls || prefers_json(request);
        let set = StreamSet::new(names);
        let member = match &query.presence {
            Some(token) if request.method() != b"HEAD" => Some(self.member(token, &set)?),
            _ => None,
        };
        let connection = ConnectionKey::of(request);
        Ok((Listening { set, id, refreshes: query.refreshes, connection, member }, polls))
    }

    /// Returns the member that a client is by its token.
    fn member(&self, token: &str, set: &StreamSet) -> Result<PresenceJoin, Box<Response>> {
        let refused = |status, why: &str| {
            count(&self.hub.counts.rejected);
            Box::new(refusal(status, why))
        };
        let Some(secret) = &self.hub.secret else {
            return Err(refused(403, "there is no presence here, because hub.secret is not set"));
        };
        let token = secret.presence(token, now_ms() / 1000).map_err(|why| refused(403, why))?;
        let Some(at) = set.place(&token.stream) else {
            return Err(refused(400, "the presence token is for a stream that is not listened to"));
        };
        let (stream, id, info) = (set.names()[at].clone(), token.id.into(), token.info.to_string().into());
        let join = PresenceJoin { stream, id, info, session: new_session(), is_vouched: true };
        match self.hub.present.table().check(&join) {
            Ok(()) => Ok(join),
            Err(refusal) => Err(refused(503, &refusal.to_string())),
        }
    }
}

/// Whether a client asks for JSON and not for events.
fn prefers_json(request: &Request) -> bool {
    let names = |essence: &str| {
        let mut parts = request.fields.all("accept").flat_map(|value| value.split(|byte| *byte == b','));
        parts.any(|part| is_type(part, essence))
    };
    names("application/json") && !names("text/event-stream")
}
