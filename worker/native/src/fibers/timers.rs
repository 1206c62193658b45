//! The ends of waits: a heap of times. A cancelled time stays in the heap until it comes, or until most of
//! the heap is cancelled.

use crate::worker::task::strand::Key;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The wait or alarm that a time belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    Wait(Key),
    /// The `Timeout.timeout` with this number.
    Alarm(u64),
}

/// A smaller heap is not cleaned up.
const SMALL: usize = 256;

pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u64, Due)>>,
    /// Counts insertions, so that equal times are due in the order in which they were set.
    set: u64,
    /// The number of times that are not cancelled.
    wanted: usize,
}

impl Timers {
    pub(super) fn new() -> Timers {
        Timers { heap: BinaryHeap::new(), set: 0, wanted: 0 }
    }

    pub(super) fn set(&mut self, at_us: u64, due: Due) {
        self.set += 1;
        self.wanted += 1;
        self.heap.push(Reverse((at_us, self.set, due)));
    }

    /// Cancels a time that is set and not due. `is_wanted` tells whether a time of the heap is still needed.
    pub(super) fn forget(&mut self, is_wanted: impl Fn(&Due) -> bool) {
        self.wanted = self.wanted.saturating_sub(1);
        if self.heap.len() > SMALL && self.heap.len() > 2 * self.wanted {
            self.heap.retain(|Reverse((_, _, due))| is_wanted(due));
            self.wanted = self.heap.len();
        }
    }

    /// Returns the next time, which may be a cancelled one.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_us, ..))| *at_us)
    }

    /// Takes a time that is due at `now_us`, cancelled or not. For one that was not cancelled, call
    /// [`Timers::came`] next.
    pub(super) fn pop(&mut self, now_us: u64) -> Option<Due> {
        let Reverse((at_us, ..)) = self.heap.peek()?;
        if *at_us > now_us { None } else { self.heap.pop().map(|Reverse((_, _, due))| due) }
    }

    /// Counts a due time that was not cancelled.
    pub(super) fn came(&mut self) {
        self.wanted = self.wanted.saturating_sub(1);
    }
}
