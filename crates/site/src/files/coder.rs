//! Compressed representations, made once and kept.
//!
//! Contract:
//! 1. A version of a file is compressed at most once at a time for each coding; whoever else wants it waits for it.
//! 2. The event loop never compresses: another thread does.
//! 3. What would not become smaller is remembered as such, and is sent as it is.

use super::document::{Document, read};
use crate::coding::{Coding, compress};
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::unsync::Cache;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use tokio::sync::OnceCell;

/// Larger files are sent as they are: compressing them would hold the first client for too long. Whoever wants them
/// compressed puts a side-car beside them.
const MAX: u64 = 4 << 20;

type Key = (u64, Coding);
type Making = Rc<OnceCell<Option<Bytes>>>;

/// Compressed representations of a site's files.
#[derive(Debug)]
pub(crate) struct Coder {
    min: u64,
    made: RefCell<Cache<Key, Option<Bytes>, ByLength>>,
    making: RefCell<HashMap<Key, Making>>,
}

#[derive(Debug, Clone)]
struct ByLength;

impl Weighter<Key, Option<Bytes>> for ByLength {
    fn weight(&self, _: &Key, bytes: &Option<Bytes>) -> u64 {
        bytes.as_ref().map_or(0, Bytes::len) as u64 + 64
    }
}

impl Coder {
    /// Keeps at most `bytes` of compressed files, and leaves those below `min` bytes alone.
    pub(crate) fn new(bytes: u64, min: u64) -> Coder {
        Coder {
            min,
            made: RefCell::new(Cache::with_weighter((bytes >> 12) as usize, bytes, ByLength)),
            making: RefCell::default(),
        }
    }

    /// Whether a file of that length is compressed at all.
    pub(crate) fn takes(&self, len: u64) -> bool {
        (self.min..=MAX).contains(&len)
    }

    /// The document in that coding; `None` when it does not become smaller, or cannot be read.
    pub(crate) async fn code(&self, document: &Document, coding: Coding) -> Option<Bytes> {
        let key = (document.id, coding);
        if let Some(made) = self.made.borrow().get(&key) {
            return made.clone();
        }
        let making = self.making(key);
        let made = making.get_or_init(|| make(document, coding)).await.clone();
        if self.making.borrow_mut().remove(&key).is_some() {
            self.made.borrow_mut().insert(key, made.clone());
        }
        made
    }

    fn making(&self, key: Key) -> Making {
        let mut making = self.making.borrow_mut();
        if making.len() > MANY {
            making.retain(|_, made| Rc::strong_count(made) > 1);
        }
        making.entry(key).or_default().clone()
    }
}

/// Beyond this many at once, those that nobody waits for any more are swept out.
const MANY: usize = 64;

async fn make(document: &Document, coding: Coding) -> Option<Bytes> {
    let len = document.len();
    let file = document.file.try_clone().ok()?;
    let compressed = tokio::task::spawn_blocking(move || {
        let data = read(&file, len).ok()?;
        compress(coding, &data, coding.level()).ok()
    });
    let compressed = compressed.await.ok().flatten()?;
    ((compressed.len() as u64) < len).then(|| compressed.into())
}
