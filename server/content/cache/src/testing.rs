//! Builds exchanges and reads responses, for tests. [`handler::testing`] builds the requests.

pub(crate) use crate::service::own as exchange;

use bytes::Bytes;
use handler::{Body, BodyStream, Chunk, Failure, Response};
use std::future::poll_fn;
use std::task::{Context, Poll};

/// A body of one chunk.
pub(crate) struct One(pub(crate) Option<Chunk>);

impl One {
    pub(crate) fn of(bytes: Bytes) -> One {
        One(Some(Chunk::Bytes(bytes)))
    }
}

impl BodyStream for One {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        Poll::Ready(self.0.take().map(Ok))
    }
}

/// Lets all tasks run until they wait.
pub(crate) async fn settle() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
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
