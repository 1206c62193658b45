//! Counters by kind: why workers ended, how reloads ended.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is counted apart. A small fixed set, so that every member can be shown before it has happened once.
pub trait Kind: Copy + Ord + 'static {
    /// All of them.
    const EVERY: &'static [Self];

    /// Its name, as in JSON and in metrics.
    fn name(self) -> &'static str;
}

/// How often each kind has happened since the start of the server; every kind is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent, bound(deserialize = "K: Deserialize<'de> + Ord"))]
pub struct Counts<K>(BTreeMap<K, u64>);

impl<K: Kind> Default for Counts<K> {
    fn default() -> Counts<K> {
        Counts(K::EVERY.iter().map(|kind| (*kind, 0)).collect())
    }
}

impl<K: Kind> Counts<K> {
    /// Counts one.
    pub fn count(&mut self, kind: K) {
        self.add(kind, 1);
    }

    /// Counts several, such as those that another program has counted before.
    pub fn add(&mut self, kind: K, more: u64) {
        let count = self.0.entry(kind).or_default();
        *count = count.saturating_add(more);
    }

    /// How many of one kind there were.
    pub fn of(&self, kind: K) -> u64 {
        self.0.get(&kind).copied().unwrap_or_default()
    }

    /// Kinds and their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (K, u64)> + '_ {
        self.0.iter().map(|(&kind, &count)| (kind, count))
    }
}
