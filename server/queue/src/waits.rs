//! A histogram of times, such as those that requests wait for a seat, cheap enough to be filled under the lock
//! of the queue.

use std::time::Duration;

/// The number of buckets: the first up to a millisecond, then four for each doubling, up to 65 s.
const BUCKETS: usize = 66;
const PER_DOUBLING: f64 = 4.0;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waits {
    buckets: [u32; BUCKETS],
}

impl Default for Waits {
    fn default() -> Waits {
        Waits { buckets: [0; BUCKETS] }
    }
}

impl Waits {
    /// Counts a request that got a seat at once.
    #[inline]
    pub fn none(&mut self) {
        self.buckets[0] = self.buckets[0].saturating_add(1);
    }

    /// Counts a request with this time.
    pub fn record(&mut self, time: Duration) {
        let ms = time.as_secs_f64() * 1e3;
        let bucket = if ms <= 1.0 { 0 } else { quarters(ms) + 1 };
        let bucket = &mut self.buckets[bucket.min(BUCKETS - 1)];
        *bucket = bucket.saturating_add(1);
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Waits) {
        for (sum, count) in self.buckets.iter_mut().zip(other.buckets) {
            *sum = sum.saturating_add(count);
        }
    }

    /// Returns the number of counted requests.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|&count| u64::from(count)).sum()
    }

    /// Returns the 95th percentile; see [`Waits::percentile`].
    pub fn p95(&self) -> Duration {
        self.percentile(95)
    }

    /// Returns the time that `percent` of 100 requests did not exceed, rounded up by a fifth at most. Zero if
    /// there were no requests, or if it is a millisecond at most.
    pub fn percentile(&self, percent: u8) -> Duration {
        let rank = (self.count() * u64::from(percent)).div_ceil(100);
        let mut seen = 0;
        let reached = self.buckets.iter().position(|&count| {
            seen += u64::from(count);
            seen >= rank
        });
        match reached.unwrap_or(0) {
            0 => Duration::ZERO,
            bucket => Duration::from_secs_f64((bucket as f64 / PER_DOUBLING).exp2() / 1e3),
        }
    }
}

/// Returns `(at.log2() * 4).floor()` for a number from 1 on, without a logarithm.
fn quarters(at: f64) -> usize {
    use std::f64::consts::SQRT_2;
    // 2 to the power of 1/4 and 3/4.
    const QUARTERS: [f64; 3] = [1.189_207_115_002_721, SQRT_2, 1.681_792_830_507_429];
    let bits = at.to_bits();
    let doublings = (bits >> 52).saturating_sub(1023) as usize;
    let rest = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    doublings * 4 + QUARTERS.iter().filter(|quarter| rest >= **quarter).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Duration = Duration::from_millis(1);

    proptest! {
        #[test]
        fn quarters_of_a_doubling_are_those_of_the_logarithm(ms in 1.0f64..1e6) {
            let exact = ms.log2() * PER_DOUBLING;
            // At a boundary, the logarithm itself is rounded.
            let near = (exact - exact.round()).abs() < 1e-9;
            prop_assert!(near || quarters(ms) == exact as usize, "{ms}: {exact}");
        }
    }

    #[test]
    fn the_percentile_is_that_of_all() {
        let mut waits = Waits::default();
        assert_eq!((waits.count(), waits.p95()), (0, Duration::ZERO));
        (0..95).for_each(|_| waits.none());
        (0..5).for_each(|_| waits.record(MS * 500));
        assert_eq!((waits.count(), waits.p95()), (100, Duration::ZERO));
        waits.record(MS * 500);
        let p95 = waits.p95();
        assert!(p95 >= MS * 500 && p95 < MS * 600, "{p95:?}");
        let mut both = waits.clone();
        both.add(&waits);
        assert_eq!((both.count(), both.p95()), (202, p95));
    }

    #[test]
    fn the_longest_waits_count_too() {
        let mut waits = Waits::default();
        waits.record(Duration::MAX);
        assert!(waits.p95() >= Duration::from_secs(65));
    }

    proptest! {
        #[test]
        fn a_wait_is_found_again(us in 0u64..65_000_000) {
            let (mut waits, wait) = (Waits::default(), Duration::from_micros(us));
            waits.record(wait);
            let p95 = waits.p95();
            if wait <= MS {
                prop_assert_eq!(p95, Duration::ZERO);
            } else {
                prop_assert!(p95 >= wait && p95 <= wait.mul_f64(1.2), "{:?} {:?}", wait, p95);
            }
        }
    }
}
