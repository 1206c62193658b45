//! Runs the exchanges of a connection: requests in, responses out.

use super::body_state::BodyState;
use super::client::ClientView;
use super::incoming::BodyReader;
use super::link::Link;
use super::receive::{self, NoHead, Received};
use super::respond::{self, RequestFacts};
use super::tunnel::{self, TunnelOutcome};
use crate::context::{Context, CounterGuard};
use crate::message::{ExchangeRecord, Sent, inadmissible};
use crate::room::RoomState;
use h1::{Framing, RequestHead};
use handler::{Body, Exchange, Failure, Handler, Incoming, Lent, Peer, Request, Trace, Version};
use net::{Lane, Output, Transport, TunnelEnd};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The most unread body bytes, and the longest time, that are spent on discarding a body to keep the connection.
const DRAIN_BYTES: u64 = 256 << 10;
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// The most pipelined requests per turn, so that other connections get served.
const TURN: u32 = 32;

/// The next step of a connection after its last response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Wait for another request.
    Idle,
    /// Close at once.
    Close,
    /// Close the write direction and give the client time to read the response.
    Linger,
}

/// Answers requests until the client has sent no byte of another one.
///
/// Many requests wait at a time, so this future must stay small: values that are needed only before or after
/// a wait live in functions that do not wait, and nothing is passed by value into a wait.
pub(super) async fn serve_requests<'a, S: Transport, H: Handler>(
    link: &Rc<Link<S>>,
    peer: &'a Rc<Peer>,
    context: &'a Context<H>,
    served: &mut u64,
) -> Served<'a, H> {
    let active = link.shared.count_active();
    let mut output = link.shared.take_output();
    let mut turn = 0;
    loop {
        let head = receive::head(link).await;
        let then = 'answered: {
            // Taken apart before the first wait; otherwise the future would reserve room for the whole tuple.
            let (exchange, facts, mut report) = match begin(link, peer, context, head, served) {
                Ok(begun) => begun,
                Err(Unserved::Idle) => break 'answered Then::Idle,
                Err(Unserved::Closed) => break 'answered Then::Close,
                Err(Unserved::Refused(refusal)) => {
                    break 'answered Box::pin(refuse(link, peer, context, refusal, &mut output)).await;
                }
            };
            let mut response = context.handler.handle(exchange).await;
            let facts = facts.after_handling(link);
            report.outcome.sent = respond::respond(link, facts.response, &mut response, &mut output).await;
            if let Body::Tunnel { io, .. } = std::mem::replace(&mut response.body, Body::Empty)
                && !report.outcome.sent.broken
            {
                drop(response);
                link.shared.keep_output(output);
                return Served::Tunnel(Box::new(OpenTunnel { io, facts, report, _active: active }));
            }
            drop(response);
            link.exchange.update(|number| number.wrapping_add(1));
            link.end_holding();
            let Sent { reusable, hijacked, broken, .. } = report.outcome.sent;
            drop(report);
            if !reusable {
                facts.then(link, hijacked, broken)
            } else if link.body.borrow().is_done() || Box::pin(drain(link)).await {
                Then::Idle
            } else {
                Then::Linger
            }
        };
        if then == Then::Idle && !link.input.borrow().is_empty() {
            turn += 1;
            if turn % TURN == 0 {
                tokio::task::yield_now().await;
            }
            continue;
        }
        link.shared.keep_output(output);
        return Served::Then(then);
    }
}

/// The outcome of the exchanges of a connection.
pub(super) enum Served<'a, H: Handler> {
    Then(Then),
    Tunnel(Box<OpenTunnel<'a, H>>),
}

/// A connection that has become a tunnel. It runs apart from the exchanges, whose future has room for much that a tunnel does not need: there may
/// be many tunnels, for a long time.
pub(super) struct OpenTunnel<'a, H: Handler> {
    io: Box<dyn TunnelEnd>,
    facts: ExchangeFacts,
    report: ReportOnDrop<'a, H>,
    _active: CounterGuard,
}

impl<H: Handler> OpenTunnel<'_, H> {
    /// Lets the tunnel run until it ends.
    pub(super) async fn run<S: Transport>(self: Box<Self>, link: &Link<S>) -> Then {
        let OpenTunnel { io, facts, mut report, _active } = *self;
        let sent = &mut report.outcome.sent;
        let outcome;
        {
            let _tunnel = link.shared.count_tunnel();
            (sent.body_bytes, outcome) = tunnel::run(link, io).await;
        }
        sent.broken = outcome == TunnelOutcome::Broken;
        link.exchange.update(|number| number.wrapping_add(1));
        link.end_holding();
        drop(report);
        match outcome {
            TunnelOutcome::Given => Then::Close,
            _ => facts.then(link, true, outcome == TunnelOutcome::Broken),
        }
    }
}

/// Reports the outcome of an exchange to the handler when dropped, so also when the future is dropped.
struct ReportOnDrop<'a, H: Handler> {
    handler: &'a H,
    peer: &'a Peer,
    outcome: ExchangeRecord,
}

impl<H: Handler> Drop for ReportOnDrop<'_, H> {
    fn drop(&mut self) {
        self.outcome.report(self.handler, self.peer, Instant::now());
    }
}

/// Why no handler gets a request.
enum Unserved {
    /// There is no request.
    Idle,
    /// The client has disconnected.
    Closed,
    Refused(Box<Refusal>),
}

/// A request that is refused without calling a handler.
struct Refusal {
    failure: Failure,
    started: Instant,
    request: Option<Box<Request>>,
}

async fn refuse<S: Transport, H: Handler>(
    link: &Rc<Link<S>>,
    peer: &Peer,
    context: &Context<H>,
    refusal: Box<Refusal>,
    output: &mut Output,
) -> Then {
    let Refusal { failure, started, request } = *refusal;
    let is_head = request.as_ref().is_some_and(|request| request.method() == b"HEAD");
    let outcome = ExchangeRecord { trace: Rc::default(), request, started, sent: Sent::nothing() };
    let mut report = ReportOnDrop { handler: &context.handler, peer, outcome };
    let facts = RequestFacts { version: Version::Http11, is_head, persistent: false };
    let mut response = failure.into_response();
    report.outcome.sent = respond::respond(link, facts, &mut response, output).await;
    if report.outcome.sent.broken { Then::Close } else { Then::Linger }
}

/// Refuses a connection without reading from it.
pub(super) async fn refuse_connection<S: Transport, H: Handler>(
    link: &Rc<Link<S>>,
    peer: &Peer,
    context: &Context<H>,
    failure: Failure,
) -> Then {
    let mut output = link.shared.take_output();
    let refusal = Box::new(Refusal { failure, started: Instant::now(), request: None });
    let then = refuse(link, peer, context, refusal, &mut output).await;
    link.shared.keep_output(output);
    then
}

/// The facts about a request that are needed after its handler has taken it.
#[derive(Clone, Copy)]
struct ExchangeFacts {
    response: RequestFacts,
    /// The client wants to keep the connection.
    kept: bool,
}

/// Builds an exchange from a head. The request may still be refused.
fn begin<'a, S: Transport, H: Handler>(
    link: &Rc<Link<S>>,
    peer: &'a Rc<Peer>,
    context: &'a Context<H>,
    head: Result<Received, NoHead>,
    served: &mut u64,
) -> Result<(Exchange, ExchangeFacts, ReportOnDrop<'a, H>), Unserved> {
    let mut received = head.map_err(|why| match why {
        NoHead::Idle => Unserved::Idle,
        NoHead::Closed => Unserved::Closed,
        NoHead::Refused(failure, started) => {
            Unserved::Refused(Box::new(Refusal { failure, started, request: None }))
        }
    })?;
    *served += 1;
    link.busy();
    let request = Box::new(received.request(link, peer));
    let (head, started) = (&received.head, received.started);
    let declared = match head.framing {
        Framing::Length(length) => Some(length),
        Framing::Chunked | Framing::Close => None,
    };
    let settings = link.shared.settings();
    let limits = &settings.limits;
    if let Some(failure) = inadmissible(head.expect, declared, limits.max_body) {
        return Err(Unserved::Refused(Box::new(Refusal { failure, started, request: Some(request) })));
    }
    let last = limits.max_requests_per_connection.is_some_and(|max| max > 0 && *served >= max);
    let number = link.exchange.get();
    let incoming = incoming(link, head, number);
    let response = RequestFacts {
        version: request.version,
        is_head: request.method() == b"HEAD",
        persistent: head.persistent && !last && !settings.timeouts.keep_alive.is_zero(),
    };
    let trace: Rc<Trace> = Rc::default();
    let outcome = ExchangeRecord { trace: trace.clone(), request: None, started, sent: Sent::nothing() };
    let report = ReportOnDrop { handler: &context.handler, peer, outcome };
    link.interim_allowed.set(response.version == Version::Http11);
    let exchange = Exchange {
        request: Lent::new(request, trace.clone()),
        incoming,
        client: Rc::new(ClientView::new(Rc::downgrade(link), number)),
        trace,
    };
    Ok((exchange, ExchangeFacts { response, kept: head.persistent }, report))
}

impl ExchangeFacts {
    /// Updates the facts with changes during the handler's run.
    fn after_handling<S: Transport>(mut self, link: &Link<S>) -> ExchangeFacts {
        let shared = &link.shared;
        self.response.persistent &=
            !shared.draining.get() && !shared.leaving.get() && is_drainable(&link.body.borrow());
        self
    }

    /// Decides how to close a connection that cannot be reused. `broken`: nothing more can be sent. A client that asked for the close and has sent
    /// nothing more gets no lingering close, but one of a tunnel (`hijacked`) may send until it has seen the end.
    fn then<S: Transport>(self, link: &Link<S>, hijacked: bool, broken: bool) -> Then {
        let expected =
            !self.kept && !hijacked && link.input.borrow().is_empty() && link.body.borrow().is_done();
        if broken || (expected && !link.unread.get()) { Then::Close } else { Then::Linger }
    }
}

/// Returns the request's body: its bytes if all of them have been read ahead, else a reader.
fn incoming<S: Transport>(link: &Rc<Link<S>>, head: &RequestHead, exchange: u32) -> Incoming {
    let mut body = link.body.borrow_mut();
    *body = BodyState::new(head, &link.shared.settings().limits);
    let mut input = link.input.borrow_mut();
    let length = body.left();
    match length {
        Some(0) => return Incoming::Empty,
        Some(length) if length <= input.len() as u64 => {
            if let Ok(data) = body.take_ahead(&mut input) {
                return Incoming::Ready(data);
            }
        }
        _ => {}
    }
    Incoming::Arriving(Box::new(BodyReader { link: Rc::downgrade(link), exchange, length }))
}

/// Returns whether the unread rest of a body may be discarded after the response.
fn is_drainable(body: &BodyState) -> bool {
    body.is_done() || (!body.is_hopeless() && body.left().is_none_or(|left| left <= DRAIN_BYTES))
}

/// Discards the unread rest of a body. Returns `false` if the connection cannot be reused.
async fn drain<S: Transport>(link: &Link<S>) -> bool {
    let mut left = DRAIN_BYTES as usize;
    link.timer.arm(Lane::Read, Instant::now() + DRAIN_TIME);
    loop {
        if link.body.borrow().is_done() {
            return true;
        }
        match link.skip_body() {
            Ok(Some(n)) if n < left => left -= n,
            Ok(None) => {
                if !link.readable(RoomState::Stalled).await {
                    return false;
                }
            }
            _ => return false,
        }
    }
}
