//! Hands the responses kept in memory to the program that takes over.
//!
//! Contract:
//! 1. The old program writes after its last request has ended, so that none of its requests can invalidate a
//!    response later.
//! 2. The new program serves at the same time. From its first request on it records invalidations and purges
//!    ([`Store::expect_inheritance`]). It skips the responses that these cover, and those that it already
//!    has.
//! 3. A damaged file, or a file of another version, ends the reading. The responses before that point are
//!    used.

use crate::disk::format::{read, write};
use crate::resource::Resource;
use crate::store::Store;
use bytes::Bytes;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek, Write};
use std::sync::Arc;

impl Store {
    /// Records removals from now on, until [`Store::inherit`].
    pub fn expect_inheritance(&self) {
        *self.inherits_since() = Some(self.moment());
    }

    /// Writes all resources in memory. Returns their number. Blocks.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn bequeath(&self, file: &File) -> io::Result<usize> {
        let mut out = BufWriter::new(file);
        let mut count = 0;
        for (key, resource) in self.in_memory() {
            let bytes = write(&key, resource.variants.iter().map(|stored| &**stored));
            out.write_all(&(bytes.len() as u64).to_le_bytes())?;
            out.write_all(&bytes)?;
            count += 1;
        }
        out.flush()?;
        Ok(count)
    }

    /// Adds the resources that another program has written, from the start of its file. Returns their number.
    /// Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged.
    pub fn inherit(&self, mut file: File) -> io::Result<usize> {
        // Without the start time, earlier removals are unknown.
        let Some(since) = *self.inherits_since() else { return Ok(0) };
        file.rewind()?;
        let mut left = file.metadata()?.len();
        let mut file = BufReader::new(file);
        let mut count = 0;
        while left > 0 {
            let mut length = [0; 8];
            file.read_exact(&mut length)?;
            let length = u64::from_le_bytes(length);
            left = left
                .checked_sub(8)
                .and_then(|left| left.checked_sub(length))
                .ok_or(ErrorKind::InvalidData)?;
            let mut bytes = vec![0; usize::try_from(length).map_err(|_| ErrorKind::InvalidData)?];
            file.read_exact(&mut bytes)?;
            let (key, variants) = read(&Bytes::from(bytes)).ok_or(ErrorKind::InvalidData)?;
            let resource = Resource::new(&key, variants.into_iter().map(Arc::new).collect());
            count += usize::from(self.add(&key, resource, since));
        }
        *self.inherits_since() = None;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::purge::Purge;
    use crate::stored::Stored;
    use std::time::Duration;

    const KEYS: [&str; 4] = ["http://a/one", "http://a/two", "http://a/three", "http://a/four"];

    fn filled() -> Arc<Store> {
        let store = Store::new(1 << 20, Policy::default());
        for key in KEYS {
            store.put(
                key.as_bytes(),
                Arc::new(Stored::kept_for_tests(Duration::from_secs(60))),
                store.moment(),
            );
        }
        store
    }

    fn written(store: &Store) -> File {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(store.bequeath(&file).unwrap(), KEYS.len());
        file
    }

    fn keys(store: &Store) -> Vec<&'static str> {
        KEYS.into_iter().filter(|key| store.get(key.as_bytes()).is_some()).collect()
    }

    #[test]
    fn a_new_program_has_what_the_old_one_had_without_what_was_removed_meanwhile() {
        let file = written(&filled());
        let new = Store::new(1 << 20, Policy::default());
        new.expect_inheritance();
        new.remove(KEYS[0].as_bytes());
        new.purge(&Purge::Path("/two".into()));
        assert_eq!(new.inherit(file).unwrap(), 2);
        assert_eq!(keys(&new), KEYS[2..]);
        assert!(new.bytes() > 0 && new.bytes() <= new.memory());
    }

    #[test]
    fn what_the_new_program_has_itself_stays() {
        let file = written(&filled());
        let new = Store::new(1 << 20, Policy::default());
        new.expect_inheritance();
        new.put(KEYS[0].as_bytes(), Arc::new(Stored::kept_for_tests(Duration::from_secs(1))), new.moment());
        assert_eq!(new.inherit(file).unwrap(), 3);
        let lifetime = |key: &str| new.get(key.as_bytes()).unwrap().variants[0].lifetime;
        assert_eq!(KEYS.map(lifetime).map(|time| time.as_secs()), [1, 60, 60, 60]);
    }

    #[test]
    fn nothing_is_inherited_twice_or_from_a_damaged_file() {
        let new = Store::new(1 << 20, Policy::default());
        assert_eq!(new.inherit(written(&filled())).unwrap(), 0, "what was removed is not known");
        let file = written(&filled());
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        new.expect_inheritance();
        assert!(new.inherit(file).is_err());
        let mut huge = tempfile::tempfile().unwrap();
        huge.write_all(&[0xff; 64]).unwrap();
        assert!(new.inherit(huge).is_err());
    }
}
