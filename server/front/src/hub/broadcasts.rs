//! The address at which programs publish by HTTP, in AnyCable's form (`hub.broadcast`, [`cable::broadcast`]).
//!
//! Why: a program on another machine, or in another language, has no Unix socket. The gem of AnyCable, and the libraries for other
//! languages, know this form.
//!
//! Contract:
//! 1. Only the bearer of the token publishes. It is `hub.broadcast_secret`, or derived from `hub.secret`.
//! 2. 201 says that each message has its number, in the order of the array. If Redis is lost between two of them, the response is 503, and the log says how
//!    many have been published.

use super::count;
use super::door::{read_body, refusal, unauthorized, wrong_method};
use super::local::LocalHub;
use cable::broadcast::{self, LONGEST};
use cable::rpc_key::{TokenPurpose, derived, is_shown};
use handler::{Exchange, Failure, Request, Response};
use settings::Settings;

/// The settings of the address.
pub(super) struct BroadcastDoor {
    path: Box<str>,
    token: Option<String>,
}

impl BroadcastDoor {
    /// Returns the door; `None` if it is off.
    pub(super) fn new(settings: &Settings) -> Option<BroadcastDoor> {
        let hub = &settings.hub;
        let token = hub.broadcast_secret.clone();
        let token =
            token.or_else(|| hub.secret.as_ref().map(|secret| derived(secret, TokenPurpose::Broadcast)));
        Some(BroadcastDoor { path: hub.broadcast.as_deref()?.into(), token })
    }
}

impl LocalHub {
    /// Returns the door if a request is for it.
    pub(super) fn broadcast_door(&self, request: &Request) -> Option<&BroadcastDoor> {
        self.hub.broadcast.as_ref().filter(|door| request.path() == door.path.as_bytes())
    }

    /// Responds to a publisher.
    pub(super) async fn broadcast(&self, mut exchange: Exchange) -> Response {
        if exchange.request.method() != b"POST" {
            return wrong_method("messages are published by POST", b"POST");
        }
        let token = self.hub.broadcast.as_ref().and_then(|door| door.token.as_deref());
        let Some(token) = token else {
            return refusal(404, "nothing is published here, because hub.broadcast_secret is not set");
        };
        if !exchange.request.fields.get("authorization").is_some_and(|shown| is_shown(token, shown)) {
            count(&self.hub.counts.rejected);
            return unauthorized("the token of hub.broadcast_secret is needed to publish");
        }
        let json = match read_body(&mut exchange, LONGEST).await {
            Ok(json) => json,
            Err(response) => return *response,
        };
        let messages = match broadcast::parse(&json) {
            Ok(messages) => messages,
            Err(why) => return refusal(422, &why),
        };
        let all = messages.len();
        for (published, message) in messages.into_iter().enumerate() {
            self.hub.caught_up().await;
            if let Err(why) = self.hub.order(message.stream.into(), message.payload).await {
                let why = format!("{published} of {all} messages are published: {why}");
                return Failure::busy(why).into_response();
            }
        }
        Response::empty(201)
    }
}
