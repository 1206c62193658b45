//! Decodes bodies that an app has already put into the chunked coding (Rack 2's `Rack::Chunked`), so that
//! they are framed anew.
//!
//! Why: one place decides whether the client gets chunks, and an HTTP/1.0 client must not get any. Coding
//! twice would give the client the app's chunk sizes as content.

use crate::chunked::{ChunkBounds, Decoder};
use bytes::Bytes;
use handler::{Body, BodyStream, Chunk, Failure, Response};
use std::task::{Context, Poll, ready};

/// The limits for an app's trailers, which are dropped.
const BOUNDS: ChunkBounds = ChunkBounds { max_body: None, max_trailer_bytes: 64 << 10, max_trailers: 1000 };

/// Decodes the body if the fields declare the chunked coding.
///
/// # Errors
/// The body is not in that coding.
pub fn decoded(mut response: Response) -> Result<Response, Failure> {
    if !response.fields.fresh_lists("transfer-encoding", "chunked") {
        return Ok(response);
    }
    response.body = match response.body {
        Body::Bytes(coded) if !coded.is_empty() => Body::Bytes(decode_all(&coded)?),
        Body::Kept(coded) => Body::Bytes(decode_all(coded.body())?),
        Body::Stream(coded) => Body::Stream(Box::new(Precoded { coded, decoder: Decoder::new(BOUNDS) })),
        // In a tunnel, the app frames its output.
        Body::Tunnel { .. } => return Ok(response),
        other => other,
    };
    // A length in addition to the coding is the length of neither form.
    response.fields.retain(|name, _| {
        !name.eq_ignore_ascii_case(b"transfer-encoding") && !name.eq_ignore_ascii_case(b"content-length")
    });
    Ok(response)
}

fn decode_all(coded: &[u8]) -> Result<Bytes, Failure> {
    let mut decoder = Decoder::new(BOUNDS);
    let mut data = Vec::with_capacity(coded.len());
    match decoder.decode(coded, &mut data) {
        Ok(_) if decoder.is_done() => Ok(data.into()),
        _ => Err(not_chunked()),
    }
}

fn not_chunked() -> Failure {
    Failure::app(500, "the response's Transfer-Encoding is chunked, but its body is not in that coding")
}

/// A stream of bytes in the chunked coding.
struct Precoded {
    coded: Box<dyn BodyStream>,
    decoder: Decoder,
}

impl BodyStream for Precoded {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        loop {
            let coded = match ready!(self.coded.poll_chunk(cx)) {
                Some(Ok(Chunk::Bytes(coded))) => coded,
                None if self.decoder.is_done() => return Poll::Ready(None),
                Some(Err(failure)) => return Poll::Ready(Some(Err(failure))),
                _ => return Poll::Ready(Some(Err(not_chunked()))),
            };
            let mut data = Vec::with_capacity(coded.len());
            if self.decoder.decode(&coded, &mut data).is_err() {
                return Poll::Ready(Some(Err(not_chunked())));
            }
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(Chunk::Bytes(data.into()))));
            }
        }
    }
}
