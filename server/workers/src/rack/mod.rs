//! The handler for Rack apps: passes a request to a worker and returns the worker's response.

mod encode;
mod head;
mod reply_body;

use crate::call::{Call, CallBody, CallState};
use crate::local::Local;
use crate::pause::PausedRequest;
use crate::reply::{ReplyEvent, ReplyHead};
use crate::tunnel::{self, SocketBody};
use crate::websocket::Follower;
use encode::{Samples, encode};
use handler::held::{Account, ResponseTurn};
use handler::{
    After, Body, Chunk, Client, Departure, Exchange, Failure, Handler, Incoming, Lent, Response, Trace,
};
use head::{check, is_status};
use http::body::{BodyBounds, Collected, collect};
use net::memory::{MemoryClass, Reserved};
use reply_body::ReplyBody;
use std::future::{Future, poll_fn};
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// Serves requests with the app.
pub struct Rack {
    local: Rc<Local>,
    samples: Samples,
}

/// How long the server waits for a half-closed client whose request is served by a fiber. Most such clients
/// have disconnected, which only a write would reveal.
const HALF_CLOSED: Duration = Duration::from_secs(1);

/// An event that wakes a waiting handler.
enum RackEvent {
    Reply(ReplyEvent),
    Departed(Departure),
}

impl Rack {
    /// Creates a handler that uses `local`'s workers.
    pub fn new(local: Rc<Local>) -> Rack {
        Rack { local, samples: Samples::default() }
    }

    /// Serves an exchange whose request has been encoded.
    async fn respond_to(&self, call: Rc<Call>, client: Rc<dyn Client>) -> Result<Response, Failure> {
        let pending = PendingCall { local: &self.local, call: Some(call.clone()) };
        let mut _turn = self.submit(&call, &client).await?;
        // With fibers, a half-closed client is given up a little later, because its request can then be
        // ended.
        let mut leaving: Option<Pin<Box<Sleep>>> = None;
        loop {
            let event = poll_fn(|cx| {
                let is_over = |sleep: &mut Pin<Box<Sleep>>| sleep.as_mut().poll(cx).is_ready();
                if leaving.as_mut().is_some_and(is_over) {
                    return Poll::Ready(RackEvent::Departed(Departure::Gone));
                }
                poll_call(&call, &*client, cx)
            });
            match event.await {
                RackEvent::Reply(ReplyEvent::Interim(status, fields)) => client.interim(status, &fields),
                RackEvent::Reply(ReplyEvent::Head(head)) => {
                    return self.respond(head, pending, client);
                }
                RackEvent::Reply(ReplyEvent::Hijacked(fd)) => {
                    pending.done();
                    return self.tunnel(fd, &call, true, 101, handler::Fields::default());
                }
                RackEvent::Reply(ReplyEvent::Failed(failure)) => return Err(failure),
                RackEvent::Reply(ReplyEvent::Postponed) => _turn = self.submit(&call, &client).await?,
                // A half-closed client loses its position in the queue, but a request that a worker has is
                // completed.
                RackEvent::Departed(Departure::HalfClosed)
                    if !matches!(call.state(), CallState::Waiting(_)) =>
                {
                    if self.local.is_on_fiber(&call) && call.changes_nothing() {
                        leaving = Some(Box::pin(tokio::time::sleep(HALF_CLOSED)));
                    }
                }
                RackEvent::Departed(_) => {
                    return Err(Failure::client_gone("the client went away"));
                }
            }
        }
    }

    /// Submits a request, at once unless other responses on its connection hold their share of memory. In
    /// that case the request first waits until its client has taken some of them; no worker is held
    /// meanwhile.
    async fn submit(
        &self,
        call: &Rc<Call>,
        client: &Rc<dyn Client>,
    ) -> Result<Option<ResponseTurn>, Failure> {
        let turn = match client.account().filter(|account| account.must_wait()) {
            Some(account) => Some(Box::pin(turn(&account, &**client)).await?),
            None => None,
        };
        if turn.is_some() {
            call.asks_at(Instant::now());
        }
        let pause = self.local.shared().pause();
        // Kept until the request is in the queue.
        let _paused = if pause.is_closed() { Box::pin(self.paused(call, &**client)).await? } else { None };
        self.local.submit(call)?;
        Ok(turn)
    }

    /// Waits until a pause of the app lets the request go on.
    async fn paused(
        &self,
        call: &Rc<Call>,
        client: &dyn Client,
    ) -> Result<Option<PausedRequest<'_>>, Failure> {
        let since = Instant::now();
        let path = call.with_head(|head| head.path().to_vec()).unwrap_or_default();
        let paused = self.local.shared().pause().wait(call.pool(), &path, client).await;
        if !matches!(paused, Ok(None)) {
            call.was_paused(since, Instant::now());
        }
        paused
    }

    /// Reads the request body and encodes the request.
    async fn call_with_body(
        &self,
        request: Lent,
        incoming: Incoming,
        trace: Rc<Trace>,
        client: &Rc<dyn Client>,
    ) -> Result<Rc<Call>, Failure> {
        let settings = self.local.settings();
        let bounds = BodyBounds {
            memory: settings.limits.body_memory,
            temp_dir: &settings.process.temp_dir,
            account: client.open_account(),
            patience: settings.timeouts.queue,
        };
        let body = collect(incoming, bounds).await?;
        Ok(self.call(request, body, trace, client))
    }

    /// Encodes the request, which is not needed afterwards. The exchange's trace keeps it for the log.
    fn call(&self, request: Lent, body: Collected, trace: Rc<Trace>, client: &Rc<dyn Client>) -> Rc<Call> {
        // Without a body, the request has been ready since its head arrived.
        let asked = if matches!(body, Collected::Empty) { request.arrived } else { Instant::now() };
        let mut frame = Vec::with_capacity(256 + request.fields.text().len());
        // All of them during a trial, which compares what requests use.
        let measure = self.samples.next() || trace.measure.get() || self.local.shared().comparison().is_on();
        trace.measure.set(measure);
        encode(&request, &body, self.local.monotonic_us(asked), measure, &mut frame);
        let pool = self.local.shared().pool_of(request.path(), &self.local.settings());
        if self.local.shared().shadow().may_copy() && matches!(body, Collected::Empty) {
            self.local.shadow(&frame[wire::frame::HEADER..], pool);
        }
        let body = match body {
            Collected::Empty => CallBody::Nothing,
            Collected::Memory(bytes) => {
                let reserved = Reserved::new(MemoryClass::Requests, bytes.len() as u64);
                CallBody::Bytes(bytes, reserved)
            }
            Collected::Spooled { file, place, .. } => CallBody::File { file, _place: place },
        };
        Rc::new(Call::new(frame, body, trace, Some(Rc::downgrade(client)), pool, asked))
    }

    fn respond(
        &self,
        head: ReplyHead,
        pending: PendingCall<'_>,
        client: Rc<dyn Client>,
    ) -> Result<Response, Failure> {
        let has_status = check(&head)?;
        let ReplyHead { status, mut fields, body, stream } = head;
        if has_status {
            // The Rack SPEC forbids a Status key. Clients would see a second status.
            fields.retain(|name, _| !is_status(name));
        }
        let Some(call) = pending.call.clone() else { return Err(internal("a response without its request")) };
        if let Some(fd) = stream {
            pending.done();
            if status == 101 {
                return self.tunnel(fd, &call, false, status, fields);
            }
            let body = SocketBody::open(body, fd, &self.local, call).map_err(socket_error)?;
            return Ok(Response::new(status, fields, Body::Stream(Box::new(body))));
        }
        let body = if call.state() == CallState::Finished {
            match call.reply.whole() {
                Some((0, _)) if body.is_empty() => Body::Empty,
                Some((0, _)) => Body::Bytes(body),
                Some((_, Some(Chunk::File(region)))) if body.is_empty() => Body::File(region),
                Some((_, Some(Chunk::Bytes(bytes)))) if body.is_empty() => Body::Bytes(bytes),
                Some((_, first)) => self.stream(body, first, call, client),
                None => self.stream(body, None, call, client),
            }
        } else {
            self.stream(body, None, call, client)
        };
        pending.done();
        Ok(Response::new(status, fields, body))
    }

    fn tunnel(
        &self,
        fd: OwnedFd,
        call: &Call,
        raw: bool,
        status: u16,
        fields: handler::Fields,
    ) -> Result<Response, Failure> {
        let frames = if raw {
            Follower::handshake()
        } else if fields.get("upgrade").is_some_and(|value| value.eq_ignore_ascii_case(b"websocket")) {
            Follower::frames()
        } else {
            Follower::Over
        };
        let io = tunnel::open(fd, frames, &self.local, call).map_err(socket_error)?;
        let body = Body::Tunnel { io, raw };
        Ok(Response { after: After::EndStream, ..Response::new(status, fields, body) })
    }

    fn stream(
        &self,
        first: bytes::Bytes,
        second: Option<Chunk>,
        call: Rc<Call>,
        client: Rc<dyn Client>,
    ) -> Body {
        let local = self.local.clone();
        Body::Stream(Box::new(ReplyBody { first, second, call, _client: client, local, over: false }))
    }
}

/// A request that is being turned into a call. Without a body this needs no waiting.
enum Encoding<'a> {
    Done(Rc<Call>),
    Pending(Pin<Box<dyn Future<Output = Result<Rc<Call>, Failure>> + 'a>>),
}

impl Handler for Rack {
    /// The returned future keeps the encoded call but not the request, because there can be many waiting
    /// requests.
    fn handle(&self, exchange: Exchange) -> impl Future<Output = Response> {
        let Exchange { request, incoming, client, trace } = exchange;
        let encoding = match incoming {
            Incoming::Empty => Encoding::Done(self.call(request, Collected::Empty, trace, &client)),
            incoming => {
                let client = client.clone();
                Encoding::Pending(Box::pin(async move {
                    self.call_with_body(request, incoming, trace, &client).await
                }))
            }
        };
        async move {
            let call = match encoding {
                Encoding::Done(call) => Ok(call),
                Encoding::Pending(encoding) => encoding.await,
            };
            let result = match call {
                Ok(call) => self.respond_to(call, client).await,
                Err(failure) => Err(failure),
            };
            result.unwrap_or_else(Failure::into_response)
        }
    }
}

/// Waits for the turn of a request on its connection.
async fn turn(account: &Rc<Account>, client: &dyn Client) -> Result<ResponseTurn, Failure> {
    let mut waiting = pin!(account.turn());
    poll_fn(|cx| match waiting.as_mut().poll(cx) {
        Poll::Ready(turn) => Poll::Ready(Ok(turn)),
        // A half-closed client loses its position, as in the queue.
        Poll::Pending => client.poll_departure(cx).map(|_| Err(Failure::client_gone("the client went away"))),
    })
    .await
}

fn poll_call(call: &Call, client: &dyn Client, cx: &mut Context<'_>) -> Poll<RackEvent> {
    if let Poll::Ready(event) = call.reply.poll_event(cx) {
        return Poll::Ready(RackEvent::Reply(event));
    }
    client.poll_departure(cx).map(RackEvent::Departed)
}

/// Abandons the request if the handler's future is dropped or fails.
struct PendingCall<'a> {
    local: &'a Rc<Local>,
    call: Option<Rc<Call>>,
}

impl PendingCall<'_> {
    fn done(mut self) {
        self.call = None;
    }
}

impl Drop for PendingCall<'_> {
    fn drop(&mut self) {
        if let Some(call) = &self.call {
            self.local.abandon(call);
        }
    }
}

fn socket_error(error: std::io::Error) -> Failure {
    internal(format!("a socket of the app: {error}"))
}

fn internal(why: impl Into<std::borrow::Cow<'static, str>>) -> Failure {
    Failure::server(500, why)
}
