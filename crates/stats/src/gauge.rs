//! A number that falls by itself, because each counted object holds a guard.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The current number of guards. Clones share the same gauge.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicU64>);

impl Gauge {
    /// Counts one more until the guard is dropped.
    #[must_use = "the gauge falls again as soon as the guard is dropped"]
    pub fn hold(&self) -> Held {
        self.0.fetch_add(1, Relaxed);
        Held(Arc::clone(&self.0))
    }

    /// Returns the number of guards.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A guard that a [`Gauge`] counts.
#[derive(Debug)]
pub struct Held(Arc<AtomicU64>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gauge_falls_when_its_guard_goes_even_by_panic() {
        let gauge = Gauge::default();
        let held = gauge.hold();
        let same = gauge.clone();
        let panicked = std::thread::spawn(move || {
            let _held = same.hold();
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert_eq!(gauge.get(), 1);
        drop(held);
        assert_eq!(gauge.get(), 0);
    }
}
