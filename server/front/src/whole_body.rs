//! Reads a response's body whole, for responses that the server itself has asked for.

use bytes::{Bytes, BytesMut};
use handler::{Body, Chunk};
use std::future::poll_fn;

/// Returns the body; `None` if it breaks off, is longer than `longest` bytes, or is not in memory.
pub(crate) async fn read(body: Body, longest: usize) -> Option<Bytes> {
    let whole = match body {
        Body::Empty => Bytes::new(),
        Body::Bytes(bytes) => bytes,
        Body::Stream(mut stream) => {
            let mut all = BytesMut::new();
            while let Some(chunk) = poll_fn(|cx| stream.poll_chunk(cx)).await {
                match chunk.ok()? {
                    Chunk::Bytes(bytes) => all.extend_from_slice(&bytes),
                    // Declined by dropping it; the bytes follow.
                    Chunk::Offer(_) => {}
                    Chunk::File(_) => return None,
                }
                if all.len() > longest {
                    return None;
                }
            }
            all.freeze()
        }
        Body::Kept(_) | Body::File(_) | Body::Tunnel { .. } => return None,
    };
    (whole.len() <= longest).then_some(whole)
}
