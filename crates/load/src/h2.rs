//! HTTP/2 by the `h2` crate: each stream is a user; the streams of one connection share it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Mutex;
use tokio::task::spawn_local;

use crate::clock::nanoseconds;
use crate::connect::{Attempts, CUT_OFF, in_time};
use crate::exchange::Incoming;
use crate::feed::Feed;
use crate::job::{Failure, Job};
use crate::lane::Lane;
use crate::stream::Stream;

/// Flow control windows large enough that no response waits for a window update.
const STREAM_WINDOW: u32 = 16 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;
const LARGEST_FRAME: u32 = 64 << 10;
/// How often a request is sent again after the server refused it unprocessed.
const MOST_REFUSALS: u32 = 5;

/// The connections that some streams share, one per origin.
#[derive(Default)]
pub(crate) struct SharedConnections(RefCell<HashMap<usize, Rc<SharedConnection>>>);

#[derive(Default)]
struct SharedConnection {
    /// Locked while a connection is opened, so that the others wait for it.
    sender: Mutex<Option<SendRequest<Bytes>>>,
}

/// Sends one request after the other until there are no more.
pub(crate) async fn stream(lane: Rc<Lane>, shared: Rc<SharedConnections>) {
    let feed = Feed::new(lane.clone());
    feed.slot.register_waker().await;
    let mut user = User {
        lane,
        feed,
        shared,
        senders: HashMap::new(),
        attempts: Attempts::default(),
        incoming: Incoming::default(),
    };
    if user.lane.run.is_closed() {
        let origin = user.lane.run.prepared.kinds[0].origin;
        // If this fails, the first request tries again and counts the failure.
        let _ = user.sender(origin).await;
    }
    user.run().await;
}

struct User {
    lane: Rc<Lane>,
    feed: Feed,
    shared: Rc<SharedConnections>,
    /// By origin.
    senders: HashMap<usize, SendRequest<Bytes>>,
    attempts: Attempts,
    incoming: Incoming,
}

/// The result of a request.
enum Exchanged {
    /// A complete response.
    Complete,
    /// The server did not process it.
    Refused(String),
    Failed(Failure, String),
}

impl User {
    async fn run(&mut self) {
        while let Some(job) = poll_fn(|cx| self.feed.poll(cx, self.lane.now())).await {
            let mut refusals = 0;
            let result = loop {
                match self.exchange(&job).await {
                    Exchanged::Refused(why) if refusals == MOST_REFUSALS => {
                        break Exchanged::Failed(Failure::Read, why);
                    }
                    Exchanged::Refused(_) => refusals += 1,
                    result => break result,
                }
            };
            self.feed.finished();
            match result {
                Exchanged::Failed(failure, text) => {
                    self.lane.recorder.borrow_mut().failed(&job, failure, &text, self.lane.now());
                    self.feed.slot.unavailable();
                    if !matches!(failure, Failure::Timeout | Failure::CutOff) {
                        self.attempts.pause(&self.lane).await;
                    }
                }
                Exchanged::Complete | Exchanged::Refused(_) => self.attempts.succeeded(),
            }
        }
    }

    async fn exchange(&mut self, job: &Job) -> Exchanged {
        let lane = self.lane.clone();
        let kind = &lane.run.prepared.kinds[job.kind];
        let sender = match self.sender(kind.origin).await {
            Ok(sender) => sender,
            Err((failure, text)) => return Exchanged::Failed(failure, text),
        };
        let timeout = nanoseconds(lane.run.scenario.timeouts.request);
        let slot = self.feed.slot.clone();
        slot.deadline.set(lane.now().saturating_add(timeout));
        let mut sender = match in_time(&lane, &slot, sender.ready()).await {
            Ok(Ok(sender)) => sender,
            Ok(Err(error)) => return self.lost(kind.origin, &error),
            Err(failure) => return late(failure),
        };
        let sent = lane.now();
        slot.deadline.set(sent.saturating_add(timeout));
        let Some(mut request) = kind.request.clone() else {
            return Exchanged::Failed(Failure::Write, "a request that HTTP/2 cannot carry".to_owned());
        };
        if let Some(line) = self.feed.cookie(kind)
            && let Ok(value) = http_types::HeaderValue::try_from(line)
        {
            request.headers_mut().insert(http_types::header::COOKIE, value);
        }
        self.incoming.reset();
        let result = match sender.send_request(request, kind.body.is_empty()) {
            Err(error) => return self.lost(kind.origin, &error),
            Ok((response, mut body)) => {
                if !kind.body.is_empty()
                    && let Err(error) = body.send_data(kind.body.clone(), true)
                {
                    return Exchanged::Failed(Failure::Write, describe(&error));
                }
                self.senders.insert(kind.origin, sender);
                in_time(&lane, &slot, receive(&lane, &mut self.incoming, response)).await
            }
        };
        match result {
            Ok(Ok(())) => {
                self.feed.keep_cookies(kind, &self.incoming);
                self.incoming.finish(&lane, job, sent, lane.now(), "HTTP/2");
                Exchanged::Complete
            }
            Ok(Err(error)) => self.lost(kind.origin, &error),
            Err(failure) => late(failure),
        }
    }

    /// An error of the connection or of the stream alone.
    fn lost(&mut self, origin: usize, error: &h2::Error) -> Exchanged {
        let text = describe(error);
        if !error.is_reset() {
            self.senders.remove(&origin);
        }
        let refused = error.reason() == Some(Reason::REFUSED_STREAM)
            || (error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR));
        match refused {
            true => Exchanged::Refused(text),
            false => Exchanged::Failed(Failure::Read, text),
        }
    }

    /// The connection to an origin; the first user that needs it opens it.
    async fn sender(&mut self, origin: usize) -> Result<SendRequest<Bytes>, (Failure, String)> {
        match self.senders.remove(&origin) {
            Some(sender) => Ok(sender),
            // Boxed: opening takes much memory for a short time, and there may be 100,000 streams.
            None => Box::pin(self.shared_sender(origin)).await,
        }
    }

    async fn shared_sender(&self, origin: usize) -> Result<SendRequest<Bytes>, (Failure, String)> {
        let (lane, slot) = (&self.lane, &self.feed.slot);
        let shared = self.shared.0.borrow_mut().entry(origin).or_default().clone();
        let deadline = lane.now().saturating_add(nanoseconds(lane.run.scenario.timeouts.connect));
        let attempt = async {
            slot.deadline.set(deadline);
            let mut current = match in_time(lane, slot, shared.sender.lock()).await {
                Ok(current) => current,
                Err(Failure::Timeout) => {
                    let name = lane.run.endpoints[origin].name();
                    return Err((Failure::ConnectTimeout, format!("no connection to {name} in time")));
                }
                Err(failure) => return Err((failure, CUT_OFF.to_owned())),
            };
            if let Some(sender) = current.clone()
                && is_open(sender.clone()).await
            {
                return Ok(sender);
            }
            let sender = open(lane, &self.feed, &Attempts::default(), origin).await?;
            *current = Some(sender.clone());
            Ok(sender)
        };
        self.attempts.settle(lane, attempt).await
    }
}

/// Whether a connection still accepts requests.
async fn is_open(mut sender: SendRequest<Bytes>) -> bool {
    poll_fn(|cx| Poll::Ready(!matches!(sender.poll_ready(cx), Poll::Ready(Err(_))))).await
}

async fn open(
    lane: &Rc<Lane>,
    feed: &Feed,
    attempts: &Attempts,
    origin: usize,
) -> Result<SendRequest<Bytes>, (Failure, String)> {
    let stream = attempts.open(lane, &feed.slot, origin).await?;
    let name = lane.run.endpoints[origin].name();
    if matches!(&stream, Stream::Tls(_)) && stream.alpn() != Some(b"h2") {
        return Err((
            Failure::Connect,
            format!("{name} does not speak HTTP/2: it did not agree to h2 (ALPN)"),
        ));
    }
    lane.note_tls(&stream);
    let stream = CountingStream { stream, lane: lane.clone() };
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(LARGEST_FRAME)
        .max_concurrent_reset_streams(1024);
    feed.slot.deadline.set(lane.now().saturating_add(nanoseconds(lane.run.scenario.timeouts.connect)));
    let opened = in_time(lane, &feed.slot, builder.handshake(stream)).await;
    let (sender, connection) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => {
            return Err((Failure::Connect, format!("no HTTP/2 with {name}: {}", describe(&error))));
        }
        Err(Failure::Timeout) => {
            return Err((Failure::ConnectTimeout, format!("no HTTP/2 with {name} in time")));
        }
        Err(failure) => return Err((failure, CUT_OFF.to_owned())),
    };
    // Its errors also reach each of its streams.
    spawn_local(async move {
        let _ = connection.await;
    });
    Ok(sender)
}

async fn receive(
    lane: &Lane,
    incoming: &mut Incoming,
    response: h2::client::ResponseFuture,
) -> Result<(), h2::Error> {
    let (head, mut body) = response.await?.into_parts();
    incoming.response.first_byte = lane.now();
    incoming.response.status = head.status.as_u16();
    for (name, value) in &head.headers {
        incoming.field(name.as_str(), value.as_bytes());
    }
    take_body(lane, incoming, &mut body).await
}

async fn take_body(lane: &Lane, incoming: &mut Incoming, body: &mut RecvStream) -> Result<(), h2::Error> {
    while let Some(data) = body.data().await {
        let data = data?;
        incoming.body(&data, &lane.run.scenario.checks);
        body.flow_control().release_capacity(data.len())?;
    }
    body.trailers().await?;
    Ok(())
}

fn late(failure: Failure) -> Exchanged {
    match failure {
        Failure::CutOff => Exchanged::Failed(failure, CUT_OFF.to_owned()),
        failure => Exchanged::Failed(failure, "no complete response in time".to_owned()),
    }
}

fn describe(error: &h2::Error) -> String {
    match error.get_io() {
        Some(error) => crate::endpoint::describe(error),
        None => error.to_string(),
    }
}

/// A stream that counts its bytes.
struct CountingStream {
    stream: Stream,
    lane: Rc<Lane>,
}

impl AsyncRead for CountingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.lane.recorder.borrow_mut().bytes.received += (buffer.filled().len() - before) as u64;
        read
    }
}

impl CountingStream {
    fn count(&self, written: &Poll<std::io::Result<usize>>) {
        if let Poll::Ready(Ok(written)) = written {
            self.lane.recorder.borrow_mut().bytes.sent += *written as u64;
        }
    }
}

impl AsyncWrite for CountingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.count(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.count(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
