//! Keeps the totals and limits of a thread.

use super::Amount;
use net::descriptors;
use net::memory::{self, Level, MemoryClass};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes in memory that the responses of a connection may hold before its other requests wait.
pub const CONNECTION_MEMORY: u64 = 16 << 20;
/// The bytes in memory that the responses of all threads may hold, if that is at most half of the process's
/// memory for clients. Above this, responses that hardly move are displaced, and others go to the disk.
pub(super) const MEMORY: u64 = 256 << 20;
/// The smallest such limit for a thread, unless the process has less.
pub(super) const LEAST_MEMORY: u64 = 64 << 20;
/// The smallest number of response files, and of uploads, for a thread.
pub(super) const LEAST_FILES: u64 = 8;
/// A connection may always have this many files and this much memory, so that one slow response cannot block
/// the connection's other requests while the thread has no room.
const LEAST_OF_CONNECTION: u32 = 4;
const LEAST_MEMORY_OF_CONNECTION: u64 = 1 << 20;
/// Totals of the process: descriptors, memory, disk.
static TOTAL: [AtomicU64; 3] = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];

thread_local! {
    static LEDGER: Rc<Ledger> = Rc::new(Ledger::new(Limits::new(1, u64::MAX, u64::MAX)));
}

/// Returns the total of the responses of all threads and of the uploads.
pub fn total() -> Amount {
    let [descriptors, memory, disk] = [0, 1, 2].map(|at: usize| TOTAL[at].load(Ordering::Relaxed));
    Amount { descriptors: u32::try_from(descriptors).unwrap_or(u32::MAX), memory, disk }
}

/// Gives this thread the share of one of `threads` threads, in a process that has `memory` bytes for all
/// clients. The files of the responses of one connection may have `disk` bytes.
pub fn share(threads: usize, memory: u64, disk: u64) {
    current().limits.set(Limits::new(threads as u64, memory, disk));
}

/// Returns whether this thread's responses hold all the memory that they may, or memory is scarce, so that
/// further bytes go to the disk.
pub fn memory_is_short() -> bool {
    memory::level() >= Level::Files
        || LEDGER.with(|ledger| ledger.held.get().memory >= ledger.limits.get().memory)
}

/// Returns this thread's ledger.
pub(super) fn current() -> Rc<Ledger> {
    LEDGER.with(Rc::clone)
}

/// The limits of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) descriptors: u32,
    pub(super) memory: u64,
    /// Bytes in the files of one connection.
    pub(super) disk: u64,
    pub(super) uploads: u32,
}

impl Limits {
    pub(super) fn new(threads: u64, memory: u64, disk: u64) -> Limits {
        let threads = threads.max(1);
        let all = memory / 2;
        let files = |all: u64| u32::try_from((all / threads).max(LEAST_FILES)).unwrap_or(u32::MAX);
        Limits {
            descriptors: files(descriptors::for_responses()),
            memory: (all.min(MEMORY) / threads).max(LEAST_MEMORY.min(all)),
            disk,
            uploads: files(descriptors::for_uploads()),
        }
    }

    /// Returns the largest number of files of a connection.
    fn of_connection(self) -> u32 {
        (self.descriptors / 16).max(LEAST_OF_CONNECTION)
    }
}

/// The totals of a thread.
#[derive(Debug)]
pub(super) struct Ledger {
    limits: Cell<Limits>,
    pub(super) held: Cell<Amount>,
    /// The amount held by displaced responses that have not ended yet.
    pub(super) leaving: Cell<Amount>,
    pub(super) uploads: Cell<u32>,
}

impl Ledger {
    fn new(limits: Limits) -> Ledger {
        Ledger {
            limits: Cell::new(limits),
            held: Cell::default(),
            leaving: Cell::default(),
            uploads: Cell::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn limited(limits: Limits) -> Rc<Ledger> {
        Rc::new(Ledger::new(limits))
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits.get()
    }

    /// Returns whether a connection that holds `own` has used up its share.
    pub(super) fn is_share(&self, own: Amount) -> bool {
        let (limits, held) = (self.limits.get(), self.held.get());
        let free = limits.descriptors.saturating_sub(held.descriptors);
        let descriptors = free.clamp(LEAST_OF_CONNECTION - 1, limits.of_connection() - 1);
        let free = limits.memory.saturating_sub(held.memory);
        let memory = free.clamp(LEAST_MEMORY_OF_CONNECTION, CONNECTION_MEMORY);
        // The other half is left to responses that have begun.
        let disk = (limits.disk / 2).max(LEAST_MEMORY_OF_CONNECTION);
        own.descriptors > descriptors || own.memory > memory || own.disk > disk
    }

    pub(super) fn change(&self, from: Amount, to: Amount) {
        self.held.update(|held| held - from + to);
        count(MemoryClass::Files, from, to);
    }
}

/// Counts the memory of the process. Memory of a resource with a descriptor is a file in memory, of this class.
fn count_memory(class: MemoryClass, from: Amount, to: Amount) {
    let parts = |amount: Amount| match amount.descriptors {
        0 => (amount.memory, 0),
        _ if memory::are_files_in_memory() => (0, amount.memory + amount.disk),
        _ => (0, amount.memory),
    };
    let (from, to) = (parts(from), parts(to));
    memory::change(MemoryClass::Responses, from.0, to.0);
    memory::change(class, from.1, to.1);
}

/// Updates the totals of the process, with files in memory of this class.
pub(super) fn count(class: MemoryClass, from: Amount, to: Amount) {
    let parts = |amount: Amount| [u64::from(amount.descriptors), amount.memory, amount.disk];
    count_memory(class, from, to);
    for (total, (from, to)) in TOTAL.iter().zip(parts(from).into_iter().zip(parts(to))) {
        if from != to {
            // Wraps around when the amount shrinks, which gives the right sum.
            total.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
        }
    }
}
