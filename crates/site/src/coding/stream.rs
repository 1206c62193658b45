//! Bodies that are coded while they are sent, and what their responses say then.
//!
//! Contract of [`Coded`]:
//! 1. When the inner stream has nothing ready, everything that it gave before is readable for the client: events get through.
//! 2. It holds the coder (0.4 MiB for gzip, 1.4 for zstd, 3.6 for brotli, as measured; less for short bodies), one chunk of the
//!    inner stream, and some 100 KiB of output.
//! 3. One poll codes at most 128 KiB of input; then others on the thread have their turn.
//! 4. An error of the inner stream, of a file or of the coder ends the stream with [`Broken`].

use super::encoder::Encoder;
use super::{Coding, compress};
use crate::media_type::is_compressible;
use bytes::{Buf, Bytes};
use handler::{Body, BodyStream, Broken, Chunk, FileRegion, Response};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::task::{Context, Poll};

/// Shorter bodies are not worth coding, in bytes.
pub const MIN_LENGTH: u64 = 1024;

/// Bodies in memory up to this length are coded at once, in bytes.
const AT_ONCE: usize = 64 * 1024;

/// Input that is coded in one step, in bytes.
const STEP: usize = 32 * 1024;

/// Input that is coded in one poll, in bytes.
const BUDGET: usize = 128 * 1024;

/// Output that is worth sending before the input pauses, in bytes.
const ENOUGH: usize = 16 * 1024;

/// A body stream that codes another one.
pub struct Coded {
    inner: Box<dyn BodyStream>,
    /// None after the end.
    encoder: Option<Encoder>,
    input: Input,
    /// Something was written that may not be readable for the client yet.
    dirty: bool,
}

/// A chunk of the inner stream, as far as it has not been coded.
enum Input {
    Bytes(Bytes),
    File(FileRegion, Vec<u8>),
}

impl Coded {
    /// Codes `inner`.
    ///
    /// # Errors
    /// There is no memory for the coder; `inner` is given back.
    pub fn new(inner: Box<dyn BodyStream>, coding: Coding, level: u32) -> Result<Coded, Box<dyn BodyStream>> {
        match Encoder::new(coding, level, None) {
            Ok(encoder) => {
                Ok(Coded { inner, encoder: Some(encoder), input: Input::Bytes(Bytes::new()), dirty: false })
            }
            Err(_) => Err(inner),
        }
    }

    fn poll_coded(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Broken>>> {
        let mut budget = BUDGET;
        loop {
            let Some(encoder) = &mut self.encoder else { return Poll::Ready(None) };
            if encoder.ready() >= ENOUGH || budget == 0 && encoder.ready() > 0 {
                return Poll::Ready(Some(Ok(Chunk::Bytes(encoder.take().into()))));
            }
            if budget == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let coded = self.input.code(encoder)?;
            // An empty chunk is work, too.
            budget = budget.saturating_sub(coded.max(64));
            if coded > 0 {
                self.dirty = true;
                continue;
            }
            match self.inner.poll_chunk(cx) {
                Poll::Ready(Some(Ok(Chunk::Bytes(bytes)))) => self.input = Input::Bytes(bytes),
                Poll::Ready(Some(Ok(Chunk::File(region)))) => self.input = Input::File(region, Vec::new()),
                // Dropped is declined: the bytes are in the next chunks.
                Poll::Ready(Some(Ok(Chunk::Offer(_)))) => {}
                Poll::Ready(Some(Err(broken))) => return Poll::Ready(Some(Err(broken))),
                Poll::Ready(None) => return self.finish(),
                Poll::Pending if self.dirty => {
                    self.dirty = false;
                    encoder.flush().map_err(|_| Broken)?;
                    let out = encoder.take();
                    return if out.is_empty() {
                        Poll::Pending
                    } else {
                        Poll::Ready(Some(Ok(Chunk::Bytes(out.into()))))
                    };
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn finish(&mut self) -> Poll<Option<Result<Chunk, Broken>>> {
        let rest = match self.encoder.take() {
            Some(encoder) => encoder.finish().map_err(|_| Broken)?,
            None => Vec::new(),
        };
        Poll::Ready((!rest.is_empty()).then(|| Ok(Chunk::Bytes(rest.into()))))
    }
}

impl BodyStream for Coded {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Broken>>> {
        let polled = self.poll_coded(cx);
        if let Poll::Ready(Some(Err(_))) = polled {
            self.encoder = None;
        }
        polled
    }

    fn half_closed(&mut self) {
        self.inner.half_closed();
    }
}

impl Input {
    /// Codes a step of it; says how many bytes, 0 at its end.
    fn code(&mut self, encoder: &mut Encoder) -> Result<usize, Broken> {
        match self {
            Input::Bytes(bytes) => {
                let step = bytes.len().min(STEP);
                encoder.write(&bytes[..step]).map_err(|_| Broken)?;
                bytes.advance(step);
                Ok(step)
            }
            Input::File(region, buffer) => {
                buffer.resize(region.len.min(STEP as u64) as usize, 0);
                let step = read_some(region, buffer)?;
                encoder.write(&buffer[..step]).map_err(|_| Broken)?;
                region.offset += step as u64;
                region.len -= step as u64;
                Ok(step)
            }
        }
    }
}

/// Reads from the beginning of the region; a file that has shrunk is broken.
fn read_some(region: &FileRegion, buffer: &mut [u8]) -> Result<usize, Broken> {
    if buffer.is_empty() {
        return Ok(0);
    }
    loop {
        match region.file.read_at(buffer, region.offset) {
            Ok(0) => return Err(Broken),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Err(Broken),
        }
    }
}

/// A body that is one chunk.
struct Once(Option<Chunk>);

impl BodyStream for Once {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, Broken>>> {
        Poll::Ready(self.0.take().map(Ok))
    }
}

/// Whether a response may be coded: final, whole, not coded yet, of a compressible type, of unknown length or at least
/// `min_length` bytes, and not protected by `Cache-Control: no-transform` or a digest.
/// A response for which this is true needs `Vary: Accept-Encoding` even if it is not coded.
pub fn may_code(response: &Response, min_length: u64) -> bool {
    let fields = &response.fields;
    let whole = matches!(response.status, 200..=599) && !matches!(response.status, 204..=206 | 304);
    whole
        && length(response).is_none_or(|length| length >= min_length)
        && fields
            .get("content-type")
            .and_then(|value| str::from_utf8(value).ok())
            .is_some_and(is_compressible)
        && !fields.lists("cache-control", "no-transform")
        && UNCODED.iter().all(|name| fields.get(name).is_none())
}

/// Fields of responses that are left alone: coded already, a part of something, or a digest of the bytes as they are.
const UNCODED: [&str; 6] =
    ["content-encoding", "content-range", "content-digest", "repr-digest", "digest", "content-md5"];

/// Length of the body in bytes, for HEAD the length that GET would have; `None` when it is not known.
fn length(response: &Response) -> Option<u64> {
    let said = || str::from_utf8(response.fields.get("content-length")?).ok()?.trim().parse().ok();
    match &response.body {
        Body::Bytes(bytes) => Some(bytes.len() as u64),
        Body::Kept(kept) => Some(kept.body().len() as u64),
        Body::File(region) => Some(region.len),
        Body::Stream(_) => said(),
        Body::Empty => Some(said().unwrap_or(0)),
        Body::Tunnel { .. } => Some(0),
    }
}

/// Codes the body and says so: Content-Encoding, `Vary: Accept-Encoding`, a weak ETag, no Content-Length, no Accept-Ranges.
/// With [`Coding::Identity`], and when coding does not make a small body smaller, only `Vary` is added.
/// The caller has asked [`may_code`]. An empty body is taken for the answer to a HEAD.
pub fn code_response(response: &mut Response, coding: Coding) {
    let fields = &mut response.fields;
    if !fields.lists("vary", "accept-encoding") && !fields.lists("vary", "*") {
        fields.push(b"Vary", b"Accept-Encoding");
    }
    let Some(token) = coding.token() else { return };
    let body = std::mem::replace(&mut response.body, Body::Empty);
    let (body, coded) = code_body(body, coding);
    response.body = body;
    if coded {
        describe(response, token);
    }
}

/// The coded body; or the body as it was and `false`.
fn code_body(body: Body, coding: Coding) -> (Body, bool) {
    let body = match body {
        Body::Kept(kept) => Body::Bytes(kept.body().clone()),
        other => other,
    };
    let stream: Box<dyn BodyStream> = match body {
        Body::Empty => return (Body::Empty, true),
        Body::Bytes(bytes) if bytes.len() <= AT_ONCE => {
            return match compress(coding, &bytes, coding.level()) {
                Ok(coded) if coded.len() < bytes.len() => (Body::Bytes(coded.into()), true),
                Ok(_) | Err(_) => (Body::Bytes(bytes), false),
            };
        }
        Body::Bytes(bytes) => Box::new(Once(Some(Chunk::Bytes(bytes)))),
        Body::File(region) => Box::new(Once(Some(Chunk::File(region)))),
        Body::Stream(stream) => stream,
        other @ (Body::Kept(_) | Body::Tunnel { .. }) => return (other, false),
    };
    match Coded::new(stream, coding, coding.level()) {
        Ok(coded) => (Body::Stream(Box::new(coded)), true),
        Err(stream) => (Body::Stream(stream), false),
    }
}

/// The fields of a coded response.
fn describe(response: &mut Response, token: &str) {
    let fields = &mut response.fields;
    let strong = fields.get("etag").filter(|tag| !tag.starts_with(b"W/")).map(|tag| [b"W/", tag].concat());
    fields.retain(|name, _| {
        !(name.eq_ignore_ascii_case(b"content-length")
            || name.eq_ignore_ascii_case(b"accept-ranges")
            || strong.is_some() && name.eq_ignore_ascii_case(b"etag"))
    });
    if let Some(weak) = strong {
        fields.push(b"ETag", &weak);
    }
    fields.push(b"Content-Encoding", token.as_bytes());
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
