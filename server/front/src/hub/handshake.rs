//! The opening of a WebSocket of the hub (RFC 6455 section 4.2; over HTTP/2 and HTTP/3 the protocols show the same).
//!
//! Contract: the app decides first, or the client's token ([`super::identification`]). A connection that it refuses with a response gets that response; one that it rejects
//! (`reject_unauthorized_connection`) is opened, told so and closed, as Action Cable does.

use super::call::{self, CallSource, HubAnswer, HubOrder, NoAnswer};
use super::local::LocalHub;
use super::socket::{CableSocket, SocketEnd};
use cable::command::CableProtocol;
use cable::exclusion::SessionId;
use handler::{After, Body, Client, Exchange, Failure, Fields, Request, Response};
use http::websocket_accept;
use std::rc::Rc;

impl LocalHub {
    /// Whether a request is for the hub.
    pub(crate) fn takes(&self, request: &Request) -> bool {
        request.path() == self.hub.path.as_bytes() && !self.is_handed_back()
            || self.has_events(request)
            || self.mercure_door(request).is_some()
            || self.broadcast_door(request).is_some()
    }

    /// Responds to a request for the hub.
    pub(crate) async fn open(self: Rc<Self>, exchange: Exchange) -> Response {
        self.hub.opened().await;
        if self.has_events(&exchange.request) {
            return self.events(exchange).await;
        }
        if self.mercure_door(&exchange.request).is_some() {
            return self.mercure(exchange).await;
        }
        if self.broadcast_door(&exchange.request).is_some() {
            return self.broadcast(exchange).await;
        }
        let opening = match Opening::of(&exchange.request) {
            Ok(opening) => opening,
            Err(refusal) => return *refusal,
        };
        if self.closing.get() {
            return Failure::busy("the server is stopping").into_response();
        }
        let template = call::template(&exchange.request);
        let identified = self.hub.identified(&exchange.request);
        let (client, trace) = (exchange.client.clone(), exchange.trace.clone());
        // The trace gets the request now.
        drop(exchange);
        let session = fastrand::u64(..);
        let answer = match identified {
            Some(answer) => Ok(answer),
            None => self.connected(&template, session, client).await,
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(refusal) => return *refusal,
        };
        let protocol = opening.protocol.unwrap_or(CableProtocol::Basic);
        let socket = CableSocket::open(&self, CallSource::new(template, trace), protocol, session, answer);
        opening.response(SocketEnd(socket))
    }

    /// Asks the app about a connection.
    ///
    /// # Errors
    /// The response to the client.
    async fn connected(
        &self,
        template: &Request,
        session: SessionId,
        client: Rc<dyn Client>,
    ) -> Result<HubAnswer, Box<Response>> {
        let order = HubOrder {
            command: "connect",
            session,
            identifier: None,
            data: None,
            connection: "",
            channels: Vec::new(),
        };
        call::ask(&self.hub, &self.app, template, &order, Some(client)).await.map_err(|none| match none {
            NoAnswer::Response(response) => response,
            NoAnswer::Failed(why) => Box::new(Failure::app(502, format!("hub: {why}")).into_response()),
        })
    }
}

/// A handshake that is valid.
struct Opening {
    accept: String,
    /// The protocol to name in the response; `None` if the client has offered none.
    protocol: Option<CableProtocol>,
}

impl Opening {
    fn of(request: &Request) -> Result<Opening, Box<Response>> {
        let fields = &request.fields;
        let upgrades = request.method() == b"GET"
            && request.switchable
            && fields.lists("connection", "upgrade")
            && fields.lists("upgrade", "websocket");
        let is_13 = fields.get("sec-websocket-version").is_some_and(|version| version.trim_ascii() == b"13");
        if !upgrades || !is_13 {
            let mut response = Response::text(426, "text/plain; charset=utf-8", "426 Upgrade Required\n");
            response.fields.push(b"Upgrade", b"websocket");
            response.fields.push(b"Sec-WebSocket-Version", b"13");
            return Err(Box::new(response));
        }
        let invalid = |why: &'static str| Box::new(Failure::client(400, why).into_response());
        let key = fields.get("sec-websocket-key").unwrap_or_default().trim_ascii();
        if key.len() != 24 {
            return Err(invalid("the Sec-WebSocket-Key has not 16 bytes in Base64"));
        }
        let protocol = match fields.get("sec-websocket-protocol") {
            None => None,
            Some(offered) => Some(CableProtocol::choose(offered).ok_or_else(|| {
                invalid(
                    "Sec-WebSocket-Protocol names neither actioncable-v1-json nor actioncable-v1-ext-json",
                )
            })?),
        };
        Ok(Opening { accept: websocket_accept(key), protocol })
    }

    fn response(self, end: SocketEnd) -> Response {
        let mut fields = Fields::default();
        fields.push(b"Upgrade", b"websocket");
        fields.push(b"Sec-WebSocket-Accept", self.accept.as_bytes());
        if let Some(protocol) = self.protocol {
            fields.push(b"Sec-WebSocket-Protocol", protocol.name().as_bytes());
        }
        let body = Body::Tunnel { io: Box::new(end), raw: false };
        Response { after: After::EndStream, ..Response::new(101, fields, body) }
    }
}
