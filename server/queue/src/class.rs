//! A class of requests: the turns of its clients, its share of the seats, and its figures.

use crate::flow::{DEBT, Flow, Mean, Ring, TURN};
use crate::lengths::Lengths;
use crate::links::{List, NONE};
use slab::Slab;
use std::time::Duration;

/// A class as the settings name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassShare {
    pub name: String,
    /// The share of seat time compared with other classes. 0 is the last lane, whose requests are served only
    /// while no request of another class waits.
    pub weight: u32,
}

/// The figures of a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassFigures {
    /// Requests that wait now.
    pub waiting: u64,
    /// Clients whose requests wait now.
    pub clients: u64,
    /// Requests that have waited and got a seat.
    pub served: u64,
    /// Their waits.
    pub waited: Duration,
    /// Requests that got no seat.
    pub refused: u64,
}

/// The seat time of a request before any has ended, in microseconds.
const UNKNOWN_US: u32 = 1_000;
/// A client that holds seats lets clients without a seat go first, for at most this many turns of each
/// client.
const PASSES: u32 = 4;

#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) share: ClassShare,
    /// Clients with no request at a worker, in order of their turns. Among them are clients without a waiting
    /// request that have used more than their share.
    idle: List<TURN>,
    /// The other clients with waiting requests.
    busy: List<TURN>,
    /// The number of clients in both rings.
    active: u32,
    /// Turns in a row in which clients in `busy` were passed over.
    passed: u32,
    pub(crate) waiting: usize,
    pub(crate) lengths: Lengths,
    /// The seat time that it has used, divided by its weight: the class with the least is next.
    pub(crate) used: f64,
    mean: Mean,
    pub(crate) figures: ClassFigures,
}

impl Class {
    pub(crate) fn new(share: ClassShare) -> Class {
        Class {
            share,
            idle: List::default(),
            busy: List::default(),
            active: 0,
            passed: 0,
            waiting: 0,
            lengths: Lengths::default(),
            used: 0.0,
            mean: Mean::default(),
            figures: ClassFigures::default(),
        }
    }

    /// Returns whether one client takes turns. That client may be in either ring.
    #[inline]
    pub(crate) fn has_one(&self) -> bool {
        self.active == 1
    }

    pub(crate) fn is_last_lane(&self) -> bool {
        self.share.weight == 0
    }

    pub(crate) fn weight(&self) -> f64 {
        f64::from(self.share.weight.max(1))
    }

    /// Returns the seat time of one turn, in microseconds: that of a mean request.
    #[inline]
    pub(crate) fn turn_us(&self) -> u32 {
        self.mean.us().unwrap_or(UNKNOWN_US)
    }

    /// Adds the seat time of a request that has ended.
    #[inline]
    pub(crate) fn ended(&mut self, us: u32) {
        self.mean.add(us);
    }

    /// Adds to the class's seat time; the amount may be negative. `clock` is the time of all classes in this
    /// sense. At most [`DEBT`] turns of past use count.
    #[inline]
    pub(crate) fn uses(&mut self, us: i64, clock: f64) {
        let turn = f64::from(self.turn_us()) / self.weight();
        let used = self.used + us as f64 / self.weight();
        self.used = used.clamp(clock - turn, clock + turn * DEBT as f64);
    }

    /// Puts a client into `ring`: at its end, or at its beginning if its turn goes on.
    #[inline]
    pub(crate) fn enter(&mut self, flows: &mut Slab<Flow>, flow: u32, ring: Ring) {
        self.leave(flows, flow);
        if self.has_one() && ring != Ring::None {
            // It is no longer alone.
            let one = if self.idle.is_empty() { self.busy.first() } else { self.idle.first() };
            let right = if flows[one as usize].seats > 0 { Ring::Busy } else { Ring::Idle };
            if flows[one as usize].ring != right {
                self.leave(flows, one);
                self.join(flows, one, right);
            }
        }
        self.join(flows, flow, ring);
    }

    fn join(&mut self, flows: &mut Slab<Flow>, flow: u32, ring: Ring) {
        let list = match ring {
            Ring::None => return,
            Ring::Idle => &mut self.idle,
            Ring::Busy => &mut self.busy,
        };
        let next = if flows[flow as usize].goes_on { list.first() } else { NONE };
        list.insert_before(flows, flow, next);
        self.active += 1;
        flows[flow as usize].ring = ring;
    }

    fn leave(&mut self, flows: &mut Slab<Flow>, flow: u32) {
        match std::mem::replace(&mut flows[flow as usize].ring, Ring::None) {
            Ring::None => return,
            Ring::Idle => self.idle.remove(flows, flow),
            Ring::Busy => self.busy.remove(flows, flow),
        }
        self.active -= 1;
    }

    /// Returns the client whose turn it is. Some client must have a waiting request. Clients without waiting
    /// requests are passed to `forget`.
    #[inline]
    pub(crate) fn next(
        &mut self,
        flows: &mut Slab<Flow>,
        mut forget: impl FnMut(&mut Slab<Flow>, u32),
    ) -> u32 {
        let turn = i64::from(self.turn_us());
        loop {
            let overdue = self.passed >= PASSES.saturating_mul(self.active);
            let is_busy = self.idle.is_empty() || (overdue && !self.busy.is_empty());
            let ring = if is_busy { &mut self.busy } else { &mut self.idle };
            let at = ring.first();
            let flow = &mut flows[at as usize];
            if flow.waiting == 0 {
                if flow.passes(turn) {
                    ring.rotate(flows);
                } else {
                    self.leave(flows, at);
                    forget(flows, at);
                }
                continue;
            }
            if self.active == 1 {
                // Seats that other clients leave unused are free of charge.
                flow.credit = turn;
            } else if flow.passes(turn) {
                ring.rotate(flows);
                if is_busy {
                    // This turn was the client's chance among clients without a seat.
                    self.passed = 0;
                }
                continue;
            }
            self.passed = if is_busy || self.busy.is_empty() { 0 } else { self.passed + 1 };
            return at;
        }
    }

    /// Returns any client in the rings. While no request waits, the rings hold only clients that used more
    /// than their share, which does not matter then.
    pub(crate) fn rest(&self) -> Option<u32> {
        Some(self.idle.first()).filter(|&at| at != NONE)
    }
}
