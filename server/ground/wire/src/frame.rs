//! The frame header, and splitting a byte stream into frames.

use crate::Malformed;

/// The size of the header in bytes.
pub const HEADER: usize = 12;
/// The offset of the route's number in a header.
const ROUTE: usize = 6;
/// The largest payload in bytes. A response head of the largest size with a full inline body fits.
pub const MAX_PAYLOAD: usize = (1 << 20) + (64 << 10);

/// Frame flags. `docs/internals/wire.md` lists the flags of each kind.
pub mod flag {
    /// The whole response is in this frame (RESPONSE).
    pub const END: u8 = 0x01;
    /// The app broke off, and the body is incomplete (END).
    pub const FAILED: u8 = 0x01;
    /// The profile is complete (PROFILE).
    pub const LAST: u8 = 0x01;
    /// The file was created for this response and has no name (FILE).
    pub const MADE: u8 = 0x01;
    /// The rest of the body comes from the descriptor (RESPONSE, with `FD`).
    pub const STREAM: u8 = 0x02;
    /// A file descriptor is sent with the frame.
    pub const FD: u8 = 0x80;
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $byte:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum FrameKind {
            $($(#[$doc])* $name = $byte,)*
        }

        impl FrameKind {
            /// Names and bytes, for the file in Ruby.
            #[cfg(test)]
            pub(crate) const ALL: &[(&str, u8)] = &[$((stringify!($name), $byte)),*];

            fn from_byte(byte: u8) -> Option<FrameKind> {
                Some(match byte {
                    $($byte => FrameKind::$name,)*
                    _ => return None,
                })
            }
        }
    };
}

kinds! {
    /// Front to worker: a complete request.
    Request = 0x01,
    /// Front to worker: more body bytes may be sent.
    Window = 0x02,
    /// Front to worker: the client has gone.
    Abort = 0x03,
    /// Front to worker: finish and exit.
    Drain = 0x04,
    /// Front to worker: the client's socket for the offered bytes, or none.
    Lend = 0x05,
    /// Front to worker: the requests that follow are to be served again.
    Resume = 0x06,
    /// Front to worker: the socket of the template that the worker creates when it has finished.
    Promote = 0x07,
    /// Front to worker: collect garbage now; no requests arrive meanwhile.
    Collect = 0x08,
    /// Front to worker: the next bytes of a request's body.
    Input = 0x09,
    /// Front to worker: describe the heap to the reader of a pipe.
    Heap = 0x0C,
    /// Worker to front: the head of the final response, or the whole response.
    Response = 0x81,
    /// Worker to front: body bytes.
    Body = 0x82,
    /// Worker to front: the response is over and the thread is free.
    End = 0x83,
    /// Worker to front: an informational (1xx) response.
    Interim = 0x84,
    /// Worker to front: the app took the connection over.
    Hijack = 0x85,
    /// Worker to front: part of a file is the next part of the body.
    File = 0x86,
    /// Worker to front: the worker can take requests.
    Ready = 0x87,
    /// Worker to front: a signal told the worker to stop.
    Stopping = 0x88,
    /// Worker to front: the next bytes of the body are in the worker's memory.
    Offer = 0x89,
    /// Worker to front: the number of offered bytes that were written to the lent socket.
    Taken = 0x8A,
    /// Worker to front: backtraces of the threads that serve requests.
    Traces = 0x8B,
    /// Worker to front: requests of this link that have not been taken up and will not be.
    Returned = 0x8C,
    /// Worker to front: RESUME has been read.
    Resumed = 0x8D,
    /// Worker to front: the request may take longer than `timeouts.worker`.
    Extend = 0x8E,
    /// Worker to front: a full garbage collection is due.
    Due = 0x8F,
    /// Worker to front: the collection is done.
    Collected = 0x90,
    /// Worker to front: the first frame of a connection from a spawned worker.
    Hello = 0x91,
    /// Worker to front: a route of the app, which has a number from now on.
    Route = 0x92,
    /// Worker to front: what the request has used, before the end of its response.
    Used = 0x93,
    /// Worker to front: a part of the profile of this worker.
    Profile = 0x98,
}

impl FrameKind {
    /// Returns whether the header of such a frame has the number of a route.
    #[inline]
    fn has_route(self) -> bool {
        matches!(self, FrameKind::Response | FrameKind::End | FrameKind::Route)
    }
}

/// The twelve bytes before every payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The payload length in bytes.
    pub len: u32,
    pub kind: FrameKind,
    /// See [`flag`].
    pub flags: u8,
    /// The number of a route in RESPONSE, END and ROUTE ([`crate::route`]); 0 if there is none, and in other frames.
    pub route: u16,
    /// The request id; 0 if the frame concerns the whole worker.
    pub id: u32,
}

impl Header {
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[0..4].copy_from_slice(&self.len.to_le_bytes());
        out[4] = self.kind as u8;
        out[5] = self.flags;
        out[ROUTE..ROUTE + 2].copy_from_slice(&self.route.to_le_bytes());
        out[8..12].copy_from_slice(&self.id.to_le_bytes());
        out
    }

    /// Decodes and checks a header.
    ///
    /// # Errors
    /// Fails if the kind is unknown, its frames have no route but a number of one, or the payload exceeds [`MAX_PAYLOAD`].
    #[inline]
    pub fn from_bytes(bytes: &[u8; HEADER]) -> Result<Header, Malformed> {
        let [l0, l1, l2, l3, kind, flags, r0, r1, i0, i1, i2, i3] = *bytes;
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        if len as usize > MAX_PAYLOAD {
            return Err(Malformed("payload is longer than a frame may be"));
        }
        let kind = FrameKind::from_byte(kind).ok_or(Malformed("unknown kind"))?;
        let route = u16::from_le_bytes([r0, r1]);
        if route != 0 && !kind.has_route() {
            return Err(Malformed("the number of a route in a frame that has none"));
        }
        Ok(Header { len, kind, flags, route, id: u32::from_le_bytes([i0, i1, i2, i3]) })
    }

    /// Returns whether a file descriptor is sent with the frame.
    pub fn has_fd(self) -> bool {
        self.flags & flag::FD != 0
    }
}

/// A frame in a byte stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    pub header: Header,
    /// Exactly `header.len` bytes.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Returns the first frame of `bytes` and its total length, or `None` while it is incomplete.
    ///
    /// # Errors
    /// See [`Header::from_bytes`]. Errors are reported as soon as the header is complete.
    #[inline]
    pub fn cut(bytes: &'a [u8]) -> Result<Option<(Frame<'a>, usize)>, Malformed> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let header = Header::from_bytes(header)?;
        Ok(rest.get(..header.len as usize).map(|payload| (Frame { header, payload }, HEADER + payload.len())))
    }
}

/// Appends a header without a length, which [`finish`] fills in.
#[inline]
pub fn begin(out: &mut Vec<u8>, kind: FrameKind, flags: u8, id: u32) -> usize {
    let start = out.len();
    out.extend_from_slice(&Header { len: 0, kind, flags, route: 0, id }.to_bytes());
    start
}

/// Fills in the length of the frame that [`begin`] started at `start`. `behind` bytes of it will be sent
/// after `out`.
#[inline]
pub fn finish(out: &mut [u8], start: usize, behind: usize) {
    let len = (out.len() - start - HEADER + behind) as u32;
    debug_assert!(len as usize <= MAX_PAYLOAD);
    out[start..start + 4].copy_from_slice(&len.to_le_bytes());
}

/// Sets the number of the route in a frame of a kind that has one.
#[inline]
pub fn set_route(frame: &mut [u8], route: u16) {
    frame[ROUTE..ROUTE + 2].copy_from_slice(&route.to_le_bytes());
}

/// Appends a frame with a small payload.
pub fn append(out: &mut Vec<u8>, kind: FrameKind, flags: u8, id: u32, payload: &[u8]) {
    let start = begin(out, kind, flags, id);
    out.extend_from_slice(payload);
    finish(out, start, 0);
}

/// Decodes the u32 payload of a WINDOW frame.
///
/// # Errors
/// Fails if the payload is not four bytes long.
pub fn u32_payload(payload: &[u8]) -> Result<u32, Malformed> {
    payload.try_into().map(u32::from_le_bytes).map_err(|_| Malformed("payload is not one u32"))
}

/// Decodes the u64 payload of an OFFER, TAKEN, RETURNED or EXTEND frame.
///
/// # Errors
/// Fails if the payload is not eight bytes long.
pub fn u64_payload(payload: &[u8]) -> Result<u64, Malformed> {
    payload.try_into().map(u64::from_le_bytes).map_err(|_| Malformed("payload is not one u64"))
}

/// The content of a READY frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The worker's process id.
    pub pid: u32,
    /// The number of requests that it serves at a time.
    pub seats: u32,
}

impl Ready {
    pub fn to_bytes(self) -> [u8; 8] {
        let mut out = [0; 8];
        out[..4].copy_from_slice(&self.pid.to_le_bytes());
        out[4..].copy_from_slice(&self.seats.to_le_bytes());
        out
    }

    /// Reads the payload.
    ///
    /// # Errors
    /// Fails if the payload is not eight bytes long.
    pub fn decode(payload: &[u8]) -> Result<Ready, Malformed> {
        let mut cursor = crate::cursor::Cursor::new(payload);
        let ready = Ready { pid: cursor.u32()?, seats: cursor.u32()? };
        if cursor.rest.is_empty() { Ok(ready) } else { Err(Malformed("READY is longer than eight bytes")) }
    }
}

/// Decodes the payload of a FILE frame: offset and length in bytes.
///
/// # Errors
/// Fails if the payload is not sixteen bytes long.
pub fn file_payload(payload: &[u8]) -> Result<(u64, u64), Malformed> {
    let mut cursor = crate::cursor::Cursor::new(payload);
    let region = (cursor.u64()?, cursor.u64()?);
    if cursor.rest.is_empty() { Ok(region) } else { Err(Malformed("FILE is longer than sixteen bytes")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_frame_survives_the_round_trip() {
        let mut out = Vec::new();
        append(&mut out, FrameKind::Window, 0, 7, &4096u32.to_le_bytes());
        let (frame, used) = Frame::cut(&out).unwrap().unwrap();
        assert_eq!(used, out.len());
        assert_eq!((frame.header.kind, frame.header.id), (FrameKind::Window, 7));
        assert_eq!(u32_payload(frame.payload), Ok(4096));
    }

    #[test]
    fn a_loan_is_read_back() {
        let mut out = Vec::new();
        append(&mut out, FrameKind::Offer, 0, 7, &(5u64 << 32).to_le_bytes());
        append(&mut out, FrameKind::Lend, flag::FD, 7, b"");
        append(&mut out, FrameKind::Taken, 0, 7, &3u64.to_le_bytes());
        let (mut at, mut seen) = (0, Vec::new());
        while let Some((frame, used)) = Frame::cut(&out[at..]).unwrap() {
            seen.push((frame.header.kind, frame.header.has_fd(), u64_payload(frame.payload).ok()));
            at += used;
        }
        let expected = [
            (FrameKind::Offer, false, Some(5 << 32)),
            (FrameKind::Lend, true, None),
            (FrameKind::Taken, false, Some(3)),
        ];
        assert_eq!(seen, expected);
        assert!(u64_payload(&[0; 7]).is_err() && u64_payload(&[0; 9]).is_err());
    }

    #[test]
    fn every_prefix_is_incomplete() {
        let mut out = Vec::new();
        append(&mut out, FrameKind::Body, 0, 1, b"hello");
        for end in 0..out.len() {
            assert_eq!(Frame::cut(&out[..end]), Ok(None));
        }
    }

    #[test]
    fn breaches_name_their_rule() {
        let good = Header { len: 0, kind: FrameKind::Body, flags: 0, route: 0, id: 0 }.to_bytes();
        for (at, byte, rule) in [(3, 0x7f, "longer"), (4, 0x70, "unknown kind"), (6, 1, "route")] {
            let mut bad = good;
            bad[at] = byte;
            let refusal = Frame::cut(&bad).unwrap_err().to_string();
            assert!(refusal.contains(rule), "{refusal}");
        }
    }

    proptest! {
        #[test]
        fn every_header_survives_the_round_trip(kind in any::<u8>(), flags in any::<u8>(), route: u16, id in any::<u32>(), len in 0..=MAX_PAYLOAD as u32) {
            if let Some(kind) = FrameKind::from_byte(kind) {
                let header = Header { len, kind, flags, route: if kind.has_route() { route } else { 0 }, id };
                prop_assert_eq!(Header::from_bytes(&header.to_bytes()), Ok(header));
            }
        }

        #[test]
        fn lengths_survive_the_round_trip(len in any::<u64>()) {
            prop_assert_eq!(u64_payload(&len.to_le_bytes()), Ok(len));
        }

        #[test]
        fn ready_survives_the_round_trip(pid in any::<u32>(), seats in any::<u32>()) {
            let ready = Ready { pid, seats };
            prop_assert_eq!(Ready::decode(&ready.to_bytes()), Ok(ready));
        }

        #[test]
        fn ready_has_one_length(payload in proptest::collection::vec(any::<u8>(), 0..12)) {
            prop_assert_eq!(Ready::decode(&payload).is_ok(), payload.len() == 8);
        }

        #[test]
        fn any_bytes_are_cut_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some((frame, used))) = Frame::cut(&bytes) {
                prop_assert_eq!(used, HEADER + frame.payload.len());
            }
        }
    }
}
