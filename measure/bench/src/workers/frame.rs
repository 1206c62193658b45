//! The frames between coordinator and workers: one JSON value per line, of bounded length.

use std::io::{self, BufRead, ErrorKind, Read, Write};

use load::{Outcome, Progress};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The longest line in bytes. A result has some 100 bytes per second of the run, and some 10 KiB per URL.
const LONGEST: u64 = 64 << 20;

/// An order to a worker.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) enum CoordinatorMessage {
    /// Begin at this moment, in nanoseconds of the system's monotonic clock.
    Start(u64),
    /// Begin after this many nanoseconds, for a machine with its own clock.
    StartIn(u64),
    /// End the run now; the results so far count.
    Stop,
}

/// A report of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum WorkerMessage {
    /// The worker waits for the start.
    Ready,
    /// The state of its part, several times a second.
    Progress(Progress),
    /// The part is over.
    Done(Box<Outcome>),
    /// The part could not be run, for this reason.
    Failed(String),
}

/// Writes a frame at once.
///
/// # Errors
/// The other end is gone.
pub(super) fn write(mut to: impl Write, frame: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(frame)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// Reads the next frame; `None` at the end.
///
/// # Errors
/// Reading fails, or the bytes are not a whole frame.
pub(super) fn read<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    bounded(from, LONGEST)
}

/// Does the same as [`read`], for frames of at most `longest` bytes.
pub(super) fn bounded<T: DeserializeOwned>(from: &mut impl BufRead, longest: u64) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    from.take(longest).read_until(b'\n', &mut line)?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => {
            let text = str::from_utf8(&line).map_err(|why| io::Error::new(ErrorKind::InvalidData, why))?;
            Ok(Some(serde_json::from_str(text)?))
        }
        Some(_) if line.len() as u64 == longest => {
            Err(io::Error::new(ErrorKind::InvalidData, format!("a frame of more than {longest} bytes")))
        }
        Some(_) => Err(ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::outcome;

    #[test]
    fn frames_are_read_back() {
        let mut bytes = Vec::new();
        for order in [CoordinatorMessage::Start(7), CoordinatorMessage::Stop] {
            write(&mut bytes, &order).unwrap();
        }
        write(&mut bytes, &WorkerMessage::Done(Box::new(outcome()))).unwrap();
        let mut from = &bytes[..];
        assert_eq!(read(&mut from).unwrap(), Some(CoordinatorMessage::Start(7)));
        assert_eq!(read(&mut from).unwrap(), Some(CoordinatorMessage::Stop));
        let Some(WorkerMessage::Done(read_back)) = read(&mut from).unwrap() else { panic!("a result") };
        assert_eq!((read_back.latency, read_back.sent), (outcome().latency, outcome().sent));
        assert!(read::<CoordinatorMessage>(&mut from).unwrap().is_none());
    }

    #[test]
    fn other_bytes_are_refused() {
        for (text, kind) in [
            ("\"Stop\"", ErrorKind::UnexpectedEof),
            ("\"Go\"\n", ErrorKind::InvalidData),
            ("\"Stop\" and more than twenty\n", ErrorKind::InvalidData),
        ] {
            let found = bounded::<CoordinatorMessage>(&mut text.as_bytes(), 20);
            assert_eq!(found.unwrap_err().kind(), kind, "{text}");
        }
        assert_eq!(bounded(&mut &b"\"Stop\"\n"[..], 20).unwrap(), Some(CoordinatorMessage::Stop));
    }
}
