//! Sends parts of files as far as QUIC takes them.
//!
//! Why: a stream that waits for its client must hold no part of the file. Cached data is read into the thread's buffer, and QUIC copies what it
//! takes. Other data is read on a blocking thread.

use bytes::Bytes;
use handler::FileRegion;
use net::memory::{self, Level, MemoryClass, Reserved};
use quic::quinn::SendStream;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use sys::file::read_cached;

/// The most bytes per read.
pub(super) const SLICE: usize = 64 << 10;
/// Bytes of the next read after QUIC has taken less than was read, and of reads from a disk when memory is scarce.
const LITTLE: usize = 4 << 10;

/// The rest of a response cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unsendable;

/// A part of a file that is being sent.
pub(super) struct FileReader {
    region: FileRegion,
    /// Goes out before the file. It must be much shorter than the thread's buffer.
    head: Vec<u8>,
    /// Bytes at the start of the region, read by the blocking thread.
    warm: Bytes,
    /// Counts them.
    reserved: Reserved,
    /// Bytes of the next read.
    want: usize,
}

impl FileReader {
    pub(super) fn new(head: Vec<u8>, region: FileRegion) -> FileReader {
        let reserved = Reserved::new(MemoryClass::Streams, 0);
        FileReader { region, head, warm: Bytes::new(), reserved, want: SLICE }
    }

    /// Returns the number of unsent bytes of the file.
    pub(super) fn left(&self) -> u64 {
        self.region.len
    }

    /// Writes the next bytes to the stream, and returns their number: 0 if [`FileReader::fetch`] must read them from the disk first.
    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut SendStream,
        scratch: &mut [u8],
    ) -> Poll<Result<usize, Unsendable>> {
        if !self.warm.is_empty() {
            return self.poll_write_warm(cx, stream);
        }
        let (head, rest) = scratch.split_at_mut(self.head.len());
        let want = self.want.min(rest.len()).min(usize::try_from(self.region.len).unwrap_or(SLICE));
        let read = match read_cached(&self.region.file.shared(), self.region.offset, &mut rest[..want]) {
            Ok(0) => return Poll::Ready(Err(Unsendable)),
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Unsupported) => {
                return Poll::Ready(Ok(0));
            }
            Err(_) => return Poll::Ready(Err(Unsendable)),
        };
        head.copy_from_slice(&self.head);
        let offered = self.head.len() + read;
        let Poll::Ready(written) = Pin::new(stream).poll_write(cx, &scratch[..offered]) else {
            self.want = LITTLE;
            return Poll::Pending;
        };
        let written = written.map_err(|_| Unsendable)?;
        self.want = if written == offered { (self.want * 2).min(SLICE) } else { LITTLE };
        let of_head = written.min(self.head.len());
        self.head.drain(..of_head);
        self.advance(written - of_head);
        Poll::Ready(Ok(written))
    }

    fn poll_write_warm(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut SendStream,
    ) -> Poll<Result<usize, Unsendable>> {
        let before = self.warm.len();
        let mut chunks = [std::mem::take(&mut self.head).into(), std::mem::take(&mut self.warm)];
        let of_head = chunks[0].len();
        let written = pin!(stream.write_chunks(&mut chunks)).poll(cx);
        let [head, warm] = chunks;
        (self.head, self.warm) = (head.into(), warm);
        let _ = ready!(written).map_err(|_| Unsendable)?;
        let taken = before - self.warm.len();
        self.advance(taken);
        self.count();
        Poll::Ready(Ok(of_head - self.head.len() + taken))
    }

    /// Reads the next bytes on a blocking thread.
    pub(super) async fn fetch(&mut self) -> Result<(), Unsendable> {
        let most = if memory::level() >= Level::Files { LITTLE } else { SLICE };
        self.warm = self.read(most).await?;
        self.count();
        Ok(())
    }

    /// Returns the head and all unsent bytes; the file is not needed any more.
    pub(super) async fn rest(mut self) -> Result<Vec<u8>, Unsendable> {
        while self.region.len > 0 {
            if self.warm.is_empty() {
                self.warm = self.read(SLICE).await?;
            }
            let warm = std::mem::take(&mut self.warm);
            self.head.extend_from_slice(&warm);
            self.advance(warm.len());
        }
        Ok(self.head)
    }

    fn count(&self) {
        self.reserved.set(self.warm.len() as u64);
    }

    fn advance(&mut self, bytes: usize) {
        self.region.offset += bytes as u64;
        self.region.len -= bytes as u64;
    }

    /// Reads at most `most` bytes, those in memory at once.
    async fn read(&self, most: usize) -> Result<Bytes, Unsendable> {
        let mut bytes = vec![0; usize::try_from(self.region.len).unwrap_or(most).min(most)];
        let (file, offset) = (self.region.file.shared(), self.region.offset);
        let read = match read_cached(&file, offset, &mut bytes) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Unsupported) => {
                let reading = tokio::task::spawn_blocking(move || {
                    loop {
                        match file.read_at(&mut bytes, offset) {
                            Err(error) if error.kind() == ErrorKind::Interrupted => {}
                            read => return (bytes, read),
                        }
                    }
                });
                let read;
                (bytes, read) = reading.await.map_err(|_| Unsendable)?;
                read
            }
            read => read,
        };
        bytes.truncate(read.map_err(|_: io::Error| Unsendable)?);
        // A file that has become shorter cannot be sent.
        if bytes.is_empty() { Err(Unsendable) } else { Ok(bytes.into()) }
    }
}
