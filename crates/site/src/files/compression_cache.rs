//! Compressed representations of files, made once and kept.
//!
//! Contract:
//! 1. Each version of a file is compressed at most once at a time for each coding; other requests wait for that one.
//! 2. Compression runs on another thread, never on the event loop.
//! 3. A file that does not shrink is remembered as such and sent uncompressed.

use super::document::{Document, read};
use crate::coding::{Coding, compress};
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use tokio::sync::OnceCell;

/// Larger files are sent uncompressed: compressing them would delay the first client too long. A precompressed side-car
/// works for any size.
const MAX_LENGTH: u64 = 4 << 20;

type Key = (u64, Coding);
type Pending = Rc<OnceCell<Option<Bytes>>>;

/// Compressed representations of a site's files.
#[derive(Debug)]
pub(crate) struct CompressionCache {
    min: u64,
    done: RefCell<Cache<Key, Option<Bytes>, ByLength>>,
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
    /// Keeps at most `bytes` of compressed files; files below `min` bytes are not compressed.
    pub(crate) fn new(bytes: u64, min: u64) -> CompressionCache {
        CompressionCache {
            min,
            done: RefCell::new(Cache::with_weighter((bytes >> 12) as usize, bytes, ByLength)),
            pending: RefCell::default(),
        }
    }

    /// Whether a file of that length is compressed at all.
    pub(crate) fn accepts(&self, len: u64) -> bool {
        (self.min..=MAX_LENGTH).contains(&len)
    }

    /// The document in that coding; `None` when it does not shrink or cannot be read.
    pub(crate) async fn get(&self, document: &Document, coding: Coding) -> Option<Bytes> {
        let key = (document.id, coding);
        if let Some(done) = self.done.borrow().get(&key) {
            return done.clone();
        }
        let pending = self.pending(key);
        let done = pending.get_or_init(|| compress_file(document, coding)).await.clone();
        if self.pending.borrow_mut().remove(&key).is_some() {
            self.done.borrow_mut().insert(key, done.clone());
        }
        done
    }

    fn pending(&self, key: Key) -> Pending {
        let mut pending = self.pending.borrow_mut();
        if pending.len() > MAX_PENDING {
            pending.retain(|_, done| Rc::strong_count(done) > 1);
        }
        pending.entry(key).or_default().clone()
    }
}

/// With more entries than this, those that no request waits for are removed.
const MAX_PENDING: usize = 64;

async fn compress_file(document: &Document, coding: Coding) -> Option<Bytes> {
    let len = document.len();
    let file = document.file.try_clone().ok()?;
    let compressed = tokio::task::spawn_blocking(move || {
        let data = read(&file, len).ok()?;
        compress(coding, &data, coding.level()).ok()
    });
    let compressed = compressed.await.ok().flatten()?;
    ((compressed.len() as u64) < len).then(|| compressed.into())
}
