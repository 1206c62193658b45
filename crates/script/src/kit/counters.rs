//! Counts that all front threads share.
//!
//! Why: a limit per thread would be as many times too high as there are threads, and which thread a client meets is chance.
//!
//! Contract: a key is found on one of [`SHARDS`] short locks. At most [`ROOM`] keys are remembered; when there are more, those that
//! say nothing any more go first, then those that will soonest. So a flood of new keys costs memory once, and time never.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

const SHARDS: usize = 64;
/// Keys in all: some 30 MB when they are addresses.
const ROOM: usize = 256 << 10;
/// What part of a shard is freed when it is full, at least.
const FREED: usize = 8;

struct Kept<T> {
    value: T,
    /// When it says nothing any more, by the clock of whoever asks.
    over: u64,
}

/// A part of the keys, behind a lock of its own.
type Shard<T> = Mutex<HashMap<Box<[u8]>, Kept<T>>>;

/// What is known of each key.
pub(crate) struct Counters<T> {
    shards: Vec<Shard<T>>,
    hasher: RandomState,
    room: usize,
}

impl<T: Default> Counters<T> {
    pub(crate) fn new() -> Counters<T> {
        Counters::with_room(ROOM)
    }

    fn with_room(room: usize) -> Counters<T> {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Counters { shards, hasher: RandomState::new(), room: room / SHARDS }
    }

    /// Changes what is known of a key. `change` gives what it found, and when its change says nothing any more.
    pub(crate) fn change<R>(&self, key: &[u8], now: u64, change: impl FnOnce(&mut T) -> (R, u64)) -> R {
        let number = self.hasher.hash_one(key) as usize % SHARDS;
        let mut shard = self.shards[number].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = shard.get_mut(key) {
            let (found, over) = change(&mut kept.value);
            kept.over = over;
            return found;
        }
        if shard.len() >= self.room {
            make_room(&mut shard, now);
        }
        let mut value = T::default();
        let (found, over) = change(&mut value);
        shard.insert(key.into(), Kept { value, over });
        found
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }
}

fn make_room<T>(shard: &mut HashMap<Box<[u8]>, Kept<T>>, now: u64) {
    let full = shard.len();
    shard.retain(|_, kept| kept.over > now);
    // Enough at once that the next keys find room: looking through the shard must not be the price of each of them.
    let mut surplus = (full / FREED + 1).saturating_sub(full - shard.len()).min(shard.len());
    if surplus == 0 {
        return;
    }
    let mut ends: Vec<u64> = shard.values().map(|kept| kept.over).collect();
    let (_, &mut end, _) = ends.select_nth_unstable(surplus - 1);
    shard.retain(|_, kept| {
        let goes = kept.over <= end && surplus > 0;
        surplus -= usize::from(goes);
        !goes
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visit(counters: &Counters<u64>, key: u64, now: u64, over: u64) -> u64 {
        counters.change(&key.to_le_bytes(), now, |count| {
            *count += 1;
            (*count, over)
        })
    }

    fn visit_all(counters: &Counters<u64>, keys: std::ops::Range<u64>, now: u64, over: u64) {
        for key in keys {
            visit(counters, key, now, over);
        }
    }

    #[test]
    fn threads_count_together() {
        let counters = Counters::new();
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
        let counters = Counters::with_room(SHARDS * 16);
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
        let counters = Counters::new();
        visit(&counters, 1, 0, 1);
        assert_eq!(visit(&counters, 1, 100, 200), 2, "what it says is for its owner to judge");
    }
}
