//! Collects request bodies: small ones in memory, larger ones in an unnamed file.
//!
//! Why: the app gets complete requests, so a slow client never holds the app, and memory stays bounded
//! whatever the size of an upload.
//!
//! Contract:
//! 1. A body takes at most `memory_limit` bytes plus one block of memory, counted in the memory of all
//!    clients (`net::memory`). When that memory is scarce, bodies go to files early. When the files have no
//!    room either, the server stops reading the body, for at most as long as for a place. Bodies that arrive slowly, or not at all, give way first.
//! 2. The event loop never waits for the file system: the blocking pool opens and writes files.
//! 3. A spool file has no name by the time its first byte is written, so a crash leaves nothing behind.
//! 4. [`handler::held`] limits the number of spool files. A body that gets no place is not read, so its
//!    client waits; then it is refused.

use bytes::Bytes;
use handler::held::{Account, Upload};
use handler::{BodyError, Failure, Incoming};
use net::memory::{self, Level, MemoryClass, Reserved};
use std::future::poll_fn;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use sys::file::UnnamedFile;
use tokio::time::{Instant, Sleep, sleep};

/// Bytes per write to a spool file.
const BLOCK: usize = 256 << 10;
/// The longest wait for a place of a client that has no other uploads, while other clients hold all places.
const NEWCOMERS_WAIT: Duration = Duration::from_millis(500);
/// The shortest and the longest interval between two attempts to get a place.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_millis(250);
/// The most bytes of a body in memory when memory is scarce.
const SCARCE: usize = 4 << 10;
/// While memory is scarce, a body that has been arriving for this long is refused when it has waited for [`OLD_WAIT`]: bodies that wait for each
/// other's memory would all wait until the end of their patience, and those of quick clients with them.
const OLD: Duration = Duration::from_secs(5);
const OLD_WAIT: Duration = Duration::from_secs(1);
/// The interval of looks at a body whose client sends nothing: while memory is scarce, what has arrived goes to a file. If it cannot, a body with
/// less than [`HARDLY`] new bytes since the last look is refused, as responses end whose clients hardly read.
const LOOK: Duration = Duration::from_secs(2);
const HARDLY: usize = 2 << 10;
/// The most bytes reserved in advance for a declared length.
const TRUSTED_LENGTH: u64 = 64 << 10;

/// A complete request body.
#[derive(Debug)]
pub enum Collected {
    Empty,
    Memory(Bytes),
    /// The whole body in an unlinked file, positioned at its start.
    Spooled {
        file: UnnamedFile,
        /// In bytes.
        len: u64,
        /// The place that this body takes among all uploads.
        place: Upload,
    },
}

/// The limits for one body.
pub struct BodyBounds<'a> {
    /// The most bytes in memory; a larger body goes to a file.
    pub memory: usize,
    /// The folder of spool files.
    pub temp_dir: &'a Path,
    /// The account of the body's connection, if the connection may have several bodies at a time.
    pub account: Option<Rc<Account>>,
    /// How long the body may wait, unread, for other uploads of its connection.
    pub patience: Duration,
}

impl Collected {
    /// The length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Collected::Empty => 0,
            Collected::Memory(bytes) => bytes.len() as u64,
            Collected::Spooled { len, .. } => *len,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads a body to its end.
///
/// # Errors
/// 400, 408 or 413 for errors of the client, 503 for too many uploads, 500 if the file cannot be written.
pub async fn collect(incoming: Incoming, bounds: BodyBounds<'_>) -> Result<Collected, Failure> {
    match incoming {
        Incoming::Empty => Ok(Collected::Empty),
        Incoming::Ready(bytes) if bytes.is_empty() => Ok(Collected::Empty),
        Incoming::Ready(bytes) if bytes.len() <= bounds.memory => Ok(Collected::Memory(bytes)),
        // Boxed: this keeps the futures of requests small whose body has already arrived.
        incoming => Box::pin(read(incoming, bounds)).await,
    }
}

async fn read(mut incoming: Incoming, bounds: BodyBounds<'_>) -> Result<Collected, Failure> {
    let (memory_limit, temp_dir) = (bounds.memory, bounds.temp_dir);
    let (length, begun) = (incoming.length(), Instant::now());
    let mut held = Vec::new();
    let reserved = Reserved::new(MemoryClass::Requests, 0);
    let mut spool: Option<Spool> = None;
    let mut place = match length {
        Some(length) if length > memory_limit as u64 => Some(bounds.place().await?),
        _ => None,
    };
    let (mut look, mut arrived) = (pin!(sleep(LOOK)), 0);
    loop {
        let data = match next(&mut incoming, look.as_mut(), held.len()).await {
            Next::Data(data) => Some(data?),
            Next::Look => None,
            Next::Scarce => {
                bounds.room(begun).await?;
                look.as_mut().reset(Instant::now() + LOOK);
                continue;
            }
            Next::End => break,
        };
        if let Some(data) = &data {
            if held.is_empty() && length == Some(data.len() as u64) && data.len() <= memory_limit {
                return Ok(Collected::Memory(data.clone()));
            }
            if held.capacity() == 0 {
                held.reserve(length.unwrap_or(0).min(TRUSTED_LENGTH) as usize);
            }
            held.extend_from_slice(data);
            reserved.set(held.len() as u64);
            arrived += data.len();
        }
        let bound = if spool.is_some() { BLOCK } else { memory_limit };
        let level = memory::level();
        if held.len() > bound || (level >= Level::Files && held.len() > SCARCE && bounds.relieves(&mut place))
        {
            if place.is_none() {
                place = Some(bounds.place().await?);
            }
            let (longer, mut emptied) = Spool::append(spool, temp_dir, held).await?;
            if level >= Level::Files {
                emptied = Vec::new();
            }
            place.iter_mut().for_each(|place| place.grow(longer.len));
            (spool, held) = (Some(longer), emptied);
            reserved.set(0);
        }
        if data.is_none() {
            if std::mem::take(&mut arrived) < HARDLY && level >= Level::Waiting && held.len() > SCARCE {
                return Err(Failure::busy(memory::refuse()));
            }
            look.as_mut().reset(Instant::now() + LOOK);
        } else if level >= Level::Waiting {
            bounds.room(begun).await?;
            look.as_mut().reset(Instant::now() + LOOK);
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

/// The next event of a body.
enum Next {
    Data(Result<Bytes, BodyError>),
    End,
    /// It is time to look at it.
    Look,
    /// Memory has become scarce, and the body holds some of it: it is not read.
    Scarce,
}

/// Waits for the next event of a body that holds `held` bytes of memory.
async fn next(incoming: &mut Incoming, mut look: Pin<&mut Sleep>, held: usize) -> Next {
    let mut data = pin!(incoming.data());
    poll_fn(|cx| {
        // Before the body is read: one more piece of each of a thousand bodies would be more than what is left.
        if held > SCARCE && memory::level() >= Level::Waiting {
            let look = look.as_mut().poll(cx);
            return Poll::Ready(if look.is_ready() { Next::Look } else { Next::Scarce });
        }
        match data.as_mut().poll(cx) {
            Poll::Pending => look.as_mut().poll(cx).map(|()| Next::Look),
            Poll::Ready(data) => Poll::Ready(data.map_or(Next::End, Next::Data)),
        }
    })
    .await
}

impl BodyBounds<'_> {
    /// Takes a place, if there is one, for a body that could stay in memory. Returns whether it goes to a file.
    fn relieves(&self, place: &mut Option<Upload>) -> bool {
        if memory::are_files_in_memory() {
            return false;
        }
        if place.is_none() {
            *place = Upload::begin(self.account.as_ref());
        }
        place.is_some()
    }

    /// Waits until memory is less scarce; the body, which has been arriving since `begun`, is not read meanwhile.
    async fn room(&self, begun: Instant) -> Result<(), Failure> {
        let (since, mut wait) = (Instant::now(), SHORTEST_WAIT);
        while memory::level() >= Level::Waiting {
            let patience = if begun.elapsed() >= OLD { self.patience.min(OLD_WAIT) } else { self.patience };
            if since.elapsed() >= patience {
                return Err(Failure::busy(memory::refuse()));
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        Ok(())
    }

    /// Waits for a place; the body is not read meanwhile. A place becomes free when the app has responded to
    /// its request, or when the request has waited too long.
    async fn place(&self) -> Result<Upload, Failure> {
        let (since, mut wait) = (Instant::now(), SHORTEST_WAIT);
        loop {
            let account = self.account.as_ref();
            if let Some(place) = Upload::begin(account) {
                return Ok(place);
            }
            let patience = if Upload::has_others(account) { self.patience } else { NEWCOMERS_WAIT };
            if since.elapsed() >= patience {
                return Err(Failure::busy("too many uploads are waiting for the app"));
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }
}

/// A spool file that is being written.
struct Spool {
    file: UnnamedFile,
    len: u64,
    dir: PathBuf,
}

impl Spool {
    /// Appends `block` and returns its memory for reuse.
    async fn append(spool: Option<Spool>, dir: &Path, block: Vec<u8>) -> Result<(Spool, Vec<u8>), Failure> {
        let dir = dir.to_owned();
        blocking(move || {
            let mut spool = match spool {
                Some(spool) => spool,
                None => Spool {
                    file: sys::file::unnamed(&dir).map_err(|error| unusable(&dir, &error))?,
                    len: 0,
                    dir,
                },
            };
            spool.write(&block)?;
            let mut block = block;
            block.clear();
            Ok((spool, block))
        })
        .await
    }

    async fn finish(self, rest: Vec<u8>) -> Result<(UnnamedFile, u64), Failure> {
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
    use handler::IncomingBody;
    use std::collections::VecDeque;
    use std::io::Read;
    use std::task::Context;

    /// A body that arrives in the given pieces, with or without a declared length.
    struct Pieces(VecDeque<Result<Bytes, BodyError>>, Option<u64>);

    impl IncomingBody for Pieces {
        fn poll_data(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
            Poll::Ready(self.0.pop_front())
        }

        fn length(&self) -> Option<u64> {
            self.1
        }
    }

    fn bounds(memory: usize, temp_dir: &Path) -> BodyBounds<'_> {
        BodyBounds { memory, temp_dir, account: None, patience: Duration::ZERO }
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
