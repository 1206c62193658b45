//! Counts the bytes of responses that stay in memory until a disk has taken them.
//!
//! Why: workers can make responses faster than a disk writes them. Without a bound, what waits for a slow disk would fill the memory for all
//! clients, and requests that need no disk would get 503.
//!
//! Contract:
//! 1. While memory is scarce and more than a [`PART`] of the limit waits, [`is_behind`] is true and requests that have not begun wait
//!    ([`holds_requests_back`](super::holds_requests_back)). At the end of that, [`relief`](super::relief) tells. Requests that have
//!    begun add at most their own responses.
//! 2. A disk that has taken nothing for [`STUCK`] holds no request back: it may never take anything. Then the level of memory decides.

use super::{LEDGER, Level, RELIEF, millis};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// This part of the limit may wait.
const PART: u64 = 16;

/// In milliseconds.
const STUCK: u64 = 1000;

static BYTES: AtomicU64 = AtomicU64::new(0);
/// When bytes last left, or began to be more than may wait, in milliseconds.
static MOVED_AT: AtomicU64 = AtomicU64::new(0);

/// Returns whether more waits for the disk than may.
#[inline]
pub(super) fn is_behind() -> bool {
    LEDGER.level() >= Level::Files
        && is_more_than_may(BYTES.load(Ordering::Relaxed))
        && millis().saturating_sub(MOVED_AT.load(Ordering::Relaxed)) < STUCK
}

fn is_more_than_may(bytes: u64) -> bool {
    bytes > LEDGER.limit() / PART
}

/// Bytes that wait for a disk, until this is dropped. Their memory is counted elsewhere.
#[derive(Debug, Default)]
pub struct AwaitsDisk(Cell<u64>);

impl AwaitsDisk {
    pub fn new(bytes: u64) -> AwaitsDisk {
        let awaits = AwaitsDisk::default();
        awaits.set(bytes);
        awaits
    }

    pub fn bytes(&self) -> u64 {
        self.0.get()
    }

    pub fn add(&self, bytes: u64) {
        self.set(self.bytes() + bytes);
    }

    pub fn remove(&self, bytes: u64) {
        self.set(self.bytes() - bytes);
    }

    fn set(&self, bytes: u64) {
        let own = self.0.replace(bytes);
        if own == bytes {
            return;
        }
        // Wraps around when there is less, which gives the right sum.
        let by = bytes.wrapping_sub(own);
        let before = BYTES.fetch_add(by, Ordering::Relaxed);
        let (was_behind, is_behind) = (is_more_than_may(before), is_more_than_may(before.wrapping_add(by)));
        if is_behind && (bytes < own || !was_behind) {
            MOVED_AT.store(millis(), Ordering::Relaxed);
        }
        if was_behind && !is_behind {
            RELIEF.send_replace(());
        }
    }
}

impl Drop for AwaitsDisk {
    fn drop(&mut self) {
        self.set(0);
    }
}
