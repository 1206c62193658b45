//! Sends a final response: head and body in as few writes as possible, at the client's pace.
//!
//! Contract:
//! 1. At most one final head is written.
//! 2. The client can always tell a complete body from a truncated one.
//! 3. Header fields set by a handler cannot change the framing.
//! 4. A body whose length differs from the declared one is a failure of the app, reported once.

use super::client::ClientView;
use super::link::{Link, Unsendable};
use crate::message::{DeclaredLength, READ_BELOW, Sent, append_file, displaced, mismatch, presentable};
use bytes::Bytes;
use h1::{ConnectionField, Delimiter, FramingPlan};
use handler::held::Amount;
use handler::{
    After, Body, BodyStream, Chunk, Client, Departure, FileRegion, Kept, Lender, Response, Version,
};
use net::{Output, Transport};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Mutex;
use std::task::{Context, Poll};
use std::time::UNIX_EPOCH;

/// Bytes of a stream gathered for one write.
const GATHER: usize = 64 << 10;
/// The most bytes of a file per call, so that other connections get served.
const FILE_SLICE: u64 = 2 << 20;

/// The facts about the request and its connection that the response depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestFacts {
    pub(crate) version: Version,
    pub(crate) is_head: bool,
    /// The connection may be reused, unless the response forbids it.
    pub(crate) persistent: bool,
}

/// The last message that a kept body was sent in, with its second since 1970. Only the date differs between
/// such messages.
#[derive(Default)]
struct LastMessage(Mutex<Option<(u64, Bytes)>>);

impl LastMessage {
    fn of(kept: &Kept) -> &LastMessage {
        kept.cache().get_or_init(LastMessage::default)
    }

    fn get(&self, second: u64) -> Option<Bytes> {
        let last = self.0.try_lock().ok()?;
        last.as_ref().filter(|(then, _)| *then == second).map(|(_, message)| message.clone())
    }

    fn set(&self, second: u64, message: Bytes) {
        if let Ok(mut last) = self.0.try_lock() {
            *last = Some((second, message));
        }
    }
}

/// Sends `response`, and takes its body and its failure. Of a tunnel only the head is sent, and the body stays; the caller lets it run
/// ([`super::tunnel::run`]).
pub(crate) async fn respond<S: Transport>(
    link: &Rc<Link<S>>,
    facts: RequestFacts,
    response: &mut Response,
    output: &mut Output,
) -> Sent {
    link.interim_allowed.set(false);
    let again = second_of_kept(link, facts, response, output);
    if let Some(body) = queue_again(response, again, output) {
        let broken = link.send(output, false).await.is_err();
        let body_bytes = body.saturating_sub(output.len() as u64);
        return Sent { status: 200, body_bytes, broken, reusable: !broken, ..Sent::default() };
    }
    make_presentable(response, facts.version);
    if matches!(response.body, Body::Empty | Body::Bytes(_)) && link.input.borrow().is_empty() {
        link.shared.gather().await;
    }
    if link.has_queued() {
        let queued = link.queued.take();
        output.text(|text| text.extend_from_slice(&queued));
    }
    let mut sent = Sent { status: response.status, failure: response.failure.take(), ..Sent::default() };
    if matches!(response.body, Body::Tunnel { raw: true, .. }) {
        sent.status = 0;
    } else {
        let plan = queue_head(link, facts, response, output, &mut sent);
        if !matches!(response.body, Body::Tunnel { .. }) {
            let result = match queue_body(response, output, again) {
                Queued::Whole { len, complete } => {
                    let result = link.send(output, false).await;
                    sent.body_bytes = len.saturating_sub(output.len() as u64);
                    if complete { result } else { Err(Unsendable) }
                }
                // Boxed, like everything that few responses need: this keeps the future of an exchange small.
                Queued::File(region) => Box::pin(send_large(link, region, output, &mut sent)).await,
                Queued::Stream(stream) => {
                    let sender =
                        StreamSender { link, plan, output, promised: promised(plan), sent: &mut sent };
                    let result = Box::pin(sender.run(stream)).await;
                    sent.body_bytes = sent.body_bytes.saturating_sub(output.len() as u64);
                    result
                }
            };
            if result.is_err() {
                if link.is_response_displaced() {
                    sent.fail(displaced(sent.status));
                }
                sent.broken = true;
                sent.reusable = false;
                if plan.delimiter == Delimiter::Close {
                    // The client would mistake the end of the connection for the end of the body.
                    link.stream.abort_on_drop();
                    link.delivery.give_up();
                }
            }
            return sent;
        }
    }
    sent.hijacked = true;
    sent.reusable = false;
    sent.broken = link.send(output, false).await.is_err();
    sent
}

fn make_presentable(response: &mut Response, version: Version) {
    let judged = std::mem::replace(response, Response::empty(500));
    *response = presentable(judged, version);
}

/// Queues the head of a response; not for raw tunnels.
fn queue_head<S: Transport>(
    link: &Link<S>,
    facts: RequestFacts,
    response: &mut Response,
    output: &mut Output,
    sent: &mut Sent,
) -> FramingPlan {
    let plan = h1::plan(response, facts.version, facts.is_head);
    check_length(response, plan, sent);
    sent.reusable = facts.persistent && !wants_close(response) && may_follow(plan.delimiter);
    let connection = connection_field(response, facts, sent.reusable);
    output.text(|text| {
        let now = link.shared.wall(link.shared.timers.recent());
        let date = |text: &mut Vec<u8>| link.shared.date.append(now, text);
        h1::encode_head(text, response, plan.delimiter, connection, date);
    });
    if !plan.has_body {
        response.body = Body::Empty;
    }
    plan
}

/// Returns the current second if the response can repeat an earlier message of that second: then nothing but
/// the date depends on the request.
fn second_of_kept<S: Transport>(
    link: &Link<S>,
    facts: RequestFacts,
    response: &Response,
    output: &Output,
) -> Option<u64> {
    let plain = matches!(response.body, Body::Kept(_))
        && facts.version == Version::Http11
        && facts.persistent
        && !facts.is_head
        && response.status == 200
        && response.after == After::Reuse
        && response.failure.is_none()
        && response.fields.fresh().next().is_none()
        && output.is_empty()
        && !link.has_queued();
    let now = plain.then(|| link.shared.wall(link.shared.timers.recent()))?;
    now.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// Queues the message in which the same response was sent earlier in this second. Returns the length of its body.
fn queue_again(response: &Response, again: Option<u64>, output: &mut Output) -> Option<u64> {
    let Body::Kept(kept) = &response.body else { return None };
    output.by_reference(LastMessage::of(kept).get(again?)?);
    Some(kept.body().len() as u64)
}

/// Records a failure if the known length of the body differs from the declared one. The response goes out
/// with the actual length.
fn check_length(response: &Response, plan: FramingPlan, sent: &mut Sent) {
    if let Delimiter::Length(actual) = plan.delimiter
        && plan.is_whole
        && let Some(failure) = mismatch(response, actual)
    {
        sent.fail(failure);
    }
}

fn wants_close(response: &Response) -> bool {
    response.after != After::Reuse || response.fields.fresh_lists("connection", "close")
}

fn may_follow(delimiter: Delimiter) -> bool {
    !matches!(delimiter, Delimiter::Close | Delimiter::Own)
}

fn connection_field(response: &Response, facts: RequestFacts, reusable: bool) -> ConnectionField {
    match (reusable, facts.version) {
        _ if response.status == 101 => ConnectionField::Upgrade,
        (false, _) => ConnectionField::Close,
        (true, Version::Http10) => ConnectionField::KeepAlive,
        (true, Version::Http11 | Version::Http2 | Version::Http3) => ConnectionField::Default,
    }
}

/// The rest of a body after everything possible was queued.
enum Queued {
    /// No rest; `len` bytes were queued. `complete` is false if a file has become shorter.
    Whole {
        len: u64,
        complete: bool,
    },
    File(FileRegion),
    Stream(Box<dyn BodyStream>),
}

/// Takes the body and queues it, if that is possible at once.
fn queue_body(response: &mut Response, output: &mut Output, again: Option<u64>) -> Queued {
    let len = match std::mem::replace(&mut response.body, Body::Empty) {
        Body::Empty | Body::Tunnel { .. } => 0,
        Body::Bytes(bytes) => {
            let len = bytes.len();
            output.bytes(bytes);
            len as u64
        }
        Body::Kept(kept) => {
            output.bytes(kept.body().clone());
            if let Some(second) = again {
                LastMessage::of(&kept).set(second, output.copied());
            }
            kept.body().len() as u64
        }
        Body::File(region) if region.len <= READ_BELOW => {
            let len = output.text(|text| append_file(text, &region));
            return Queued::Whole { len, complete: len == region.len };
        }
        Body::File(region) => return Queued::File(region),
        Body::Stream(stream) => return Queued::Stream(stream),
    };
    Queued::Whole { len, complete: true }
}

/// Sends the queued head and then a file.
async fn send_large<S: Transport>(
    link: &Rc<Link<S>>,
    region: FileRegion,
    output: &mut Output,
    sent: &mut Sent,
) -> Result<(), Unsendable> {
    link.send(output, region.len > 0).await?;
    send_file(link, &region, region.len, &mut sent.body_bytes).await
}

/// Sends the first `len` bytes of a region.
async fn send_file<S: Transport>(
    link: &Rc<Link<S>>,
    region: &FileRegion,
    len: u64,
    sent: &mut u64,
) -> Result<(), Unsendable> {
    let (mut done, mut hold) = (0, None);
    while done < len {
        let slice = (len - done).min(FILE_SLICE);
        match link.stream.try_send_file(&region.file.shared(), region.offset + done, slice as usize) {
            // The file has become shorter.
            Ok(0) => return Err(Unsendable),
            Ok(n) => {
                done += n as u64;
                *sent += n as u64;
                link.wrote(n);
                if n as u64 == FILE_SLICE {
                    tokio::task::yield_now().await;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if hold.is_none() && region.file.hold().is_none() {
                    hold = Some(link.holding().hold(Amount::FILE));
                }
                link.writable().await;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Err(Unsendable),
        }
    }
    // Encryption may still buffer a part of the file, and nothing else would send it before the next response.
    link.flush().await
}

/// The next part of a stream.
enum Next {
    /// Data is queued; `true` when the stream has ended.
    Gathered(bool),
    File(FileRegion),
    Offer(Box<dyn Lender>),
    /// The stream has failed or is too long, or the client has disconnected.
    Broken,
}

/// Ready when the client has disconnected. A half-closed client may still read.
fn poll_gone<S: Transport>(client: &ClientView<S>, cx: &mut Context<'_>) -> Poll<()> {
    match client.poll_departure(cx) {
        // Polls again, for the other half.
        Poll::Ready(Departure::HalfClosed) => client.poll_departure(cx).map(|_| ()),
        gone => gone.map(|_| ()),
    }
}

fn promised(plan: FramingPlan) -> DeclaredLength {
    match plan.delimiter {
        Delimiter::Length(length) => DeclaredLength::new(Some(length)),
        _ => DeclaredLength::new(None),
    }
}

struct StreamSender<'a, S> {
    link: &'a Rc<Link<S>>,
    plan: FramingPlan,
    output: &'a mut Output,
    promised: DeclaredLength,
    sent: &'a mut Sent,
}

impl<S: Transport> StreamSender<'_, S> {
    async fn run(mut self, mut stream: Box<dyn BodyStream>) -> Result<(), Unsendable> {
        let client = ClientView::new(Rc::downgrade(self.link), self.link.exchange.get());
        let mut since_yield = 0;
        loop {
            let next = self.gather(&mut *stream, &client).await;
            let ended = match next {
                Next::Gathered(ended) => ended,
                Next::File(region) => {
                    self.file(&region).await?;
                    false
                }
                Next::Offer(lender) => {
                    self.lend(lender, &client).await?;
                    false
                }
                Next::Broken => {
                    // The partial body may help the client; it still sees that the response is truncated.
                    let _ = self.link.send(self.output, false).await;
                    return Err(Unsendable);
                }
            };
            if ended {
                return self.end().await;
            }
            since_yield += self.output.len();
            self.link.send(self.output, false).await?;
            if since_yield > 16 * GATHER {
                since_yield = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Takes chunks that are ready; waits only if there is nothing to send.
    async fn gather(&mut self, stream: &mut dyn BodyStream, client: &ClientView<S>) -> Next {
        poll_fn(|cx| {
            while self.output.len() < GATHER {
                match stream.poll_chunk(cx) {
                    Poll::Ready(None) => return Poll::Ready(Next::Gathered(true)),
                    Poll::Ready(Some(Err(failure))) => {
                        self.sent.fail(failure);
                        return Poll::Ready(Next::Broken);
                    }
                    Poll::Ready(Some(Ok(chunk))) if chunk.is_empty() => {}
                    Poll::Ready(Some(Ok(Chunk::File(region)))) => return Poll::Ready(Next::File(region)),
                    Poll::Ready(Some(Ok(Chunk::Offer(lender)))) => return Poll::Ready(Next::Offer(lender)),
                    Poll::Ready(Some(Ok(Chunk::Bytes(bytes)))) => {
                        if !self.queue(bytes) {
                            return Poll::Ready(Next::Broken);
                        }
                    }
                    Poll::Pending if !self.output.is_empty() => break,
                    Poll::Pending => match client.poll_departure(cx) {
                        Poll::Ready(Departure::HalfClosed) => stream.half_closed(),
                        gone => return gone.map(|_| Next::Broken),
                    },
                }
            }
            Poll::Ready(Next::Gathered(false))
        })
        .await
    }

    /// Queues a chunk. Returns `false` if it exceeds the declared length.
    fn queue(&mut self, mut bytes: bytes::Bytes) -> bool {
        let whole = bytes.len() as u64 <= self.promised.left();
        if !whole {
            self.too_long(bytes.len() as u64);
            bytes.truncate(self.promised.left() as usize);
        }
        let len = bytes.len() as u64;
        self.open_chunk(len);
        self.output.bytes(bytes);
        self.close_chunk();
        self.count(len);
        whole
    }

    async fn file(&mut self, region: &FileRegion) -> Result<(), Unsendable> {
        if region.len > self.promised.left() {
            self.too_long(region.len);
        }
        let len = region.len.min(self.promised.left());
        self.open_chunk(len);
        self.link.send(self.output, len > 0).await?;
        send_file(self.link, region, len, &mut self.sent.body_bytes).await?;
        self.close_chunk();
        self.promised.count(len);
        if len < region.len { Err(Unsendable) } else { Ok(()) }
    }

    /// Lets the owner of the next bytes write them to the socket, if that is possible at once and in this framing.
    async fn lend(&mut self, mut lender: Box<dyn Lender>, client: &ClientView<S>) -> Result<(), Unsendable> {
        let fits =
            matches!(self.plan.delimiter, Delimiter::Length(_)) && lender.offered() <= self.promised.left();
        // If the earlier bytes do not fit into the socket, the offer is declined: its owner must not wait for
        // the client.
        let socket = match self.link.stream.lendable() {
            Some(socket) if fits && self.link.try_send(self.output)? => Some(socket),
            _ => None,
        };
        let taken = poll_fn(|cx| match lender.poll_lend(cx, socket) {
            Poll::Ready(taken) => Poll::Ready(taken.map_err(Some)),
            Poll::Pending => poll_gone(client, cx).map(|()| Err(None)),
        })
        .await;
        match taken {
            Ok(taken) => {
                self.count(taken);
                self.link.wrote(usize::try_from(taken).unwrap_or(usize::MAX));
                Ok(())
            }
            Err(failure) => {
                failure.into_iter().for_each(|failure| self.sent.fail(failure));
                Err(Unsendable)
            }
        }
    }

    async fn end(self) -> Result<(), Unsendable> {
        if self.plan.delimiter == Delimiter::Chunked {
            self.output.text(|text| text.extend_from_slice(b"0\r\n\r\n"));
        }
        self.link.send(self.output, false).await?;
        match self.promised.missed(self.sent.status) {
            Some(failure) => {
                self.sent.fail(failure);
                Err(Unsendable)
            }
            None => Ok(()),
        }
    }

    /// Records a piece of `len` bytes that exceeds the declared length.
    fn too_long(&mut self, len: u64) {
        self.sent.fail(self.promised.exceeded(self.sent.status, len));
    }

    fn open_chunk(&mut self, len: u64) {
        if self.plan.delimiter == Delimiter::Chunked && len > 0 {
            self.output.text(|text| h1::chunk_size(text, len));
        }
    }

    fn close_chunk(&mut self) {
        if self.plan.delimiter == Delimiter::Chunked {
            self.output.text(|text| text.extend_from_slice(b"\r\n"));
        }
    }

    fn count(&mut self, len: u64) {
        self.sent.body_bytes += len;
        self.promised.count(len);
    }
}
