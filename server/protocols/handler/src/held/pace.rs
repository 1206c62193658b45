//! Measures the rate of a transfer.
//!
//! Contract: recent bytes count most, and old ones hardly count. In the first second the rate is the number
//! of bytes, so that a burst at the beginning does not count as a high rate.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The age at which the counted bytes are scaled down to half of this span.
const SPAN: Duration = Duration::from_secs(8);
const LEAST: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Pace {
    since: Cell<Instant>,
    bytes: Cell<u64>,
}

impl Pace {
    pub(super) fn new(now: Instant) -> Pace {
        Pace { since: Cell::new(now), bytes: Cell::new(0) }
    }

    /// Counts bytes that were transferred.
    pub(super) fn took(&self, bytes: u64, now: Instant) {
        let age = now.saturating_duration_since(self.since.get());
        if age >= SPAN {
            let kept = SPAN / 2;
            // The bytes of the whole age, scaled to the part that is kept.
            let part = self.bytes.get() as f64 * kept.as_secs_f64() / age.as_secs_f64();
            self.bytes.set(part as u64);
            self.since.set(now.checked_sub(kept).unwrap_or(now));
        }
        self.bytes.update(|all| all.saturating_add(bytes));
    }

    /// Returns the rate in bytes per second.
    pub(super) fn rate(&self, now: Instant) -> u64 {
        let age = now.saturating_duration_since(self.since.get()).max(LEAST);
        (self.bytes.get() as f64 / age.as_secs_f64()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_burst_is_forgotten() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let pace = Pace::new(start);
        pace.took(100_000, start);
        assert_eq!(pace.rate(start), 100_000);
        assert_eq!(pace.rate(at(100)), 1_000);
        pace.took(0, at(100));
        assert!(pace.rate(at(101)) < 1_000);
        (0..50).for_each(|second| pace.took(5_000, at(100 + second)));
        assert!((4_000..7_000).contains(&pace.rate(at(150))), "{}", pace.rate(at(150)));
    }

    proptest! {
        #[test]
        fn a_steady_rate_is_seen(rate in 1u64..1_000_000, seconds in 10u64..200) {
            let start = Instant::now();
            let pace = Pace::new(start);
            for second in 1..=seconds {
                pace.took(rate, start + Duration::from_secs(second));
            }
            let seen = pace.rate(start + Duration::from_secs(seconds));
            prop_assert!(seen <= rate * 3 / 2 + 1 && seen + 1 >= rate * 2 / 3, "{seen} of {rate}");
        }
    }
}
