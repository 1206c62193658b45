//! Responses that are sent while they are produced: a body that responds to `each`.
//!
//! With each part the task waits until the previous one has been taken, so Ruby is never more than one part
//! ahead of the client.

use crate::failure::client_gone_during_response;
use crate::waiting::{OperationFuture, fault, ready, tape};
use bytes::Bytes;
use handler::{BodyStream, Chunk, Failure};
use mruby::{Exception, TapeValue};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Sleep, sleep};

/// How long a client that has closed its sending side may take to get the next part. Most such clients have
/// disconnected, which only a write would show.
pub(crate) const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(1);

/// The message of the exception that is raised in a body whose client has disconnected, as in H2O.
const CLOSED: &str = "downstream HTTP closed";

/// Returns whether a body ended only because the client disconnected, which is not an error.
pub(crate) fn is_disconnect(error: &Exception) -> bool {
    error.class == "RuntimeError" && error.message == CLOSED
}

pub(crate) struct StreamHead {
    pub(crate) status: i64,
    pub(crate) fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) body: StreamParts,
}

/// The writing end of a response, for its task.
pub(crate) struct Outlet {
    head: Option<oneshot::Sender<StreamHead>>,
    parts: Option<mpsc::Sender<Bytes>>,
    /// Whether the task has written the end of the body.
    complete: Rc<Cell<bool>>,
    /// The reason why the task ended earlier.
    failure: Rc<Cell<Option<Failure>>>,
}

impl Outlet {
    /// Returns an outlet, and the receiver of the head.
    pub(crate) fn new() -> (Outlet, oneshot::Receiver<StreamHead>) {
        let (head, receiver) = oneshot::channel();
        (Outlet { head: Some(head), parts: None, complete: Rc::default(), failure: Rc::default() }, receiver)
    }

    /// `[status, [name, value …]]`: sends the head.
    pub(crate) fn head(&mut self, args: &[TapeValue<'_>]) -> OperationFuture {
        let Some(sender) = self.head.take() else {
            return fault("RuntimeError", "the response has already started");
        };
        let status = args.first().and_then(TapeValue::int).unwrap_or_default();
        let fields = fields(args.get(1));
        let (parts, body) = mpsc::channel(1);
        self.parts = Some(parts);
        match sender.send(StreamHead {
            status,
            fields,
            body: StreamParts { parts: body, complete: false, failure: self.failure.clone(), timeout: None },
        }) {
            Ok(()) => ready(|tape| tape.nil().done()),
            Err(_) => fault("RuntimeError", CLOSED),
        }
    }

    /// `[bytes]`: sends a part; without an argument, ends the body.
    pub(crate) fn chunk(&mut self, args: &[TapeValue<'_>]) -> OperationFuture {
        let Some(parts) = self.parts.clone() else {
            return fault("RuntimeError", "the response has not started");
        };
        // An empty part means the end, so empty Strings of Ruby are skipped.
        let part = match args.first() {
            Some(text) => Bytes::copy_from_slice(text.text().unwrap_or_default()),
            None => Bytes::new(),
        };
        if part.is_empty() && !args.is_empty() {
            return ready(|tape| tape.nil().done());
        }
        self.complete.set(part.is_empty());
        Box::pin(async move {
            let sent = parts.send(part).await;
            tape(|tape| match sent {
                Ok(()) => tape.nil().done(),
                Err(_) => tape.fault("RuntimeError", CLOSED).done(),
            })
        })
    }
}

impl Outlet {
    /// Returns the cell for the failure of a task that ends before the body is complete.
    pub(crate) fn failure(&self) -> Rc<Cell<Option<Failure>>> {
        self.failure.clone()
    }

    /// Completes when the client's end is dropped before the body is complete.
    pub(crate) fn client_lost(&self) -> impl Future<Output = ()> + use<> {
        let (parts, complete) = (self.parts.clone(), self.complete.clone());
        async move {
            match parts {
                Some(parts) => parts.closed().await,
                None => std::future::pending().await,
            }
            if complete.get() {
                std::future::pending().await
            }
        }
    }
}

/// Returns pairs from a list of alternating names and values.
pub(crate) fn fields(list: Option<&TapeValue<'_>>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let texts = list.and_then(TapeValue::array).unwrap_or_default();
    let text = |value: &TapeValue<'_>| value.text().unwrap_or_default().to_vec();
    texts.chunks_exact(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

/// The reading end of the body, for the connection.
pub(crate) struct StreamParts {
    parts: mpsc::Receiver<Bytes>,
    complete: bool,
    /// The reason why the task ended before the body was complete.
    failure: Rc<Cell<Option<Failure>>>,
    /// Runs while the client is half-closed.
    timeout: Option<Pin<Box<Sleep>>>,
}

impl BodyStream for StreamParts {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        if self.complete {
            return Poll::Ready(None);
        }
        match self.parts.poll_recv(cx) {
            Poll::Ready(Some(part)) if part.is_empty() => {
                self.complete = true;
                Poll::Ready(None)
            }
            Poll::Ready(Some(part)) => {
                if self.timeout.is_some() {
                    self.half_closed();
                }
                Poll::Ready(Some(Ok(Chunk::Bytes(part))))
            }
            // The task ended without writing the end of the body.
            Poll::Ready(None) => {
                let failure = self.failure.take();
                Poll::Ready(Some(Err(failure.unwrap_or_else(client_gone_during_response))))
            }
            Poll::Pending => match &mut self.timeout {
                Some(timeout) => timeout.as_mut().poll(cx).map(|()| Some(Err(client_gone_during_response()))),
                None => Poll::Pending,
            },
        }
    }

    fn half_closed(&mut self) {
        self.timeout = Some(Box::pin(sleep(HALF_CLOSED_TIMEOUT)));
    }
}
