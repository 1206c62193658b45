//! Holds the counters that all front threads share.
//!
//! With a limit per thread, the total would be as many times higher as there are threads.
//!
//! Contract: keys are distributed over [`SHARDS`] short locks. At most [`MAX_KEYS`] keys are kept; a new key
//! replaces expired ones first, then those that expire first. So a flood of new keys has bounded cost in
//! memory and time.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

const SHARDS: usize = 64;
/// The most keys: about 30 MB if they are addresses.
const MAX_KEYS: usize = 256 << 10;
/// The fraction of a full shard that is freed at once, at least.
const FREED: usize = 8;

struct Entry<T> {
    value: T,
    /// When the entry expires, by the caller's clock.
    expires: u64,
}

/// A part of the keys, with its own lock.
type Shard<T> = Mutex<HashMap<Box<[u8]>, Entry<T>>>;

/// Values by key.
pub struct Counters<T> {
    shards: Vec<Shard<T>>,
    hasher: RandomState,
    capacity: usize,
}

impl<T: Default> Default for Counters<T> {
    fn default() -> Counters<T> {
        Counters::with_capacity(MAX_KEYS)
    }
}

impl<T: Default> Counters<T> {
    fn with_capacity(capacity: usize) -> Counters<T> {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Counters { shards, hasher: RandomState::new(), capacity: capacity / SHARDS }
    }

    /// Returns the value of a key, whether or not it has expired.
    pub fn get(&self, key: &[u8]) -> Option<T>
    where
        T: Copy,
    {
        self.shard(key).get(key).map(|entry| entry.value)
    }

    fn shard(&self, key: &[u8]) -> std::sync::MutexGuard<'_, HashMap<Box<[u8]>, Entry<T>>> {
        let number = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the value of a key. `change` returns a result and when the value expires.
    pub fn change<R>(&self, key: &[u8], now: u64, change: impl FnOnce(&mut T) -> (R, u64)) -> R {
        let mut shard = self.shard(key);
        if let Some(entry) = shard.get_mut(key) {
            let (result, expires) = change(&mut entry.value);
            entry.expires = expires;
            return result;
        }
        if shard.len() >= self.capacity {
            make_room(&mut shard, now);
        }
        let mut value = T::default();
        let (result, expires) = change(&mut value);
        shard.insert(key.into(), Entry { value, expires });
        result
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }
}

fn make_room<T>(shard: &mut HashMap<Box<[u8]>, Entry<T>>, now: u64) {
    let full = shard.len();
    shard.retain(|_, entry| entry.expires > now);
    // Frees enough for many keys, so that not every new key causes a search of the shard.
    let mut surplus = (full / FREED + 1).saturating_sub(full - shard.len()).min(shard.len());
    if surplus == 0 {
        return;
    }
    let mut ends: Vec<u64> = shard.values().map(|entry| entry.expires).collect();
    let (_, &mut end, _) = ends.select_nth_unstable(surplus - 1);
    shard.retain(|_, entry| {
        let dropped = entry.expires <= end && surplus > 0;
        surplus -= usize::from(dropped);
        !dropped
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(counters: &Counters<u64>, key: u64, now: u64, expires: u64) -> u64 {
        counters.change(&key.to_le_bytes(), now, |count| {
            *count += 1;
            (*count, expires)
        })
    }

    fn visit_all(counters: &Counters<u64>, keys: std::ops::Range<u64>, now: u64, expires: u64) {
        for key in keys {
            visit(counters, key, now, expires);
        }
    }

    #[test]
    fn threads_count_together() {
        let counters = Counters::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..1_000 {
                        visit(&counters, number % 10, 1, 100);
                    }
                });
            }
        });
        assert_eq!((0..10).map(|key| visit(&counters, key, 1, 100)).sum::<u64>(), 4_010);
    }

    #[test]
    fn what_is_over_makes_room_first() {
        let counters = Counters::with_capacity(SHARDS * 16);
        visit_all(&counters, 0..2_000, 0, 10);
        assert!(counters.len() <= SHARDS * 16);
        visit_all(&counters, 10_000..10_100, 5, 1_000);
        visit_all(&counters, 20_000..24_000, 20, 30);
        assert!(counters.len() <= SHARDS * 16);
        let known = (10_000..10_100).filter(|key| visit(&counters, *key, 21, 1_000) == 2).count();
        assert_eq!(known, 100, "what lasts longest is forgotten last");
    }

    #[test]
    fn an_expired_key_is_forgotten_only_for_room() {
        let counters = Counters::default();
        visit(&counters, 1, 0, 1);
        assert_eq!(visit(&counters, 1, 100, 200), 2, "what it says is for its owner to judge");
    }
}
