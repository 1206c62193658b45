//! Strands: a strand is code that a loop of fibers runs as if it had a thread of its own, a request or a fiber of `Fiber.schedule`, with all fibers that it
//! resumes.
//!
//! Contract: a strand lives as long as the process; all fields are plain or known to the collector, so Ruby may raise while any of them is in use. The strand
//! of a request is a part of its task. Those of `Fiber.schedule` are used again: a strand is free when the loop has come back from it, and it neither waits
//! nor has been pre-empted.

use super::{Key, directory, here};
use crate::link::Job;
use crate::names::names;
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::ruby::{self, NIL, Value};
use crate::raw::slots::Slot;
use crate::serve;
use crate::task::Task;
use std::cell::Cell;
use std::os::fd::RawFd;

pub(crate) struct Strand {
    /// The request; `None` for a fiber of `Fiber.schedule`.
    pub(crate) task: Cell<Option<&'static Task>>,
    /// The Ruby fiber that it began with; nil while it has none.
    pub(crate) ruby: &'static Slot,
    /// It is among the idle ones of its loop.
    pub(crate) idle: Cell<bool>,
    /// The request that it is to serve next.
    pub(crate) next: Cell<Option<Job>>,
    /// It is to end when it is entered next.
    pub(crate) ends: Cell<bool>,
    /// What it waits for, while it does.
    pub(crate) wait: Cell<Option<Key>>,
    /// It waits for the front, not because the app does.
    pub(crate) native: Cell<bool>,
    /// It waits or has been pre-empted: the loop enters it again.
    pub(super) goes_on: Cell<bool>,
    /// Since when it has been running, microseconds: the loop entered it then.
    pub(crate) entered_us: Cell<u64>,
    /// How long it had been running, without a wait, when it was pre-empted last, microseconds.
    pub(crate) computed_us: Cell<u64>,
    /// Processor time that a measured request had used when the loop left it, microseconds.
    pub(crate) used_us: Cell<u64>,
    /// A wait of the app may end because the client has gone. That happens once, and not to requests that change something.
    pub(crate) interruptible: Cell<bool>,
    /// What `Thread.handle_interrupt` and `Timeout.timeout` say of it; nil while it has called neither.
    pub(crate) interrupts: &'static Slot,
    /// The first of them says that the client's leaving must not be raised here.
    pub(crate) held: Cell<bool>,
    /// The numbers of its `Timeout.timeout`s, in the order in which they were set.
    alarms: Cell<Vec<u64>>,
    /// How many `Dir.chdir { }` it is in.
    pub(crate) away: Cell<u32>,
    /// While it is in one, the working directory of the others: a descriptor, or -1.
    pub(crate) home: Cell<RawFd>,
    /// How many `Firebrick.unsliced` it is in: it is not pre-empted there.
    pub(crate) unsliced: Cell<u32>,
}

thread_local! {
    /// The strand that runs on the calling thread.
    static RUNNING: Cell<Option<&'static Strand>> = const { Cell::new(None) };
}

/// Those of `Fiber.schedule` that are free.
static SPARE: Guarded<Vec<&'static Strand>> = Guarded::new(Vec::new());

/// The strand of the calling fiber; `None` in a loop itself, and on threads without one.
#[inline]
pub(crate) fn current() -> Option<&'static Strand> {
    RUNNING.get()
}

pub(super) fn set_current(strand: Option<&'static Strand>) {
    RUNNING.set(strand);
}

impl Strand {
    pub(crate) fn new(gvl: &mut Gvl) -> Strand {
        Strand {
            task: Cell::new(None),
            ruby: Slot::leak(gvl, NIL),
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
            interrupts: Slot::leak(gvl, NIL),
            held: Cell::new(false),
            alarms: Cell::new(Vec::new()),
            away: Cell::new(0),
            home: Cell::new(-1),
            unsliced: Cell::new(0),
        }
    }

    /// That of a fiber of `Fiber.schedule`, which has not run yet.
    pub(super) fn of_app(gvl: &mut Gvl, fiber: Value) -> &'static Strand {
        let strand = match SPARE.with(gvl, Vec::pop) {
            Some(strand) => strand,
            None => Box::leak(Box::new(Strand::new(gvl))),
        };
        strand.ruby.set(fiber);
        strand
    }

    /// The loop has come back from the strand: one of `Fiber.schedule` is free, if it does not go on.
    #[inline]
    pub(super) fn come_back(&'static self, gvl: &mut Gvl) {
        if self.task.get().is_none() && !self.goes_on.get() {
            self.drop_alarms(gvl);
            directory::go_home(self);
            self.begin();
            self.ruby.set(NIL);
            SPARE.with(gvl, |spare| spare.push(self));
        }
    }

    /// Forgets the request, or the fiber, before.
    pub(super) fn begin(&self) {
        self.used_us.set(0);
        self.computed_us.set(0);
        self.interruptible.set(false);
        self.interrupts.set(NIL);
        self.held.set(false);
        directory::forget(self);
        self.unsliced.set(0);
    }

    pub(super) fn alarms(&self) -> Vec<u64> {
        let alarms = self.alarms.take();
        let all = alarms.clone();
        self.alarms.set(alarms);
        all
    }

    pub(super) fn has_alarm(&self, number: u64) {
        let mut alarms = self.alarms.take();
        alarms.push(number);
        self.alarms.set(alarms);
    }

    pub(super) fn has_lost_alarm(&self, number: u64) {
        let mut alarms = self.alarms.take();
        alarms.retain(|&other| other != number);
        self.alarms.set(alarms);
    }

    /// The strand is over: its alarms mean nothing any more. Those that are left were set by fibers that have not gone on.
    #[inline]
    pub(super) fn drop_alarms(&self, gvl: &mut Gvl) {
        let alarms = self.alarms.take();
        if !alarms.is_empty() {
            drop_all(gvl, alarms);
        }
    }
}

#[cold]
fn drop_all(gvl: &mut Gvl, alarms: Vec<u64>) {
    for number in alarms {
        here(gvl, |l| l.waits.cancel_alarm(number));
        let forgotten = ruby::protect(gvl, |gvl| {
            let number = ruby::integer(gvl, number as i64);
            ruby::call(gvl, names().fibers.get(), names().forget, &[number]);
        });
        if let Err((_, error)) = forgotten {
            serve::report(gvl, error);
        }
    }
}
