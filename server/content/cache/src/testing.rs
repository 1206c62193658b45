//! Builds exchanges and reads responses, for tests. Requests are those of [`handler::testing`].

use bytes::Bytes;
use handler::{
    Body, BodyStream, Chunk, Client, Departure, Exchange, Failure, Fields, Incoming, Lent, Request, Response,
    Trace,
};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Returns the exchange of a request whose client stays.
pub(crate) fn exchange(request: Request) -> Exchange {
    Exchange {
        request: Lent::from(request),
        incoming: Incoming::Empty,
        client: Rc::new(Present),
        trace: Rc::new(Trace::default()),
    }
}

struct Present;

impl Client for Present {
    fn poll_departure(&self, _: &mut Context<'_>) -> Poll<Departure> {
        Poll::Pending
    }

    fn interim(&self, _: u16, _: &Fields) {}
}

/// A body of one piece.
pub(crate) struct One(pub(crate) Option<Bytes>);

impl BodyStream for One {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Chunk::Bytes(bytes))))
    }
}

/// Reads a body to its end.
pub(crate) async fn body(response: Response) -> String {
    let mut all = Vec::new();
    match response.body {
        Body::Bytes(bytes) => all.extend_from_slice(&bytes),
        Body::Stream(mut stream) => {
            while let Some(chunk) = poll_fn(|cx| stream.poll_chunk(cx)).await {
                match chunk {
                    Ok(Chunk::Bytes(bytes)) => all.extend_from_slice(&bytes),
                    other => panic!("{other:?}"),
                }
            }
        }
        _ => {}
    }
    String::from_utf8_lossy(&all).into_owned()
}
