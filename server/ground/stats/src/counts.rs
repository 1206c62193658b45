//! Counters by kind: why workers ended, how reloads ended.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A small fixed set of kinds that are counted separately, so that every member can be shown even before it
/// has occurred.
pub trait CountedKind: Copy + Ord + 'static {
    /// Every kind with its name in JSON and in metrics, and the text of the documentation.
    const EVERY: &'static [(Self, &'static str, &'static str)];

    /// Returns the name used in JSON and in metrics.
    fn name(self) -> &'static str {
        Self::EVERY.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, _)| name)
    }
}

/// Declares enums of kinds, each with its name.
macro_rules! kinds {
    ($($(#[$about:meta])* pub enum $name:ident {$($(#[doc = $doc:literal])* $kind:ident = $text:literal),* $(,)?})+) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {$(
            $(#[doc = $doc])*
            #[serde(rename = $text)]
            $kind,
        )*}

        impl $crate::CountedKind for $name {
            const EVERY: &'static [($name, &'static str, &'static str)] =
                &[$(($name::$kind, $text, concat!($($doc),*))),*];
        }

        /// The name as words.
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&$crate::CountedKind::name(*self).replace('_', " "))
            }
        }
    )+};
}
pub(crate) use kinds;

/// The number of occurrences of each kind since the start of the server. Every kind is present.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent, bound(deserialize = "K: Deserialize<'de> + Ord"))]
pub struct Counts<K>(BTreeMap<K, u64>);

impl<K: CountedKind> Default for Counts<K> {
    fn default() -> Counts<K> {
        Counts(K::EVERY.iter().map(|(kind, ..)| (*kind, 0)).collect())
    }
}

impl<K: CountedKind> Counts<K> {
    /// Counts one occurrence.
    pub fn count(&mut self, kind: K) {
        self.add(kind, 1);
    }

    /// Adds several occurrences, for example those that a previous program has counted.
    pub fn add(&mut self, kind: K, more: u64) {
        let count = self.0.entry(kind).or_default();
        *count = count.saturating_add(more);
    }

    /// Returns the number of occurrences of one kind.
    pub fn of(&self, kind: K) -> u64 {
        self.0.get(&kind).copied().unwrap_or_default()
    }

    /// Returns all kinds with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (K, u64)> + '_ {
        self.0.iter().map(|(&kind, &count)| (kind, count))
    }
}
