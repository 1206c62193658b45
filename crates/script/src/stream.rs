//! Responses that are sent while they are made: a body that answers to `each`.
//!
//! The task waits with each piece until the one before has been taken, so Ruby is never ahead of the client by more
//! than one piece.

use crate::ops::{Waiting, fault};
use bytes::Bytes;
use handler::{BodyStream, Broken, Chunk};
use mruby::{Exception, Tape, Value};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Sleep, sleep};

/// A client that has closed its sending side may still read what comes within so much time. Most have gone, and nothing but
/// writing would show it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

/// What is raised in a body whose client has gone, as by H2O.
const CLOSED: &str = "downstream HTTP closed";

/// Whether a body ended by that alone: then nobody has done anything wrong.
pub(crate) fn is_departure(error: &Exception) -> bool {
    error.class == "RuntimeError" && error.message == CLOSED
}

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
    /// Whether the task has said that the body is whole.
    whole: Rc<Cell<bool>>,
}

impl Outlet {
    /// An outlet, and what tells of the head.
    pub(crate) fn new() -> (Outlet, oneshot::Receiver<Head>) {
        let (head, told) = oneshot::channel();
        (Outlet { head: Some(head), pieces: None, whole: Rc::default() }, told)
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
        match sender.send(Head {
            status,
            fields,
            body: Pieces { pieces: body, whole: false, patience: None },
        }) {
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
        self.whole.set(piece.is_empty());
        Box::pin(async move {
            let mut tape = Tape::new();
            match pieces.send(piece).await {
                Ok(()) => tape.nil(),
                Err(_) => tape.fault("RuntimeError", CLOSED),
            };
            tape
        })
    }
}

impl Outlet {
    /// Ready when the client's end is dropped before the body is whole.
    pub(crate) fn lost(&self) -> impl Future<Output = ()> + use<> {
        let (pieces, whole) = (self.pieces.clone(), self.whole.clone());
        async move {
            match pieces {
                Some(pieces) => pieces.closed().await,
                None => std::future::pending().await,
            }
            if whole.get() {
                std::future::pending().await
            }
        }
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
    fault("RuntimeError", CLOSED)
}

/// The client's end.
pub(crate) struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    whole: bool,
    /// Since the client has half closed: how long it is believed to read.
    patience: Option<Pin<Box<Sleep>>>,
}

impl BodyStream for Pieces {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Broken>>> {
        if self.whole {
            return Poll::Ready(None);
        }
        match self.pieces.poll_recv(cx) {
            Poll::Ready(Some(piece)) if piece.is_empty() => {
                self.whole = true;
                Poll::Ready(None)
            }
            Poll::Ready(Some(piece)) => {
                if self.patience.is_some() {
                    self.half_closed();
                }
                Poll::Ready(Some(Ok(Chunk::Bytes(piece))))
            }
            // The task ended without saying that the body is whole.
            Poll::Ready(None) => Poll::Ready(Some(Err(Broken))),
            Poll::Pending => match &mut self.patience {
                Some(patience) => patience.as_mut().poll(cx).map(|()| Some(Err(Broken))),
                None => Poll::Pending,
            },
        }
    }

    fn half_closed(&mut self) {
        self.patience = Some(Box::pin(sleep(PATIENCE)));
    }
}
