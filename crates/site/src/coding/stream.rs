//! Bodies that are coded while they are sent.

use super::Coding;
use handler::{BodyStream, Broken, Chunk, Response};
use std::task::{Context, Poll};

/// Shorter bodies are not worth coding, in bytes.
pub const MIN_LENGTH: u64 = 1024;

/// A body stream that codes another one.
pub struct Coded {
    inner: Box<dyn BodyStream>,
}

impl Coded {
    /// Codes `inner`.
    ///
    /// # Errors
    /// There is no memory for the coder; `inner` is given back.
    pub fn new(inner: Box<dyn BodyStream>, coding: Coding, level: u32) -> Result<Coded, Box<dyn BodyStream>> {
        let _ = (coding, level);
        Ok(Coded { inner })
    }
}

impl BodyStream for Coded {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Broken>>> {
        self.inner.poll_chunk(cx)
    }
}

/// Whether a response may be coded: final, whole, not coded yet, of a compressible type, of unknown length or at least
/// `min_length` bytes, and not protected by `Cache-Control: no-transform` or a digest.
/// A response for which this is true needs `Vary: Accept-Encoding` even if it is not coded.
pub fn may_code(response: &Response, min_length: u64) -> bool {
    let _ = (response, min_length);
    unimplemented!()
}

/// Codes the body and says so: Content-Encoding, `Vary: Accept-Encoding`, a weak ETag, no Content-Length, no Accept-Ranges.
/// With [`Coding::Identity`] only `Vary` is added. The caller has asked [`may_code`].
pub fn code_response(response: &mut Response, coding: Coding) {
    let _ = (response, coding);
    unimplemented!()
}
