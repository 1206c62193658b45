//! Counts the requests of one link that have been taken up, and has a gate that closes when the others are returned.
//!
//! Contract: serving threads take requests up with the GVL; the watchdog closes the gate without it. Both are
//! one atomic operation on one word, so a request is either taken up or returned, never both.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

const CLOSED: u64 = 1 << 63;
/// The gate has never been opened.
const NEVER: u64 = u64::MAX;

pub(crate) struct Intake {
    /// The number of requests taken up or discarded; bit 63 is set while the gate is closed.
    passed: AtomicU64,
    /// The number of requests read from the link.
    read: AtomicU64,
    /// The number of requests taken up or discarded when the gate was last opened.
    opened: AtomicU64,
}

/// The result of [`Intake::pass`].
pub(crate) struct Pass {
    /// The number of the link's requests that have been taken up or discarded, including this one.
    pub(crate) count: u64,
    /// The request has been returned and must be discarded.
    pub(crate) returned: bool,
}

impl Intake {
    pub(crate) const fn new() -> Intake {
        Intake { passed: AtomicU64::new(0), read: AtomicU64::new(0), opened: AtomicU64::new(NEVER) }
    }

    /// Counts a request that has been read from the link.
    pub(crate) fn has_read(&self) {
        self.read.store(self.read.load(Relaxed) + 1, Relaxed);
    }

    /// Takes up the next request, or finds that it has been returned.
    #[inline]
    pub(crate) fn pass(&self) -> Pass {
        let before = self.passed.fetch_add(1, SeqCst);
        Pass { count: (before & !CLOSED) + 1, returned: before & CLOSED != 0 }
    }

    pub(crate) fn passed(&self) -> u64 {
        self.passed.load(SeqCst) & !CLOSED
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.passed.load(SeqCst) & CLOSED != 0
    }

    /// Returns whether requests have been read that have not been taken up.
    pub(crate) fn is_waiting(&self) -> bool {
        self.read.load(Relaxed) > self.passed()
    }

    /// Closes the gate. Returns the number of the first request that is returned; `None` when the gate was
    /// closed already.
    pub(crate) fn close(&self) -> Option<u64> {
        let before = self.passed.fetch_or(CLOSED, SeqCst);
        (before & CLOSED == 0).then_some(before)
    }

    /// Opens the gate, after the returned requests have been discarded.
    pub(crate) fn open(&self) {
        self.opened.store(self.passed(), Relaxed);
        self.passed.fetch_and(!CLOSED, SeqCst);
    }

    /// Returns whether no request has been taken up since the gate was opened.
    pub(crate) fn is_fresh(&self) -> bool {
        self.opened.load(Relaxed) == self.passed()
    }
}
