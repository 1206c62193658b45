//! The TRACES payload: the backtraces of a worker's threads that are serving requests.

use crate::{Malformed, cursor::Cursor, frame, frame::FrameKind};

/// The largest number of lines in one trace. The innermost calls are kept.
pub const MOST_LINES: usize = 200;
/// The longest line, in bytes.
pub const LONGEST: usize = 1_000;
/// The limit for all traces together, in bytes.
pub const MOST_BYTES: usize = 512 << 10;

/// Writes one TRACES frame at the end of a buffer. Data above the limits is left out.
pub struct Encoder<'b> {
    out: &'b mut Vec<u8>,
    start: usize,
}

impl<'b> Encoder<'b> {
    pub fn new(out: &'b mut Vec<u8>) -> Encoder<'b> {
        let start = frame::begin(out, FrameKind::Traces, 0, 0);
        Encoder { out, start }
    }

    /// Adds the trace of the thread that serves request `id` of link `link`, with lines from the innermost
    /// call outwards.
    pub fn trace<'a>(&mut self, link: u32, id: u32, lines: impl Iterator<Item = &'a [u8]>) {
        self.out.extend_from_slice(&link.to_le_bytes());
        self.out.extend_from_slice(&id.to_le_bytes());
        let count_at = self.out.len();
        self.out.extend_from_slice(&[0; 2]);
        let mut count = 0u16;
        for line in lines.take(MOST_LINES) {
            let line = &line[..line.len().min(LONGEST)];
            if self.out.len() - self.start + line.len() > MOST_BYTES {
                break;
            }
            self.out.extend_from_slice(&(line.len() as u16).to_le_bytes());
            self.out.extend_from_slice(line);
            count += 1;
        }
        self.out[count_at..count_at + 2].copy_from_slice(&count.to_le_bytes());
    }

    pub fn finish(self) {
        frame::finish(self.out, self.start, 0);
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The number of the link on which its request arrived.
    pub link: u32,
    /// The id of the request on that link.
    pub id: u32,
    /// The backtrace, the innermost call first.
    pub lines: Vec<String>,
}

/// Decodes a TRACES payload. Bytes of a line that are not UTF-8 are replaced.
///
/// # Errors
/// Fails if the payload breaks a rule of `docs/internals/wire.md`.
pub fn decode(payload: &[u8]) -> Result<Vec<Trace>, Malformed> {
    let (mut cursor, mut traces) = (Cursor::new(payload), Vec::new());
    while !cursor.rest.is_empty() {
        let (link, id, count) = (cursor.u32()?, cursor.u32()?, cursor.u16()?);
        let mut lines = Vec::new();
        for _ in 0..count {
            let len = cursor.u16()?;
            lines.push(String::from_utf8_lossy(cursor.bytes(len.into())?).into_owned());
        }
        traces.push(Trace { link, id, lines });
    }
    Ok(traces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;
    use proptest::prelude::*;

    fn encoded(traces: &[(u32, u32, Vec<Vec<u8>>)]) -> Vec<u8> {
        let mut out = b"before".to_vec();
        let mut encoder = Encoder::new(&mut out);
        for (link, id, lines) in traces {
            encoder.trace(*link, *id, lines.iter().map(Vec::as_slice));
        }
        encoder.finish();
        out.split_off(6)
    }

    #[test]
    fn traces_are_read_back() {
        let bytes = encoded(&[(0, 7, vec![b"app.rb:3:in `sleep'".into(), b"\xff".into()]), (1, 9, vec![])]);
        let (frame, used) = Frame::cut(&bytes).unwrap().unwrap();
        assert_eq!((frame.header.kind, frame.header.id, used), (FrameKind::Traces, 0, bytes.len()));
        let first = Trace { link: 0, id: 7, lines: vec!["app.rb:3:in `sleep'".into(), "\u{fffd}".into()] };
        assert_eq!(decode(frame.payload), Ok(vec![first, Trace { link: 1, id: 9, lines: vec![] }]));
    }

    #[test]
    fn what_is_too_much_is_left_out() {
        let deep = vec![vec![b'x'; 3 * LONGEST]; 2 * MOST_LINES];
        let many: Vec<_> = (0..8).map(|id| (0, id, deep.clone())).collect();
        let bytes = encoded(&many);
        let (frame, _) = Frame::cut(&bytes).unwrap().unwrap();
        let traces = decode(frame.payload).unwrap();
        assert_eq!((traces.len(), traces[0].lines.len()), (8, MOST_LINES));
        assert!(traces[0].lines[0].len() == LONGEST && bytes.len() < MOST_BYTES + 1_000);
    }

    proptest! {
        #[test]
        fn any_payload_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(traces) = decode(&bytes) {
                prop_assert!(traces.len() * 10 <= bytes.len());
            }
        }
    }
}
