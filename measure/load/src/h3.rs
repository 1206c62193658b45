//! HTTP/3 by the `h3` crate.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::{Code, StreamError};
use h3_quinn::{BidiStream, OpenStreams, RecvStream, SendStream};
use tokio::task::spawn_local;

use crate::connect::open_quic;
use crate::exchange::Incoming;
use crate::job::Failure;
use crate::lane::{Lane, Slot};
use crate::quic::Quic;
use crate::scenario::Checks;
use crate::streams::{Connection, Lost};

/// The time that a thread waits at its end, so that servers learn that their connections are closed.
const FAREWELL: Duration = Duration::from_millis(20);
/// H3_NO_ERROR (RFC 9114 section 8.1).
const NO_ERROR: u32 = 0x100;

#[derive(Clone)]
pub(crate) struct Http3 {
    requests: SendRequest<OpenStreams, Bytes>,
    quic: Quic,
    /// Whether the server refuses further requests.
    over: Rc<Cell<bool>>,
}

/// Remembers a connection for [`close`].
fn remember(lane: &Lane, quic: &Quic) {
    let mut all = lane.quic.borrow_mut();
    all.retain(|connection| connection.close_reason().is_none());
    all.push(quic.connection.clone());
}

/// Closes all connections of a thread.
pub(crate) async fn close(lane: &Lane) {
    let all = lane.quic.take();
    all.iter().for_each(|connection| connection.close(NO_ERROR.into(), b""));
    if !all.is_empty() {
        tokio::time::sleep(FAREWELL).await;
    }
}

impl Connection for Http3 {
    const NAME: &'static str = "HTTP/3";

    async fn open(lane: &Rc<Lane>, slot: &Slot, origin: usize) -> Result<Http3, (Failure, String)> {
        let quic = open_quic(lane, slot, origin).await?;
        lane.note_tls(|| quic.tls());
        remember(lane, &quic);
        let mut builder = h3::client::builder();
        let opened =
            builder.send_grease(false).build(h3_quinn::Connection::new(quic.connection.clone())).await;
        let (mut driver, requests) = opened.map_err(|error| {
            let name = lane.run.endpoints[origin].name();
            let why = quic.reason().unwrap_or_else(|| error.to_string());
            (Failure::Connect, format!("no HTTP/3 with {name}: {why}"))
        })?;
        // The connection's errors also reach each of its streams.
        spawn_local(async move {
            let _ = driver.wait_idle().await;
        });
        Ok(Http3 { requests, quic, over: Rc::default() })
    }

    async fn is_open(&self) -> bool {
        !self.over.get() && self.quic.connection.close_reason().is_none()
    }

    async fn ready(&mut self) -> Result<(), Lost> {
        Ok(())
    }

    async fn exchange(
        &mut self,
        lane: &Lane,
        incoming: &mut Incoming,
        request: http_types::Request<()>,
        body: Bytes,
    ) -> Result<(), Lost> {
        let result = self.call(lane, incoming, request, body).await;
        let mut recorder = lane.recorder.borrow_mut();
        recorder.bytes.sent += self.quic.seen.sent.swap(0, Relaxed);
        recorder.bytes.received += self.quic.seen.received.swap(0, Relaxed);
        result
    }
}

impl Http3 {
    async fn call(
        &mut self,
        lane: &Lane,
        incoming: &mut Incoming,
        request: http_types::Request<()>,
        body: Bytes,
    ) -> Result<(), Lost> {
        let checks = &lane.run.scenario.checks;
        let mut stream =
            self.requests.send_request(request).await.map_err(|error| self.lost(&error, true))?;
        if body.is_empty() {
            stream.finish().await.map_err(|error| self.lost(&error, true))?;
            return receive(lane, incoming, checks, &mut stream)
                .await
                .map_err(|error| self.lost(&error, false));
        }
        let (mut sending, mut receiving) = stream.split();
        let mut upload = pin!(upload(&mut sending, body));
        let mut response = pin!(receive(lane, incoming, checks, &mut receiving));
        let mut sent = false;
        // A server may respond before it has read the whole body.
        poll_fn(|cx| {
            if !sent && let Poll::Ready(result) = upload.as_mut().poll(cx) {
                sent = true;
                match result {
                    // The server refuses the rest of the body; the response says why.
                    Ok(()) | Err(StreamError::RemoteTerminate { .. }) => {}
                    Err(error) => return Poll::Ready(Err(self.lost(&error, true))),
                }
            }
            response.as_mut().poll(cx).map_err(|error| self.lost(&error, false))
        })
        .await
    }

    fn lost(&self, error: &StreamError, writing: bool) -> Lost {
        let rejected =
            matches!(error, StreamError::RemoteTerminate { code, .. } if *code == Code::H3_REQUEST_REJECTED);
        let leaving = matches!(error, StreamError::RemoteClosing { .. }) || error.is_h3_no_error();
        let connection = leaving || matches!(error, StreamError::ConnectionError { .. });
        self.over.set(self.over.get() || connection);
        let text = match error {
            StreamError::RemoteTerminate { code, .. } => format!("the server reset the stream: {code}"),
            StreamError::RemoteClosing { .. } => {
                "the server takes no further requests on the connection".to_owned()
            }
            StreamError::HeaderTooBig { actual_size, max_size, .. } => {
                format!("the head has {actual_size} bytes, and the receiver takes {max_size}")
            }
            error => self.quic.reason().unwrap_or_else(|| error.to_string()),
        };
        Lost { text, writing, connection, refused: rejected || leaving }
    }
}

async fn upload(
    stream: &mut RequestStream<SendStream<Bytes>, Bytes>,
    body: Bytes,
) -> Result<(), StreamError> {
    stream.send_data(body).await?;
    stream.finish().await
}

/// The receiving side: the whole stream, or one half.
trait Receiver {
    async fn head(&mut self) -> Result<http_types::Response<()>, StreamError>;
    async fn data(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<bool, StreamError>;
}

macro_rules! receiver {
    ($($stream:ty),+) => {$(
        impl Receiver for RequestStream<$stream, Bytes> {
            async fn head(&mut self) -> Result<http_types::Response<()>, StreamError> {
                self.recv_response().await
            }

            async fn data(&mut self, each: &mut dyn FnMut(&[u8])) -> Result<bool, StreamError> {
                let Some(mut data) = self.recv_data().await? else { return Ok(false) };
                while data.has_remaining() {
                    let length = data.chunk().len();
                    each(data.chunk());
                    data.advance(length);
                }
                Ok(true)
            }
        }
    )+};
}

receiver!(BidiStream<Bytes>, RecvStream);

async fn receive(
    lane: &Lane,
    incoming: &mut Incoming,
    checks: &Checks,
    stream: &mut impl Receiver,
) -> Result<(), StreamError> {
    let mut head = stream.head().await?;
    incoming.response.first_byte = lane.now();
    while head.status().is_informational() {
        head = stream.head().await?;
    }
    incoming.response.status = head.status().as_u16();
    for (name, value) in head.headers() {
        incoming.field(name.as_str(), value.as_bytes());
    }
    while stream.data(&mut |bytes| incoming.body(bytes, checks)).await? {}
    Ok(())
}
