//! Sends a request to an origin: its head, then its body at the pace of the slower side.

use crate::pool::Connection;
use bytes::Bytes;
use h1::{Framing, chunk_size};
use handler::{BodyError, Incoming};
use net::{Lane, Transport};
use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// The most writes per turn, so that other connections get served.
const ROUNDS: usize = 16;

/// Why sending has ended early.
#[derive(Debug)]
pub(crate) enum Unsent {
    /// The client's body did not arrive completely.
    Client(BodyError),
    /// The origin accepts no more bytes; it may still have responded.
    Upstream,
    /// The origin has read nothing for `send_timeout`.
    Timeout,
}

/// A request being sent.
pub(crate) struct Sender<'a> {
    /// The head, or the line before a chunk.
    text: Vec<u8>,
    /// The buffer of `text` is returned to this.
    spare: &'a RefCell<Vec<u8>>,
    data: Bytes,
    /// The bytes after the data.
    tail: &'static [u8],
    /// How many bytes of the three are sent.
    sent: usize,
    incoming: &'a mut Incoming,
    framing: Option<Framing>,
    /// The rest of the declared length.
    left: u64,
    /// The body has been read from, and cannot be sent again.
    pub(crate) touched: bool,
    /// A part of the request has been sent.
    pub(crate) begun: bool,
    body_done: bool,
    pub(crate) done: bool,
    stalled: bool,
}

impl<'a> Sender<'a> {
    /// Creates a sender for `head` and the body. The head's buffer is returned to `spare`.
    pub(crate) fn new(
        head: Vec<u8>,
        spare: &'a RefCell<Vec<u8>>,
        incoming: &'a mut Incoming,
        framing: Option<Framing>,
    ) -> Sender<'a> {
        let mut sender = Sender {
            text: head,
            spare,
            data: Bytes::new(),
            tail: b"",
            sent: 0,
            left: if let Some(Framing::Length(length)) = framing { length } else { 0 },
            framing,
            touched: false,
            begun: false,
            body_done: matches!(framing, None | Some(Framing::Length(0))),
            done: false,
            stalled: false,
            incoming,
        };
        // A body that has arrived is sent with the head, and kept for a retry.
        if let (Incoming::Ready(bytes), Some(Framing::Length(_))) = (&*sender.incoming, framing) {
            sender.data = bytes.clone();
            sender.body_done = true;
        }
        sender
    }

    /// Ready when everything has been sent, or no more can be.
    pub(crate) fn poll(
        &mut self,
        connection: &Connection,
        timeout: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        for _ in 0..ROUNDS {
            ready!(self.poll_write(connection, timeout, cx))?;
            if self.body_done {
                self.done = true;
                self.spare.replace(std::mem::take(&mut self.text));
                return Poll::Ready(Ok(()));
            }
            self.touched = true;
            match ready!(poll_data(self.incoming, cx)) {
                Some(Ok(data)) => self.queue(data)?,
                Some(Err(error)) => return Poll::Ready(Err(Unsent::Client(error))),
                None if matches!(self.framing, Some(Framing::Length(_))) && self.left > 0 => {
                    return Poll::Ready(Err(Unsent::Client(BodyError::Gone)));
                }
                None => {
                    self.body_done = true;
                    if self.framing == Some(Framing::Chunked) {
                        self.tail = b"0\r\n\r\n";
                    }
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn queue(&mut self, data: Bytes) -> Result<(), Unsent> {
        if data.is_empty() {
            return Ok(());
        }
        match self.framing {
            Some(Framing::Chunked) => {
                chunk_size(&mut self.text, data.len() as u64);
                self.tail = b"\r\n";
            }
            _ => match self.left.checked_sub(data.len() as u64) {
                Some(left) => {
                    self.left = left;
                    self.body_done = left == 0;
                }
                None => return Err(Unsent::Client(BodyError::Malformed("a body longer than its length"))),
            },
        }
        self.data = data;
        Ok(())
    }

    fn poll_write(
        &mut self,
        connection: &Connection,
        timeout: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Unsent>> {
        let whole = self.text.len() + self.data.len() + self.tail.len();
        while self.sent < whole {
            match self.write(connection) {
                Ok(n) => {
                    self.sent += n;
                    self.begun = true;
                    self.stalled = false;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if connection.stream.poll_writable(cx).is_pending() {
                        return self.poll_stalled(connection, timeout);
                    }
                }
                Err(_) => return Poll::Ready(Err(Unsent::Upstream)),
            }
        }
        match connection.stream.poll_flush(cx) {
            Poll::Pending => return self.poll_stalled(connection, timeout),
            Poll::Ready(result) => result.map_err(|_| Unsent::Upstream)?,
        }
        if whole > 0 {
            self.text.clear();
            (self.data, self.tail, self.sent) = (Bytes::new(), b"", 0);
        }
        Poll::Ready(Ok(()))
    }

    fn write(&self, connection: &Connection) -> io::Result<usize> {
        let mut skip = self.sent;
        let parts = [&self.text[..], &self.data, self.tail].map(|part| {
            let n = skip.min(part.len());
            skip -= n;
            IoSlice::new(&part[n..])
        });
        let first = parts.iter().position(|part| !part.is_empty()).unwrap_or(0);
        let last = parts.iter().rposition(|part| !part.is_empty()).unwrap_or(0);
        connection.stream.try_write(&parts.as_slice()[first..=last], false)
    }

    fn poll_stalled(&mut self, connection: &Connection, timeout: Duration) -> Poll<Result<(), Unsent>> {
        if !std::mem::replace(&mut self.stalled, true) {
            connection.timer.arm(Lane::Write, Instant::now() + timeout);
        } else if connection.timer.expired(Lane::Write) {
            return Poll::Ready(Err(Unsent::Timeout));
        }
        Poll::Pending
    }
}

fn poll_data(incoming: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
    match incoming {
        Incoming::Empty => Poll::Ready(None),
        Incoming::Ready(bytes) if bytes.is_empty() => Poll::Ready(None),
        Incoming::Ready(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
        Incoming::Arriving(body) => body.poll_data(cx),
    }
}
