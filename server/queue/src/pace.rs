//! Measures the recent speed of requests, which decides how many requests a thread may get in advance.
//!
//! Two measures are needed, because each alone is wrong in some case. The mean reflects the average cost of a
//! queue, but lets a rare slow request delay all requests behind it. The slowest recent request prevents
//! that, but alone it would mistake every garbage collection for a slow app and stop all batching.

use std::time::{Duration, Instant};

/// The largest number of requests per worker thread, including the one being served.
pub(crate) const DEEPEST: u32 = 16;
/// The longest acceptable mean wait behind other requests on one thread.
const BEHIND_US: f64 = 1_000.0;
/// Requests above this are slow by any measure. The collection of a small heap is faster.
const SLOW_US: f64 = 10_000.0;
/// The half-life of the slowest recent request, in seconds.
const HALF_LIFE: f64 = 0.5;
/// Less than three half-lives.
const FRESH: Duration = Duration::from_millis(1_499);

#[derive(Debug, Default)]
pub(crate) struct Pace {
    mean_us: f64,
    slowest_us: f64,
    noted: Option<Instant>,
}

impl Pace {
    /// Records a request that took `app` in the app.
    #[inline]
    pub(crate) fn note(&mut self, app: Duration, now: Instant) {
        let us = app.as_secs_f64() * 1e6;
        self.mean_us = if self.noted.is_none() { us } else { self.mean_us + (us - self.mean_us) / 16.0 };
        if us >= SLOW_US || self.slowest_us > 0.0 {
            // The rate only falls with time, so a slower request needs no comparison.
            self.slowest_us = if us >= self.slowest_us { us } else { self.slowest(now).max(us) };
        }
        self.noted = Some(now);
    }

    fn slowest(&self, now: Instant) -> f64 {
        let age = self.noted.map_or(0.0, |noted| now.saturating_duration_since(noted).as_secs_f64());
        self.slowest_us * (-age / HALF_LIFE).exp2()
    }

    /// Returns the number of requests that a thread may hold, including the one being served.
    #[inline]
    pub(crate) fn depth(&self, now: Instant) -> u32 {
        let Some(noted) = self.noted else { return 1 };
        if self.slowest_us > 0.0 {
            // Three half-lives make an eighth: most often no power is needed.
            let is_fresh = self.slowest_us >= SLOW_US && now.saturating_duration_since(noted) < FRESH;
            if is_fresh || self.slowest(now) >= SLOW_US / 8.0 {
                return 1;
            }
        }
        // The last request of the batch waits for all others.
        ((BEHIND_US / self.mean_us.max(1.0)).ceil() as u32).clamp(1, DEEPEST)
    }
}
