//! Records recent removals, so that a response requested before a removal is not put back after it.
//!
//! Why: when a resource is removed, a response to an older request may be in the app, in a stream that the
//! cache gathers, in the queue of the disk, or in a file that a thread reads. Each of these operations
//! records the [`Moment`] at which it begins. At its end it takes the lock, checks for removals since that
//! moment, and adds the response under the same lock.
//!
//! Contract:
//! 1. [`Recent::cover`] returns true for each removal of the key, and for each matching purge, after the moment.
//! 2. The memory is fixed. After many removals, [`Recent::cover`] may return true without a matching one; the
//!    response is then not kept.

use crate::purge::Purge;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of slots for keys. Keys with equal hashes share a slot.
const SLOTS: usize = 1 << 12;

/// The number of purges that are remembered.
const MOST_PURGES: usize = 256;

/// A point between two removals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

/// The removals of a store and of its folder.
#[derive(Debug)]
pub(crate) struct Removals {
    now: AtomicU64,
    recent: Mutex<Recent>,
}

/// The removals that are remembered.
#[derive(Debug)]
pub(crate) struct Recent {
    now: Moment,
    hasher: RandomState,
    /// The moments of the last removals, by the hash of the key.
    keys: Box<[Moment]>,
    purges: VecDeque<(Moment, Purge)>,
    /// The moment of the last purge that was dropped to make room.
    forgotten: Moment,
}

impl Default for Removals {
    fn default() -> Removals {
        let recent = Recent {
            now: Moment::default(),
            hasher: RandomState::new(),
            keys: vec![Moment::default(); SLOTS].into(),
            purges: VecDeque::new(),
            forgotten: Moment::default(),
        };
        Removals { now: AtomicU64::new(0), recent: Mutex::new(recent) }
    }
}

impl Removals {
    /// Returns the present moment. Takes no lock.
    pub(crate) fn now(&self) -> Moment {
        Moment(self.now.load(Ordering::Acquire))
    }

    /// Locks the removals. A thread that changes resources holds this lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Recent> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the lock if it is free.
    #[cfg(test)]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Recent>> {
        self.recent.try_lock().ok()
    }

    /// Notes that a key is removed from now on.
    pub(crate) fn remove(&self, key: &[u8], recent: &mut Recent) {
        let moment = self.next(recent);
        let slot = recent.slot(key);
        recent.keys[slot] = moment;
    }

    /// Notes that a purge is carried out from now on.
    pub(crate) fn purge(&self, purge: &Purge, recent: &mut Recent) {
        let moment = self.next(recent);
        recent.purges.push_back((moment, purge.clone()));
        if recent.purges.len() > MOST_PURGES
            && let Some((forgotten, _)) = recent.purges.pop_front()
        {
            recent.forgotten = forgotten;
        }
    }

    fn next(&self, recent: &mut Recent) -> Moment {
        recent.now.0 += 1;
        self.now.store(recent.now.0, Ordering::Release);
        recent.now
    }
}

impl Recent {
    pub(crate) fn now(&self) -> Moment {
        self.now
    }

    /// Returns whether a response with this key and these tags, requested at `moment`, was removed since.
    pub(crate) fn cover<'a>(
        &self,
        since: Moment,
        key: &[u8],
        tags: impl Iterator<Item = &'a Box<[u8]>> + Clone,
    ) -> bool {
        since < self.now
            && (self.keys[self.slot(key)] > since
                || self.forgotten > since
                || self
                    .purges
                    .iter()
                    .rev()
                    .take_while(|(moment, _)| *moment > since)
                    .any(|(_, purge)| purge.matches(key, || tags.clone())))
    }

    fn slot(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize % SLOTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_for_before_a_removal_is_covered_by_it() {
        let removals = Removals::default();
        let tags: [Box<[u8]>; 1] = [Box::from(&b"tag"[..])];
        let covered = |since, key: &str| removals.lock().cover(since, key.as_bytes(), tags.iter());
        let before = removals.now();
        removals.remove(b"http://a/1", &mut removals.lock());
        assert!(covered(before, "http://a/1") && !covered(removals.now(), "http://a/1"));
        for purge in [
            Purge::All,
            Purge::Path("/2".into()),
            Purge::Prefix("http://a/".into()),
            Purge::Tag("tag".into()),
        ] {
            let before = removals.now();
            removals.purge(&purge, &mut removals.lock());
            assert!(covered(before, "http://a/2") && !covered(removals.now(), "http://a/2"), "{purge:?}");
        }
        let before = removals.now();
        removals.purge(&Purge::Tag("another".into()), &mut removals.lock());
        assert!(!covered(before, "http://a/2"));
        (0..=MOST_PURGES).for_each(|_| removals.purge(&Purge::Path("/3".into()), &mut removals.lock()));
        assert!(covered(before, "http://a/2"), "the purge of before is forgotten: it may have been any");
    }
}
