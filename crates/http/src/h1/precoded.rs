//! Bodies that an app has coded in chunks itself (Rack 2's `Rack::Chunked` does): they are decoded, and framed anew.
//!
//! Why: whether the client gets chunks is decided here and nowhere else, and an HTTP/1.0 client must not get any. Coding
//! twice would hand the client the app's chunk sizes as content.

use super::chunked::{Bounds, Decoder};
use bytes::Bytes;
use handler::{Body, BodyStream, Broken, Chunk, Response};
use std::task::{Context, Poll, ready};

/// Trailers of an app are dropped; it may have as many as it likes, within reason.
const BOUNDS: Bounds = Bounds { max_body: None, max_trailer_bytes: 64 << 10, max_trailers: 1000 };

/// Undoes the coding that the fields claim; `None` when the body does not keep to it.
pub(crate) fn decoded(mut response: Response) -> Option<Response> {
    if !response.fields.fresh_lists("transfer-encoding", "chunked") {
        return Some(response);
    }
    response.body = match response.body {
        Body::Bytes(coded) if !coded.is_empty() => Body::Bytes(decode_all(&coded)?),
        Body::Kept(coded) => Body::Bytes(decode_all(coded.body())?),
        Body::Stream(coded) => Body::Stream(Box::new(Precoded { coded, decoder: Decoder::new(BOUNDS) })),
        // A tunnel's app frames what it writes; and nothing is nothing in any coding.
        Body::Tunnel { .. } => return Some(response),
        other => other,
    };
    // A length beside the coding would be the length of neither.
    response.fields.retain(|name, _| {
        !name.eq_ignore_ascii_case(b"transfer-encoding") && !name.eq_ignore_ascii_case(b"content-length")
    });
    Some(response)
}

fn decode_all(coded: &[u8]) -> Option<Bytes> {
    let mut decoder = Decoder::new(BOUNDS);
    let mut data = Vec::with_capacity(coded.len());
    decoder.decode(coded, &mut data).ok()?;
    decoder.is_done().then(|| data.into())
}

/// A stream of chunk-coded bytes.
struct Precoded {
    coded: Box<dyn BodyStream>,
    decoder: Decoder,
}

impl BodyStream for Precoded {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Broken>>> {
        loop {
            let coded = match ready!(self.coded.poll_chunk(cx)) {
                Some(Ok(Chunk::Bytes(coded))) => coded,
                None if self.decoder.is_done() => return Poll::Ready(None),
                _ => return Poll::Ready(Some(Err(Broken))),
            };
            let mut data = Vec::with_capacity(coded.len());
            if self.decoder.decode(&coded, &mut data).is_err() {
                return Poll::Ready(Some(Err(Broken)));
            }
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Chunk::Bytes(data.into()))));
            }
        }
    }
}
