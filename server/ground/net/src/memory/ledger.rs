//! The sums of all threads, and the changes that a thread has gathered.

use super::class::MemoryClass;
use super::level::Level;
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};

/// A thread adds its changes to the sums when they are this large.
const STEP: i64 = 64 << 10;
/// The part of the limit that [`MemoryClass::Other`] may have.
const OTHER_PART: u64 = 4;
/// Requests that hold this part of the limit begin although memory is full, until this part above the limit is used.
const REQUESTS_PART: u64 = 2;
const ABOVE_PART: u64 = 4;

/// The changes of a thread, by class.
#[derive(Debug)]
pub(super) struct Share([Cell<i64>; MemoryClass::COUNT]);

impl Share {
    pub(super) const fn new() -> Share {
        Share([const { Cell::new(0) }; MemoryClass::COUNT])
    }

    /// Adds a change to the thread's share. Returns whether the share must be settled with the ledger.
    #[inline]
    pub(super) fn gather(&self, class: MemoryClass, by: i64) -> bool {
        let cell = &self.0[class as usize];
        let gathered = cell.get().wrapping_add(by);
        cell.set(gathered);
        gathered >= STEP || gathered <= -STEP
    }
}

/// A change of the level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelChange {
    pub from: Level,
    pub to: Level,
}

/// The bytes used by all threads.
#[derive(Debug)]
pub(super) struct Ledger {
    used: [AtomicI64; MemoryClass::COUNT],
    total: AtomicI64,
    limit: AtomicU64,
    level: AtomicU8,
    /// How often each level was reached from below.
    reached: [AtomicU64; Level::ALL.len()],
}

impl Ledger {
    /// Creates a ledger without a limit.
    pub(super) const fn new() -> Ledger {
        Ledger {
            used: [const { AtomicI64::new(0) }; MemoryClass::COUNT],
            total: AtomicI64::new(0),
            limit: AtomicU64::new(u64::MAX),
            level: AtomicU8::new(Level::Normal as u8),
            reached: [const { AtomicU64::new(0) }; Level::ALL.len()],
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn level(&self) -> Level {
        Level::from_number(self.level.load(Ordering::Relaxed))
    }

    /// Returns whether requests must not begin: memory is full, and not because of requests that wait, whose memory
    /// only the app can give back.
    pub(super) fn holds_requests_back(&self) -> bool {
        if self.level() < Level::Full {
            return false;
        }
        let bytes = |used: &AtomicI64| u64::try_from(used.load(Ordering::Relaxed)).unwrap_or(0);
        let (limit, requests) = (self.limit(), bytes(&self.used[MemoryClass::Requests as usize]));
        let above = bytes(&self.total).saturating_sub(limit);
        requests < limit / REQUESTS_PART || above > limit / ABOVE_PART
    }

    /// Adds to a class. Returns whether the level changes.
    pub(super) fn add(&self, class: MemoryClass, by: i64) -> Option<LevelChange> {
        self.used[class as usize].fetch_add(by, Ordering::Relaxed);
        let total = self.total.fetch_add(by, Ordering::Relaxed).wrapping_add(by);
        self.judge(total)
    }

    /// Sets the sum of a class.
    pub(super) fn set(&self, class: MemoryClass, bytes: u64) -> Option<LevelChange> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        let before = self.used[class as usize].swap(bytes, Ordering::Relaxed);
        let by = bytes.wrapping_sub(before);
        let total = self.total.fetch_add(by, Ordering::Relaxed).wrapping_add(by);
        self.judge(total)
    }

    /// Adds a thread's share of one class to the ledger.
    pub(super) fn settle_class(&self, share: &Share, class: MemoryClass) -> Option<LevelChange> {
        self.add(class, share.0[class as usize].take())
    }

    /// Adds a thread's share to the ledger.
    pub(super) fn settle(&self, share: &Share) -> Option<LevelChange> {
        let before = self.level();
        for class in MemoryClass::ALL {
            if share.0[class as usize].get() != 0 {
                self.settle_class(share, class);
            }
        }
        let to = self.level();
        (to != before).then_some(LevelChange { from: before, to })
    }

    /// Records the resident memory of the process: the part that no other class counts is [`MemoryClass::Other`].
    /// Files in memory are not resident.
    pub(super) fn measured(&self, resident: u64) -> Option<LevelChange> {
        let of = |class: MemoryClass| self.used[class as usize].load(Ordering::Relaxed);
        let counted = self.total.load(Ordering::Relaxed) - of(MemoryClass::Other) - of(MemoryClass::Files);
        let other = resident.saturating_sub(u64::try_from(counted).unwrap_or(0));
        self.set(MemoryClass::Other, other.min(self.limit() / OTHER_PART))
    }

    fn judge(&self, total: i64) -> Option<LevelChange> {
        let used = u64::try_from(total).unwrap_or(0);
        let known = self.level.load(Ordering::Relaxed);
        let from = Level::from_number(known);
        let to = from.next(used, self.limit());
        if from == to {
            return None;
        }
        // Only one of several threads changes the level and reports it.
        self.level.compare_exchange(known, to as u8, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        Level::ALL.iter().filter(|level| **level > from && **level <= to).for_each(|level| {
            self.reached[*level as usize].fetch_add(1, Ordering::Relaxed);
        });
        Some(LevelChange { from, to })
    }

    pub(super) fn usage(&self) -> Usage {
        let bytes = |used: &AtomicI64| u64::try_from(used.load(Ordering::Relaxed)).unwrap_or(0);
        Usage {
            limit: self.limit(),
            classes: self.used.each_ref().map(bytes),
            total: bytes(&self.total),
            level: self.level(),
            reached: self.reached.each_ref().map(|count| count.load(Ordering::Relaxed)),
        }
    }
}

/// The figures of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// In bytes; `u64::MAX` without a limit.
    limit: u64,
    /// All bytes.
    pub total: u64,
    pub level: Level,
    classes: [u64; MemoryClass::COUNT],
    reached: [u64; Level::ALL.len()],
}

impl Usage {
    /// Returns the bytes of a class.
    pub fn of(&self, class: MemoryClass) -> u64 {
        self.classes[class as usize]
    }

    /// Returns how often a level was reached from below.
    pub fn reached(&self, level: Level) -> u64 {
        self.reached[level as usize]
    }

    /// Returns the limit as text.
    pub fn limit(&self) -> String {
        mebibytes(self.limit)
    }

    /// Describes the figures: `201 MiB of 256 MiB are used (responses 150 MiB, streams 31 MiB)`, the three
    /// largest classes.
    pub fn describe(&self) -> String {
        let mut classes = MemoryClass::ALL.map(|class| (self.of(class), class.name()));
        classes.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let largest = classes.iter().take(3).filter(|(bytes, _)| *bytes > 0);
        let largest: Vec<String> =
            largest.map(|(bytes, name)| format!("{name} {}", mebibytes(*bytes))).collect();
        format!(
            "{} of {} are used ({}; limits.memory)",
            mebibytes(self.total),
            mebibytes(self.limit),
            largest.join(", ")
        )
    }
}

/// Writes a number of bytes in MiB, with at most two decimals.
fn mebibytes(bytes: u64) -> String {
    let hundredths = (u128::from(bytes) * 100) >> 20;
    let text = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    format!("{} MiB", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn figures_are_described() {
        let ledger = Ledger::new();
        ledger.set_limit(256 << 20);
        ledger.add(MemoryClass::Streams, 31 << 20);
        ledger.add(MemoryClass::Responses, 170 << 20);
        let usage = ledger.usage();
        assert_eq!(
            usage.describe(),
            "201 MiB of 256 MiB are used (responses 170 MiB, streams 31 MiB; limits.memory)"
        );
        assert_eq!(
            (usage.level, usage.reached(Level::Files), usage.reached(Level::Full)),
            (Level::Files, 1, 0)
        );
        assert_eq!(mebibytes((1 << 20) + (1 << 19) + 100), "1.5 MiB");
    }

    #[test]
    fn what_is_not_counted_is_measured() {
        let ledger = Ledger::new();
        ledger.set_limit(100 << 20);
        ledger.add(MemoryClass::Requests, 10 << 20);
        // A file in memory is not a part of the resident memory.
        ledger.add(MemoryClass::Files, 50 << 20);
        ledger.measured(30 << 20);
        assert_eq!(ledger.usage().of(MemoryClass::Other), 20 << 20);
        ledger.measured(30 << 20);
        assert_eq!((ledger.usage().of(MemoryClass::Other), ledger.usage().total), (20 << 20, 80 << 20));
        ledger.measured(5 << 20);
        assert_eq!(ledger.usage().of(MemoryClass::Other), 0);
        ledger.measured(900 << 20);
        assert_eq!(ledger.usage().of(MemoryClass::Other), 25 << 20, "a quarter of the limit");
    }

    #[test]
    fn a_change_is_told_once() {
        let ledger = Ledger::new();
        ledger.set_limit(1000);
        assert_eq!(
            ledger.add(MemoryClass::Cache, 760),
            Some(LevelChange { from: Level::Normal, to: Level::Files })
        );
        assert_eq!(ledger.add(MemoryClass::Cache, 10), None);
        assert_eq!(
            ledger.add(MemoryClass::Cache, 500),
            Some(LevelChange { from: Level::Files, to: Level::Full })
        );
        assert_eq!(
            ledger.set(MemoryClass::Cache, 0),
            Some(LevelChange { from: Level::Full, to: Level::Normal })
        );
        let usage = ledger.usage();
        assert_eq!(Level::ALL.map(|level| usage.reached(level)), [0, 1, 1, 1]);
    }

    #[test]
    fn requests_begin_unless_memory_is_full_of_other_things() {
        let ledger = Ledger::new();
        assert!(!ledger.holds_requests_back(), "no limit");
        ledger.set_limit(1000);
        ledger.add(MemoryClass::Files, 999);
        assert!(!ledger.holds_requests_back());
        ledger.add(MemoryClass::Files, 1);
        assert!(ledger.holds_requests_back());
        ledger.add(MemoryClass::Files, -49);
        assert!(ledger.holds_requests_back(), "the level has slack");
        ledger.add(MemoryClass::Files, -2);
        assert!(!ledger.holds_requests_back());
        ledger.add(MemoryClass::Files, -449);
        ledger.add(MemoryClass::Requests, 499);
        ledger.add(MemoryClass::Files, 1);
        assert!(ledger.holds_requests_back());
        ledger.add(MemoryClass::Requests, 1);
        assert!(!ledger.holds_requests_back(), "only the app can make room");
        ledger.add(MemoryClass::Files, 249);
        assert!(!ledger.holds_requests_back());
        ledger.add(MemoryClass::Files, 1);
        assert!(ledger.holds_requests_back(), "their responses have taken it");
    }

    proptest! {
        /// Whatever the order in which several threads hold and release memory: no sum is wrong by more than
        /// a step for each thread, and all sums return to zero.
        #[test]
        fn the_sums_return_to_zero(
            steps in proptest::collection::vec((0usize..3, 0usize..MemoryClass::COUNT, 1i64..200_000, any::<bool>()), 1..300),
        ) {
            let ledger = Ledger::new();
            ledger.set_limit(4 << 20);
            let shares = [const { Share::new() }; 3];
            let mut held: Vec<(usize, i64)> = Vec::new();
            let count = |thread: usize, class: usize, by: i64| {
                let class = MemoryClass::ALL[class];
                if shares[thread].gather(class, by) {
                    ledger.settle_class(&shares[thread], class);
                }
            };
            for (thread, class, bytes, gives) in steps {
                match held.len() {
                    // Another thread may release it.
                    len if gives && len > 0 => {
                        let (class, bytes) = held.swap_remove(bytes as usize % len);
                        count(thread, class, -bytes);
                    }
                    _ => {
                        held.push((class, bytes));
                        count(thread, class, bytes);
                    }
                }
                for class in 0..MemoryClass::COUNT {
                    let exact: i64 = held.iter().filter(|(of, _)| *of == class).map(|(_, bytes)| bytes).sum();
                    let known = ledger.used[class].load(Ordering::Relaxed);
                    prop_assert!((known - exact).abs() < STEP * 3, "{known} instead of {exact}");
                }
                let sum: i64 = ledger.used.iter().map(|used| used.load(Ordering::Relaxed)).sum();
                prop_assert_eq!(sum, ledger.total.load(Ordering::Relaxed));
            }
            for (class, bytes) in held.drain(..) { count(0, class, -bytes); }
            shares.iter().for_each(|share| _ = ledger.settle(share));
            let usage = ledger.usage();
            prop_assert_eq!((usage.total, usage.level), (0, Level::Normal));
            prop_assert!(ledger.used.iter().all(|used| used.load(Ordering::Relaxed) == 0));
        }
    }
}
