//! Caches compressed representations of files.
//!
//! Contract:
//! 1. For each coding, each version of a file is compressed at most once at a time; other requests wait for the result.
//! 2. Compression runs on another thread, never on the event loop.
//! 3. A file that does not shrink is remembered and sent uncompressed.
//! 4. Results that do not fit into memory are kept in an unlinked file, so they are not compressed again. The
//!    disk space is bounded. If no such file can be created, these files are compressed each time.

use super::document::{Document, read};
use super::spill::Spill;
use bytes::Bytes;
use handler::{Body, FileRegion};
use net::memory::{self, Level, MemoryClass, Reserved};
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use representation::coding::{Coding, Levels, compress};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use tokio::sync::OnceCell;

/// Larger files are sent uncompressed, because compressing them would delay the first client too long. A
/// precompressed file works for any size.
const MAX_LENGTH: u64 = 4 << 20;

type Key = (u64, Coding);
type Pending = Rc<OnceCell<Option<Bytes>>>;

/// A compressed file, in memory or on disk.
#[derive(Debug, Clone)]
pub(crate) enum Encoded {
    Bytes(Bytes),
    File(FileRegion),
}

impl Encoded {
    pub(crate) fn body(self) -> Body {
        match self {
            Encoded::Bytes(bytes) => Body::Bytes(bytes),
            Encoded::File(region) => Body::File(region),
        }
    }
}

/// The compressed representations of a site's files.
#[derive(Debug)]
pub(crate) struct CompressionCache {
    min: u64,
    done: RefCell<Cache<Key, Option<Bytes>, ByLength>>,
    /// The bytes in `done`, as [`MemoryClass::Sites`].
    counted: Reserved,
    /// Copies on disk, for entries that `done` has evicted.
    spilled: RefCell<Spill<Key>>,
    pending: RefCell<HashMap<Key, Pending>>,
}

#[derive(Debug, Clone)]
struct ByLength;

impl Weighter<Key, Option<Bytes>> for ByLength {
    fn weight(&self, _: &Key, bytes: &Option<Bytes>) -> u64 {
        bytes.as_ref().map_or(0, Bytes::len) as u64 + 64
    }
}

impl CompressionCache {
    /// Keeps at most `bytes` of compressed files. Files below `min` bytes are not compressed.
    pub(crate) fn new(bytes: u64, min: u64) -> CompressionCache {
        CompressionCache {
            min,
            done: RefCell::new(Cache::with_weighter((bytes >> 12) as usize, bytes, ByLength)),
            counted: Reserved::new(MemoryClass::Sites, 0),
            spilled: RefCell::default(),
            pending: RefCell::default(),
        }
    }

    /// Returns whether a file of that length is compressed at all.
    pub(crate) fn accepts(&self, len: u64) -> bool {
        (self.min..=MAX_LENGTH).contains(&len)
    }

    /// Returns the document in that coding; `None` if it does not shrink or cannot be read.
    pub(crate) async fn get(&self, document: &Document, coding: Coding) -> Option<Encoded> {
        let key = (document.id, coding);
        if let Some(done) = self.done.borrow().get(&key) {
            return done.clone().map(Encoded::Bytes);
        }
        if let Some(region) = self.spilled.borrow_mut().get(&key) {
            return Some(Encoded::File(region));
        }
        let pending = self.pending(key);
        let done = pending.get_or_init(|| compress_file(document, coding)).await.clone();
        if self.pending.borrow_mut().remove(&key).is_some() {
            if let Some(bytes) = &done {
                self.spilled.borrow_mut().put(key, bytes);
            }
            // The copy on disk is used while memory is scarce. A file that does not shrink takes no memory.
            if done.is_none() || memory::level() < Level::Files {
                let mut all = self.done.borrow_mut();
                all.insert(key, done.clone());
                self.counted.set(all.weight());
            }
        }
        done.map(Encoded::Bytes)
    }

    /// Gives back what is in memory. The copies on disk stay, and the knowledge of what does not shrink.
    pub(crate) fn give_back(&self) {
        let mut all = self.done.borrow_mut();
        all.retain(|_, bytes| bytes.is_none());
        self.counted.set(all.weight());
    }

    fn pending(&self, key: Key) -> Pending {
        let mut pending = self.pending.borrow_mut();
        if pending.len() > MAX_PENDING {
            pending.retain(|_, done| Rc::strong_count(done) > 1);
        }
        pending.entry(key).or_default().clone()
    }
}

/// Beyond this number of entries, those that no request waits for are removed.
const MAX_PENDING: usize = 64;

async fn compress_file(document: &Document, coding: Coding) -> Option<Bytes> {
    let len = document.len();
    let file = document.file.shared().try_clone().ok()?;
    let compressed = tokio::task::spawn_blocking(move || {
        let data = read(&file, len).ok()?;
        compress(coding, &data, Levels::KEPT.of(coding)).ok()
    });
    let compressed = compressed.await.ok().flatten()?;
    ((compressed.len() as u64) < len).then(|| compressed.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::wait;
    use std::os::unix::fs::FileExt;
    use std::time::{Instant, SystemTime};

    #[test]
    fn what_does_not_fit_into_memory_is_compressed_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large.json");
        let mut number = 1_u64;
        let text: String = (0..40_000)
            .map(|_| {
                number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                format!("{} ", number >> 40)
            })
            .collect();
        std::fs::write(&path, &text).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let metadata = file.metadata().unwrap();
        let document = Document::new(1, "large.json", file, &metadata, Instant::now(), SystemTime::now());
        let cache = CompressionCache::new(16 << 10, 1);
        let get = || wait(cache.get(&document, Coding::Gzip)).unwrap();
        let Encoded::Bytes(first) = get() else { panic!("it has just been made") };
        assert!(first.len() > 16 << 10);
        let Encoded::File(region) = get() else { panic!("it was made again") };
        let mut kept = vec![0; region.len as usize];
        region.file.shared().read_exact_at(&mut kept, region.offset).unwrap();
        assert_eq!(kept, first);
    }
}
