//! Builds requests and reads responses, for tests.

use bytes::Bytes;
use handler::{
    Body, BodyStream, Chunk, Client, Departure, Exchange, Failure, Fields, Incoming, Lent, Peer, PeerAddr,
    Request, Response, Span, Trace, Version,
};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Instant, SystemTime};

/// Returns a request for `target` on `example.org`.
pub(crate) fn request(method: &str, target: &str, fields: &[(&str, &str)]) -> Request {
    let host = "example.org";
    let span = |start: usize, len: usize| Span { start: start as u32, len: len as u32 };
    let path = target.find('?').unwrap_or(target.len());
    let query = (path + 1).min(target.len());
    let mut all = Fields::from_parts([method, target, host].concat().into_bytes(), Vec::new());
    fields.iter().for_each(|(name, value)| all.push(name.as_bytes(), value.as_bytes()));
    Request {
        version: Version::Http11,
        switchable: true,
        method: span(0, method.len()),
        target: span(method.len(), target.len()),
        path: span(method.len(), path),
        query: span(method.len() + query, target.len() - query),
        authority: span(method.len() + target.len(), host.len()),
        fields: all,
        variables: Vec::new(),
        peer: Rc::new(Peer {
            remote: PeerAddr::Unix,
            remote_text: "192.0.2.1".into(),
            local: PeerAddr::Unix,
            tls: false,
            session: None,
        }),
        https: false,
        received: SystemTime::now(),
        arrived: Instant::now(),
    }
}

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
