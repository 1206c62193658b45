//! Event streams of Server-Sent Events (WHATWG HTML, 9.2.6), as a browser's `EventSource` reads them.
//!
//! Contract: pure; input may be split anywhere. Data is not kept, only whether there was any: an event of any length
//! needs no memory. An id longer than [`LONGEST_VALUE`] is ignored, as if the server had sent none.

use std::time::Duration;

/// The longest id that is kept, in bytes; also the part of a line that is looked at.
const LONGEST_VALUE: usize = 1024;
/// The longest pause that a `retry` field can ask for.
const LONGEST_RETRY: Duration = Duration::from_secs(3_600);

/// The meaning of a complete line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// An empty line after data: an event is complete.
    Event,
    /// A comment, with which servers keep connections open.
    Comment,
}

#[derive(Debug, Default)]
pub(crate) struct EventStream {
    /// The beginning of the line under way.
    line: Vec<u8>,
    /// Whether the last byte was a CR, so that a LF belongs to the same end of line.
    after_cr: bool,
    /// Whether the first line was read, which may begin with a byte order mark.
    begun: bool,
    /// Whether the event under way has data.
    data: bool,
    /// The id of the event under way, which counts once the event is complete.
    id: Option<Vec<u8>>,
    /// The id of the last complete event; what `Last-Event-ID` sends.
    pub last_id: Vec<u8>,
    /// The pause before the next connection, if the server has sent one.
    pub retry: Option<Duration>,
}

impl EventStream {
    /// Reads the next bytes.
    pub(crate) fn take(&mut self, bytes: &[u8], heard: &mut dyn FnMut(Heard)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = memchr::memchr2(b'\r', b'\n', rest);
            let piece = &rest[..end.unwrap_or(rest.len())];
            let room = (LONGEST_VALUE + 8).saturating_sub(self.line.len());
            self.line.extend_from_slice(&piece[..piece.len().min(room)]);
            let Some(end) = end else { return };
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            self.line(heard);
            self.line.clear();
        }
    }

    /// Forgets the event under way: the connection has ended, and the next one begins anew.
    pub(crate) fn reconnect(&mut self) {
        *self = EventStream {
            last_id: std::mem::take(&mut self.last_id),
            retry: self.retry,
            ..EventStream::default()
        };
    }

    fn line(&mut self, heard: &mut dyn FnMut(Heard)) {
        let mut line = &self.line[..];
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            if let Some(id) = self.id.take() {
                self.last_id = id;
            }
            if std::mem::take(&mut self.data) {
                heard(Heard::Event);
            }
            return;
        }
        let (name, value) = match memchr::memchr(b':', line) {
            Some(0) => return heard(Heard::Comment),
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => self.data = true,
            // CR and LF cannot be in a line.
            b"id" if value.len() <= LONGEST_VALUE && !value.contains(&0) => self.id = Some(value.to_vec()),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let digits = std::str::from_utf8(value).unwrap_or_default();
                let wait = digits.parse().map_or(LONGEST_RETRY, Duration::from_millis);
                self.retry = Some(wait.min(LONGEST_RETRY));
            }
            _ => {}
        }
    }
}

/// Reads a stream in one piece and cut in two; for fuzzing.
///
/// # Panics
/// The results differ.
pub(crate) fn fuzz(bytes: &[u8], cut: usize) {
    let (first, second) = bytes.split_at(cut % (bytes.len() + 1));
    assert_eq!(read(&[bytes]), read(&[first, second]));
}

fn read(pieces: &[&[u8]]) -> (Vec<Heard>, Vec<u8>, Option<Duration>) {
    let (mut stream, mut all) = (EventStream::default(), Vec::new());
    pieces.iter().for_each(|piece| stream.take(piece, &mut |heard| all.push(heard)));
    (all, stream.last_id, stream.retry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn streams() {
        use Heard::{Comment, Event};
        let long = format!("id: {}\ndata\n\n", "x".repeat(LONGEST_VALUE + 1));
        for (text, heard, id, retry) in [
            ("data: a\n\n", &[Event][..], "", None),
            ("\u{feff}data: a\r\ndata: b\r\rdata\n\n", &[Event, Event], "", None),
            (":\n\n: still here\n\nevent: x\n\n", &[Comment, Comment], "", None),
            ("id: 7\nretry: 250\ndata: a\n\nid: 8\ndata: cut off", &[Event], "7", Some(250)),
            ("id: 7\n\nid\ndata:\n\n", &[Event], "", None),
            ("retry: -1\nretry: 1s\nretry\nretry:99999999999999999999\n", &[], "", Some(3_600_000)),
            (&long, &[Event], "", None),
            ("datas: a\n\n", &[], "", None),
        ] {
            let expected = (heard.to_vec(), id.as_bytes().to_vec(), retry.map(Duration::from_millis));
            assert_eq!(read(&[text.as_bytes()]), expected, "{text:?}");
        }
    }

    #[test]
    fn the_next_connection_knows_id_and_pause() {
        let mut stream = EventStream::default();
        let mut events = 0;
        stream.take(b"id: 7\nretry: 9\ndata: a\n\ndata: b\n", &mut |_| events += 1);
        stream.reconnect();
        stream.take(b"\n", &mut |_| events += 1);
        assert_eq!(
            (events, &stream.last_id[..], stream.retry),
            (1, &b"7"[..], Some(Duration::from_millis(9)))
        );
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(text in "(data|id|retry|:|: |x|1|\r|\n|\r\n|\u{feff}){0,60}", cut in any::<usize>()) {
            fuzz(text.as_bytes(), cut);
        }
    }
}
