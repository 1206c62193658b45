//! Runs one thread's reverse proxy: chooses the origin of a request, and decides about retries.

use crate::body::UpstreamBody;
use crate::connect::connect;
use crate::conversation::{Blame, Lost, OriginResponse, converse, poll_departure};
use crate::holds::{At, RequestPermit};
use crate::local::Local;
use crate::pool::Connection;
use crate::receiver::{Expected, Received, Rest};
use crate::request_head::{self, OriginRequest};
use crate::sender::Sender;
use crate::tunnel::Tunnel;
use crate::upstreams::{Active, NoOrigin};
use crate::{Upstreams, Via};
use h1::{body_framing, syntax};
use handler::{After, Body, Client, Departure, Exchange, Failure, Fault, Incoming, Peer, Request, Response};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

/// A thread's connections to the origins of one configuration.
pub struct Proxy {
    local: Rc<Local>,
}

/// A response that has begun, and its connection.
struct StartedResponse {
    received: Received,
    connection: Connection,
    origin: usize,
    peer: Rc<Peer>,
    active: Active,
    permit: RequestPermit,
}

impl Proxy {
    /// Creates a proxy without connections, for use on this thread's `LocalRuntime`.
    pub fn new(upstreams: Arc<Upstreams>) -> Proxy {
        Proxy { local: Local::new(upstreams) }
    }

    /// Passes an exchange to an origin. `target`: path and query, beginning with `/` (or `*` of an
    /// `OPTIONS`); the origin's base path is put before it. `Location` is passed on unchanged.
    pub async fn forward(&self, exchange: Exchange, target: Vec<u8>) -> Response {
        self.ask(exchange, target).await.unwrap_or_else(Failure::into_response)
    }

    /// Like [`Proxy::forward`], for callers that turn a failure into their own response.
    ///
    /// # Errors
    /// The reason why there is no response.
    pub async fn ask(&self, exchange: Exchange, target: Vec<u8>) -> Result<Response, Failure> {
        let Exchange { request, mut incoming, client, trace: _ } = exchange;
        let begun = self.send(&request, &mut incoming, &*client, &target).await?;
        Ok(self.response(begun))
    }

    /// Sends the request to one origin after the other until one responds.
    async fn send(
        &self,
        request: &Request,
        incoming: &mut Incoming,
        client: &dyn Client,
        target: &[u8],
    ) -> Result<StartedResponse, Failure> {
        let config = &self.local.upstreams.config;
        check(request, target)?;
        self.refuse_loop(request)?;
        let framing = body_framing(incoming, request.method());
        let upgrade = request_head::upgrade(request, config, framing);
        let expected = Expected {
            is_head: request.method() == b"HEAD",
            upgrade,
            max_head: config.max_response_head,
            via: config.via == Via::Both,
        };
        let permit = match self.local.holds.enter(&request.peer, request.version) {
            Some(permit) => permit,
            None => Box::pin(self.local.holds.wait(&request.peer, client)).await?,
        };
        let mut tried = Vec::new();
        let mut again = None;
        let mut made_room = false;
        loop {
            // An origin that has closed one idle connection may have closed them all.
            let pooled = again.is_none();
            let origin = match again.take() {
                Some(origin) => origin,
                None => self.local.upstreams.pick(&tried).map_err(|why| self.no_origin(why))?,
            };
            let active = self.local.upstreams.count(origin);
            permit.goes_to(self.at(origin));
            let kept = if pooled { self.local.pool.take(origin, Instant::now()) } else { None };
            let reused = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => match Box::pin(self.connect(origin, client)).await {
                    Ok(connection) => connection,
                    Err(failure) if failure.fault == Fault::Client => return Err(failure),
                    // Unread bodies may be the reason.
                    Err(failure) if !made_room && self.make_room(origin, &failure) => {
                        made_room = true;
                        again = Some(origin);
                        continue;
                    }
                    Err(failure) => {
                        self.local.upstreams.failed(origin);
                        tried.push(origin);
                        let more = tried.len() <= config.retries as usize
                            && tried.len() < self.local.upstreams.origins.len();
                        if more && self.local.upstreams.pick(&tried).is_ok() {
                            continue;
                        }
                        return Err(self.local.named(origin, failure));
                    }
                },
            };
            let mut head = self.local.head.take();
            head.clear();
            let state = &self.local.upstreams.origins[origin];
            let (origin_of, via) = (&state.origin, &self.local.upstreams.via);
            OriginRequest { config, origin: origin_of, via, request, target, framing, upgrade }
                .encode(&mut head);
            let sender = Sender::new(head, &self.local.head, incoming, framing);
            match converse(config, &connection, sender, expected, client).await {
                Ok(OriginResponse { mut received, whole }) => {
                    self.local.upstreams.succeeded(origin);
                    received.persistent &= whole;
                    connection.limit_idle(received.keep_alive);
                    let peer = request.peer.clone();
                    return Ok(StartedResponse { received, connection, origin, peer, active, permit });
                }
                Err(Lost { unsent, body_unread, unanswered, .. })
                    if reused && unanswered && (unsent || (body_unread && request.is_idempotent())) =>
                {
                    again = Some(origin);
                }
                Err(lost) => {
                    match lost.blame {
                        Blame::Client => {}
                        Blame::Closed => self.local.upstreams.closed(origin, &request.peer),
                        Blame::Origin => self.local.upstreams.failed(origin),
                    }
                    return Err(self.local.named(origin, lost.failure));
                }
            }
        }
    }

    /// Refuses a request that this proxy has passed on before: the request is in a loop.
    fn refuse_loop(&self, request: &Request) -> Result<(), Failure> {
        let Upstreams { config, via, .. } = &*self.local.upstreams;
        if config.via == Via::Off || via.passes(request) <= config.passes {
            return Ok(());
        }
        let name = &config.name;
        let why = format!(
            "{name}: proxy loop: this request already passed this server (Via); the configured origin points back here"
        );
        Err(Failure::app(508, why))
    }

    async fn connect(&self, origin: usize, client: &dyn Client) -> Result<Connection, Failure> {
        let mut connecting = pin!(connect(&self.local.upstreams, origin));
        let stream = poll_fn(|cx| match connecting.as_mut().poll(cx) {
            Poll::Pending => poll_gone(client, cx).map(Err),
            ready => ready,
        })
        .await?;
        if !stream.is_quiet() {
            let why = "closed or sent something before the request";
            return Err(Failure::app(502, why));
        }
        self.local.tick();
        Ok(Connection::new(stream, self.local.timers.register()))
    }

    /// Builds the response for the client.
    fn response(&self, begun: StartedResponse) -> Response {
        let StartedResponse { mut received, connection, origin, peer, active, permit } = begun;
        let fields = std::mem::take(&mut received.fields);
        let status = received.status;
        if status == 101 {
            let io = Box::new(Tunnel::new(connection, received.first, active));
            let response = Response::new(status, fields, Body::Tunnel { io, raw: false });
            return Response { after: After::EndStream, ..response };
        }
        let body = match received.rest {
            Rest::Done => {
                if received.persistent {
                    self.local.keep(origin, connection);
                }
                if received.first.is_empty() { Body::Empty } else { Body::Bytes(received.first) }
            }
            _ => {
                let hold = self.local.holds.hold(&permit, connection, active);
                Body::Stream(Box::new(UpstreamBody::new(self.local.clone(), origin, hold, received, peer)))
            }
        };
        Response::new(status, fields, body)
    }

    /// Takes connections from unread bodies. Returns whether connecting may succeed now.
    fn make_room(&self, origin: usize, failure: &Failure) -> bool {
        // EMFILE and ENFILE.
        let descriptors = ["os error 24", "os error 23"].iter().any(|code| failure.reason.contains(code));
        self.local.holds.make_room((!descriptors).then(|| self.at(origin)))
    }

    /// Identifies an origin for `holds`.
    fn at(&self, origin: usize) -> At {
        std::ptr::from_ref(&self.local.upstreams.origins[origin]).addr()
    }

    fn no_origin(&self, why: NoOrigin) -> Failure {
        let name = &self.local.upstreams.config.name;
        match why {
            NoOrigin::AllSick => Failure::busy(format!("{name}: health checks fail at every origin")),
            NoOrigin::AllTried => Failure::app(502, format!("{name}: every origin has been tried")),
        }
    }
}

/// Refuses requests that cannot be passed to an origin.
fn check(request: &Request, target: &[u8]) -> Result<(), Failure> {
    if request.method() == b"CONNECT" {
        return Err(Failure::client(501, "CONNECT is for forward proxies"));
    }
    let asterisk = target == b"*" && request.method() == b"OPTIONS";
    if !(asterisk || target.first() == Some(&b'/') && syntax::is_target(target)) {
        return Err(Failure::client(400, "a target that cannot be passed on"));
    }
    Ok(())
}

/// Ready when the client has gone. A half-closed client may still read.
fn poll_gone(client: &dyn Client, cx: &mut std::task::Context<'_>) -> Poll<Failure> {
    match poll_departure(client, cx) {
        Poll::Ready(Departure::Gone) => Poll::Ready(Failure::client_gone("the client went away")),
        _ => Poll::Pending,
    }
}
