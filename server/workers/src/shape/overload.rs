//! The wait that requests are allowed under overload.
//!
//! Why a limit of the wait, and not a length of the queue: the objective is a time. Of a queue that is always
//! as long as it may be, every request that is served has waited for the whole limit, so the limit leaves room
//! for the time in the app, and follows what the responses really took.

use super::measured::SampleSum;
use super::{ShapeBounds, ShapeMeasured};
use std::time::Duration;

/// The share of the objective below which the limit never falls.
const LEAST: u32 = 20;
/// Factors of a step down and up.
const DOWN: f64 = 0.8;
const UP: f64 = 1.05;
/// The time without refusals after which the limit ends.
const RELIEVED: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy)]
pub(super) struct WaitBound {
    /// The longest wait of a request.
    pub(super) limit: Duration,
    /// The time without refusals so far.
    quiet: Duration,
}

impl WaitBound {
    /// Begins with what the objective leaves beside the time in the app.
    pub(super) fn new(now: ShapeMeasured, bounds: &ShapeBounds) -> WaitBound {
        let left = bounds.objective.saturating_sub(now.app.saturating_mul(2));
        WaitBound { limit: left.max(bounds.objective / 5), quiet: Duration::ZERO }
    }

    /// Adjusts the limit to what the responses of a while took. Returns whether it is over.
    pub(super) fn follow(&mut self, sum: &SampleSum, bounds: &ShapeBounds) -> bool {
        let (late, allowed) = (sum.late(), bounds.allowed());
        if sum.responses() > 0 && late > allowed {
            self.limit = self.limit.mul_f64(DOWN).max(bounds.objective / LEAST);
        } else if sum.refused() > 0 && late < allowed / 2.0 {
            self.limit = self.limit.mul_f64(UP).min(bounds.objective);
        }
        let calm = sum.refused() == 0 && !sum.waits_long(bounds);
        self.quiet = if calm { self.quiet + sum.time } else { Duration::ZERO };
        self.quiet >= RELIEVED
    }
}
