//! When waits end: a heap of times. A time that is not wanted any more stays until it comes, or until most of the heap is such.

use super::Key;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    /// A wait has a limit.
    Wait(Key),
    /// A `Timeout.timeout` with this number.
    Alarm(u64),
}

/// A heap that is smaller than this is not cleaned up.
const SMALL: usize = 256;

pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(u64, u64, Due)>>,
    /// Equal times are due in the order in which they were set.
    set: u64,
    /// Those that are still wanted.
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

    /// One that has been set, and not been due, is not wanted. `is_wanted` knows of all of them.
    pub(super) fn forget(&mut self, is_wanted: impl Fn(&Due) -> bool) {
        self.wanted = self.wanted.saturating_sub(1);
        if self.heap.len() > SMALL && self.heap.len() > 2 * self.wanted {
            self.heap.retain(|Reverse((_, _, due))| is_wanted(due));
            self.wanted = self.heap.len();
        }
    }

    /// The next time, which may be of one that is not wanted.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_us, ..))| *at_us)
    }

    /// Takes one that is due at `now_us`, wanted or not; [`Timers::came`] must follow for one that was.
    pub(super) fn pop(&mut self, now_us: u64) -> Option<Due> {
        let Reverse((at_us, ..)) = self.heap.peek()?;
        if *at_us > now_us { None } else { self.heap.pop().map(|Reverse((_, _, due))| due) }
    }

    /// A wanted one has come.
    pub(super) fn came(&mut self) {
        self.wanted = self.wanted.saturating_sub(1);
    }
}
