//! HTTP/2 by the `h2` crate.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::spawn_local;

use crate::clock::nanoseconds;
use crate::connect::{CUT_OFF, in_time, open};
use crate::exchange::Incoming;
use crate::job::Failure;
use crate::lane::{Lane, Slot};
use crate::spoken::{Heard, Listening, Spoken};
use crate::stream::Stream;
use crate::streams::{Connection, Lost};

/// Flow control windows large enough that no response waits for a window update.
const STREAM_WINDOW: u32 = 16 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;
const LARGEST_FRAME: u32 = 64 << 10;

#[derive(Clone)]
pub(crate) struct Http2 {
    sender: SendRequest<Bytes>,
    /// The protocol of the server's first bytes.
    heard: Heard,
}

impl Connection for Http2 {
    const NAME: &'static str = "HTTP/2";

    async fn open(lane: &Rc<Lane>, slot: &Slot, origin: usize) -> Result<Http2, (Failure, String)> {
        let stream = open(lane, slot, origin).await?;
        let name = lane.run.endpoints[origin].name();
        if matches!(&stream, Stream::Tls(_)) && stream.alpn() != Some(b"h2") {
            return Err((
                Failure::Connect,
                format!("{name} does not speak HTTP/2: it did not agree to h2 (ALPN)"),
            ));
        }
        lane.note_tls(|| stream.tls());
        let heard = Heard::default();
        let stream = CountingStream { stream: Listening::new(stream, heard.clone()), lane: lane.clone() };
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(LARGEST_FRAME)
            .max_concurrent_reset_streams(1024);
        slot.deadline.set(lane.now().saturating_add(nanoseconds(lane.run.scenario.timeouts.connect)));
        let opened = in_time(lane, slot, builder.handshake(stream)).await;
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
        // The connection's errors also reach each of its streams.
        spawn_local(async move {
            let _ = connection.await;
        });
        Ok(Http2 { sender, heard })
    }

    async fn is_open(&self) -> bool {
        let mut sender = self.sender.clone();
        poll_fn(|cx| Poll::Ready(!matches!(sender.poll_ready(cx), Poll::Ready(Err(_))))).await
    }

    async fn ready(&mut self) -> Result<(), Lost> {
        poll_fn(|cx| self.sender.poll_ready(cx)).await.map_err(|error| self.lost(&error))
    }

    async fn exchange(
        &mut self,
        lane: &Lane,
        incoming: &mut Incoming,
        request: http_types::Request<()>,
        body: Bytes,
    ) -> Result<(), Lost> {
        let sent = self.sender.send_request(request, body.is_empty()).map_err(|error| self.lost(&error))?;
        let (response, mut upload) = sent;
        if !body.is_empty() {
            upload.send_data(body, true).map_err(|error| Lost {
                text: self.describe(&error),
                writing: true,
                connection: false,
                refused: false,
            })?;
        }
        receive(lane, incoming, response).await.map_err(|error| self.lost(&error))
    }
}

impl Http2 {
    fn lost(&self, error: &h2::Error) -> Lost {
        Lost {
            text: self.describe(error),
            writing: false,
            connection: !error.is_reset(),
            refused: error.reason() == Some(Reason::REFUSED_STREAM)
                || (error.is_go_away() && error.is_remote() && error.reason() == Some(Reason::NO_ERROR)),
        }
    }

    /// Returns the reason of an error. Errors in the frames of another protocol only name that.
    fn describe(&self, error: &h2::Error) -> String {
        let other = self.heard.get().and_then(Spoken::in_place_of_http2);
        other.map_or_else(|| describe(error), str::to_owned)
    }
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

fn describe(error: &h2::Error) -> String {
    match error.get_io() {
        Some(error) => crate::endpoint::describe(error),
        None => error.to_string(),
    }
}

/// A stream that counts its bytes.
struct CountingStream {
    stream: Listening<Stream>,
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
