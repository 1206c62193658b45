//! A WebSocket on a stream of HTTP/3 (RFC 9220): copies bytes between the stream and the far end.
//!
//! Contract:
//! 1. Each direction buffers at most one read; QUIC's windows bound what the client sends ahead.
//! 2. The end of one direction is passed on; the other direction continues, unless the far end takes no more bytes either.
//! 3. When the far end breaks off, or the client resets the stream, both ends are closed (H3_REQUEST_CANCELLED, RFC 9220 section 3).
//! 4. When the far end takes no more bytes, none are read from the client, and what the far end has sent is still delivered.

use super::body::Sender;
use super::client::StreamClient;
use super::file::Unsendable;
use crate::context::ThreadShared;
use crate::message::Sent;
use fieldcode::Flood;
use handler::Client;
use http3::data_header;
use net::TunnelEnd;
use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::task::{Context, Poll, ready};

/// The most bytes per read from the far end.
const READ: usize = 16 << 10;
/// Room for the header of a DATA frame.
const FRAME: usize = 16;

/// Sends `head`, and runs the tunnel until both directions have ended.
pub(super) async fn run(
    sender: &mut Sender<'_>,
    head: Vec<u8>,
    io: Box<dyn TunnelEnd>,
    sent: &mut Sent,
) -> Result<(), Unsendable> {
    sender.write(head.into()).await?;
    let client = sender.client;
    let finished = Cell::new(false);
    let mut up = pin!(pass_up(client, &*io));
    let mut down = pin!(pass_down(sender, &*io, &finished, sent));
    let (mut up_over, mut down_over) = (false, false);
    poll_fn(|cx| {
        if !up_over {
            match up.as_mut().poll(cx) {
                Poll::Ready(Ok(())) => up_over = true,
                Poll::Ready(Err(Unsendable)) => return Poll::Ready(Err(Unsendable)),
                Poll::Pending => {}
            }
        }
        if !down_over {
            match down.as_mut().poll(cx) {
                Poll::Ready(Ok(())) => down_over = true,
                Poll::Ready(Err(Unsendable)) => return Poll::Ready(Err(Unsendable)),
                Poll::Pending => {}
            }
        }
        if down_over && (up_over || io.is_over()) {
            return Poll::Ready(Ok(()));
        }
        // After the end of this half, its acknowledgement would look like a departure.
        if !finished.get() && client.poll_departure(cx).is_ready() {
            return Poll::Ready(Err(Unsendable));
        }
        Poll::Pending
    })
    .await
}

/// Passes the client's bytes to the far end. Returns early if that takes no more; the caller then lets the client know.
async fn pass_up(client: &StreamClient, io: &dyn TunnelEnd) -> Result<(), Unsendable> {
    while let Some(bytes) = poll_fn(|cx| client.poll_tunnel(cx)).await {
        let bytes = bytes.map_err(|_| Unsendable)?;
        let mut at = 0;
        while at < bytes.len() {
            match poll_fn(|cx| poll_write(io, &bytes[at..], cx)).await {
                Ok(n) => {
                    at += n;
                    // Data that passes through is no flood, however small its frames are: each had a byte at least.
                    client.earn(Flood::SmallData, n);
                }
                Err(_) => return Ok(()),
            }
        }
        if poll_fn(|cx| io.poll_flush(cx)).await.is_err() {
            return Ok(());
        }
    }
    io.end_writing();
    Ok(())
}

fn poll_write(io: &dyn TunnelEnd, bytes: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    loop {
        match io.try_write(bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => ready!(io.poll_writable(cx)),
            result => return Poll::Ready(result),
        }
    }
}

/// Passes the bytes of the far end to the client, each read as a DATA frame, and then its end.
async fn pass_down(
    sender: &mut Sender<'_>,
    io: &dyn TunnelEnd,
    finished: &Cell<bool>,
    sent: &mut Sent,
) -> Result<(), Unsendable> {
    loop {
        let shared = sender.shared.clone();
        let frame = poll_fn(|cx| poll_frame(io, &shared, cx)).await.map_err(|_| Unsendable)?;
        let Some(DataFrame { text, len }) = frame else {
            finished.set(true);
            let _ = sender.stream.finish();
            return Ok(());
        };
        sender.write(text.into()).await?;
        // The messages of a WebSocket are often small, and one that the app answers is no flood.
        sender.client.earn(Flood::SmallData, 1);
        sent.body_bytes += len as u64;
    }
}

/// A DATA frame, and the length of its payload.
struct DataFrame {
    text: Vec<u8>,
    len: usize,
}

/// Reads once, and returns the bytes as a frame; `None` at the end.
fn poll_frame(
    io: &dyn TunnelEnd,
    shared: &ThreadShared,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Option<DataFrame>>> {
    loop {
        ready!(io.poll_readable(cx));
        let mut scratch = shared.scratch.borrow_mut();
        match io.try_read(&mut scratch[..READ]) {
            Ok(0) => return Poll::Ready(Ok(None)),
            Ok(n) => {
                let mut text = Vec::with_capacity(n + FRAME);
                data_header(&mut text, n as u64);
                text.extend_from_slice(&scratch[..n]);
                return Poll::Ready(Ok(Some(DataFrame { text, len: n })));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
    }
}
