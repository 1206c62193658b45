//! Sends parts of files as far as the client's windows allow.
//!
//! Why: sendfile cannot put frames between its bytes, and reading from a disk would block all connections of
//! the thread. Cached data is read at once, the rest on a blocking thread.

use crate::context::ThreadShared;
use bytes::Bytes;
use handler::FileRegion;
use handler::held::Hold;
use http2::{Connection, StreamId};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::task::{Context, Poll};
use sys::file::read_cached;
use tokio::task::JoinHandle;

/// Bytes per read.
const SLICE: usize = 64 << 10;

/// A part of a file that is being sent.
pub(super) struct FileReader {
    region: FileRegion,
    /// Read by the blocking thread, not sent yet.
    warm: Bytes,
    job: Option<JoinHandle<io::Result<Vec<u8>>>>,
    _hold: Option<Hold>,
}

/// The result of sending.
pub(super) enum FileStep {
    /// That many bytes were sent; the window or the turn is used up, or the file has ended.
    Sent(usize),
    /// A disk read is running: poll it.
    Cold,
    /// The file has become shorter, or cannot be read.
    Broken,
}

impl FileReader {
    /// `hold`: counts a shared file for this response. A file that is open for one response has its own count.
    pub(super) fn new(region: FileRegion, hold: Option<Hold>) -> FileReader {
        FileReader { region, warm: Bytes::new(), job: None, _hold: hold }
    }

    /// Returns the number of unsent bytes.
    pub(super) fn left(&self) -> u64 {
        self.region.len + self.warm.len() as u64
    }

    /// Ready when there is something to send; `false` if the file cannot be read.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let Some(job) = &mut self.job else { return Poll::Ready(true) };
        let Poll::Ready(read) = Pin::new(job).poll(cx) else { return Poll::Pending };
        self.job = None;
        let Ok(Ok(bytes)) = read else { return Poll::Ready(false) };
        self.advance(bytes.len());
        self.warm = bytes.into();
        Poll::Ready(!self.warm.is_empty())
    }

    fn advance(&mut self, n: usize) {
        self.region.offset += n as u64;
        self.region.len -= n as u64;
    }

    /// Sends at most `most` bytes. `end`: the body ends with the file.
    pub(super) fn send(
        &mut self,
        engine: &mut Connection,
        stream: StreamId,
        most: usize,
        end: bool,
        shared: &ThreadShared,
    ) -> FileStep {
        if !self.warm.is_empty() {
            let piece = self.warm.split_to(most.min(self.warm.len()));
            let (len, last) = (piece.len(), end && self.left() == 0);
            let rest = engine.data(stream, piece, last);
            debug_assert!(rest.is_empty(), "the engine has asked for that much");
            return FileStep::Sent(len - rest.len());
        }
        let mut scratch = shared.scratch.borrow_mut();
        let want = most.min(SLICE).min(usize::try_from(self.region.len).unwrap_or(SLICE));
        let read = match read_cached(&self.region.file.shared(), self.region.offset, &mut scratch[..want]) {
            Ok(0) => return FileStep::Broken,
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Unsupported) => {
                return self.ask();
            }
            Err(_) => return FileStep::Broken,
        };
        self.advance(read);
        let last = end && self.region.len == 0;
        let mut sent = 0;
        while sent < read {
            let n = engine.data_with(stream, read - sent, |text, room| {
                let n = room.min(read - sent);
                text.extend_from_slice(&scratch[sent..sent + n]);
                last && sent + n == read
            });
            if n == 0 {
                // The stream is gone, or the window is smaller than the engine said.
                self.region.offset -= (read - sent) as u64;
                self.region.len += (read - sent) as u64;
                break;
            }
            sent += n;
        }
        FileStep::Sent(sent)
    }

    /// Starts to read the next slice on a blocking thread.
    fn ask(&mut self) -> FileStep {
        let file = self.region.file.shared();
        let offset = self.region.offset;
        let len = usize::try_from(self.region.len).unwrap_or(SLICE).min(SLICE);
        self.job = Some(tokio::task::spawn_blocking(move || {
            let mut bytes = vec![0; len];
            loop {
                match file.read_at(&mut bytes, offset) {
                    Ok(n) => {
                        bytes.truncate(n);
                        return Ok(bytes);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        }));
        FileStep::Cold
    }
}
