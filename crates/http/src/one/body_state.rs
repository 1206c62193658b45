//! The state of the current request's body: framing, and what went wrong. Pure: bytes go in.

use super::link::forget;
use crate::message::Pace;
use bytes::{Bytes, BytesMut};
use h1::chunked::{Bounds, Decoder};
use h1::{Expect, Framing, RequestHead};
use handler::BodyError;
use settings::Limits;

/// Bytes from which data that was read ahead is taken out of its buffer instead of copied.
const SHARED: usize = 4 << 10;

/// How the end of the body is found.
#[derive(Debug)]
enum Rest {
    Length(u64),
    Chunked(Box<Decoder>),
}

/// The body of the current request. Without one nothing is held: that is most requests.
#[derive(Debug, Default)]
pub(crate) struct BodyState(Option<Box<Arriving>>);

/// A request body that arrives.
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
            // Requests do not end with the connection.
            Framing::Length(0) | Framing::Close => return BodyState(None),
            Framing::Length(length) => Rest::Length(length),
            Framing::Chunked => Rest::Chunked(Box::new(Decoder::new(Bounds {
                max_body: limits.max_body,
                max_trailer_bytes: limits.max_header_bytes,
                max_trailers: limits.max_headers,
            }))),
        };
        let continue_due = head.expect == Expect::Continue;
        BodyState(Some(Box::new(Arriving { rest, continue_due, error: None, pace: Pace::default() })))
    }

    /// Whether the client waits for 100 (Continue); it is told once.
    pub(crate) fn take_continue(&mut self) -> bool {
        self.0.as_mut().is_some_and(|body| std::mem::take(&mut body.continue_due))
    }

    /// Whether all of it has been read.
    pub(crate) fn is_done(&self) -> bool {
        self.0.as_ref().is_none_or(|body| body.is_done())
    }

    /// Bytes that are missing, if that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self.0.as_ref().map(|body| &body.rest) {
            None => Some(0),
            Some(Rest::Length(left)) => Some(*left),
            Some(Rest::Chunked(_)) => None,
        }
    }

    /// Whether the next request cannot be found: the body is broken, or the client may or may not send it.
    pub(crate) fn is_hopeless(&self) -> bool {
        self.0.as_ref().is_some_and(|body| body.error.is_some() || (body.continue_due && !body.is_done()))
    }

    /// Why no more of it can be read.
    pub(crate) fn error(&self) -> Option<&BodyError> {
        self.0.as_ref()?.error.as_ref()
    }

    /// No more of it can be read.
    pub(crate) fn fail(&mut self, error: BodyError) {
        if let Some(body) = &mut self.0 {
            body.error = Some(error);
        }
    }

    /// How fast it arrives, until all of it has.
    pub(crate) fn pace(&mut self) -> Option<&mut Pace> {
        self.0.as_mut().map(|body| &mut body.pace)
    }

    /// Consumes what belongs to the body at the front of what was read ahead, without a copy when that is much; frees the buffer when
    /// it is empty.
    pub(crate) fn take_ahead(&mut self, input: &mut BytesMut) -> Result<Bytes, BodyError> {
        self.0.as_mut().map_or(Ok(Bytes::new()), |body| body.take_ahead(input))
    }

    /// Consumes what belongs to the body at the front of `input`: the data, and how many bytes were consumed.
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
