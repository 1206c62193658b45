//! The hub of the Mercure protocol (draft-dunglas-mercure) at `hub.mercure`: subscribers by Server-Sent Events, publishers by POST.
//!
//! Contract:
//! 1. A token (JWT, HS256) comes in `Authorization: Bearer`, in the parameter `authorization` or in the cookie `mercureAuthorization`, in
//!    this order. Without one, subscribers are refused unless `hub.mercure_anonymous` is set; they get public updates only.
//! 2. A publisher needs the claim `mercure.publish`, which covers each topic of the update. With a cookie alone it must show its origin.
//! 3. A subscriber with an id gets what has followed the update, and the field `Last-Event-ID` names it; if it is not kept, it gets all that
//!    is kept, and the field is `earliest`.
//! 4. Subscription events and their API are not offered.

use super::door::{
    OtherOrigin, is_type, last_event_id, other_origin, preflight, read_body, refusal, unauthorized,
    wrong_method,
};
use super::events::{self, EventBody, EventListener, NoEvents};
use super::listeners::ConnectionKey;
use super::local::LocalHub;
use super::{count, now_ms, uncount};
use cable::event::{closing, resuming};
use cable::jwt::{TokenKey, TokenRights};
use cable::mercure::{EARLIEST, MercureQuery, MercureSubscriber, MercureUpdate, STREAM};
use cable::publication::LONGEST_PAYLOAD;
use cable::queue::ClientQueue;
use cable::rpc_key::bearer;
use handler::{Body, Exchange, Failure, Request, Response, cookies};
use settings::Settings;
use std::rc::Rc;

const METHODS: &[u8] = b"GET, HEAD, POST, OPTIONS";
const ALLOWED_FIELDS: &[u8] = b"Authorization, Cache-Control, Content-Type, Last-Event-ID";
const COOKIE: &str = "mercureAuthorization";

/// The settings of the door.
pub(super) struct MercureDoor {
    path: Box<str>,
    key: Option<TokenKey>,
    anonymous: bool,
}

impl MercureDoor {
    /// Returns the door; `None` if it is off.
    pub(super) fn new(settings: &Settings) -> Option<MercureDoor> {
        let hub = &settings.hub;
        Some(MercureDoor {
            path: hub.mercure.as_deref()?.into(),
            key: hub.mercure_secret.as_ref().or(hub.secret.as_ref()).map(|secret| TokenKey::new(secret)),
            anonymous: hub.mercure_anonymous,
        })
    }
}

/// The token of a request.
struct PresentedToken {
    text: String,
    /// It came in a cookie, which browsers send without being asked.
    by_cookie: bool,
}

impl LocalHub {
    /// Returns the door if a request is for it.
    pub(super) fn mercure_door(&self, request: &Request) -> Option<&MercureDoor> {
        self.hub.mercure.as_ref().filter(|door| request.path() == door.path.as_bytes())
    }

    /// Responds to a subscriber or publisher.
    pub(super) async fn mercure(self: Rc<Self>, exchange: Exchange) -> Response {
        let other = match other_origin(&exchange.request, &self.hub.origins) {
            Ok(other) => other,
            Err(origin) => return refusal(403, &format!("the origin {origin} is not one of hub.origins")),
        };
        let mut response = match exchange.request.method() {
            b"OPTIONS" => preflight(other.is_some(), METHODS, ALLOWED_FIELDS),
            b"GET" | b"HEAD" => self.subscribed(exchange),
            b"POST" => self.published(exchange).await,
            _ => wrong_method("updates are read by GET and published by POST", METHODS),
        };
        OtherOrigin::mark_all(other.as_ref(), &self.hub.origins, &mut response.fields);
        response
    }

    /// Returns the rights of a request's token; `None` without one.
    fn rights(
        &self,
        request: &Request,
        in_query: Option<String>,
    ) -> Result<Option<(TokenRights, bool)>, Box<Response>> {
        let key = self.hub.mercure.as_ref().and_then(|door| door.key.as_ref());
        let key = key.ok_or_else(|| {
            Box::new(refusal(404, "there is no Mercure hub here, because hub.mercure_secret is not set"))
        })?;
        let Some(token) = presented(request, in_query) else { return Ok(None) };
        match key.rights(&token.text, now_ms() / 1000) {
            Ok(rights) => Ok(Some((rights, token.by_cookie))),
            Err(fault) => {
                count(&self.hub.counts.rejected);
                Err(Box::new(unauthorized(&fault.to_string())))
            }
        }
    }

    fn subscribed(self: &Rc<Self>, exchange: Exchange) -> Response {
        let request = &exchange.request;
        let mut query = match MercureQuery::parse(request.query(), self.hub.max_subscriptions) {
            Ok(query) => query,
            Err(why) => return refusal(400, &why),
        };
        let rights = match self.rights(request, query.authorization.take()) {
            Ok(Some((rights, _))) => rights.subscribe,
            Ok(None) if self.hub.mercure.as_ref().is_some_and(|door| door.anonymous) => Vec::new(),
            Ok(None) => return unauthorized("a token is needed, because hub.mercure_anonymous is not set"),
            Err(refused) => return *refused,
        };
        if self.closing.get() {
            return events::head(Body::Bytes(closing(events::retry())));
        }
        if request.method() == b"HEAD" {
            return events::head(Body::Stream(Box::new(NoEvents)));
        }
        let id =
            last_event_id(request).map(|id| String::from_utf8_lossy(id).into_owned()).or(query.last_event_id);
        let connection = ConnectionKey::of(request);
        // The trace gets the request now.
        drop(exchange);
        let (body, place) = self.join_updates(query.topics, rights, id, connection);
        let mut response = events::head(Body::Stream(Box::new(body)));
        if let Some(place) = place {
            response.fields.push(b"Last-Event-ID", place.as_bytes());
        }
        response
    }

    /// Begins to listen. Returns the body, and the id before the first update if the client has sent one.
    fn join_updates(
        self: &Rc<Self>,
        topics: Vec<String>,
        rights: Vec<String>,
        id: Option<String>,
        connection: ConnectionKey,
    ) -> (EventBody<JoinedUpdates>, Option<String>) {
        let (offset, kept) = {
            let mut streams = self.hub.streams();
            let offset = streams.listen(STREAM, self.index, now_ms());
            (offset, streams.kept(STREAM))
        };
        let found =
            id.as_ref().and_then(|id| kept.iter().rposition(|one| MercureUpdate::has_id(&one.payload, id)));
        let place = id.as_ref().map(|id| if found.is_some() { id.clone() } else { EARLIEST.to_owned() });
        let from = match (&id, found) {
            (Some(_), Some(at)) => at + 1,
            (Some(_), None) => 0,
            (None, _) => kept.len(),
        };
        let missed = kept[from..].iter().filter_map(|one| MercureUpdate::of_payload(&one.payload));
        let missed: Vec<_> =
            missed.filter(|one| one.is_for(&topics, &rights)).map(|one| one.event()).collect();
        if id.is_some() {
            count(if found.is_some() { &self.hub.counts.resumed } else { &self.hub.counts.gaps });
        }
        // A client that is cut off before its first update continues here.
        let last = || kept.last().and_then(|one| Some(MercureUpdate::of_payload(&one.payload)?.id));
        let begin = if id.is_some() { found.and(id) } else { last() };
        let listener = EventListener::new(&self.hub);
        listener.put(match begin {
            Some(id) => resuming(events::retry(), &id),
            None => closing(events::retry()),
        });
        let fits = ClientQueue::cost(&missed) <= self.hub.client_queue;
        missed.into_iter().for_each(|event| listener.put(event));
        if !fits {
            // It is ended as one that reads too slowly, with a place from which it can go on.
            count(&self.hub.counts.slow);
            listener.finish();
        }
        let subscriber = MercureSubscriber { topics: topics.into(), rights: rights.into(), offset };
        let number = self.listeners.subscribe(listener.clone(), connection, subscriber);
        count(&self.hub.counts.mercure);
        (EventBody::new(listener, JoinedUpdates { local: self.clone(), number }), place)
    }

    async fn published(&self, mut exchange: Exchange) -> Response {
        let request = &exchange.request;
        let (rights, by_cookie) = match self.rights(request, in_query(request)) {
            Ok(Some(found)) => found,
            Ok(None) => return unauthorized("a token is needed to publish"),
            Err(refused) => return *refused,
        };
        // A page of another site cannot hide its origin in a POST.
        if by_cookie && request.fields.get("origin").is_none() {
            return refusal(403, "a publisher with a cookie must send Origin");
        }
        let content_type = request.fields.get("content-type").unwrap_or_default();
        if !is_type(content_type, "application/x-www-form-urlencoded") {
            return refusal(415, "expected application/x-www-form-urlencoded");
        }
        let Some(selectors) = rights.publish else {
            return refusal(403, "the token has no claim mercure.publish");
        };
        let form = match read_body(&mut exchange, LONGEST_PAYLOAD).await {
            Ok(form) => form,
            Err(response) => return *response,
        };
        let update = match MercureUpdate::parse(&form, &new_id()) {
            Ok(update) => update,
            Err(why) => return refusal(400, &why),
        };
        if update.is_reserved() {
            return refusal(403, "topics below /.well-known/mercure are the hub's own");
        }
        if let Some(topic) = update.topics.iter().find(|topic| !cable::mercure::covers(&selectors, topic)) {
            return refusal(403, &format!("mercure.publish of the token does not cover {topic:?}"));
        }
        self.hub.caught_up().await;
        if let Err(why) = self.hub.order(STREAM.into(), update.payload()).await {
            return Failure::busy(why).into_response();
        }
        let mut response = Response::text(200, "text/plain; charset=utf-8", update.id);
        response.fields.push(b"Cache-Control", b"no-store");
        response
    }
}

/// Returns the token in the query of a publisher.
fn in_query(request: &Request) -> Option<String> {
    MercureQuery::read(request.query(), 1).ok()?.authorization
}

/// Returns the token that a request presents.
fn presented(request: &Request, in_query: Option<String>) -> Option<PresentedToken> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if let Some(field) = request.fields.get("authorization") {
        return Some(PresentedToken { text: text(bearer(field).unwrap_or_default()), by_cookie: false });
    }
    if let Some(token) = in_query {
        return Some(PresentedToken { text: token, by_cookie: false });
    }
    let cookie = cookies(&request.fields, COOKIE).next()?;
    Some(PresentedToken { text: text(cookie), by_cookie: true })
}

/// Returns a random UUID (RFC 9562, section 5.4) as an IRI.
fn new_id() -> String {
    let random = fastrand::u128(..);
    let uuid = random & !(0xf << 76) & !(0x3 << 62) | 4 << 76 | 2 << 62;
    let digits = format!("{uuid:032x}");
    let part = |from: usize, to: usize| &digits[from..to];
    format!("urn:uuid:{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

/// A subscriber that has joined. Dropping it leaves.
pub(super) struct JoinedUpdates {
    local: Rc<LocalHub>,
    number: u32,
}

impl Drop for JoinedUpdates {
    fn drop(&mut self) {
        self.local.listeners.unsubscribe(self.number);
        self.local.hub.streams().unlisten(STREAM, self.local.index, now_ms());
        uncount(&self.local.hub.counts.mercure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids_of_version_4() {
        let id = new_id();
        let uuid = id.strip_prefix("urn:uuid:").unwrap();
        let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&uuid.as_bytes()[19]), "{uuid}");
    }
}
