//! Complete request bodies: small ones in memory, others in an unnamed file.
//!
//! Why: an app gets complete requests, so that slow clients never hold it, and memory stays bounded however large the upload
//! is.
//!
//! Contract:
//! 1. A body occupies at most `memory_limit` bytes and one block of memory.
//! 2. The event loop never waits for the file system: files are opened and written on the blocking pool.
//! 3. A spool file has no name by the time its first byte is written: nothing remains after a crash.
//! 4. There are at most as many spool files as [`handler::held`] has places for. A body without one is not read, so that its client waits; then
//!    it is refused.

pub use crate::unnamed::unnamed_file;
use bytes::Bytes;
use handler::held::{Account, Upload};
use handler::{Failure, Incoming};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Bytes written to a spool file at a time.
const BLOCK: usize = 256 << 10;
/// How long a client without other uploads waits for a place, when other clients have them all.
const NEWCOMERS_WAIT: Duration = Duration::from_millis(500);
/// How often it is looked whether there is one.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_millis(250);
/// Most bytes reserved in advance for a declared length.
const TRUSTED_LENGTH: u64 = 64 << 10;

/// A body that has arrived whole.
#[derive(Debug)]
pub enum Collected {
    /// No bytes.
    Empty,
    /// All bytes.
    Memory(Bytes),
    /// All bytes in an unlinked file, positioned at its start.
    Spooled {
        /// The file.
        file: File,
        /// Length in bytes.
        len: u64,
        /// Its place among all uploads.
        place: Upload,
    },
}

/// What a body may take.
pub struct Bounds<'a> {
    /// Bytes in memory; more than that goes to a file.
    pub memory: usize,
    /// The folder of that.
    pub temp_dir: &'a Path,
    /// The connection that it comes from, if that may have several bodies at a time.
    pub account: Option<Rc<Account>>,
    /// How long it may wait, unread, for other uploads of its connection.
    pub patience: Duration,
}

impl Collected {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Collected::Empty => 0,
            Collected::Memory(bytes) => bytes.len() as u64,
            Collected::Spooled { len, .. } => *len,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads a body to its end.
///
/// # Errors
/// 400, 408 or 413 for the client's mistakes, 503 if there are too many uploads, or 500 if the file cannot be written.
pub async fn collect(incoming: Incoming, bounds: Bounds<'_>) -> Result<Collected, Failure> {
    match incoming {
        Incoming::Empty => Ok(Collected::Empty),
        Incoming::Ready(bytes) if bytes.is_empty() => Ok(Collected::Empty),
        Incoming::Ready(bytes) if bytes.len() <= bounds.memory => Ok(Collected::Memory(bytes)),
        // Boxed: the futures of requests whose body has arrived stay small.
        incoming => Box::pin(read(incoming, bounds)).await,
    }
}

async fn read(mut incoming: Incoming, bounds: Bounds<'_>) -> Result<Collected, Failure> {
    let (memory_limit, temp_dir) = (bounds.memory, bounds.temp_dir);
    let length = incoming.length();
    let mut held = Vec::new();
    let mut spool: Option<Spool> = None;
    let mut place = match length {
        Some(length) if length > memory_limit as u64 => Some(bounds.place().await?),
        _ => None,
    };
    while let Some(data) = incoming.data().await {
        let data = data?;
        if held.is_empty() && length == Some(data.len() as u64) && data.len() <= memory_limit {
            return Ok(Collected::Memory(data));
        }
        if held.capacity() == 0 {
            held.reserve(length.unwrap_or(0).min(TRUSTED_LENGTH) as usize);
        }
        held.extend_from_slice(&data);
        let bound = if spool.is_some() { BLOCK } else { memory_limit };
        if held.len() > bound {
            if place.is_none() {
                place = Some(bounds.place().await?);
            }
            let (next, emptied) = Spool::append(spool, temp_dir, held).await?;
            place.iter_mut().for_each(|place| place.grow(next.len));
            (spool, held) = (Some(next), emptied);
        }
    }
    match (spool, place) {
        (Some(spool), Some(mut place)) => {
            let (file, len) = spool.finish(held).await?;
            place.grow(len);
            Ok(Collected::Spooled { file, len, place })
        }
        _ if held.is_empty() => Ok(Collected::Empty),
        _ => Ok(Collected::Memory(held.into())),
    }
}

impl Bounds<'_> {
    /// Waits for a place for the body, which is not read meanwhile. A place is free again when the app has responded to its
    /// request, or the request has waited too long.
    async fn place(&self) -> Result<Upload, Failure> {
        let (since, mut wait) = (Instant::now(), SHORTEST_WAIT);
        loop {
            let account = self.account.as_ref();
            if let Some(place) = Upload::begin(account) {
                return Ok(place);
            }
            let patience = if Upload::has_others(account) { self.patience } else { NEWCOMERS_WAIT };
            if since.elapsed() >= patience {
                return Err(Failure::busy("as many uploads wait for the app as may have a file"));
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }
}

/// A file that is being filled.
struct Spool {
    file: File,
    len: u64,
    dir: PathBuf,
}

impl Spool {
    /// Appends `block`, and gives its memory back.
    async fn append(spool: Option<Spool>, dir: &Path, block: Vec<u8>) -> Result<(Spool, Vec<u8>), Failure> {
        let dir = dir.to_owned();
        blocking(move || {
            let mut spool = match spool {
                Some(spool) => spool,
                None => {
                    Spool { file: unnamed_file(&dir).map_err(|error| unusable(&dir, &error))?, len: 0, dir }
                }
            };
            spool.write(&block)?;
            let mut block = block;
            block.clear();
            Ok((spool, block))
        })
        .await
    }

    async fn finish(self, rest: Vec<u8>) -> Result<(File, u64), Failure> {
        blocking(move || {
            let mut spool = self;
            spool.write(&rest)?;
            spool.file.seek(SeekFrom::Start(0)).map_err(|error| unusable(&spool.dir, &error))?;
            Ok((spool.file, spool.len))
        })
        .await
    }

    fn write(&mut self, block: &[u8]) -> Result<(), Failure> {
        self.file.write_all(block).map_err(|error| unusable(&self.dir, &error))?;
        self.len += block.len() as u64;
        Ok(())
    }
}

async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> Result<R, Failure> + Send + 'static,
) -> Result<R, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(_) => Err(Failure::server(500, "writing a request body was cut short")),
    }
}

fn unusable(dir: &Path, error: &io::Error) -> Failure {
    let text = format!(
        "cannot keep a request body in {}: {error}; check that it exists, is writable and has room",
        dir.display()
    );
    Failure::server(500, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler::{BodyError, IncomingBody};
    use std::collections::VecDeque;
    use std::io::Read;
    use std::task::{Context, Poll};

    /// A body that comes in given pieces, with or without a length.
    struct Pieces(VecDeque<Result<Bytes, BodyError>>, Option<u64>);

    impl IncomingBody for Pieces {
        fn poll_data(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
            Poll::Ready(self.0.pop_front())
        }

        fn length(&self) -> Option<u64> {
            self.1
        }
    }

    fn bounds(memory: usize, temp_dir: &Path) -> Bounds<'_> {
        Bounds { memory, temp_dir, account: None, patience: Duration::ZERO }
    }

    fn collected(incoming: Incoming, limit: usize, dir: &Path) -> Result<Collected, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(collect(incoming, bounds(limit, dir)))
    }

    fn arriving(sizes: &[usize], known: bool) -> Incoming {
        let pieces: VecDeque<_> = sizes.iter().map(|&size| Ok(vec![b'x'; size].into())).collect();
        let length = sizes.iter().sum::<usize>() as u64;
        Incoming::Arriving(Box::new(Pieces(pieces, known.then_some(length))))
    }

    #[test]
    fn small_bodies_stay_in_memory_and_large_ones_go_to_a_file() {
        let dir = std::env::temp_dir();
        for known in [false, true] {
            for (sizes, spooled) in [
                (&[][..], false),
                (&[100], false),
                (&[50, 50], false),
                (&[50, 51], true),
                (&[101], true),
                (&[1000; 700], true),
            ] {
                let body = collected(arriving(sizes, known), 100, &dir).unwrap();
                let expected = sizes.iter().sum::<usize>() as u64;
                assert_eq!(body.len(), expected);
                assert_eq!(body.is_empty(), matches!(body, Collected::Empty));
                match body {
                    Collected::Spooled { mut file, .. } => {
                        let mut content = Vec::new();
                        file.read_to_end(&mut content).unwrap();
                        assert!(spooled && content == vec![b'x'; expected as usize]);
                        assert_eq!(rustix::fs::fstat(&file).unwrap().st_nlink, 0, "a file without a name");
                    }
                    _ => assert!(!spooled, "{sizes:?}"),
                }
            }
        }
        let ready = Incoming::Ready(Bytes::from_static(b"more than four"));
        assert!(matches!(collected(ready, 4, &dir), Ok(Collected::Spooled { len: 14, .. })));
    }

    #[test]
    fn errors_become_failures_with_their_status() {
        let dir = std::env::temp_dir();
        for (error, status) in [
            (BodyError::Gone, 400),
            (BodyError::TooSlow, 408),
            (BodyError::TooLarge, 413),
            (BodyError::Malformed("a chunk"), 400),
        ] {
            let pieces = VecDeque::from([Ok(Bytes::from_static(b"some")), Err(error)]);
            let failure = collected(Incoming::Arriving(Box::new(Pieces(pieces, None))), 2, &dir).unwrap_err();
            assert_eq!(failure.status, status);
        }
        let failure = collected(arriving(&[9], true), 2, Path::new("/nonexistent/spool")).unwrap_err();
        assert_eq!(failure.status, 500);
        assert!(failure.reason.contains("/nonexistent/spool"), "{}", failure.reason);
    }
}
