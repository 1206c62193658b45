//! Keeps the totals and limits of a thread, and decides which responses are displaced when there is no room.

use super::{Amount, Holding};
use net::descriptors;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The bytes in memory that the responses of a connection may hold before its other requests wait.
pub const CONNECTION_MEMORY: u64 = 16 << 20;
/// The bytes in memory that the responses of all threads may hold. Above this, responses that hardly move are
/// displaced, and others go to the disk.
const MEMORY: u64 = 256 << 20;
/// The smallest such limit for a thread.
const LEAST_MEMORY: u64 = 64 << 20;
/// The smallest number of response files, and of uploads, for a thread.
const LEAST_FILES: u64 = 8;
/// A connection may always have this many files and this much memory, so that its quick requests need not
/// wait for a slow one when the thread has no room.
const LEAST_OF_CONNECTION: u32 = 4;
const LEAST_MEMORY_OF_CONNECTION: u64 = 1 << 20;
/// The rate in bytes per second below which a client hardly moves.
const HARDLY: u64 = 1 << 10;
/// A client that hardly moves has stalled if it has not taken any bytes for this long.
const STALLED: Duration = Duration::from_secs(2);
/// A response moves if its client has taken bytes within this time.
const PAUSE: Duration = Duration::from_millis(500);
/// The interval at which responses that move are checked again for memory.
const AGAIN: Duration = Duration::from_millis(250);

/// Totals of the process: descriptors, memory, disk.
static TOTAL: [AtomicU64; 3] = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];

thread_local! {
    static LEDGER: Rc<Ledger> = Rc::new(Ledger::new(1));
}

/// Returns the total of the responses of all threads and of the uploads.
pub fn total() -> Amount {
    let [descriptors, memory, disk] = [0, 1, 2].map(|at: usize| TOTAL[at].load(Ordering::Relaxed));
    Amount { descriptors: u32::try_from(descriptors).unwrap_or(u32::MAX), memory, disk }
}

/// Gives this thread the share of one of `threads` threads.
pub fn share(threads: usize) {
    current().limits.set(Limits::new(threads as u64));
}

/// Returns whether this thread's responses hold all the memory that they may, so that further bytes go to the
/// disk.
pub fn memory_is_short() -> bool {
    LEDGER.with(|ledger| ledger.held.get().memory >= ledger.limits.get().memory)
}

/// Displaces some responses of this thread, because the process has no descriptor left.
#[cold]
pub fn relieve() {
    let ledger = current();
    ledger.displace(None, ledger.limits.get().descriptors / 64 + 1);
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
    pub(super) uploads: u32,
}

impl Limits {
    fn new(threads: u64) -> Limits {
        let threads = threads.max(1);
        let files = |all: u64| u32::try_from((all / threads).max(LEAST_FILES)).unwrap_or(u32::MAX);
        Limits {
            descriptors: files(descriptors::for_responses()),
            memory: (MEMORY / threads).max(LEAST_MEMORY),
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
    held: Cell<Amount>,
    /// The amount held by displaced responses that have not ended yet.
    pub(super) leaving: Cell<Amount>,
    pub(super) uploads: Cell<u32>,
    holdings: RefCell<Vec<Weak<Holding>>>,
    /// The number of holdings so far.
    begun: Cell<u64>,
    /// When no response was found that could be displaced for memory.
    vain: Cell<Option<Instant>>,
}

/// How well a response moves; the lowest rank is displaced first. Recent movement counts more than the rate
/// of the connection, because the windows that a client opens at the beginning are filled at once and look
/// like a fast client for a while.
type Rank = (bool, u64, Instant);

impl Ledger {
    fn new(threads: u64) -> Ledger {
        Ledger {
            limits: Cell::new(Limits::new(threads)),
            held: Cell::default(),
            leaving: Cell::default(),
            uploads: Cell::default(),
            holdings: RefCell::default(),
            begun: Cell::default(),
            vain: Cell::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn limited(limits: Limits) -> Rc<Ledger> {
        let ledger = Ledger::new(1);
        ledger.limits.set(limits);
        Rc::new(ledger)
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
        own.descriptors > descriptors || own.memory > memory
    }

    pub(super) fn enter(&self, holding: &Rc<Holding>) {
        let mut holdings = self.holdings.borrow_mut();
        holding.place.set(holdings.len());
        holding.number.set(self.begun.replace(self.begun.get() + 1));
        holdings.push(Rc::downgrade(holding));
    }

    pub(super) fn leave(&self, place: usize) {
        let mut holdings = self.holdings.borrow_mut();
        if place < holdings.len() {
            holdings.swap_remove(place);
        }
        // The last entry has been moved to this index.
        if let Some(moved) = holdings.get(place).and_then(Weak::upgrade) {
            moved.place.set(place);
        }
    }

    pub(super) fn change(&self, from: Amount, to: Amount) {
        self.held.update(|held| held - from + to);
        count(from, to);
    }

    /// Displaces responses if more is held than allowed; `newcomer` stays.
    pub(super) fn make_room(&self, newcomer: &Rc<Holding>) {
        let (limits, held) = (self.limits.get(), self.held.get() - self.leaving.get());
        if held.descriptors > limits.descriptors {
            // A few more at a time, because each round examines all of them.
            self.displace(Some(newcomer), held.descriptors - limits.descriptors + limits.descriptors / 64);
        } else if descriptors::are_short() {
            self.displace(Some(newcomer), 1);
        }
        if held.memory > limits.memory {
            self.displace_stalled(newcomer, held.memory - limits.memory);
        }
    }

    /// Returns the responses that hold some of this kind of resource, the lowest rank first.
    fn ranked(
        &self,
        newcomer: Option<&Rc<Holding>>,
        now: Instant,
        kind: impl Fn(Amount) -> u64,
    ) -> Vec<(Rank, Rc<Holding>)> {
        let holdings = self.holdings.borrow();
        let mut ranked: Vec<(Rank, Rc<Holding>)> = holdings
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|one| !one.is_displaced() && kind(one.held()) > 0)
            .filter(|one| newcomer.is_none_or(|newcomer| !Rc::ptr_eq(one, newcomer)))
            .map(|one| {
                // The rate of a connection per unit that it holds, because the others of its responses wait
                // for this one.
                let share = one.account().pace.rate(now) / kind(one.account().held.get()).max(1);
                let moves = now.saturating_duration_since(one.moved()) < PAUSE;
                ((moves, share, one.moved()), one)
            })
            .collect();
        ranked.sort_unstable_by_key(|(rank, _)| *rank);
        ranked
    }

    #[cold]
    fn displace(&self, newcomer: Option<&Rc<Holding>>, files: u32) {
        // The newest have not had time to show whether their clients take them.
        let newest = self.begun.get().saturating_sub(u64::from(self.limits.get().descriptors / 8));
        let mut left = files;
        for (_, holding) in self.ranked(newcomer, Instant::now(), |held| held.descriptors.into()) {
            if left == 0 {
                return;
            }
            if holding.number.get() >= newest {
                continue;
            }
            left = left.saturating_sub(holding.held().descriptors);
            holding.displace();
        }
    }

    #[cold]
    fn displace_stalled(&self, newcomer: &Rc<Holding>, bytes: u64) {
        let now = Instant::now();
        if self.vain.get().is_some_and(|vain| now.duration_since(vain) < AGAIN) {
            return;
        }
        let mut left = bytes;
        for (_, holding) in self.ranked(Some(newcomer), now, |held| held.memory.div_ceil(CONNECTION_MEMORY)) {
            if left == 0 {
                return;
            }
            let hardly = holding.account().pace.rate(now) < HARDLY;
            if hardly && now.saturating_duration_since(holding.moved()) >= STALLED {
                left = left.saturating_sub(holding.held().memory);
                holding.displace();
            }
        }
        if left > 0 {
            self.vain.set(Some(now));
        }
    }
}

/// Updates the totals of the process.
pub(super) fn count(from: Amount, to: Amount) {
    let parts = |amount: Amount| [u64::from(amount.descriptors), amount.memory, amount.disk];
    for (total, (from, to)) in TOTAL.iter().zip(parts(from).into_iter().zip(parts(to))) {
        if from != to {
            // Wraps around when the amount shrinks, which gives the right sum.
            total.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
