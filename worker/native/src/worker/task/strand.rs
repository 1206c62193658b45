//! Strands: code that a loop of fibers runs as if it had its own thread. A strand is a request or a fiber of
//! `Fiber.schedule`, with all fibers that it resumes.
//!
//! Contract: a strand lives as long as the process; all fields are plain or known to the collector, so Ruby
//! may raise while any of them is in use. The strand of a request is a part of its task. Strands of
//! `Fiber.schedule` are reused ([`crate::fibers`]).

use super::Task;
use crate::link::Job;
use crate::raw::gvl::Gvl;
use crate::raw::ruby::NIL;
use crate::raw::slots::RootSlot;
use std::cell::Cell;
use std::os::fd::RawFd;

/// Identifies a wait. The index is reused, with another generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(crate) at: u32,
    pub(crate) generation: u32,
}

pub(crate) struct Strand {
    /// The request's task; `None` for a fiber of `Fiber.schedule`.
    pub(crate) task: Cell<Option<&'static Task>>,
    /// The Ruby fiber in which the strand began; nil while it has none.
    pub(crate) ruby: &'static RootSlot,
    /// The strand is among the idle ones of its loop.
    pub(crate) idle: Cell<bool>,
    /// The next request to serve.
    pub(crate) next: Cell<Option<Job>>,
    /// The strand ends when it is entered next.
    pub(crate) ends: Cell<bool>,
    pub(crate) wait: Cell<Option<Key>>,
    /// The current wait is for the front, not the app's own.
    pub(crate) native: Cell<bool>,
    /// The strand waits or has been pre-empted, so the loop will enter it again.
    pub(crate) goes_on: Cell<bool>,
    /// When the loop entered it last, in microseconds.
    pub(crate) entered_us: Cell<u64>,
    /// The time that it had run without a wait when it was last pre-empted, in microseconds.
    pub(crate) computed_us: Cell<u64>,
    /// Processor time that a measured request had used when the loop last left it, in microseconds.
    pub(crate) used_us: Cell<u64>,
    /// A wait of the app may end because the client has disconnected. This happens once, and not to requests
    /// that change something.
    pub(crate) interruptible: Cell<bool>,
    /// The state of `Thread.handle_interrupt` and `Timeout.timeout`; nil before the first call of either.
    pub(crate) interrupts: &'static RootSlot,
    /// `Thread.handle_interrupt` defers the exception for a disconnected client.
    pub(crate) held: Cell<bool>,
    /// The numbers of its `Timeout.timeout`s, in the order in which they were set.
    alarms: Cell<Vec<u64>>,
    /// The depth of nested `Dir.chdir { }` blocks.
    pub(crate) away: Cell<u32>,
    /// The working directory outside of these blocks: a descriptor, or -1.
    pub(crate) home: Cell<RawFd>,
    /// Its place in a profile while it does not run: when the loop entered it last, the number of the profile, and the node.
    pub(crate) profiled: Cell<(u64, u32, u32)>,
    /// The depth of nested `Firebrick.unsliced` blocks, in which it is not pre-empted.
    pub(crate) unsliced: Cell<u32>,
}

thread_local! {
    /// The strand that runs on the calling thread.
    static RUNNING: Cell<Option<&'static Strand>> = const { Cell::new(None) };
}

/// Returns the strand of the calling fiber; `None` in a loop itself, and on threads without a loop.
#[inline]
pub(crate) fn current() -> Option<&'static Strand> {
    RUNNING.get()
}

pub(crate) fn set_current(strand: Option<&'static Strand>) {
    RUNNING.set(strand);
}

impl Strand {
    pub(crate) fn new(gvl: &mut Gvl) -> Strand {
        Strand {
            task: Cell::new(None),
            ruby: RootSlot::leak(gvl, NIL),
            idle: Cell::new(false),
            next: Cell::new(None),
            ends: Cell::new(false),
            wait: Cell::new(None),
            native: Cell::new(false),
            goes_on: Cell::new(false),
            entered_us: Cell::new(0),
            computed_us: Cell::new(0),
            used_us: Cell::new(0),
            interruptible: Cell::new(false),
            interrupts: RootSlot::leak(gvl, NIL),
            held: Cell::new(false),
            alarms: Cell::new(Vec::new()),
            away: Cell::new(0),
            home: Cell::new(-1),
            profiled: Cell::new((0, 0, 0)),
            unsliced: Cell::new(0),
        }
    }

    pub(crate) fn alarms(&self) -> Vec<u64> {
        let alarms = self.alarms.take();
        let all = alarms.clone();
        self.alarms.set(alarms);
        all
    }

    pub(crate) fn has_alarm(&self, number: u64) {
        let mut alarms = self.alarms.take();
        alarms.push(number);
        self.alarms.set(alarms);
    }

    pub(crate) fn has_lost_alarm(&self, number: u64) {
        let mut alarms = self.alarms.take();
        alarms.retain(|&other| other != number);
        self.alarms.set(alarms);
    }

    pub(crate) fn take_alarms(&self) -> Vec<u64> {
        self.alarms.take()
    }
}
