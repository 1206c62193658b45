//! Tracks the body of the current request: its framing and its first error. Works on bytes only, without I/O.

use crate::message::Pace;
use bytes::{Buf, Bytes, BytesMut};
use h1::chunked::{ChunkBounds, Decoder};
use h1::{Expect, Framing, RequestHead};
use handler::BodyError;
use settings::Limits;

/// From this size on, buffered data is split off its buffer instead of copied.
const SHARED: usize = 4 << 10;

/// Removes the first `n` bytes; frees the buffer when it is empty.
pub(super) fn forget(input: &mut BytesMut, n: usize) {
    input.advance(n);
    if input.is_empty() {
        *input = BytesMut::new();
    }
}

/// The framing of the rest of the body.
#[derive(Debug)]
enum Rest {
    Length(u64),
    Chunked(Box<Decoder>),
}

/// The body of the current request. A request without a body, as most are, allocates nothing.
#[derive(Debug, Default)]
pub(crate) struct BodyState(Option<Box<Arriving>>);

#[derive(Debug)]
struct Arriving {
    rest: Rest,
    /// The client waits for 100 (Continue).
    continue_due: bool,
    error: Option<BodyError>,
    pace: Pace,
}

impl BodyState {
    pub(crate) fn new(head: &RequestHead, limits: &Limits) -> BodyState {
        let rest = match head.framing {
            // A request never ends with the connection.
            Framing::Length(0) | Framing::Close => return BodyState(None),
            Framing::Length(length) => Rest::Length(length),
            Framing::Chunked => Rest::Chunked(Box::new(Decoder::new(ChunkBounds {
                max_body: limits.max_body,
                max_trailer_bytes: limits.max_header_bytes,
                max_trailers: limits.max_headers,
            }))),
        };
        let continue_due = head.expect == Expect::Continue;
        BodyState(Some(Box::new(Arriving { rest, continue_due, error: None, pace: Pace::default() })))
    }

    /// Returns whether the client waits for 100 (Continue). Returns `true` only once.
    pub(crate) fn take_continue(&mut self) -> bool {
        self.0.as_mut().is_some_and(|body| std::mem::take(&mut body.continue_due))
    }

    /// Returns whether the whole body has been read.
    pub(crate) fn is_done(&self) -> bool {
        self.0.as_ref().is_none_or(|body| body.is_done())
    }

    /// Returns the number of missing bytes, if known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self.0.as_ref().map(|body| &body.rest) {
            None => Some(0),
            Some(Rest::Length(left)) => Some(*left),
            Some(Rest::Chunked(_)) => None,
        }
    }

    /// Returns whether the next request cannot be found: the body is broken, or the client waits for 100
    /// (Continue) and may or may not send it.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.0.as_ref().is_some_and(|body| body.error.is_some() || (body.continue_due && !body.is_done()))
    }

    /// Returns why no more of the body can be read.
    pub(crate) fn error(&self) -> Option<&BodyError> {
        self.0.as_ref()?.error.as_ref()
    }

    /// Records why no more of the body can be read.
    pub(crate) fn fail(&mut self, error: BodyError) {
        if let Some(body) = &mut self.0 {
            body.error = Some(error);
        }
    }

    /// The rate of the upload; `None` without a body.
    pub(crate) fn pace(&mut self) -> Option<&mut Pace> {
        self.0.as_mut().map(|body| &mut body.pace)
    }

    /// Takes the body's bytes from the front of the buffer, without a copy if they are many. Frees the buffer
    /// when it is empty.
    pub(crate) fn take_ahead(&mut self, input: &mut BytesMut) -> Result<Bytes, BodyError> {
        self.0.as_mut().map_or(Ok(Bytes::new()), |body| body.take_ahead(input))
    }

    /// Takes the body's bytes from the front of `input`. Returns the data and the number of consumed bytes.
    pub(crate) fn take(&mut self, input: &[u8]) -> Result<(Bytes, usize), BodyError> {
        match &mut self.0 {
            Some(body) => body.take(input),
            None => Ok((Bytes::new(), 0)),
        }
    }
}

impl Arriving {
    fn is_done(&self) -> bool {
        match &self.rest {
            Rest::Length(left) => *left == 0,
            Rest::Chunked(decoder) => decoder.is_done(),
        }
    }

    fn take_ahead(&mut self, input: &mut BytesMut) -> Result<Bytes, BodyError> {
        if let Rest::Length(left) = &mut self.rest
            && let Ok(n) = usize::try_from((*left).min(input.len() as u64))
            && n >= SHARED
        {
            (self.continue_due, *left) = (false, *left - n as u64);
            let ahead = if n == input.len() { std::mem::take(input) } else { input.split_to(n) };
            return Ok(ahead.freeze());
        }
        let (data, used) = self.take(input)?;
        forget(input, used);
        Ok(data)
    }

    fn take(&mut self, input: &[u8]) -> Result<(Bytes, usize), BodyError> {
        if !input.is_empty() {
            self.continue_due = false;
        }
        match &mut self.rest {
            Rest::Length(left) => {
                let n = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= n as u64;
                Ok((Bytes::copy_from_slice(&input[..n]), n))
            }
            Rest::Chunked(decoder) => {
                let mut data = Vec::with_capacity(input.len());
                let used =
                    decoder.decode(input, &mut data).inspect_err(|error| self.error = Some(error.clone()))?;
                Ok((data.into(), used))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_ahead_is_taken_up_to_the_end_of_the_body() {
        for len in [10, SHARED, 5 * SHARED] {
            for behind in [0, 3] {
                let (rest, pace) = (Rest::Length(len as u64), Pace::default());
                let mut body =
                    BodyState(Some(Box::new(Arriving { rest, continue_due: false, error: None, pace })));
                let mut input = BytesMut::from(&vec![b'x'; len / 2][..]);
                assert_eq!(body.take_ahead(&mut input).unwrap().len(), len / 2);
                assert!(input.is_empty() && !body.is_done());
                input.extend_from_slice(&vec![b'x'; len - len / 2]);
                input.extend_from_slice(&b"GET"[..behind]);
                assert_eq!(body.take_ahead(&mut input).unwrap(), vec![b'x'; len - len / 2]);
                assert!(body.is_done() && input == b"GET"[..behind]);
            }
        }
    }
}
