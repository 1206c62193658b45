//! Keeps bytes that do not fit into memory in unlinked files.
//!
//! Contract:
//! 1. At most two files of [`LONGEST`] bytes are on the disk at a time, besides those that responses still read.
//! 2. When a file is full, the older one is dropped. Its entries are then made again on demand.
//! 3. If no file can be written, nothing is kept.

use handler::FileRegion;
use handler::held::OpenFile;
use std::collections::HashMap;
use std::hash::Hash;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// The most bytes of a file.
const LONGEST: u64 = 128 << 20;
/// The most entries of a file.
const MOST: usize = 65_536;

/// Two files; entries are added to the newer one.
#[derive(Debug)]
pub(crate) struct Spill<K> {
    newer: Option<Pack<K>>,
    older: Option<Pack<K>>,
    longest: u64,
}

#[derive(Debug)]
struct Pack<K> {
    file: Rc<OpenFile>,
    len: u64,
    index: HashMap<K, (u64, u64)>,
}

impl<K> Default for Spill<K> {
    fn default() -> Spill<K> {
        Spill { newer: None, older: None, longest: LONGEST }
    }
}

impl<K: Copy + Eq + Hash> Spill<K> {
    pub(crate) fn get(&mut self, key: &K) -> Option<FileRegion> {
        self.newer.as_ref().and_then(|pack| pack.get(key)).or_else(|| self.older.as_ref()?.get(key))
    }

    /// Keeps bytes, if possible.
    pub(crate) fn put(&mut self, key: K, bytes: &[u8]) {
        let full = |pack: &Pack<K>| pack.len + bytes.len() as u64 > self.longest || pack.index.len() >= MOST;
        if self.newer.as_ref().is_none_or(full) {
            self.older = self.newer.take();
            // Without a file, nothing is kept.
            self.newer = sys::file::unnamed(&std::env::temp_dir()).ok().map(|file| Pack {
                file: Rc::new(OpenFile::from(file)),
                len: 0,
                index: HashMap::new(),
            });
        }
        let Some(pack) = &mut self.newer else { return };
        if pack.file.shared().write_all_at(bytes, pack.len).is_ok() {
            pack.index.insert(key, (pack.len, bytes.len() as u64));
            pack.len += bytes.len() as u64;
        }
    }
}

impl<K: Eq + Hash> Pack<K> {
    fn get(&self, key: &K) -> Option<FileRegion> {
        let (offset, len) = *self.index.get(key)?;
        Some(FileRegion { file: self.file.clone(), offset, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(region: &FileRegion) -> Vec<u8> {
        let mut bytes = vec![0; region.len as usize];
        region.file.shared().read_exact_at(&mut bytes, region.offset).unwrap();
        bytes
    }

    #[test]
    fn what_was_put_is_there_until_two_files_are_full() {
        let mut spill = Spill { longest: 10, ..Spill::default() };
        for key in 0..6_u8 {
            spill.put(key, &[key; 4]);
        }
        // Two entries fit into a file.
        assert!(spill.get(&0).is_none() && spill.get(&1).is_none());
        for key in 2..6_u8 {
            assert_eq!(read(&spill.get(&key).unwrap()), [key; 4]);
        }
        let held = spill.get(&2).unwrap();
        (6..20).for_each(|key| spill.put(key, &[key; 4]));
        assert_eq!(read(&held), [2; 4], "who reads a file that was given up goes on");
    }
}
