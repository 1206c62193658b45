//! Bodies on their way past a recording: that of the request is copied up to a limit, that of the response digested.

use bytes::Bytes;
use handler::{BodyError, BodyStream, Chunk, Failure, IncomingBody};
use sha2::{Digest, Sha256};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll};

/// The facts about both bodies of an exchange.
pub(super) struct Bodies {
    /// The most bytes of the request body that are kept.
    limit: usize,
    /// The beginning of the request body, and how much of it has come.
    pub(super) kept: RefCell<Vec<u8>>,
    pub(super) received: Cell<u64>,
    /// Whether its end has come.
    pub(super) is_whole: Cell<bool>,
    /// Of the response; `None` if its bytes do not pass the server.
    pub(super) digest: RefCell<Option<Sha256>>,
    pub(super) sent: Cell<u64>,
}

impl Bodies {
    pub(super) fn new(limit: usize) -> Bodies {
        Bodies {
            limit,
            kept: RefCell::default(),
            received: Cell::new(0),
            is_whole: Cell::new(false),
            digest: RefCell::new(Some(Sha256::new())),
            sent: Cell::new(0),
        }
    }

    pub(super) fn receive(&self, bytes: &[u8]) {
        self.received.set(self.received.get() + bytes.len() as u64);
        let mut kept = self.kept.borrow_mut();
        let room = self.limit.saturating_sub(kept.len());
        kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    pub(super) fn send(&self, bytes: &[u8]) {
        self.sent.set(self.sent.get() + bytes.len() as u64);
        if let Some(digest) = self.digest.borrow_mut().as_mut() {
            digest.update(bytes);
        }
    }

    pub(super) fn cannot_digest(&self) {
        self.digest.replace(None);
    }
}

/// A request body that is copied while it is read.
pub(super) struct Copied {
    pub(super) body: Box<dyn IncomingBody>,
    pub(super) bodies: Rc<Bodies>,
}

impl IncomingBody for Copied {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let data = self.body.poll_data(cx);
        match &data {
            Poll::Ready(Some(Ok(bytes))) => self.bodies.receive(bytes),
            Poll::Ready(None) => self.bodies.is_whole.set(true),
            _ => {}
        }
        data
    }

    fn length(&self) -> Option<u64> {
        self.body.length()
    }
}

/// A response body that is digested while it is sent.
pub(super) struct Digested {
    pub(super) body: Box<dyn BodyStream>,
    pub(super) bodies: Rc<Bodies>,
}

impl BodyStream for Digested {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        let chunk = self.body.poll_chunk(cx);
        match &chunk {
            Poll::Ready(Some(Ok(Chunk::Bytes(bytes)))) => self.bodies.send(bytes),
            // Such bytes do not pass the server.
            Poll::Ready(Some(Ok(Chunk::File(_) | Chunk::Offer(_)))) => self.bodies.cannot_digest(),
            _ => {}
        }
        chunk
    }

    fn half_closed(&mut self) {
        self.body.half_closed();
    }
}
