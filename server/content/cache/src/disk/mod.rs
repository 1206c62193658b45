//! Keeps responses in a folder, for a cache that is larger than memory and survives a restart.
//!
//! Contract:
//! 1. A separate thread writes and deletes, so no event loop waits for the disk. When the thread is behind,
//!    responses are not written.
//! 2. A file is whole or absent: it is written under another name and renamed. A damaged file, or a file with
//!    another key, counts as absent.
//! 3. The files take at most `limit` bytes; the least used ones are deleted. An index in memory knows their
//!    keys and tags, 100 to 200 bytes each.
//! 4. A removed or purged response is not found again, even if it is queued for writing or not scanned yet.
//!    Its file is gone when [`Disk::flushed`] resolves, so that no later process finds it.
//! 5. If the folder cannot be used, the error names it. A failed write is logged once, and the cache
//!    continues in memory.

pub(crate) mod format;

use crate::purge::Purge;
use crate::removals::{Moment, Removals};
use crate::resource::Resource;
use crate::stored::Stored;
use bytes::Bytes;
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tokio::sync::oneshot;

/// The most responses queued for writing. With bodies of 30 KB these are 8 MB.
const MOST_WAITING: usize = 256;

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

/// Collects the keys of evicted entries.
#[derive(Clone)]
struct Evictions;

impl Lifecycle<Box<[u8]>, Entry> for Evictions {
    type RequestState = Vec<Box<[u8]>>;

    fn begin_request(&self) -> Self::RequestState {
        Vec::new()
    }

    // Not `on_evict`, which is also called for replaced entries: their file has just been written again.
    fn before_evict(&self, evicted: &mut Self::RequestState, key: &Box<[u8]>, _: &mut Entry) {
        evicted.push(key.clone());
    }
}

/// The files by key.
type Index = Cache<Box<[u8]>, Entry, ByBytes, DefaultHashBuilder, Evictions>;

enum Order {
    /// Writes a resource that was put at the moment.
    Write(Box<[u8]>, Arc<Resource>, Moment),
    Delete(Box<[u8]>),
    /// Sends when all earlier orders are done.
    Tell(oneshot::Sender<()>),
}

/// The folder of a cache.
pub(crate) struct Disk {
    folder: Arc<Path>,
    index: Arc<Index>,
    orders: Sender<Order>,
    /// The number of responses that wait to be written.
    waiting: Arc<AtomicUsize>,
    skipped: AtomicU64,
}

/// Writes a line to the log.
type Log = Box<dyn Fn(&str) + Send>;

impl Disk {
    /// Opens the folder, created if it is missing, and reads its index on the thread that serves it from then on.
    ///
    /// # Errors
    /// The folder cannot be created or written to.
    pub(crate) fn open(folder: &Path, limit: u64, log: Log, removals: Arc<Removals>) -> Result<Disk, String> {
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
        let index = Arc::new(Cache::with_options(options, ByBytes, DefaultHashBuilder::default(), Evictions));
        let (orders, taken) = channel();
        let waiting = Arc::<AtomicUsize>::default();
        let writer = Writer {
            folder: folder.clone(),
            index: index.clone(),
            limit,
            log,
            waiting: waiting.clone(),
            failed: AtomicBool::new(false),
            removals,
        };
        std::thread::Builder::new()
            .name("cache-disk".to_owned())
            .spawn(move || writer.run(&taken))
            .map_err(|error| format!("cache.disk: its thread cannot be started: {error}"))?;
        Ok(Disk { folder, index, orders, waiting, skipped: AtomicU64::new(0) })
    }

    /// Writes a resource soon. Until then its old file is not used.
    pub(crate) fn put(&self, key: &[u8], resource: Arc<Resource>, moment: Moment) {
        let known = self.index.remove(key).is_some();
        if self.waiting.fetch_add(1, Ordering::Relaxed) < MOST_WAITING {
            self.order(Order::Write(key.into(), resource, moment));
            return;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.skipped.fetch_add(1, Ordering::Relaxed);
        if known {
            self.order(Order::Delete(key.into()));
        }
    }

    /// Deletes a resource soon. Lookups miss from now on.
    pub(crate) fn remove(&self, key: &[u8]) -> bool {
        let known = self.index.remove(key).is_some();
        // Also unknown ones: the file may exist without being in the index.
        self.order(Order::Delete(key.into()));
        known
    }

    fn order(&self, order: Order) {
        // Fails only if the thread has ended; then nothing is written.
        let _ = self.orders.send(order);
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

    /// Deletes the matching files soon. Returns their number.
    pub(crate) fn purge(&self, purge: &Purge) -> usize {
        let matching = self.index.iter().filter(|(key, entry)| purge.matches(key, || entry.tags.iter()));
        let keys: Vec<Box<[u8]>> = matching.map(|(key, _)| key).collect();
        let count = keys.len();
        for key in keys {
            self.index.remove(&key);
            self.order(Order::Delete(key));
        }
        count
    }

    /// Waits until all orders so far are carried out.
    pub(crate) async fn flushed(&self) {
        let (tell, told) = oneshot::channel();
        self.order(Order::Tell(tell));
        // Without the thread there is nothing to wait for.
        let _ = told.await;
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

/// The thread that writes.
struct Writer {
    folder: Arc<Path>,
    index: Arc<Index>,
    /// The most bytes of all files.
    limit: u64,
    log: Log,
    waiting: Arc<AtomicUsize>,
    failed: AtomicBool,
    removals: Arc<Removals>,
}

impl Writer {
    fn run(&self, orders: &Receiver<Order>) {
        self.scan();
        while let Ok(order) = orders.recv() {
            match order {
                Order::Write(key, resource, moment) => {
                    self.waiting.fetch_sub(1, Ordering::Relaxed);
                    match self.write(&key, &resource, moment) {
                        Ok(()) => self.failed.store(false, Ordering::Relaxed),
                        Err(error) => self.complain(&error),
                    }
                }
                Order::Tell(tell) => _ = tell.send(()),
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

    /// Adds a file to the index, or deletes it if it was removed since `moment`.
    fn add(&self, path: &Path, key: Box<[u8]>, entry: Entry, moment: Moment) {
        let recent = self.removals.lock();
        if recent.cover(moment, &key, entry.tags.iter()) {
            drop(recent);
            let _ = fs::remove_file(path);
            return;
        }
        let evicted = self.index.insert_with_lifecycle(key, entry);
        drop(recent);
        evicted.iter().for_each(|key| _ = fs::remove_file(path_of(&self.folder, key)));
    }

    fn write(&self, key: &[u8], resource: &Resource, moment: Moment) -> io::Result<()> {
        let bytes = format::write(key, resource.variants.iter().map(|stored| &**stored));
        if bytes.len() as u64 > self.limit {
            // The index would refuse it.
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
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        let tags = resource.variants.iter().flat_map(|stored| stored.tags.iter().cloned()).collect();
        self.add(&path, key.into(), Entry { bytes: bytes.len() as u64, tags }, moment);
        Ok(())
    }

    /// Fills the index with the files of an earlier process. Deletes files that are not valid.
    fn scan(&self) {
        let folders = entries(&self.folder).filter(|path| path.is_dir());
        for path in folders.flat_map(|folder| entries(&folder)) {
            match read(&path) {
                Some((key, variants)) if path == path_of(&self.folder, &key) => {
                    let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
                    let tags = variants.iter().flat_map(|stored| stored.tags.iter().cloned()).collect();
                    self.add(&path, key, Entry { bytes, tags }, Moment::default());
                }
                _ if is_ours(&path) && !is_being_written(&path) => _ = fs::remove_file(&path),
                _ => {}
            }
        }
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// The longest file that is read, in bytes: 32 variants of the longest body that settings allow would be
/// longer, and are not kept on disk.
const LONGEST: u64 = 1 << 30;

fn read(path: &Path) -> Option<(Box<[u8]>, Vec<Stored>)> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    format::read(&Bytes::from(bytes))
}

/// Returns the path of a key's file: two digits of its digest, then the others.
fn path_of(folder: &Path, key: &[u8]) -> PathBuf {
    let name = text::hex(&Sha256::digest(key)[..20]);
    folder.join(&name[..2]).join(&name[2..])
}

/// Returns whether a file's name is of the form that this module gives, temporary names included. Other files
/// in the folder are not touched.
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (digits, rest) = name.split_at_checked(38).unwrap_or((name, ""));
    digits.len() == 38
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        && (rest.is_empty() || rest.starts_with(".tmp."))
}

/// During an upgrade another program writes to the folder.
const WRITING: Duration = Duration::from_secs(60);

/// Returns whether another program may be writing the file, which it then renames.
fn is_being_written(path: &Path) -> bool {
    let modified = fs::metadata(path).and_then(|metadata| metadata.modified());
    path.extension().is_some() && modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < WRITING))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Instant;

    fn resource(key: &[u8]) -> Arc<Resource> {
        let stored = Arc::new(Stored::kept_for_tests(Duration::from_secs(60)));
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
            let probe =
                Disk::open(&dir.path().join("probe"), 1 << 20, Box::new(|_| {}), Arc::default()).unwrap();
            probe.put(b"http://a/0", resource(b"http://a/0"), Moment::default());
            wait_until(|| probe.len() == 1);
            probe.bytes()
        };
        let folder = dir.path().join("kept");
        let disk = Disk::open(&folder, one * 10, Box::new(|_| {}), Arc::default()).unwrap();
        for _ in 0..3 {
            disk.put(b"http://a/0", resource(b"http://a/0"), Moment::default());
        }
        // Orders are carried out in turn.
        disk.put(b"http://a/1", resource(b"http://a/1"), Moment::default());
        wait_until(|| disk.len() == 2);
        assert!(disk.load(b"http://a/0").is_some() && files(&folder) == 2);
        for number in 2..40 {
            let key = format!("http://a/{number}");
            disk.put(key.as_bytes(), resource(key.as_bytes()), Moment::default());
        }
        wait_until(|| disk.len() >= 8);
        assert!(disk.bytes() <= one * 10);
    }

    /// A response that cannot be written stops the thread in its log until the returned sender sends, or is dropped.
    fn with_stops(folder: &Path, removals: &Arc<Removals>) -> (Disk, mpsc::Sender<()>, mpsc::Receiver<()>) {
        let ((go, goes), (stops, stopped)) = (mpsc::channel(), mpsc::channel());
        let log = move |_: &str| {
            stops.send(()).unwrap();
            let _ = goes.recv();
        };
        let obstacle = path_of(folder, STOP);
        fs::create_dir_all(obstacle.join("not empty")).unwrap();
        (Disk::open(folder, 1 << 20, Box::new(log), removals.clone()).unwrap(), go, stopped)
    }

    /// The key of a response that cannot be written, because a folder has its name.
    const STOP: &[u8] = b"http://a/stop";

    /// As the store does it.
    fn remove(disk: &Disk, removals: &Removals, key: &[u8]) {
        removals.remove(key, &mut removals.lock());
        disk.remove(key);
    }

    #[test]
    fn what_is_removed_does_not_come_back_from_the_queue() {
        let (dir, removals) = (tempfile::tempdir().unwrap(), Arc::<Removals>::default());
        let (disk, go, stopped) = with_stops(dir.path(), &removals);
        let put = |key: &[u8]| disk.put(key, resource(key), removals.now());
        put(STOP);
        stopped.recv().unwrap();
        let keys: Vec<String> = (0..MOST_WAITING + 10).map(|number| format!("http://a/{number}")).collect();
        keys.iter().for_each(|key| put(key.as_bytes()));
        assert_eq!(disk.skipped(), 10);
        // The thread stops once more between the writes and the deletions.
        go.send(()).unwrap();
        wait_until(|| disk.waiting.load(Ordering::Relaxed) < MOST_WAITING);
        put(STOP);
        for (number, key) in keys.iter().enumerate() {
            match number % 2 {
                0 => remove(&disk, &removals, key.as_bytes()),
                _ => {
                    let purge = Purge::Path(key["http://a".len()..].to_owned());
                    removals.purge(&purge, &mut removals.lock());
                    disk.purge(&purge);
                }
            }
        }
        stopped.recv().unwrap();
        assert_eq!(disk.len(), 0, "the deletions wait still, but the files are not found");
        put(b"http://a/0");
        drop(go);
        wait_until(|| disk.has(b"http://a/0"));
        assert_eq!(disk.len(), 1, "what is put after the removal stays");
    }

    #[test]
    fn what_is_removed_is_not_scanned_later() {
        let (dir, removals) = (tempfile::tempdir().unwrap(), Arc::<Removals>::default());
        let keys: Vec<String> = (0..20).map(|number| format!("http://a/{number}")).collect();
        let before = Disk::open(dir.path(), 1 << 20, Box::new(|_| {}), Arc::default()).unwrap();
        keys.iter().for_each(|key| before.put(key.as_bytes(), resource(key.as_bytes()), Moment::default()));
        wait_until(|| before.len() == keys.len());
        // A scan waits at a pipe that looks like a file of the cache.
        let pipe = dir.path().join("pp").join("0".repeat(38));
        fs::create_dir(pipe.parent().unwrap()).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (disk, _go, stopped) = with_stops(dir.path(), &removals);
        disk.put(STOP, resource(STOP), removals.now());
        keys.iter().for_each(|key| remove(&disk, &removals, key.as_bytes()));
        drop(File::options().write(true).open(&pipe).unwrap());
        stopped.recv().unwrap();
        assert_eq!(disk.len(), 0);
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
        // Another program writes one file, and left another one behind an hour ago.
        let (written, left) = (own.with_extension("tmp.13"), own.with_extension("tmp.12"));
        fs::write(&written, "half of a").unwrap();
        let hour_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
        File::options().write(true).open(left).unwrap().set_modified(hour_ago).unwrap();
        let _disk = Disk::open(dir.path(), 1 << 20, Box::new(|_| {}), Arc::default()).unwrap();
        wait_until(|| !own.exists() && !own.with_extension("tmp.12").exists());
        assert!(written.exists());
        assert!(dir.path().join("ab/notes").exists() && dir.path().join("mine").exists());
    }
}
