//! Counts received body bytes that no handler has taken, per thread.
//!
//! Why: each connection's windows bound the bytes that its client may send ahead, but not the sum over
//! thousands of connections.
//!
//! Contract: while a thread holds more than [`CEILING`], connections that hold more than [`SMALL`] themselves
//! do not read. Each of them is woken when there is room again.

use net::Timers;
use net::memory::{self, Level, MemoryClass};
use std::cell::{Cell, RefCell};

/// The most bytes that a thread's connections hold before the larger ones have to wait, and the largest part
/// of the memory for all clients.
const CEILING: usize = 64 << 20;
const PART: u64 = 8;
/// A connection that holds no more than this keeps reading.
const SMALL: usize = 64 << 10;
/// The most bytes that HTTP/3's wide windows allow all clients of a thread to send ahead.
const WIDENED: usize = 16 << 20;

#[derive(Debug, Default)]
pub(crate) struct Uploads {
    held: Cell<usize>,
    /// The sum of the wide windows, which the transport may hold.
    widened: Cell<usize>,
    /// Keys of the timers of connections that wait for room.
    waiting: RefCell<Vec<usize>>,
}

impl Uploads {
    pub(crate) fn hold(&self, bytes: usize) {
        let held = self.held.get();
        self.held.set(held + bytes);
        memory::change(MemoryClass::Requests, held as u64, (held + bytes) as u64);
    }

    pub(crate) fn release(&self, bytes: usize, timers: &Timers) {
        let held = self.held.get();
        self.held.set(held - bytes);
        memory::change(MemoryClass::Requests, held as u64, (held - bytes) as u64);
        if self.held.get() <= ceiling() && !self.waiting.borrow().is_empty() {
            self.waiting.take().into_iter().for_each(|key| timers.wake(key));
        }
    }

    /// Reserves room for a window. Returns `false` if there is none.
    pub(crate) fn widen(&self, bytes: usize) -> bool {
        let fits = self.widened.get() + bytes <= WIDENED && memory::level() == Level::Normal;
        if fits {
            self.widened.update(|widened| widened + bytes);
        }
        fits
    }

    /// Releases the room of a window.
    pub(crate) fn narrow(&self, bytes: usize) {
        self.widened.update(|widened| widened - bytes);
    }

    /// Returns whether a connection that holds `own` bytes may read; if not, it is woken later.
    pub(crate) fn may_read(&self, own: usize, key: usize) -> bool {
        if own <= SMALL || self.held.get() <= ceiling() {
            return true;
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.contains(&key) {
            waiting.push(key);
        }
        false
    }
}

/// Returns the ceiling of a thread.
fn ceiling() -> usize {
    memory::limit().map_or(CEILING, |limit| usize::try_from(limit / PART).unwrap_or(CEILING).min(CEILING))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_windows_are_bounded_together() {
        let uploads = Uploads::default();
        assert!(uploads.widen(WIDENED - 1) && !uploads.widen(2) && uploads.widen(1));
        uploads.narrow(2);
        assert!(uploads.widen(2) && !uploads.widen(1));
    }

    #[test]
    fn the_large_ones_wait_while_there_is_too_much() {
        let (uploads, timers) = (Uploads::default(), Timers::new());
        uploads.hold(CEILING);
        assert!(uploads.may_read(CEILING, 1));
        uploads.hold(1);
        assert!(
            !uploads.may_read(CEILING, 1) && !uploads.may_read(SMALL + 1, 2) && !uploads.may_read(CEILING, 1)
        );
        assert!(uploads.may_read(SMALL, 3));
        assert_eq!(*uploads.waiting.borrow(), [1, 2]);
        uploads.release(1, &timers);
        assert!(uploads.waiting.borrow().is_empty() && uploads.may_read(CEILING, 1));
    }
}
