//! Serves one request: from its head to the acknowledgement of the response's last byte.

use super::body::{SMALL, Sender};
use super::client::{StreamClient, refusal};
use super::file::Unsendable;
use super::hub::{Hub, Waits, number};
use super::receiving::{Receiving, Stopped};
use super::tunnel;
use crate::context::{Context, ThreadShared};
use crate::delivery::interval;
use crate::message::{self, ExchangeRecord, Framed, Sent, inadmissible};
use crate::opening::OpeningHandshake;
use fieldcode::{Expect, Flood, Priority, REFUSED, RequestHead};
use handler::{After, Body, Exchange, Failure, Handler, Incoming, Lent, Peer, Response, Trace, Version};
use http3::Code;
use http3::qpack::ResponseSection;
use net::{Lane, Timer};
use quic::quinn::{RecvStream, SendStream};
use std::future::poll_fn;
use std::ops::DerefMut;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

/// Reports the exchange when dropped, so also when its task is dropped.
struct ReportOnDrop<H: Handler> {
    context: Rc<Context<H>>,
    peer: Rc<Peer>,
    outcome: ExchangeRecord,
}

impl<H: Handler> Drop for ReportOnDrop<H> {
    fn drop(&mut self) {
        self.outcome.report(&self.context.handler, &self.peer, Instant::now());
    }
}

/// The bytes of a request head, counted until this is dropped.
struct CountedHead(Rc<Hub>, usize);

impl CountedHead {
    fn new(hub: &Rc<Hub>, bytes: usize) -> CountedHead {
        hub.heads.update(|all| all + bytes);
        CountedHead(hub.clone(), bytes)
    }
}

impl Drop for CountedHead {
    fn drop(&mut self) {
        self.0.heads.update(|all| all - self.1);
    }
}

pub(super) async fn serve<H: Handler>(
    hub: Rc<Hub>,
    mut send: SendStream,
    receive: RecvStream,
    peer: Rc<Peer>,
    context: Rc<Context<H>>,
) {
    let _open = hub.begin(|hub| &hub.open);
    let active = hub.begin(|hub| &hub.active);
    let started = hub.shared.timers.now();
    let timer = Rc::new(hub.shared.timers.register());
    let mut receiving = Receiving::new(hub.clone(), receive);
    let waiting = Waits::new(&hub);
    let head = head(&hub, &timer, &mut receiving, started).await;
    if head.is_ok() {
        hub.prove();
    }
    drop(waiting);
    if let Err(None) = head {
        // There is no request to report, and no client that waits for a response.
        let code = match receiving.stopped {
            Some(Stopped::Broken(code)) => code,
            _ => {
                hub.spend(Flood::Resets, 1);
                Code::RequestIncomplete
            }
        };
        let _ = send.reset(number(code));
        return;
    }
    let text = head.as_ref().map_or(0, |head| head.fields.text().len());
    if hub.heads.get() > 0 && hub.heads.get() + text > hub.most_heads() {
        // As in HTTP/2: the client repeats the request by itself.
        hub.spend(Flood::Ignored, REFUSED);
        receiving.stop(Code::RequestRejected);
        let _ = send.reset(number(Code::RequestRejected));
        return;
    }
    let _held = CountedHead::new(&hub, text);
    let outcome = ExchangeRecord { trace: Rc::default(), request: None, started, sent: Sent::nothing() };
    let mut report = ReportOnDrop { context: context.clone(), peer, outcome };
    let (head, failure) = match head {
        Ok(head) => (Some(head), None),
        Err(failure) => (None, failure),
    };
    let length = head.as_ref().and_then(|head| head.content_length);
    let waits = head.as_ref().is_some_and(|head| head.expect == Expect::Continue);
    let asked = head.as_ref().map(|head| Priority::parse(head.priority.slice(head.fields.text())));
    let client =
        StreamClient::new(hub.clone(), timer, receiving, &send, length, waits, asked.unwrap_or_default());
    let (response, is_head) = match (head, failure) {
        (Some(head), _) => {
            client.prioritize(&send, false);
            let is_head = head.method.slice(head.fields.text()) == b"HEAD";
            (answer(&hub, &client, *head, &context, &mut report, &mut send).await, is_head)
        }
        (None, failure) => (failure.map(Failure::into_response), false),
    };
    let ends = response.as_ref().is_some_and(|response| response.after == After::EndConnection);
    // Until the last byte is acknowledged.
    let _tunnel = response.as_ref().filter(|response| is_tunnel(response)).map(|_| client.count_tunnel());
    let complete = match response {
        Some(response) => {
            respond(&hub.shared, &client, response, is_head, &mut send, &mut report.outcome.sent).await
        }
        None => Err(Unsendable),
    };
    match complete {
        Ok(()) => {
            hub.budget.borrow_mut().earn_response();
            let _ = send.finish();
        }
        Err(Unsendable) => {
            if client.is_displaced() {
                let sent = &mut report.outcome.sent;
                sent.fail(message::displaced(sent.status));
            } else if client.is_cancelled() {
                hub.spend(Flood::Resets, 1);
            }
            report.outcome.sent.broken = true;
            let cancelled = client.is_displaced() || report.outcome.sent.hijacked;
            let code = if cancelled { Code::RequestCancelled } else { Code::InternalError };
            let _ = send.reset(number(code));
        }
    }
    client.end();
    if complete.is_err() {
        client.stop();
    }
    drop((report, active));
    if ends {
        hub.drain.notify_one();
    }
    if complete.is_ok() {
        tokio::join!(acknowledged(&hub, &client, &mut send), client.discard());
    }
}

/// Waits until the client has acknowledged the whole response or has gone: closing the connection would
/// discard the rest. Gives up when nothing more can be sent for `timeouts.send`.
async fn acknowledged(hub: &Hub, client: &StreamClient, send: &mut SendStream) {
    let sent = || hub.connection.stats().frame_tx.stream;
    let (mut before, mut since) = (sent(), hub.shared.timers.now());
    loop {
        let mut stopped = pin!(send.stopped());
        let over = poll_fn(|cx| {
            client.reprioritize(send);
            client.wait_for_update(cx);
            stopped.as_mut().poll(cx)
        });
        let timeout = hub.shared.settings().timeouts.send;
        if tokio::time::timeout(interval(timeout), over).await.is_ok() {
            return;
        }
        let (count, now) = (sent(), hub.shared.timers.now());
        if count != before {
            (before, since) = (count, now);
        } else if now.duration_since(since) >= timeout {
            let _ = send.reset(number(Code::RequestCancelled));
            return;
        }
    }
}

/// Receives the head. The error holds the failure to respond with, if any.
async fn head(
    hub: &Hub,
    timer: &Timer,
    receiving: &mut Receiving,
    started: Instant,
) -> Result<Box<RequestHead>, Option<Failure>> {
    timer.arm(Lane::Read, started + hub.shared.settings().timeouts.header);
    let head = poll_fn(|cx| {
        timer.wakes(cx.waker());
        match receiving.poll_head(cx) {
            Poll::Ready(head) => Poll::Ready(Ok(head)),
            Poll::Pending if timer.expired(Lane::Read) => Poll::Ready(Err(())),
            Poll::Pending => Poll::Pending,
        }
    });
    let head = head.await;
    timer.disarm(Lane::Read);
    match head {
        Ok(Some(head)) => Ok(head),
        Ok(None) => Err(refusal(receiving.stopped.as_ref())),
        Err(()) => Err(Some(Failure::client(408, "the head took longer than timeouts.header"))),
    }
}

/// Returns the handler's response; `None` if the handler has panicked or the client has disconnected first.
async fn answer<H: Handler>(
    hub: &Rc<Hub>,
    client: &Rc<StreamClient>,
    head: RequestHead,
    context: &Rc<Context<H>>,
    report: &mut ReportOnDrop<H>,
    send: &mut SendStream,
) -> Option<Response> {
    let arrived = hub.shared.timers.now();
    let (expect, length) = (head.expect, head.content_length);
    let request = Box::new(message::request(head, Version::Http3, &report.peer, &hub.shared, arrived));
    if let Some(failure) = inadmissible(expect, length, hub.shared.settings().limits.max_body) {
        report.outcome.request = Some(request);
        return Some(failure.into_response());
    }
    let trace: Rc<Trace> = report.outcome.trace.clone();
    let opening = OpeningHandshake::of(&request);
    let incoming = match opening {
        Some(_) => Incoming::Empty,
        None => poll_fn(|cx| Poll::Ready(client.incoming(cx))).await,
    };
    let request = Lent::new(request, trace.clone());
    let exchange = Exchange { request, incoming, client: client.clone(), trace };
    if let Some(opening) = opening {
        let handling = Box::pin(async {
            let response = context.handler.handle(exchange).await;
            opening.finish(response, &**client).await
        });
        return drive(handling, client, send).await;
    }
    drive(pin!(context.handler.handle(exchange)), client, send).await
}

/// Polls a handler, and sends its informational responses meanwhile. Returns `None` if it has panicked.
async fn drive<F: Future<Output = Response>>(
    mut handling: Pin<impl DerefMut<Target = F>>,
    client: &StreamClient,
    send: &mut SendStream,
) -> Option<Response> {
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| handling.as_mut().poll(cx)));
        client.send_interim(send, cx);
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(response)) => Poll::Ready(Some(response)),
            Err(_) => Poll::Ready(None),
        }
    })
    .await
}

async fn respond(
    shared: &Rc<ThreadShared>,
    client: &Rc<StreamClient>,
    response: Response,
    is_head: bool,
    send: &mut SendStream,
    sent: &mut Sent,
) -> Result<(), Unsendable> {
    client.interim_allowed.set(false);
    let Framed { response, length, has_body } = Framed::new(response, Version::Http3, is_head, sent);
    let date = shared.date.at(shared.wall(shared.timers.recent()));
    // The unsent rest of an informational response comes first.
    let mut head = client.take_queued();
    client.encode(
        &mut head,
        ResponseSection { status: response.status, date: Some(&date), content_length: length },
        &response.fields,
    );
    client.prioritize(send, has_body && is_large(&response.body));
    let mut sender = Sender { stream: send, client, shared };
    match response.body {
        _ if !has_body => sender.write(head.into()).await,
        Body::Empty => sender.write(head.into()).await,
        Body::Tunnel { io, .. } => {
            sent.hijacked = true;
            Box::pin(tunnel::run(&mut sender, head, io, sent)).await
        }
        Body::Bytes(body) => sender.bytes(head, body, false, sent).await,
        Body::Kept(kept) => sender.bytes(head, kept.body().clone(), true, sent).await,
        Body::File(region) => sender.file(head, region, sent).await,
        Body::Stream(stream) => sender.stream(head, stream, length, sent).await,
    }
}

fn is_tunnel(response: &Response) -> bool {
    response.status == 200 && matches!(response.body, Body::Tunnel { raw: false, .. })
}

/// Returns whether a body needs more than a few packets.
fn is_large(body: &Body) -> bool {
    match body {
        Body::Empty | Body::Tunnel { .. } => false,
        Body::Bytes(body) => body.len() > SMALL,
        Body::Kept(kept) => kept.body().len() > SMALL,
        Body::File(region) => region.len > SMALL as u64,
        Body::Stream(_) => true,
    }
}
