//! One connection: its stream, the bytes read ahead of need, its deadlines.
//!
//! Why: the engine, the request body and the handler's view of the client all use the same stream, from one thread. They
//! meet here, behind `Cell`s whose borrows never live across an await.

use super::body_state::BodyState;
use crate::context::{Counted, Shared};
use crate::timers::{Lane, Timer};
use crate::transport::Transport;
use bytes::{Buf, BytesMut};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::Output;

/// Why nothing more can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unsendable;

/// A connection.
pub(crate) struct Link<S> {
    pub(crate) stream: S,
    pub(crate) shared: Rc<Shared>,
    pub(crate) timer: Timer,
    /// Bytes read ahead of need.
    pub(crate) input: RefCell<BytesMut>,
    /// Bytes are known to wait in the socket although its readiness says otherwise.
    pub(crate) unread: Cell<bool>,
    pub(crate) body: RefCell<BodyState>,
    /// Counts exchanges: who holds on to an old one is told that the client has gone.
    pub(crate) exchange: Cell<u64>,
    /// Whether an informational response may be sent now.
    pub(crate) interim_allowed: Cell<bool>,
    /// Informational responses that did not fit into the socket yet.
    pub(crate) queued: RefCell<Vec<u8>>,
    _open: Counted,
}

/// Forgets the first `n` bytes of what was read ahead, and its memory with the last one.
pub(crate) fn forget(input: &mut BytesMut, n: usize) {
    input.advance(n);
    if input.is_empty() {
        *input = BytesMut::new();
    }
}

impl<S: Transport> Link<S> {
    pub(crate) fn new(stream: S, shared: Rc<Shared>) -> Rc<Link<S>> {
        Rc::new(Link {
            stream,
            timer: shared.timers.register(),
            input: RefCell::default(),
            unread: Cell::new(false),
            body: RefCell::default(),
            exchange: Cell::new(0),
            interim_allowed: Cell::new(false),
            queued: RefCell::default(),
            _open: shared.count_open(),
            shared,
        })
    }

    /// Ready when a read may do something.
    pub(crate) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.unread.get() { Poll::Ready(()) } else { self.stream.poll_readable(cx) }
    }

    /// Reads once, and shows the bytes (none at the end of the stream) to `take`, which must not use the scratch buffer.
    pub(crate) fn read<R>(&self, take: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        let mut scratch = self.shared.scratch.borrow_mut();
        let n = if self.unread.take() {
            match self.stream.read_anyway(&mut scratch) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.stream.try_read(&mut scratch)?,
                other => {
                    let n = other?;
                    self.unread.set(n == scratch.len());
                    n
                }
            }
        } else {
            self.stream.try_read(&mut scratch)?
        };
        Ok(take(&scratch[..n]))
    }

    /// Waits until a read may do something; `false` when the read lane's deadline passes first.
    pub(crate) async fn readable(&self) -> bool {
        poll_fn(|cx| {
            if self.poll_readable(cx).is_ready() {
                Poll::Ready(true)
            } else if self.timer.expired(Lane::Read) {
                Poll::Ready(false)
            } else {
                Poll::Pending
            }
        })
        .await
    }

    /// Writes all of `output`. `more`: the rest of the message follows at once.
    pub(crate) async fn send(&self, output: &mut Output, more: bool) -> Result<(), Unsendable> {
        while !output.is_empty() {
            let written = self.stream.try_write(&output.slices(), more);
            match written {
                Ok(n) => output.advance(n),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable().await?,
                Err(_) => return Err(Unsendable),
            }
        }
        Ok(())
    }

    /// Writes what of `output` can be written without waiting; whether that was all. More of the message follows at once.
    pub(crate) fn try_send(&self, output: &mut Output) -> Result<bool, Unsendable> {
        while !output.is_empty() {
            let written = self.stream.try_write(&output.slices(), true);
            match written {
                Ok(n) => output.advance(n),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(_) => return Err(Unsendable),
            }
        }
        Ok(true)
    }

    /// Waits until a write may do something, for no longer than `send_timeout`.
    pub(crate) async fn writable(&self) -> Result<(), Unsendable> {
        self.timer.arm(Lane::Write, Instant::now() + self.shared.limits.send_timeout);
        let result = poll_fn(|cx| {
            if self.stream.poll_writable(cx).is_ready() {
                Poll::Ready(Ok(()))
            } else if self.timer.expired(Lane::Write) {
                Poll::Ready(Err(Unsendable))
            } else {
                Poll::Pending
            }
        })
        .await;
        self.timer.disarm(Lane::Write);
        result
    }

    /// Writes an informational response now, or queues what does not fit.
    pub(crate) fn send_interim(&self, text: &[u8]) {
        let mut queued = self.queued.borrow_mut();
        let sent = if queued.is_empty() {
            self.stream.try_write(&[IoSlice::new(text)], false).unwrap_or(0)
        } else {
            0
        };
        queued.extend_from_slice(&text[sent..]);
    }

    /// Tries to write what is queued; waits for room if there is none.
    pub(crate) fn poll_flush_interim(&self, cx: &mut Context<'_>) {
        let mut queued = self.queued.borrow_mut();
        while !queued.is_empty() {
            match self.stream.try_write(&[IoSlice::new(&queued)], false) {
                Ok(n) => drop(queued.drain(..n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.stream.poll_writable(cx).is_pending() {
                        return;
                    }
                }
                // Reading will find out.
                Err(_) => return,
            }
        }
    }
}
