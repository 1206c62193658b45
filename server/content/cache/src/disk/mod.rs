//! Kept responses in a folder, for a cache that is larger than memory and survives a restart.
//!
//! Contract:
//! 1. A thread of its own writes and deletes; no event loop waits for the disk. When it is behind, responses are not written.
//! 2. A file is whole or absent: it is written beside its place, and renamed. A file that is damaged, or has another key, counts as absent.
//! 3. The files take at most `limit` bytes; the least used ones are deleted. An index in memory knows their keys and tags, 100 to 200 bytes each.
//! 4. [`Disk::purge`] returns when the files are gone.
//! 5. If the folder cannot be used, the error names it; a write that fails is logged once, and the cache goes on in memory.

pub(crate) mod format;

use crate::purge::Purge;
use crate::resource::Resource;
use crate::stored::Stored;
use bytes::Bytes;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// Orders that wait for the thread. With bodies of 30 KB these are 8 MB.
const MOST_ORDERS: usize = 256;

/// The expected size of a file, in bytes.
const TYPICAL: u64 = 32 << 10;

/// Reads a file, and writes what it has read: the same bytes come out.
pub(crate) fn read_and_write(bytes: &Bytes) {
    if let Some((key, variants)) = format::read(bytes) {
        let again = Bytes::from(format::write(&key, variants.iter()));
        assert!(format::read(&again).is_some_and(|(read, all)| read == key && all.len() == variants.len()));
    }
}

/// A file in the index.
#[derive(Debug, Clone)]
struct Entry {
    bytes: u64,
    tags: Arc<[Box<[u8]>]>,
}

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<Box<[u8]>, Entry> for ByBytes {
    fn weight(&self, _: &Box<[u8]>, entry: &Entry) -> u64 {
        entry.bytes
    }
}

/// Deletes the files of entries that had to make room.
#[derive(Clone)]
struct Evictions {
    folder: Arc<Path>,
}

impl Lifecycle<Box<[u8]>, Entry> for Evictions {
    type RequestState = ();

    fn begin_request(&self) -> Self::RequestState {}

    // Runs on the thread that writes, which alone makes room. Not `on_evict`, which is called for replaced entries, too: their file has just been
    // written anew.
    fn before_evict(&self, (): &mut (), key: &Box<[u8]>, _: &mut Entry) {
        let _ = fs::remove_file(path_of(&self.folder, key));
    }
}

/// The files by key.
type Index = Cache<Box<[u8]>, Entry, ByBytes, DefaultHashBuilder, Evictions>;

enum Order {
    Write(Box<[u8]>, Arc<Resource>),
    Delete(Box<[u8]>),
    /// Deletes what is purged of the files that were ordered before.
    Purge(Purge),
}

/// The folder of a cache.
pub(crate) struct Disk {
    folder: Arc<Path>,
    index: Arc<Index>,
    orders: SyncSender<Order>,
    skipped: AtomicU64,
}

/// Writes a line to the log.
type Log = Box<dyn Fn(&str) + Send>;

impl Disk {
    /// Opens the folder, created if it is missing, and reads its index on the thread that serves it from then on.
    ///
    /// # Errors
    /// The folder cannot be created or written to.
    pub(crate) fn open(folder: &Path, limit: u64, log: Log) -> Result<Disk, String> {
        let failed = |error: io::Error| format!("cache.disk: {}: {error}", folder.display());
        // Responses may be for clients of this server only: for its own user.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let probe = folder.join(format!("probe.{}", std::process::id()));
        File::create(&probe).and_then(|_| fs::remove_file(&probe)).map_err(failed)?;
        let folder: Arc<Path> = folder.into();
        let options = OptionsBuilder::new()
            .estimated_items_capacity(
                usize::try_from(limit / TYPICAL).unwrap_or(usize::MAX).clamp(64, 1 << 20),
            )
            .weight_capacity(limit)
            .shards(1)
            .build()
            .expect("capacity and weight are set");
        let evictions = Evictions { folder: folder.clone() };
        let index = Arc::new(Cache::with_options(options, ByBytes, DefaultHashBuilder::default(), evictions));
        let (orders, taken) = sync_channel(MOST_ORDERS);
        let writer = Writer {
            folder: folder.clone(),
            index: index.clone(),
            limit,
            log,
            failed: AtomicBool::new(false),
        };
        std::thread::Builder::new()
            .name("cache-disk".to_owned())
            .spawn(move || writer.run(&taken))
            .map_err(|error| format!("cache.disk: its thread cannot be started: {error}"))?;
        Ok(Disk { folder, index, orders, skipped: AtomicU64::new(0) })
    }

    /// Writes a resource soon.
    pub(crate) fn put(&self, key: &[u8], resource: Arc<Resource>) {
        self.order(Order::Write(key.into(), resource));
    }

    /// Deletes a resource soon. Whoever asks meanwhile does not find it.
    pub(crate) fn remove(&self, key: &[u8]) -> bool {
        let known = self.index.remove(key).is_some();
        // Also unknown ones: the order to write it may be waiting.
        self.order(Order::Delete(key.into()));
        known
    }

    fn order(&self, order: Order) {
        match self.orders.try_send(order) {
            Ok(()) => {}
            // The file of a resource that was to be deleted must not come back.
            Err(TrySendError::Full(Order::Delete(key)) | TrySendError::Disconnected(Order::Delete(key))) => {
                let _ = fs::remove_file(path_of(&self.folder, &key));
            }
            Err(_) => {
                self.skipped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns whether the folder has a file for the key.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.index.peek(key).is_some()
    }

    /// Reads a resource. Blocks.
    pub(crate) fn load(&self, key: &[u8]) -> Option<Vec<Stored>> {
        // Counts the use.
        self.index.get(key)?;
        let read = read(&path_of(&self.folder, key)).filter(|(known, _)| **known == *key);
        if read.is_none() {
            self.index.remove(key);
        }
        read.map(|(_, variants)| variants)
    }

    /// Deletes what is purged, also what waits to be written. Returns the number of files.
    pub(crate) fn purge(&self, purge: &Purge) -> usize {
        let count = delete(&self.index, &self.folder, purge);
        // Waits for room in the queue: a purge must not be lost. It fails only without the thread, which then writes nothing.
        let _ = self.orders.send(Order::Purge(purge.clone()));
        count
    }

    /// Returns the number of bytes of the files.
    pub(crate) fn bytes(&self) -> u64 {
        self.index.weight()
    }

    /// Returns the number of files.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the number of responses that were not written because the disk was behind.
    pub(crate) fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }
}

/// Deletes the files that match. Returns their number.
fn delete(index: &Index, folder: &Path, purge: &Purge) -> usize {
    let matching = index.iter().filter(|(key, entry)| purge.matches(key, || entry.tags.iter()));
    let keys: Vec<Box<[u8]>> = matching.map(|(key, _)| key).collect();
    for key in &keys {
        index.remove(key);
        let _ = fs::remove_file(path_of(folder, key));
    }
    keys.len()
}

/// The thread that writes.
struct Writer {
    folder: Arc<Path>,
    index: Arc<Index>,
    /// The most bytes of all files.
    limit: u64,
    log: Log,
    failed: AtomicBool,
}

impl Writer {
    fn run(&self, orders: &Receiver<Order>) {
        self.scan();
        while let Ok(order) = orders.recv() {
            match order {
                Order::Write(key, resource) => match self.write(&key, &resource) {
                    Ok(()) => self.failed.store(false, Ordering::Relaxed),
                    Err(error) => self.complain(&error),
                },
                Order::Purge(purge) => _ = delete(&self.index, &self.folder, &purge),
                Order::Delete(key) => {
                    self.index.remove(&key);
                    let _ = fs::remove_file(path_of(&self.folder, &key));
                }
            }
        }
    }

    fn complain(&self, error: &io::Error) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            let folder = self.folder.display();
            (self.log)(&format!(
                "cache: responses cannot be written to {folder}: {error}; they are kept in memory only"
            ));
        }
    }

    fn write(&self, key: &[u8], resource: &Resource) -> io::Result<()> {
        let bytes = format::write(key, resource.variants.iter().map(|stored| &**stored));
        if bytes.len() as u64 > self.limit {
            // The index would refuse it.
            self.index.remove(key);
            let _ = fs::remove_file(path_of(&self.folder, key));
            return Ok(());
        }
        let path = path_of(&self.folder, key);
        let beside = path.with_extension(format!("tmp.{}", std::process::id()));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let written = File::create(&beside)
            .and_then(|mut file| file.write_all(&bytes))
            .and_then(|()| fs::rename(&beside, &path));
        if let Err(error) = written {
            let _ = fs::remove_file(&beside);
            return Err(error);
        }
        let tags = resource.variants.iter().flat_map(|stored| stored.tags.iter().cloned()).collect();
        self.index.insert(key.into(), Entry { bytes: bytes.len() as u64, tags });
        Ok(())
    }

    /// Fills the index with the files of an earlier process. Deletes what is not one of them.
    fn scan(&self) {
        let folders = entries(&self.folder).filter(|path| path.is_dir());
        for path in folders.flat_map(|folder| entries(&folder)) {
            match read(&path) {
                Some((key, variants)) if path == path_of(&self.folder, &key) => {
                    let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
                    let tags = variants.iter().flat_map(|stored| stored.tags.iter().cloned()).collect();
                    // One that was written meanwhile is newer.
                    if self.index.peek(&key).is_none() {
                        self.index.insert(key, Entry { bytes, tags });
                    }
                }
                _ if is_ours(&path) => _ = fs::remove_file(&path),
                _ => {}
            }
        }
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The longest file that is read, in bytes: 32 variants of the longest body that settings allow would be longer, and are not kept on disk.
const LONGEST: u64 = 1 << 30;

fn read(path: &Path) -> Option<(Box<[u8]>, Vec<Stored>)> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    format::read(&Bytes::from(bytes))
}

/// Returns the path of a key's file: two digits of its digest, then the others.
fn path_of(folder: &Path, key: &[u8]) -> PathBuf {
    let mut name = String::with_capacity(64);
    for byte in Sha256::digest(key).iter().take(20) {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    folder.join(&name[..2]).join(&name[2..])
}

/// Returns whether a file has a name that this module gives, also while it is written. Nothing else in the folder is touched.
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (digits, rest) = name.split_at_checked(38).unwrap_or((name, ""));
    digits.len() == 38
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        && (rest.is_empty() || rest.starts_with(".tmp."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored::Rules;
    use std::time::{Duration, Instant};

    fn resource(key: &[u8]) -> Arc<Resource> {
        let rules = Rules {
            no_cache: false,
            must_revalidate: false,
            may_be_stale: true,
            stale_while_revalidate: None,
            stale_if_error: None,
        };
        let stored = Arc::new(Stored::for_tests(Duration::from_secs(60), rules));
        Resource::new(key, [stored].into_iter().collect())
    }

    fn wait_until(done: impl Fn() -> bool) {
        let begun = Instant::now();
        while !done() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the thread does not get there");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn files(folder: &Path) -> usize {
        entries(folder).filter(|path| path.is_dir()).map(|path| entries(&path).count()).sum()
    }

    #[test]
    fn a_file_that_is_written_again_stays_and_those_without_room_go() {
        let dir = tempfile::tempdir().unwrap();
        let one = {
            let probe = Disk::open(&dir.path().join("probe"), 1 << 20, Box::new(|_| {})).unwrap();
            probe.put(b"http://a/0", resource(b"http://a/0"));
            wait_until(|| probe.len() == 1);
            probe.bytes()
        };
        let folder = dir.path().join("kept");
        let disk = Disk::open(&folder, one * 10, Box::new(|_| {})).unwrap();
        for _ in 0..3 {
            disk.put(b"http://a/0", resource(b"http://a/0"));
        }
        // Orders are carried out in turn.
        disk.put(b"http://a/1", resource(b"http://a/1"));
        wait_until(|| disk.len() == 2);
        assert!(disk.load(b"http://a/0").is_some() && files(&folder) == 2);
        for number in 2..40 {
            let key = format!("http://a/{number}");
            disk.put(key.as_bytes(), resource(key.as_bytes()));
        }
        wait_until(|| disk.len() >= 8);
        assert!(disk.bytes() <= one * 10);
        // Whatever waits to be written is purged, too.
        disk.purge(&Purge::All);
        disk.put(b"http://a/after", resource(b"http://a/after"));
        wait_until(|| disk.has(b"http://a/after"));
        assert_eq!((disk.len(), files(&folder)), (1, 1));
    }

    #[test]
    fn only_files_of_the_cache_are_deleted() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("ab").join("0".repeat(38));
        fs::create_dir(own.parent().unwrap()).unwrap();
        for name in
            [own.clone(), own.with_extension("tmp.12"), dir.path().join("ab/notes"), dir.path().join("mine")]
        {
            fs::write(name, "nothing that the cache has written").unwrap();
        }
        let _disk = Disk::open(dir.path(), 1 << 20, Box::new(|_| {})).unwrap();
        wait_until(|| !own.exists() && !own.with_extension("tmp.12").exists());
        assert!(dir.path().join("ab/notes").exists() && dir.path().join("mine").exists());
    }
}
