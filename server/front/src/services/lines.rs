//! Forwards the output of a service line by line, prefixed with its name.
//!
//! Contract: each line is written in one piece unless it is longer than [`LONGEST_LINE`]. No output is lost,
//! and a last line without a line break gets one. If the reader is gone, output is dropped and the service
//! continues.

use std::io::{self, Read, Write};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time-out for the last lines while a process outside of the group holds the pipe open.
const LAST_LINES: Duration = Duration::from_millis(500);
/// Longer lines are written in pieces. In bytes.
const LONGEST_LINE: usize = 64 << 10;

/// Starts a thread that forwards the input line by line with a prefix.
pub(super) fn pump(
    mut from: impl Read + Send + 'static,
    prefix: String,
    write: impl Fn(&[u8]) -> io::Result<()> + Send + 'static,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let (mut lines, mut buffer) = (Lines::new(prefix), vec![0; 32 << 10]);
        loop {
            let text = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => lines.take(&buffer[..n]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            // If the reader is gone, the service continues.
            let _ = write(&text);
        }
        let _ = write(&lines.rest());
    })
}

/// Waits for the last lines, at most for [`LAST_LINES`].
pub(super) fn finish(pumps: Vec<JoinHandle<()>>) {
    let until = std::time::Instant::now() + LAST_LINES;
    for pump in pumps {
        while !pump.is_finished() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let _ = io::stdout().flush();
}

/// Puts a prefix before each line of input that arrives in pieces.
struct Lines {
    prefix: String,
    /// An incomplete line.
    begun: Vec<u8>,
}

impl Lines {
    fn new(prefix: String) -> Lines {
        Lines { prefix, begun: Vec::new() }
    }

    /// Returns the lines that `bytes` complete.
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(bytes.len() * 2);
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(part);
            if part.ends_with(b"\n") || self.begun.len() >= LONGEST_LINE {
                text.extend(self.rest());
            }
        }
        text
    }

    /// Returns the incomplete line as a line.
    fn rest(&mut self) -> Vec<u8> {
        if self.begun.is_empty() {
            return Vec::new();
        }
        let mut line = self.prefix.clone().into_bytes();
        line.append(&mut self.begun);
        if !line.ends_with(b"\n") {
            line.push(b'\n');
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_is_lost_however_bytes_arrive(
            bytes in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..300),
            cuts in prop::collection::vec(0..300_usize, 0..10),
        ) {
            let mut lines = Lines::new("jobs | ".to_owned());
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| (*cut).min(bytes.len())).chain([0, bytes.len()]).collect();
            cuts.sort_unstable();
            let mut text: Vec<u8> = cuts.windows(2).flat_map(|two| lines.take(&bytes[two[0]..two[1]])).collect();
            text.extend(lines.rest());
            let mut wanted: Vec<u8> = Vec::new();
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                wanted.extend_from_slice(b"jobs | ");
                wanted.extend_from_slice(line);
            }
            if wanted.last().is_some_and(|last| *last != b'\n') {
                wanted.push(b'\n');
            }
            prop_assert_eq!(text, wanted);
        }
    }

    #[test]
    fn each_line_begins_with_the_name() {
        let mut lines = Lines::new("jobs | ".to_owned());
        assert_eq!(lines.take(b"one\ntw"), b"jobs | one\n");
        assert_eq!(lines.take(b"o\n\n"), b"jobs | two\njobs | \n");
        assert_eq!((lines.take(b"end"), lines.rest()), (Vec::new(), b"jobs | end\n".to_vec()));
        assert!(lines.rest().is_empty());
    }

    #[test]
    fn a_line_without_end_is_passed_on_in_pieces() {
        let mut lines = Lines::new("x | ".to_owned());
        let text = lines.take(&vec![b'a'; LONGEST_LINE + 1]);
        assert_eq!(text.len(), LONGEST_LINE + 1 + "x | \n".len());
        assert!(lines.begun.is_empty());
    }
}
