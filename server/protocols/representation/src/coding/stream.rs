//! Encodes bodies while they are sent, and sets the header fields of such responses.
//!
//! Contract of [`EncodedStream`]:
//! 1. When the inner stream has nothing ready, the client can decode everything sent so far, so events arrive at once.
//! 2. Memory: the encoder (measured: 0.4 MiB for gzip, 1.4 for zstd, 3.6 for brotli; less for short bodies),
//!    one chunk of the inner stream, and about 100 KiB of output.
//! 3. One poll encodes at most 128 KiB of input; then other tasks of the thread get their turn.
//! 4. The number of encoders is bounded ([`EncoderPermit`]). When no permit is left, the body is sent uncompressed.
//! 5. An error of the inner stream, of a file or of the encoder ends the stream with a [`Failure`].

use super::budget::Budget;
use super::encoder::Encoder;
use super::padding::Padding;
use super::permits::EncoderPermit;
use super::whole::compress_padded;
use super::{Coding, Levels};
use crate::media_type::is_compressible;
use bytes::{Buf, Bytes};
use handler::{Body, BodyStream, Chunk, Failure, Fields, FileRegion, Peer, Response};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

/// Shorter bodies are not encoded, in bytes.
pub const MIN_LENGTH: u64 = 1024;

/// Bodies in memory up to this length are encoded at once instead of as a stream, in bytes.
const INLINE_MAX: usize = 64 * 1024;

/// Input encoded in one step, in bytes.
const STEP: usize = 32 * 1024;

/// Input encoded in one poll, in bytes.
const BUDGET: usize = 128 * 1024;

/// Output that is sent without waiting for more input, in bytes.
const SEND_AT: usize = 16 * 1024;

/// How a response is encoded while it is sent.
#[derive(Debug, Clone)]
pub struct Encoding<'a> {
    /// In order of preference; see [`live`](super::live).
    pub codings: &'a [Coding],
    pub levels: Levels,
    pub padding: Padding,
    /// The account that the processor time is taken from.
    pub budget: Option<&'a Rc<Budget>>,
}

impl<'a> Encoding<'a> {
    /// Encodes with the levels for live responses, without padding or budget.
    pub fn plain(codings: &'a [Coding]) -> Encoding<'a> {
        Encoding { codings, levels: Levels::LIVE, padding: Padding::NONE, budget: None }
    }
}

/// Less input than this is not worth reading the clock for, in bytes.
const MEASURED_FROM: usize = 1024;

/// Runs `encode` and takes its processor time from the budget.
fn spending<T>(budget: Option<&Budget>, len: usize, encode: impl FnOnce() -> T) -> T {
    let Some(budget) = budget.filter(|_| len >= MEASURED_FROM) else { return encode() };
    let started = thread_time();
    let result = encode();
    budget.spend(thread_time().saturating_sub(started));
    result
}

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A body stream that encodes another one.
pub struct EncodedStream {
    inner: Box<dyn BodyStream>,
    budget: Option<Rc<Budget>>,
    /// `None` after the end.
    encoder: Option<(Encoder, EncoderPermit)>,
    input: Input,
    /// Bytes were written that the client may not be able to decode yet.
    dirty: bool,
}

/// The part of the inner stream's current chunk that is not encoded yet.
enum Input {
    Bytes(Bytes),
    File(FileRegion, Vec<u8>),
}

impl EncodedStream {
    /// # Errors
    /// Returns `inner` if there is no memory for the encoder.
    pub fn new(
        inner: Box<dyn BodyStream>,
        coding: Coding,
        encoding: &Encoding<'_>,
        permit: EncoderPermit,
    ) -> Result<EncodedStream, Box<dyn BodyStream>> {
        match Encoder::new(coding, encoding.levels.of(coding), None, encoding.padding) {
            Ok(encoder) => Ok(EncodedStream {
                inner,
                budget: encoding.budget.cloned(),
                encoder: Some((encoder, permit)),
                input: Input::Bytes(Bytes::new()),
                dirty: false,
            }),
            Err(_) => Err(inner),
        }
    }

    fn poll_encoded(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        let mut budget = BUDGET;
        loop {
            let Some((encoder, _)) = &mut self.encoder else { return Poll::Ready(None) };
            if encoder.ready() >= SEND_AT || budget == 0 && encoder.ready() > 0 {
                return Poll::Ready(Some(Ok(Chunk::Bytes(encoder.take().into()))));
            }
            if budget == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            let encoded = self.input.encode(encoder, self.budget.as_deref())?;
            // An empty chunk costs time, too.
            budget = budget.saturating_sub(encoded.max(64));
            if encoded > 0 {
                self.dirty = true;
                continue;
            }
            match self.inner.poll_chunk(cx) {
                Poll::Ready(Some(Ok(Chunk::Bytes(bytes)))) => self.input = Input::Bytes(bytes),
                Poll::Ready(Some(Ok(Chunk::File(region)))) => self.input = Input::File(region, Vec::new()),
                // Dropping an offer declines it: the bytes follow in the next chunks.
                Poll::Ready(Some(Ok(Chunk::Offer(_)))) => {}
                Poll::Ready(Some(Err(failure))) => return Poll::Ready(Some(Err(failure))),
                Poll::Ready(None) => return self.finish(),
                Poll::Pending if self.dirty => {
                    self.dirty = false;
                    encoder.flush().map_err(unencoded)?;
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

    fn finish(&mut self) -> Poll<Option<Result<Chunk, Failure>>> {
        let rest = match self.encoder.take() {
            Some((encoder, _)) => encoder.finish().map_err(unencoded)?,
            None => Vec::new(),
        };
        Poll::Ready((!rest.is_empty()).then(|| Ok(Chunk::Bytes(rest.into()))))
    }
}

impl BodyStream for EncodedStream {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        let polled = self.poll_encoded(cx);
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
    /// Encodes one step. Returns the number of input bytes, 0 at the end.
    fn encode(&mut self, encoder: &mut Encoder, budget: Option<&Budget>) -> Result<usize, Failure> {
        match self {
            Input::Bytes(bytes) => {
                let step = bytes.len().min(STEP);
                spending(budget, step, || encoder.write(&bytes[..step])).map_err(unencoded)?;
                bytes.advance(step);
                Ok(step)
            }
            Input::File(region, buffer) => {
                buffer.resize(region.len.min(STEP as u64) as usize, 0);
                let step = read_some(region, buffer)?;
                spending(budget, step, || encoder.write(&buffer[..step])).map_err(unencoded)?;
                region.offset += step as u64;
                region.len -= step as u64;
                Ok(step)
            }
        }
    }
}

fn unencoded(error: std::io::Error) -> Failure {
    Failure::server(500, format!("a body cannot be compressed: {error}"))
}

/// Reads from the beginning of the region. Fails if the file has shrunk.
fn read_some(region: &FileRegion, buffer: &mut [u8]) -> Result<usize, Failure> {
    if buffer.is_empty() {
        return Ok(0);
    }
    loop {
        match region.file.shared().read_at(buffer, region.offset) {
            Ok(0) => return Err(Failure::server(500, "a file became shorter while it was sent")),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::server(500, format!("a file cannot be read: {error}"))),
        }
    }
}

/// A body of one chunk.
struct Once(Option<Chunk>);

impl BodyStream for Once {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        Poll::Ready(self.0.take().map(Ok))
    }
}

/// Returns whether a response may be encoded: final, complete, not encoded yet, of a compressible type, of
/// unknown length or at least `min_length` bytes, and without `Cache-Control: no-transform` or a digest. Such
/// a response needs `Vary: Accept-Encoding` even if it is sent as identity. `head`: the response to a HEAD,
/// whose empty body says nothing about its length.
pub fn may_encode(response: &Response, min_length: u64, head: bool) -> bool {
    let whole = matches!(response.status, 200..=599) && !matches!(response.status, 204..=206 | 304);
    whole
        && length(response, head).is_none_or(|length| length >= min_length)
        && are_of_encodable(&response.fields)
}

/// Returns whether the fields allow an encoding. One pass, because each page of an app comes here.
fn are_of_encodable(fields: &Fields) -> bool {
    let mut media_type = None;
    for (name, value) in fields.iter() {
        // Most names differ in length from those that count.
        match name.len() {
            12 if is(name, b"content-type") => media_type = media_type.or(Some(value)),
            13 if is(name, b"cache-control") => {
                let mut members = value.split(|&byte| byte == b',');
                if members.any(|member| member.trim_ascii().eq_ignore_ascii_case(b"no-transform")) {
                    return false;
                }
            }
            6 | 11 | 13 | 14 | 16
                if EXCLUDING_FIELDS.iter().any(|known| name.eq_ignore_ascii_case(known)) =>
            {
                return false;
            }
            _ => {}
        }
    }
    media_type.is_some_and(is_compressible_value)
}

/// Compares a name in lower case first, as Rack writes it: that is one comparison of words.
#[inline]
fn is<const LEN: usize>(name: &[u8], known: &[u8; LEN]) -> bool {
    name == known || name.eq_ignore_ascii_case(known)
}

/// As [`is_compressible`], with less work for the most frequent types.
fn is_compressible_value(value: &[u8]) -> bool {
    const SHORT: usize = 64;
    let is_text = value.first_chunk().is_some_and(|start: &[u8; 5]| is(start, b"text/"));
    is_text && value.len() <= SHORT || str::from_utf8(value).is_ok_and(is_compressible)
}

/// A response with one of these fields is not encoded: it already is, or is partial, or has a digest of its bytes.
const EXCLUDING_FIELDS: [&[u8]; 6] =
    [b"content-encoding", b"content-range", b"content-digest", b"repr-digest", b"digest", b"content-md5"];

/// Returns the length of the body in bytes; for HEAD the length that GET would have; `None` if unknown.
fn length(response: &Response, head: bool) -> Option<u64> {
    let declared = || str::from_utf8(response.fields.get("content-length")?).ok()?.trim().parse().ok();
    match &response.body {
        Body::Bytes(bytes) => Some(bytes.len() as u64),
        Body::Kept(kept) => Some(kept.body().len() as u64),
        Body::File(region) => Some(region.len),
        Body::Stream(_) => declared(),
        Body::Empty => declared().or_else(|| (!head).then_some(0)),
        Body::Tunnel { .. } => Some(0),
    }
}

/// Encodes the body and sets the fields: Content-Encoding, `Vary: Accept-Encoding`, a weak ETag, no
/// Content-Length, no Accept-Ranges. With [`Coding::Identity`], or if a small body would not shrink, only
/// adds `Vary`. The caller must have checked [`may_encode`]. An empty body is taken for the response to a
/// HEAD.
///
/// A stream takes the first of the codings that has an [`EncoderPermit`] left on the connection.
pub fn encode_response(response: &mut Response, encoding: &Encoding<'_>, connection: &Rc<Peer>) {
    let body = std::mem::replace(&mut response.body, Body::Empty);
    let (body, coding) = encode_body(body, encoding, connection);
    response.body = body;
    if let Some(token) = coding.token() {
        describe(&mut response.fields, token);
    }
    vary_at_last(&mut response.fields);
}

/// Adds `Vary: Accept-Encoding`, if it is not covered yet.
pub fn vary(fields: &mut Fields) {
    let covered = || fields.lists("vary", "accept-encoding") || fields.lists("vary", "*");
    // Most responses have no such field.
    if fields.get("vary").is_none() || !covered() {
        fields.push(b"Vary", b"Accept-Encoding");
    }
}

/// Like [`vary`], for a response that is about to be sent. Nearly every page of an app gets the field, so the protocols do not copy, check and
/// encode it each time: it is a frozen one, before the others.
pub fn vary_at_last(fields: &mut Fields) {
    static VARY: LazyLock<Fields> = LazyLock::new(|| {
        let mut fields = Fields::default();
        vary(&mut fields);
        fields.freeze()
    });
    // Behind a Vary of the app.
    if fields.get("vary").is_some() || !fields.follow(&VARY) {
        vary(fields);
    }
}

fn encode_body(body: Body, encoding: &Encoding<'_>, connection: &Rc<Peer>) -> (Body, Coding) {
    let codings = encoding.codings;
    let best = codings.first().copied().unwrap_or(Coding::Identity);
    if best == Coding::Identity {
        return (body, best);
    }
    let body = match body {
        Body::Kept(kept) => Body::Bytes(kept.body().clone()),
        other => other,
    };
    let stream: Box<dyn BodyStream> = match body {
        Body::Empty => return (Body::Empty, best),
        Body::Bytes(bytes) if bytes.len() <= INLINE_MAX => {
            let level = encoding.levels.of(best);
            let budget = encoding.budget.map(|budget| &**budget);
            let compress = || compress_padded(best, &bytes, level, encoding.padding);
            return match spending(budget, bytes.len(), compress) {
                Ok(encoded) if encoded.len() < bytes.len() => (Body::Bytes(encoded.into()), best),
                Ok(_) | Err(_) => (Body::Bytes(bytes), Coding::Identity),
            };
        }
        Body::Bytes(bytes) => Box::new(Once(Some(Chunk::Bytes(bytes)))),
        Body::File(region) => Box::new(Once(Some(Chunk::File(region)))),
        Body::Stream(stream) => stream,
        other @ (Body::Kept(_) | Body::Tunnel { .. }) => return (other, Coding::Identity),
    };
    let permit = codings.iter().find_map(|&coding| Some((coding, EncoderPermit::take(coding, connection)?)));
    let Some((coding, permit)) = permit else { return (Body::Stream(stream), Coding::Identity) };
    match EncodedStream::new(stream, coding, encoding, permit) {
        Ok(encoded) => (Body::Stream(Box::new(encoded)), coding),
        Err(stream) => (Body::Stream(stream), Coding::Identity),
    }
}

/// Sets the header fields of an encoded response, apart from `Vary`.
pub fn describe(fields: &mut Fields, token: &str) {
    weaken(fields);
    fields.retain(|name, _| {
        !(name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"accept-ranges"))
    });
    fields.push(b"Content-Encoding", token.as_bytes());
}

/// Makes a strong ETag weak: the encoded bytes are not those that it was made for.
pub fn weaken(fields: &mut Fields) {
    let strong = fields.get("etag").filter(|tag| !tag.starts_with(b"W/")).map(|tag| [b"W/", tag].concat());
    if let Some(weak) = strong {
        fields.retain(|name, _| !name.eq_ignore_ascii_case(b"etag"));
        fields.push(b"ETag", &weak);
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
