//! Requests to responses: the life of each exchange on a connection.

use super::After;
use super::body_state::{BodyReader, BodyState};
use super::client::ClientView;
use super::head::{Expect, Framing};
use super::link::{Link, forget};
use super::output::Output;
use super::receive::{self, NoHead, Received};
use super::respond::{self, Asked, Sent};
use crate::context::Context;
use crate::timers::Lane;
use crate::transport::Transport;
use handler::{
    Ending, Exchange, Failure, FailureKind as Kind, Handler, Incoming, Lent, Peer, Request, Trace, Version,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Of a body that the handler left, this much is read to keep the connection.
const DRAIN_BYTES: u64 = 256 << 10;
const DRAIN_TIME: Duration = Duration::from_secs(5);
/// Buffered requests answered in one turn, so that other connections get theirs.
const TURN: u32 = 32;

/// Answers requests for as long as there are bytes of them.
pub(super) async fn serve_requests<S: Transport, H: Handler>(
    link: &Rc<Link<S>>,
    peer: &Rc<Peer>,
    context: &Context<H>,
    served: &mut u64,
) -> After {
    let _active = link.shared.count_active();
    let mut output = link.shared.take_output();
    let mut turn = 0;
    loop {
        let after = match receive::head(link).await {
            Ok(received) => {
                *served += 1;
                let last = link
                    .shared
                    .limits
                    .max_requests_per_connection
                    .is_some_and(|max| max > 0 && *served >= max);
                exchange(link, peer, context, received, last, &mut output).await
            }
            Err(NoHead::Idle) => After::Idle,
            Err(NoHead::Closed) => After::Close,
            Err(NoHead::Refused(failure, started)) => {
                let refusal = Refusal { failure, started, request: None };
                Box::pin(refuse(link, peer, context, refusal, &mut output)).await
            }
        };
        if after == After::Idle && !link.input.borrow().is_empty() {
            turn += 1;
            if turn % TURN == 0 {
                tokio::task::yield_now().await;
            }
            continue;
        }
        link.shared.keep_output(output);
        return after;
    }
}

/// Tells the handler how an exchange ended, however that comes about.
struct Report<'a, H: Handler> {
    handler: &'a H,
    peer: &'a Peer,
    trace: Rc<Trace>,
    request: Option<Box<Request>>,
    failure: Option<Failure>,
    started: Instant,
    sent: Sent,
}

impl<H: Handler> Drop for Report<'_, H> {
    fn drop(&mut self) {
        let request = self.trace.take_request().or_else(|| self.request.take());
        let ending = Ending {
            request: request.as_deref(),
            failure: self.failure.as_ref().or(self.sent.failure.as_ref()),
            peer: self.peer,
            trace: &self.trace,
            status: self.sent.status,
            body_bytes: self.sent.body_bytes,
            started: self.started,
            broken: self.sent.broken,
            hijacked: self.sent.hijacked,
        };
        let finished = AssertUnwindSafe(|| self.handler.finished(&ending));
        // A second panic on the way out of a first one would end the process and not just the connection.
        if std::thread::panicking() {
            let _ = catch_unwind(finished);
        } else {
            finished();
        }
    }
}

/// A request that no handler sees.
struct Refusal {
    failure: Failure,
    started: Instant,
    request: Option<Box<Request>>,
}

async fn refuse<S: Transport, H: Handler>(
    link: &Rc<Link<S>>,
    peer: &Peer,
    context: &Context<H>,
    refusal: Refusal,
    output: &mut Output,
) -> After {
    let Refusal { failure, started, request } = refusal;
    let is_head = request.as_ref().is_some_and(|request| request.method() == b"HEAD");
    let mut report = Report {
        handler: &context.handler,
        peer,
        trace: Rc::default(),
        request,
        failure: Some(failure.clone()),
        started,
        sent: Sent { broken: true, ..Sent::default() },
    };
    let asked = Asked { version: Version::Http11, is_head, persistent: false };
    report.sent = respond::respond(link, asked, failure.into_response(), output).await;
    if report.sent.broken { After::Close } else { After::Linger }
}

/// One request that is fit to be answered, or is refused for what it asks for.
async fn exchange<S: Transport, H: Handler>(
    link: &Rc<Link<S>>,
    peer: &Rc<Peer>,
    context: &Context<H>,
    mut received: Received,
    last: bool,
    output: &mut Output,
) -> After {
    let request = Box::new(received.request(link, peer));
    let head = &received.head;
    if let Some(failure) = inadmissible(head.expect, head.framing, link.shared.limits.max_body) {
        let refusal = Refusal { failure, started: received.started, request: Some(request) };
        return Box::pin(refuse(link, peer, context, refusal, output)).await;
    }
    let number = link.exchange.get();
    let incoming = incoming(link, head, number);
    let (version, is_head) = (request.version, request.method() == b"HEAD");
    let trace: Rc<Trace> = Rc::default();
    let mut report = Report {
        handler: &context.handler,
        peer,
        trace: trace.clone(),
        request: None,
        failure: None,
        started: received.started,
        sent: Sent { broken: true, ..Sent::default() },
    };
    link.interim_allowed.set(version == Version::Http11);
    let exchange = Exchange {
        request: Lent::new(request, trace.clone()),
        incoming,
        client: Rc::new(ClientView::new(Rc::downgrade(link), number)),
        trace,
    };
    let response = context.handler.handle(exchange).await;
    let shared = &link.shared;
    let persistent = head.persistent
        && !last
        && !shared.draining.get()
        && !shared.limits.keep_alive_timeout.is_zero()
        && is_drainable(&link.body.borrow());
    report.sent = respond::respond(link, Asked { version, is_head, persistent }, response, output).await;
    link.exchange.set(number + 1);
    let (reusable, hijacked, broken) = (report.sent.reusable, report.sent.hijacked, report.sent.broken);
    drop(report);
    if reusable {
        let done = link.body.borrow().is_done() || Box::pin(drain(link)).await;
        return if done { After::Idle } else { After::Linger };
    }
    // A client that asked for the end, and has sent nothing more, is not kept waiting for it.
    let expected = !head.persistent && link.input.borrow().is_empty() && link.body.borrow().is_done();
    if hijacked || broken || (expected && !link.unread.get()) { After::Close } else { After::Linger }
}

/// Why a well-formed request is refused all the same.
fn inadmissible(expect: Expect, framing: Framing, max_body: Option<u64>) -> Option<Failure> {
    match framing {
        _ if expect == Expect::Unknown => {
            Some(Failure::new(Kind::ExpectationFailed, "an expectation other than 100-continue"))
        }
        Framing::Length(length) if max_body.is_some_and(|max| length > max) => {
            Some(Failure::new(Kind::ContentTooLarge, "Content-Length is more than max_body"))
        }
        _ => None,
    }
}

/// The request's body: taken along if it is there, else to be read.
fn incoming<S: Transport>(link: &Rc<Link<S>>, head: &super::head::Head, exchange: u64) -> Incoming {
    let mut body = link.body.borrow_mut();
    *body = BodyState::new(head, &link.shared.limits);
    let mut input = link.input.borrow_mut();
    let length = body.left();
    match length {
        Some(0) => return Incoming::Empty,
        Some(length) if length <= input.len() as u64 => {
            if let Ok((data, used)) = body.take(&input) {
                forget(&mut input, used);
                return Incoming::Ready(data);
            }
        }
        _ => {}
    }
    Incoming::Arriving(Box::new(BodyReader { link: Rc::downgrade(link), exchange, length }))
}

/// Whether what the handler left of a body may be read away after the response.
fn is_drainable(body: &BodyState) -> bool {
    body.is_done() || (!body.is_hopeless() && body.left().is_none_or(|left| left <= DRAIN_BYTES))
}

/// Reads away what the handler left; `false` when the connection cannot be used after it.
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
                if !link.readable().await {
                    return false;
                }
            }
            _ => return false,
        }
    }
}
