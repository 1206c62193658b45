//! The RESPONSE and INTERIM payloads: status, fields and, for a response, the first bytes of the body.

use crate::times::{self, Times};
use crate::{Malformed, cursor::Cursor, frame, frame::FrameKind};

/// Writes one RESPONSE or INTERIM frame at the end of a buffer, field by field.
pub struct Encoder<'b> {
    out: &'b mut Vec<u8>,
    start: usize,
    fields: u16,
    interim: bool,
}

impl<'b> Encoder<'b> {
    /// Starts a RESPONSE. [`Encoder::finish`] sets its flags and times.
    pub fn response(out: &'b mut Vec<u8>, id: u32, status: u16) -> Encoder<'b> {
        let start = frame::begin(out, FrameKind::Response, 0, id);
        out.extend_from_slice(&status.to_le_bytes());
        out.extend_from_slice(&[0; 2 + times::LEN]);
        Encoder { out, start, fields: 0, interim: false }
    }

    pub fn interim(out: &'b mut Vec<u8>, id: u32, status: u16) -> Encoder<'b> {
        let start = frame::begin(out, FrameKind::Interim, 0, id);
        out.extend_from_slice(&status.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        Encoder { out, start, fields: 0, interim: true }
    }

    #[inline]
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        self.fields += 1;
        self.out.extend_from_slice(&(name.len() as u16).to_le_bytes());
        self.out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        self.out.extend_from_slice(name);
        self.out.extend_from_slice(value);
    }

    /// Returns the bytes of the frame so far.
    pub fn len(&self) -> usize {
        self.out.len() - self.start
    }

    /// Returns whether no field has been added.
    pub fn is_empty(&self) -> bool {
        self.fields == 0
    }

    /// Suspends the encoder, so that its buffer can be borrowed until [`Suspended::resume`].
    #[inline]
    pub fn suspend(self) -> Suspended {
        Suspended { start: self.start, fields: self.fields, interim: self.interim }
    }

    /// Removes the unfinished frame from the buffer.
    pub fn cancel(self) {
        self.out.truncate(self.start);
    }

    /// Ends the frame: sets the flags and, for a RESPONSE, the times and the first body bytes.
    pub fn finish(self, flags: u8, times: Times, body: &[u8]) {
        let payload = self.start + frame::HEADER;
        self.out[self.start + 5] = flags;
        self.out[payload + 2..payload + 4].copy_from_slice(&self.fields.to_le_bytes());
        if !self.interim {
            self.out[payload + 4..payload + 4 + times::LEN].copy_from_slice(&times.to_bytes());
            self.out.extend_from_slice(body);
        }
        frame::finish(self.out, self.start, 0);
    }
}

/// Makes a finished RESPONSE without flags the whole response: sets the flag `END`, and the times of the
/// complete response.
pub fn complete(frame: &mut [u8], times: Times) {
    let payload = frame::HEADER;
    frame[5] = frame::flag::END;
    frame[payload + 4..payload + 4 + times::LEN].copy_from_slice(&times.to_bytes());
}

/// An [`Encoder`] that has been suspended.
#[derive(Debug, Clone, Copy)]
pub struct Suspended {
    start: usize,
    fields: u16,
    interim: bool,
}

impl Suspended {
    /// Continues the frame. `out` must be the buffer in which it was begun, with nothing appended since.
    #[inline]
    pub fn resume(self, out: &mut Vec<u8>) -> Encoder<'_> {
        Encoder { out, start: self.start, fields: self.fields, interim: self.interim }
    }
}

/// A decoded RESPONSE or INTERIM payload. Names and values are only split here, not checked.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    /// 100 to 599.
    pub status: u16,
    /// The times so far; with flag `END` the final ones.
    pub times: Times,
    /// The body bytes in the frame.
    pub body: &'a [u8],
    fields: &'a [u8],
    count: u16,
}

impl<'a> Response<'a> {
    /// Decodes a RESPONSE payload.
    ///
    /// # Errors
    /// Fails if the payload breaks a rule of `docs/internals/wire.md`.
    pub fn decode(payload: &'a [u8]) -> Result<Response<'a>, Malformed> {
        let mut cursor = Cursor::new(payload);
        let (status, count, times) = (cursor.u16()?, cursor.u16()?, Times::read(&mut cursor)?);
        if !(100..600).contains(&status) {
            return Err(Malformed("status of RESPONSE is not in 100 to 599"));
        }
        let (fields, body) = cut_fields(cursor, count)?;
        Ok(Response { status, times, body, fields, count })
    }

    /// Decodes an INTERIM payload.
    ///
    /// # Errors
    /// Fails if the payload breaks a rule of `docs/internals/wire.md`.
    pub fn decode_interim(payload: &'a [u8]) -> Result<Response<'a>, Malformed> {
        let mut cursor = Cursor::new(payload);
        let (status, count) = (cursor.u16()?, cursor.u16()?);
        if !(100..200).contains(&status) || status == 101 {
            return Err(Malformed("status of INTERIM must be 1xx, but not 101"));
        }
        let (fields, rest) = cut_fields(cursor, count)?;
        if !rest.is_empty() {
            return Err(Malformed("INTERIM has a body"));
        }
        Ok(Response { status, times: Times::default(), body: rest, fields, count })
    }

    /// Returns names and values in order.
    #[inline]
    pub fn fields(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut cursor = Cursor::new(self.fields);
        (0..self.count).map_while(move |_| field(&mut cursor).ok())
    }

    /// Returns the number of fields.
    pub fn field_count(&self) -> usize {
        self.count as usize
    }
}

fn cut_fields<'a>(mut cursor: Cursor<'a>, count: u16) -> Result<(&'a [u8], &'a [u8]), Malformed> {
    let all = cursor.rest;
    for _ in 0..count {
        field(&mut cursor)?;
    }
    Ok(all.split_at(all.len() - cursor.rest.len()))
}

#[inline]
fn field<'a>(cursor: &mut Cursor<'a>) -> Result<(&'a [u8], &'a [u8]), Malformed> {
    let (name, value) = (cursor.u16()?, cursor.u32()?);
    Ok((cursor.bytes(name as usize)?, cursor.bytes(value as usize)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, flag};
    use proptest::prelude::*;

    #[test]
    fn a_response_is_read_back() {
        let mut out = Vec::new();
        let mut encoder = Encoder::response(&mut out, 3, 200);
        encoder.field(b"content-type", b"text/plain");
        let aside = encoder.suspend();
        let mut encoder = aside.resume(&mut out);
        encoder.field(b"set-cookie", b"a=1");
        let times = Times { app_us: 42, cpu_us: Some(12), gvl_us: None };
        encoder.finish(flag::END, times, b"hello");
        let (frame, _) = Frame::cut(&out).unwrap().unwrap();
        let response = Response::decode(frame.payload).unwrap();
        assert_eq!((response.status, response.times, response.body), (200, times, &b"hello"[..]));
        let fields: Vec<_> = response.fields().collect();
        assert_eq!(fields[1], (&b"set-cookie"[..], &b"a=1"[..]));
        assert_eq!(frame.header.flags, flag::END);
    }

    #[test]
    fn a_cancelled_frame_leaves_nothing() {
        let mut out = b"before".to_vec();
        let mut encoder = Encoder::response(&mut out, 3, 200);
        encoder.field(b"a", b"b");
        encoder.cancel();
        assert_eq!(out, b"before");
    }

    #[test]
    fn interim_responses_are_1xx_without_body() {
        let mut out = Vec::new();
        let mut encoder = Encoder::interim(&mut out, 3, 103);
        encoder.field(b"link", b"</a.css>; rel=preload");
        encoder.finish(0, Times::default(), b"");
        let (frame, _) = Frame::cut(&out).unwrap().unwrap();
        assert_eq!(Response::decode_interim(frame.payload).unwrap().status, 103);
        assert!(Response::decode_interim(&[101, 0, 0, 0]).is_err());
        assert!(Response::decode_interim(&[103, 0, 0, 0, 9]).is_err());
    }

    proptest! {
        #[test]
        fn any_payload_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(response) = Response::decode(&bytes) {
                prop_assert_eq!(response.fields().count(), response.field_count());
            }
            let _ = Response::decode_interim(&bytes);
        }
    }
}
