//! Responses that are sent while they are made: a body that answers to `each`.
//!
//! The task waits with each piece until the one before has been taken, so Ruby is never ahead of the client by more
//! than one piece.

use crate::ops::{Waiting, fault};
use bytes::Bytes;
use handler::{BodyStream, Broken, Chunk};
use mruby::{Tape, Value};
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};

/// Head of a streamed response: status, and names and values in turn.
pub(crate) struct Head {
    pub(crate) status: i64,
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) body: Pieces,
}

/// The task's end.
pub(crate) struct Outlet {
    head: Option<oneshot::Sender<Head>>,
    pieces: Option<mpsc::Sender<Bytes>>,
}

impl Outlet {
    /// An outlet, and what tells of the head.
    pub(crate) fn new() -> (Outlet, oneshot::Receiver<Head>) {
        let (head, told) = oneshot::channel();
        (Outlet { head: Some(head), pieces: None }, told)
    }

    /// `[status, [name, value …]]`
    pub(crate) fn head(&mut self, args: &[Value<'_>]) -> Waiting {
        let Some(sender) = self.head.take() else {
            return fault("RuntimeError", "the response has begun already");
        };
        let status = args.first().and_then(Value::int).unwrap_or_default();
        let fields = fields(args.get(1));
        let (pieces, body) = mpsc::channel(1);
        self.pieces = Some(pieces);
        match sender.send(Head { status, fields, body: Pieces { pieces: body, whole: false } }) {
            Ok(()) => nothing(),
            Err(_) => gone(),
        }
    }

    /// `[bytes]`; without an argument the end of the body.
    pub(crate) fn chunk(&mut self, args: &[Value<'_>]) -> Waiting {
        let Some(pieces) = self.pieces.clone() else {
            return fault("RuntimeError", "the response has not begun");
        };
        // An empty piece stands for the end: Ruby's empty ones say nothing and are not passed on.
        let piece = match args.first() {
            Some(text) => Bytes::copy_from_slice(text.text().unwrap_or_default()),
            None => Bytes::new(),
        };
        if piece.is_empty() && !args.is_empty() {
            return nothing();
        }
        Box::pin(async move {
            let mut tape = Tape::new();
            match pieces.send(piece).await {
                Ok(()) => tape.nil(),
                Err(_) => tape.fault("RuntimeError", "downstream HTTP closed"),
            };
            tape
        })
    }
}

/// Names and values in turn.
pub(crate) fn fields(list: Option<&Value<'_>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let texts = list.and_then(Value::array).unwrap_or_default();
    let text = |value: &Value<'_>| value.text().unwrap_or_default().to_vec();
    texts.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

fn nothing() -> Waiting {
    let mut tape = Tape::new();
    tape.nil();
    Box::pin(std::future::ready(tape))
}

fn gone() -> Waiting {
    fault("RuntimeError", "downstream HTTP closed")
}

/// The client's end.
pub(crate) struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    whole: bool,
}

impl BodyStream for Pieces {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Broken>>> {
        if self.whole {
            return Poll::Ready(None);
        }
        self.pieces.poll_recv(cx).map(|piece| match piece {
            Some(piece) if piece.is_empty() => {
                self.whole = true;
                None
            }
            Some(piece) => Some(Ok(Chunk::Bytes(piece))),
            // The task ended without saying that the body is whole.
            None => Some(Err(Broken)),
        })
    }
}
