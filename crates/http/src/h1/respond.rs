//! Sending a final response: head and body in as few writes as they allow, paced by the client.
//!
//! Contract:
//! 1. Exactly one final head is written, or none.
//! 2. The client can always tell a complete body from one that broke off.
//! 3. What a handler says in its fields cannot change the framing.

use super::client::ClientView;
use super::encode::{self, ConnectionField, Delimiter, Plan};
use super::link::{Link, Unsendable};
use super::output::Output;
use crate::transport::Transport;
use bytes::Bytes;
use handler::{
    Body, BodyStream, Broken, Chunk, Client, Departure, Failure, FailureKind as Kind, FileRegion, Lender,
    Response, Version,
};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::UNIX_EPOCH;

/// Bytes of a stream gathered for one write.
const GATHER: usize = 64 << 10;
/// Files up to this many bytes are read behind the head and written with it: cheaper than a second system call that looks
/// their pages up.
const READ_BELOW: u64 = 16 << 10;
/// Bytes of a file per call, so that other connections get their turn.
const FILE_SLICE: u64 = 2 << 20;

/// What is known about the request when its response is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) version: Version,
    pub(crate) is_head: bool,
    /// The connection may live on, as far as everything but the response is concerned.
    pub(crate) persistent: bool,
}

/// How sending went.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    /// The response did not get out whole.
    pub(crate) broken: bool,
    /// The connection may be used for another request.
    pub(crate) reusable: bool,
    pub(crate) hijacked: bool,
    /// Why another response was sent instead.
    pub(crate) failure: Option<Failure>,
}

/// Sends `response`.
pub(crate) async fn respond<S: Transport>(
    link: &Rc<Link<S>>,
    asked: Asked,
    response: Response,
    output: &mut Output,
) -> Sent {
    link.interim_allowed.set(false);
    let again = second_of_kept(link, asked, &response, output);
    if let (Some(second), Body::Kept(kept)) = (again, &response.body)
        && let Some(message) = kept.written(second)
    {
        return send_again(link, kept.body().len(), message, output).await;
    }
    let (mut response, failure) = presentable(response);
    if matches!(response.body, Body::Empty | Body::Bytes(_)) && link.input.borrow().is_empty() {
        link.shared.gather().await;
    }
    if !link.queued.borrow().is_empty() {
        let queued = link.queued.take();
        output.text(|text| text.extend_from_slice(&queued));
    }
    let mut sent = Sent { status: response.status, failure, ..Sent::default() };
    if let Body::Tunnel { raw: true, .. } = response.body {
        sent.status = 0;
    } else {
        let plan = encode::plan(&response, asked.version, asked.is_head);
        sent.reusable = asked.persistent && !wants_close(&response) && may_follow(plan.delimiter);
        let connection = connection_field(&response, asked, sent.reusable);
        output.text(|text| {
            let now = link.shared.wall(link.shared.timers.recent());
            encode::head(text, &response, plan.delimiter, connection, (&link.shared.date, now));
        });
        if !plan.has_body {
            response.body = Body::Empty;
        }
        let body = std::mem::replace(&mut response.body, Body::Empty);
        if !matches!(body, Body::Tunnel { .. }) {
            let result = send_body(link, plan, body, output, again, &mut sent).await;
            if result.is_err() {
                sent.broken = true;
                sent.reusable = false;
                if plan.delimiter == Delimiter::Close {
                    // The end of the connection would look like the end of the body.
                    link.stream.abort_on_drop();
                }
            }
            return sent;
        }
        response.body = body;
    }
    let Body::Tunnel { io, .. } = response.body else { return sent };
    sent.hijacked = true;
    sent.reusable = false;
    if link.send(output, false).await.is_err() {
        sent.broken = true;
        return sent;
    }
    let _tunnel = link.shared.count_tunnel();
    (sent.body_bytes, sent.broken) = Box::pin(super::tunnel::run(link, io)).await;
    sent
}

/// The current second, if the message of a kept body may be the one that was written before in the same second: nothing
/// but the date depends on the request then.
fn second_of_kept<S: Transport>(
    link: &Link<S>,
    asked: Asked,
    response: &Response,
    output: &Output,
) -> Option<u64> {
    let plain = matches!(response.body, Body::Kept(_))
        && asked.version == Version::Http11
        && asked.persistent
        && !asked.is_head
        && response.status == 200
        && !response.close
        && response.fields.fresh().next().is_none()
        && output.is_empty()
        && link.queued.borrow().is_empty();
    let now = plain.then(|| link.shared.wall(link.shared.timers.recent()))?;
    now.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// Sends a message that has been written before.
async fn send_again<S: Transport>(link: &Link<S>, body: usize, message: Bytes, output: &mut Output) -> Sent {
    output.by_reference(message);
    let broken = link.send(output, false).await.is_err();
    let body_bytes = (body as u64).saturating_sub(output.len() as u64);
    Sent { status: 200, body_bytes, broken, reusable: !broken, ..Sent::default() }
}

/// The response, or what is sent instead of one that cannot be sent.
fn presentable(response: Response) -> (Response, Option<Failure>) {
    let reason = match (response.status, &response.body) {
        _ if !encode::are_clean(&response.fields) => "a field name or value that may not stand in a response",
        (200..=999, _) | (101, Body::Tunnel { .. }) | (_, Body::Tunnel { raw: true, .. }) => {
            match super::precoded::decoded(response) {
                Some(response) => return (response, None),
                None => "a body that is not in the chunked coding that its fields claim",
            }
        }
        _ => "a status that is not final",
    };
    let failure = Failure::new(Kind::Internal, reason);
    (failure.clone().into_response(), Some(failure))
}

fn wants_close(response: &Response) -> bool {
    response.close || response.fields.fresh_lists("connection", "close")
}

fn may_follow(delimiter: Delimiter) -> bool {
    !matches!(delimiter, Delimiter::Close | Delimiter::Own)
}

fn connection_field(response: &Response, asked: Asked, reusable: bool) -> ConnectionField {
    match (reusable, asked.version) {
        _ if response.status == 101 => ConnectionField::Upgrade,
        (false, _) => ConnectionField::Close,
        (true, Version::Http10) => ConnectionField::KeepAlive,
        (true, Version::Http11) => ConnectionField::Default,
    }
}

async fn send_body<S: Transport>(
    link: &Rc<Link<S>>,
    plan: Plan,
    body: Body,
    output: &mut Output,
    again: Option<u64>,
    sent: &mut Sent,
) -> Result<(), Unsendable> {
    match body {
        Body::Empty | Body::Tunnel { .. } => link.send(output, false).await,
        Body::Bytes(bytes) => {
            let len = bytes.len();
            output.bytes(bytes);
            let result = link.send(output, false).await;
            sent.body_bytes = (len as u64).saturating_sub(output.len() as u64);
            result
        }
        Body::Kept(kept) => {
            output.bytes(kept.body().clone());
            if let Some(second) = again {
                kept.keep(second, output.copied());
            }
            let result = link.send(output, false).await;
            sent.body_bytes = (kept.body().len() as u64).saturating_sub(output.len() as u64);
            result
        }
        Body::File(region) if region.len <= READ_BELOW => {
            let read = output.text(|text| append_file(text, &region));
            let result = link.send(output, false).await;
            sent.body_bytes = read.saturating_sub(output.len() as u64);
            // It has become shorter than was promised.
            if read < region.len { Err(Unsendable) } else { result }
        }
        Body::File(region) => {
            link.send(output, region.len > 0).await?;
            Box::pin(send_file(link, &region, region.len, &mut sent.body_bytes)).await
        }
        Body::Stream(stream) => {
            // Boxed, like all that is not for every response: the future of an exchange stays small.
            let sender = StreamSender { link, plan, output, left: u64::MAX, sent: &mut *sent };
            let result = Box::pin(sender.run(stream)).await;
            sent.body_bytes = sent.body_bytes.saturating_sub(output.len() as u64);
            result
        }
    }
}

/// Appends a region, as much of it as there is; how many bytes.
fn append_file(text: &mut Vec<u8>, region: &FileRegion) -> u64 {
    let start = text.len();
    let end = start + region.len as usize;
    while text.len() < end {
        let offset = region.offset + (text.len() - start) as u64;
        text.reserve(end - text.len());
        match rustix::io::pread(&*region.file, rustix::buffer::spare_capacity(text), offset) {
            Ok(0) => break,
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => break,
        }
    }
    // There was room for more than was asked for.
    text.truncate(end);
    (text.len() - start) as u64
}

/// Sends the first `len` bytes of a region.
async fn send_file<S: Transport>(
    link: &Link<S>,
    region: &FileRegion,
    len: u64,
    sent: &mut u64,
) -> Result<(), Unsendable> {
    let mut done = 0;
    while done < len {
        let slice = (len - done).min(FILE_SLICE);
        match link.stream.try_send_file(&region.file, region.offset + done, slice as usize) {
            // It has become shorter than was promised.
            Ok(0) => return Err(Unsendable),
            Ok(n) => {
                done += n as u64;
                *sent += n as u64;
                if n as u64 == FILE_SLICE {
                    tokio::task::yield_now().await;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => link.writable().await?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Err(Unsendable),
        }
    }
    Ok(())
}

/// What became of waiting for a stream's next chunk.
enum Next {
    /// Something to send; `true` when the stream has ended.
    Gathered(bool),
    File(FileRegion),
    Offer(Box<dyn Lender>),
    /// The stream broke, promised otherwise, or nobody is there any more.
    Broken,
}

/// Ready when nobody is there any more to send to. Half of the client may still read.
fn poll_gone<S: Transport>(client: &ClientView<S>, cx: &mut Context<'_>) -> Poll<()> {
    match client.poll_departure(cx) {
        // Ask again, for the other half.
        Poll::Ready(Departure::HalfClosed) => client.poll_departure(cx).map(|_| ()),
        gone => gone.map(|_| ()),
    }
}

struct StreamSender<'a, S> {
    link: &'a Rc<Link<S>>,
    plan: Plan,
    output: &'a mut Output,
    /// Bytes that the length still allows.
    left: u64,
    sent: &'a mut Sent,
}

impl<S: Transport> StreamSender<'_, S> {
    async fn run(mut self, mut stream: Box<dyn BodyStream>) -> Result<(), Unsendable> {
        if let Delimiter::Length(length) = self.plan.delimiter {
            self.left = length;
        }
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
                    // What there is of it may still help; how it ended is not hidden by that.
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

    /// Takes chunks that are ready; waits only when there is nothing to send.
    async fn gather(&mut self, stream: &mut dyn BodyStream, client: &ClientView<S>) -> Next {
        poll_fn(|cx| {
            while self.output.len() < GATHER {
                match stream.poll_chunk(cx) {
                    Poll::Ready(None) => return Poll::Ready(Next::Gathered(true)),
                    Poll::Ready(Some(Err(Broken))) => return Poll::Ready(Next::Broken),
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

    /// Queues a chunk; `false` when it is more than was promised.
    fn queue(&mut self, mut bytes: bytes::Bytes) -> bool {
        let whole = bytes.len() as u64 <= self.left;
        if !whole {
            bytes.truncate(self.left as usize);
        }
        let len = bytes.len() as u64;
        self.open_chunk(len);
        self.output.bytes(bytes);
        self.close_chunk();
        self.count(len);
        whole
    }

    async fn file(&mut self, region: &FileRegion) -> Result<(), Unsendable> {
        let len = region.len.min(self.left);
        self.open_chunk(len);
        self.link.send(self.output, len > 0).await?;
        send_file(self.link, region, len, &mut self.sent.body_bytes).await?;
        self.close_chunk();
        if self.plan.delimiter != Delimiter::Chunked {
            self.left -= len;
        }
        if len < region.len { Err(Unsendable) } else { Ok(()) }
    }

    /// Lets the owner of the next bytes write them, if it can be done at once and in this framing.
    async fn lend(&mut self, mut lender: Box<dyn Lender>, client: &ClientView<S>) -> Result<(), Unsendable> {
        let fits = matches!(self.plan.delimiter, Delimiter::Length(_)) && lender.offered() <= self.left;
        // A client that has no room for what comes before keeps nobody waiting: such an offer is declined.
        let socket = match self.link.stream.lendable() {
            Some(socket) if fits && self.link.try_send(self.output)? => Some(socket),
            _ => None,
        };
        let taken = poll_fn(|cx| match lender.poll_lend(cx, socket) {
            Poll::Ready(taken) => Poll::Ready(taken.map_err(|Broken| Unsendable)),
            Poll::Pending => poll_gone(client, cx).map(|()| Err(Unsendable)),
        })
        .await?;
        self.count(taken);
        Ok(())
    }

    async fn end(self) -> Result<(), Unsendable> {
        if self.plan.delimiter == Delimiter::Chunked {
            self.output.text(|text| text.extend_from_slice(b"0\r\n\r\n"));
        }
        self.link.send(self.output, false).await?;
        let short = matches!(self.plan.delimiter, Delimiter::Length(_)) && self.left > 0;
        if short { Err(Unsendable) } else { Ok(()) }
    }

    fn open_chunk(&mut self, len: u64) {
        if self.plan.delimiter == Delimiter::Chunked && len > 0 {
            self.output.text(|text| encode::chunk_size(text, len));
        }
    }

    fn close_chunk(&mut self) {
        if self.plan.delimiter == Delimiter::Chunked {
            self.output.text(|text| text.extend_from_slice(b"\r\n"));
        }
    }

    fn count(&mut self, len: u64) {
        self.sent.body_bytes += len;
        if matches!(self.plan.delimiter, Delimiter::Length(_)) {
            self.left -= len;
        }
    }
}
