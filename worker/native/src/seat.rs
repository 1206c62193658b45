//! The ticks of a serving thread that no sample has been taken for yet.
//!
//! Contract: the ticker counts without the GVL; a thread that has the GVL takes the counts. Ticks of a request that has ended meanwhile are
//! given to no stack.

use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::gvl_wait::GvlWait;
use crate::raw::os;
use crate::raw::sampling::Observed;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use wire::profile::SampledState;

const STATES: usize = SampledState::ALL.len();

pub(crate) struct Seat {
    index: AtomicUsize,
    /// The number and the clock of its native thread; 0: none.
    thread: AtomicI32,
    clock: AtomicI32,
    gvl_wait: OnceLock<&'static GvlWait>,
    /// It collects garbage.
    pub(crate) collects: AtomicBool,
    /// The request that the ticks belong to.
    word: AtomicU64,
    /// When that request was started, by which requests with the same number are told apart.
    since: AtomicU64,
    /// Microseconds, by what was seen.
    ticks: [AtomicU32; STATES],
    last: Guarded<Last>,
    /// Where the thread waited for another one at the last tick: an address, or 0.
    waited_at: AtomicU64,
    /// Addresses at which it waits for the GVL.
    gvl_at: [AtomicU64; PLACES],
}

/// A condition variable waits at one of two addresses.
const PLACES: usize = 2;

/// The last sample that another thread has taken.
struct Last {
    word: u64,
    used_us: u64,
    node: u32,
}

impl Seat {
    pub(crate) const fn new() -> Seat {
        Seat {
            index: AtomicUsize::new(0),
            thread: AtomicI32::new(0),
            clock: AtomicI32::new(0),
            gvl_wait: OnceLock::new(),
            collects: AtomicBool::new(false),
            word: AtomicU64::new(0),
            since: AtomicU64::new(0),
            ticks: [const { AtomicU32::new(0) }; STATES],
            last: Guarded::new(Last { word: 0, used_us: 0, node: 0 }),
            waited_at: AtomicU64::new(0),
            gvl_at: [const { AtomicU64::new(0) }; PLACES],
        }
    }

    /// Describes the calling thread.
    pub(crate) fn sit(&self, index: usize, gvl_wait: &'static GvlWait) {
        let (thread, clock) = os::this_thread().unwrap_or_default();
        self.index.store(index, Relaxed);
        self.clock.store(clock, Relaxed);
        self.thread.store(thread, Relaxed);
        let _ = self.gvl_wait.set(gvl_wait);
        self.gvl_at.iter().for_each(|place| place.store(0, Relaxed));
    }

    pub(crate) fn index(&self) -> usize {
        self.index.load(Relaxed)
    }

    /// Opens the view of the thread for the ticker; `None` where the system has none.
    pub(crate) fn observe(&self) -> Option<Observed> {
        let thread = self.thread.load(Relaxed);
        (thread != 0).then(|| Observed::new(thread, self.clock.load(Relaxed)))
    }

    /// Returns whether Ruby reports that the thread waits for the GVL.
    pub(crate) fn waits_for_gvl(&self) -> bool {
        self.gvl_wait.get().and_then(|wait| wait.waits()).unwrap_or(false)
    }

    pub(crate) fn used_us(&self) -> u64 {
        os::clock_us(self.clock.load(Relaxed))
    }

    /// Returns what the thread waits for at an address, where Ruby does not report waits for the GVL (before 3.2).
    pub(crate) fn waits_at(&self, address: u64) -> SampledState {
        self.waited_at.store(address, Relaxed);
        // At another address it may be either: not all of its addresses are known.
        let known = self.gvl_at.iter().any(|place| place.load(Relaxed) == address);
        if known { SampledState::WaitsForGvl } else { SampledState::WaitsForThread }
    }

    /// Learns that the thread waited for the GVL at the last tick: it was in the middle of Ruby code, where there is nothing else to wait for.
    pub(crate) fn waited_for_gvl(&self) {
        let address = self.waited_at.load(Relaxed);
        let known = |place: &AtomicU64| place.load(Relaxed) == address;
        if address != 0 && !self.gvl_at.iter().any(known) {
            let free = self.gvl_at.iter().find(|place| place.load(Relaxed) == 0);
            free.into_iter().for_each(|place| place.store(address, Relaxed));
        }
    }

    /// Counts `us` for a request.
    pub(crate) fn count(&self, (word, since): (u64, u64), seen: SampledState, us: u32) {
        if self.word.swap(word, Relaxed) != word || self.since.swap(since, Relaxed) != since {
            self.forget();
        }
        self.ticks[seen as usize].fetch_add(us, Relaxed);
    }

    /// Drops the ticks: their request has ended.
    pub(crate) fn forget(&self) {
        self.ticks.iter().for_each(|ticks| ticks.store(0, Relaxed));
    }

    pub(crate) fn is_due(&self) -> bool {
        self.ticks.iter().any(|ticks| ticks.load(Relaxed) > 0)
    }

    /// Takes the ticks. Returns the request that they belong to, as in the scoreboard.
    pub(crate) fn take(&self) -> (u64, [u32; STATES]) {
        let ticks = std::array::from_fn(|at| self.ticks[at].swap(0, Relaxed));
        (self.word.load(Relaxed), ticks)
    }

    /// Returns the node of the last sample, if the thread has not run since.
    pub(crate) fn last(&self, gvl: &Gvl, word: u64, used_us: u64) -> Option<u32> {
        self.last.with(gvl, |last| {
            (last.node != 0 && last.word == word && last.used_us == used_us).then_some(last.node)
        })
    }

    pub(crate) fn was_at(&self, gvl: &Gvl, word: u64, used_us: u64, node: u32) {
        self.last.with(gvl, |last| *last = Last { word, used_us, node });
    }

    /// Forgets the last sample: the numbers of a new profile are others.
    pub(crate) fn begin(&self, gvl: &Gvl) {
        self.was_at(gvl, 0, 0, 0);
        self.forget();
    }
}
