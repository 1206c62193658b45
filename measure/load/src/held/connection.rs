//! Opens a held connection and moves its bytes.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Semaphore, watch};

use super::Plan;
use super::tally::{Counted, Shared, Tally, record};
use crate::endpoint::{Endpoint, describe};
use crate::stream::Stream;

/// The longest head of a response, in bytes.
const LONGEST_HEAD: usize = 64 * 1024;
/// The capacity that an idle connection keeps for what it sends.
const KEPT: usize = 4 * 1024;

/// How far the run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Opening,
    /// The counted part, with its beginning.
    Counted(Instant),
    Over,
}

/// The state that the connections of a thread share.
pub(crate) struct Thread {
    pub plan: Arc<Plan>,
    /// The endpoint of each request of the plan.
    pub endpoints: Arc<Vec<Endpoint>>,
    pub tally: Tally,
    pub shared: Arc<Shared>,
    pub phase: watch::Receiver<Phase>,
    /// Received bytes of whichever connection is being served. No await lies between filling and reading it.
    pub buffer: RefCell<Box<[u8]>>,
    /// Limits handshakes at once: a server's accept queue is short.
    pub handshakes: Semaphore,
}

/// Why a connection failed.
#[derive(Debug)]
pub(crate) struct Fault {
    pub text: String,
    pub is_timeout: bool,
}

impl From<String> for Fault {
    fn from(text: String) -> Fault {
        Fault { text, is_timeout: false }
    }
}

impl Thread {
    pub(crate) fn counted(&self) -> Counted {
        match *self.phase.borrow() {
            Phase::Counted(began) => Some(began),
            Phase::Opening | Phase::Over => None,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        *self.phase.borrow() == Phase::Over
    }

    /// Notes that a connection's first attempt has succeeded or failed.
    pub(crate) fn settle(&self) {
        self.shared.settled.fetch_add(1, Relaxed);
    }

    /// Counts an error. A connection that the end of the run breaks is none.
    pub(crate) fn failed(&self, fault: &Fault) {
        if !self.is_over() {
            self.shared.errors.fetch_add(1, Relaxed);
            self.tally.error(self.counted(), &fault.text, fault.is_timeout);
        }
    }

    /// Waits, but not past the end of the run. Returns whether the run goes on.
    pub(crate) async fn pause(&self, pause: Duration) -> bool {
        let mut phase = self.phase.clone();
        tokio::select! {
            () = tokio::time::sleep(pause) => !self.is_over(),
            _ = phase.wait_for(|phase| *phase == Phase::Over) => false,
        }
    }

    /// Opens a connection: connects, sends `head`, and reads the head of the response, which `judge` accepts or not.
    pub(crate) async fn open<T>(
        &self,
        kind: usize,
        head: Vec<u8>,
        judge: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<(Wire, T), Fault> {
        let Ok(_permit) = self.handshakes.acquire().await else { return Err(String::new().into()) };
        let (begin, handshake, endpoint) = (Instant::now(), Cell::default(), &self.endpoints[kind]);
        let timeouts = &self.plan.timeouts;
        // Boxed: a TLS handshake is large, and there may be 10,000 connections.
        let opened = tokio::time::timeout(timeouts.connect, Box::pin(endpoint.open(&handshake))).await;
        let late = |text| Fault { text, is_timeout: true };
        let stream = opened.map_err(|_| late(endpoint.late(handshake.get(), false)))??;
        let mut wire = Wire { begin, stream, out: head, written: 0, unflushed: false, ahead: Vec::new() };
        let heard = tokio::time::timeout(timeouts.request, wire.head(&self.buffer)).await;
        let head = heard.map_err(|_| late("no response in time (--timeout)".to_owned()))??;
        let judged = judge(&head)?;
        self.shared.opened();
        self.tally.count(|held| {
            held.opened += 1;
            record(&mut held.open_us, begin.elapsed());
        });
        self.tally.second(self.counted(), |_, second| second.opened += 1);
        Ok((wire, judged))
    }

    /// Counts a connection of [`Thread::open`] that is no longer open.
    pub(crate) fn closed(&self) {
        self.shared.open.fetch_sub(1, Relaxed);
    }
}

/// A connection and what is still to be sent over it.
pub(crate) struct Wire {
    /// When its opening began.
    pub begin: Instant,
    stream: Stream,
    out: Vec<u8>,
    written: usize,
    unflushed: bool,
    /// Bytes that came together with the head of the response; at most as many as the buffer of the thread holds.
    ahead: Vec<u8>,
}

impl Wire {
    /// The bytes to which frames are appended; [`Wire::read`] and [`Wire::flush`] send them.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Returns the number of bytes that the server has not taken yet.
    pub(crate) fn backlog(&self) -> usize {
        self.out.len() - self.written
    }

    /// Reads into the beginning of `buffer` and returns the number of bytes, 0 at the end of the connection. Sends
    /// meanwhile. May be dropped and called again.
    pub(crate) async fn read(&mut self, buffer: &RefCell<Box<[u8]>>) -> io::Result<usize> {
        poll_fn(|cx| {
            if let Poll::Ready(Err(error)) = self.poll_send(cx) {
                return Poll::Ready(Err(error));
            }
            let mut buffer = buffer.borrow_mut();
            if !self.ahead.is_empty() {
                let ahead = std::mem::take(&mut self.ahead);
                buffer[..ahead.len()].copy_from_slice(&ahead);
                return Poll::Ready(Ok(ahead.len()));
            }
            let mut buffer = ReadBuf::new(&mut buffer);
            let read = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
            read.map_ok(|()| buffer.filled().len())
        })
        .await
    }

    /// Sends everything.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_send(cx)).await
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.out[self.written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(written)) => (self.written, self.unflushed) = (self.written + written, true),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        if self.unflushed {
            std::task::ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
            self.written = 0;
            self.out.clear();
            self.out.shrink_to(KEPT);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads the head of the final response, with its empty line. The bytes after it are read next.
    async fn head(&mut self, buffer: &RefCell<Box<[u8]>>) -> Result<Vec<u8>, Fault> {
        let mut head = Vec::new();
        loop {
            let read = self.read(buffer).await.map_err(|error| broken(&error))?;
            if read == 0 {
                return Err("the server closed the connection without a response".to_owned().into());
            }
            head.extend_from_slice(&buffer.borrow()[..read]);
            while let Some(end) = memchr::memmem::find(&head, b"\r\n\r\n") {
                let rest = head.split_off(end + 4);
                let is_interim = head.starts_with(b"HTTP/1.1 1") && !head.starts_with(b"HTTP/1.1 101");
                if !is_interim {
                    self.ahead = rest;
                    return Ok(head);
                }
                head = rest;
            }
            if head.len() > LONGEST_HEAD {
                return Err("the head of the response is longer than 64 KiB".to_owned().into());
            }
        }
    }
}

/// Returns the fault of a connection that broke.
pub(crate) fn broken(error: &io::Error) -> Fault {
    format!("the connection broke: {}", describe(error)).into()
}
