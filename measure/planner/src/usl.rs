//! The Universal Scalability Law (Gunther 1993): X(N) = λN / (1 + σ(N-1) + κN(N-1)), fitted to measured rates.
//!
//! σ is the serial fraction of the work (contention); κ is the cost of coherency, which grows with the square of N. N/X
//! is linear in 1/λ, σ/λ and κ/λ, so fitting relative errors is a linear least squares problem with a unique solution.
//! Bounds are computed by leaving out one point at a time.

use serde::{Deserialize, Serialize};

use crate::squares::{Equation, solve};

/// The sets: λ alone, with σ, with κ, with both.
const SETS: [[bool; 3]; 4] =
    [[true, false, false], [true, true, false], [true, false, true], [true, true, true]];

/// A fitted law.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Usl {
    /// Rate of one thread or process: requests per second.
    pub lambda: f64,
    /// Serial fraction of the work (contention).
    pub sigma: f64,
    /// Coherency cost; if above 0, throughput falls again.
    pub kappa: f64,
    /// Explained fraction of the variance (R²), at most 1.
    pub fit: f64,
    /// Smallest and largest σ with one point left out; equal if there are too few points.
    pub sigma_bounds: (f64, f64),
    /// The same bounds for κ.
    pub kappa_bounds: (f64, f64),
    /// Smallest and largest [`Usl::knee`] with one point left out; `None` if there are too few points, or if one of
    /// them grows without bound.
    pub knee_bounds: Option<(u32, u32)>,
    /// The largest N measured.
    pub reach: f64,
    pub points: usize,
}

impl Usl {
    /// Fits the law to pairs (N, requests per second). `None` with fewer than three different N, or with
    /// values that are not positive.
    pub fn fit(points: &[(f64, f64)]) -> Option<Usl> {
        if distinct(points) < 3 {
            return None;
        }
        let mut law = fit_once(points)?;
        law.fit = law.explained(points);
        let without = (0..points.len()).filter_map(|i| {
            let rest: Vec<(f64, f64)> = [&points[..i], &points[i + 1..]].concat();
            (distinct(&rest) >= 3).then(|| fit_once(&rest)).flatten()
        });
        let mut knees = vec![law.knee()];
        for other in without {
            widen(&mut law.sigma_bounds, other.sigma);
            widen(&mut law.kappa_bounds, other.kappa);
            knees.push(other.knee());
        }
        let all: Option<Vec<u32>> = knees.into_iter().collect();
        let all = all.filter(|all| all.len() > 1);
        law.knee_bounds = all.and_then(|all| Some((*all.iter().min()?, *all.iter().max()?)));
        Some(law)
    }

    /// Returns the requests per second of `n`.
    pub fn rate(&self, n: f64) -> f64 {
        self.lambda * n / (1.0 + self.sigma * (n - 1.0) + self.kappa * n * (n - 1.0))
    }

    /// Returns the N with the highest throughput; `None` if throughput never falls (κ = 0).
    pub fn peak(&self) -> Option<f64> {
        (self.kappa > 0.0).then(|| ((1.0 - self.sigma).max(0.0) / self.kappa).sqrt().max(1.0))
    }

    /// Returns where throughput stops growing: the smallest whole N that reaches 95 % of the maximum; `None`
    /// if it grows without bound (σ = κ = 0), or beyond a million.
    pub fn knee(&self) -> Option<u32> {
        let most = match self.peak() {
            Some(peak) => self.rate(peak),
            None if self.sigma > 0.0 => self.lambda / self.sigma,
            None => return None,
        };
        let enough = |n: u32| self.rate(f64::from(n)) >= 0.95 * most;
        let last = self.peak().map_or(1e6, |peak| peak.ceil().min(1e6)) as u32;
        // The rate grows up to the peak, so bisection finds the first sufficient N.
        let (mut low, mut high) = (1, last);
        if !enough(high) {
            return None;
        }
        while low < high {
            let middle = u32::midpoint(low, high);
            if enough(middle) { high = middle } else { low = middle + 1 }
        }
        Some(low)
    }

    fn explained(&self, points: &[(f64, f64)]) -> f64 {
        let mean = points.iter().map(|(_, rate)| rate).sum::<f64>() / points.len() as f64;
        let left: f64 = points.iter().map(|(n, rate)| (rate - self.rate(*n)).powi(2)).sum();
        let all: f64 = points.iter().map(|(_, rate)| (rate - mean).powi(2)).sum();
        // Without variance there is nothing to explain.
        if left <= all { 1.0 - left / all.max(f64::MIN_POSITIVE) } else { 0.0 }
    }
}

fn distinct(points: &[(f64, f64)]) -> usize {
    let mut all: Vec<u64> = points.iter().map(|(n, _)| n.to_bits()).collect();
    all.sort_unstable();
    all.dedup();
    all.len()
}

fn widen(bounds: &mut (f64, f64), value: f64) {
    *bounds = (bounds.0.min(value), bounds.1.max(value));
}

fn fit_once(points: &[(f64, f64)]) -> Option<Usl> {
    if points.iter().any(|(n, rate)| !(n.is_finite() && rate.is_finite() && *n >= 1.0 && *rate > 0.0)) {
        return None;
    }
    let equation = |&(n, rate): &(f64, f64)| {
        let result = n / rate;
        Equation { factors: [1.0, n - 1.0, n * (n - 1.0)], result, weight: 1.0 / (result * result) }
    };
    let equations: Vec<Equation> = points.iter().map(equation).collect();
    let [a, b, d] = solve(&equations, &SETS)?;
    if a <= 0.0 {
        return None;
    }
    let (sigma, kappa) = (b / a, d / a);
    let (sigma_bounds, kappa_bounds) = ((sigma, sigma), (kappa, kappa));
    let reach = points.iter().map(|(n, _)| *n).fold(1.0, f64::max);
    let (knee_bounds, points) = (None, points.len());
    Some(Usl {
        lambda: 1.0 / a,
        sigma,
        kappa,
        fit: 0.0,
        sigma_bounds,
        kappa_bounds,
        knee_bounds,
        reach,
        points,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn law(lambda: f64, sigma: f64, kappa: f64) -> Usl {
        Usl {
            lambda,
            sigma,
            kappa,
            fit: 1.0,
            sigma_bounds: (0.0, 1.0),
            kappa_bounds: (0.0, 1.0),
            knee_bounds: None,
            reach: 1.0,
            points: 0,
        }
    }

    #[test]
    fn gunthers_example() {
        // Guerrilla Capacity Planning, ray tracing on an SGI Origin 2000: processors and rays per second; the book's
        // fit is σ = 0.0500, κ = 0.000005, and 20 processors' worth beyond any number of them.
        let measured = [
            (1.0, 20.0),
            (4.0, 78.0),
            (8.0, 130.0),
            (12.0, 170.0),
            (16.0, 190.0),
            (20.0, 200.0),
            (24.0, 210.0),
            (28.0, 230.0),
            (32.0, 260.0),
            (48.0, 280.0),
            (64.0, 310.0),
        ];
        let law = Usl::fit(&measured).unwrap();
        assert!((law.sigma - 0.05).abs() < 0.01, "{law:?}");
        assert!(law.kappa < 1e-4 && law.fit > 0.98, "{law:?}");
        assert!(law.sigma_bounds.0 <= law.sigma && law.sigma <= law.sigma_bounds.1);
        let (low, high) = law.knee_bounds.unwrap();
        assert!((low..=high).contains(&law.knee().unwrap()));
    }

    #[test]
    fn knee_and_peak() {
        assert_eq!(law(10.0, 0.0, 0.0).knee(), None);
        assert_eq!(law(10.0, 1.0, 0.0).knee(), Some(1));
        let contended = law(10.0, 0.1, 0.0);
        assert_eq!(contended.knee(), Some(171));
        assert_eq!(contended.peak(), None);
        let falling = law(10.0, 0.02, 0.001);
        assert!((falling.peak().unwrap() - 31.3).abs() < 0.1);
        assert!(falling.knee().unwrap() < 31);
    }

    #[test]
    fn too_few_points_give_no_law() {
        assert!(Usl::fit(&[(1.0, 10.0), (2.0, 19.0)]).is_none());
        assert!(Usl::fit(&[(1.0, 10.0), (1.0, 11.0), (2.0, 19.0)]).is_none());
        assert!(Usl::fit(&[(1.0, 10.0), (2.0, 0.0), (3.0, 19.0)]).is_none());
        assert!(Usl::fit(&[(1.0, 10.0), (2.0, f64::NAN), (3.0, 19.0)]).is_none());
    }

    proptest! {
        #[test]
        fn recovers_the_law_behind_the_points(lambda in 0.1..1e5, sigma in 0.0..0.9, kappa in 0.0..0.01) {
            let made = law(lambda, sigma, kappa);
            let points: Vec<(f64, f64)> = [1.0, 2.0, 5.0, 10.0, 30.0].map(|n| (n, made.rate(n))).to_vec();
            let found = Usl::fit(&points).unwrap();
            prop_assert!((found.sigma - sigma).abs() < 1e-6 && (found.kappa - kappa).abs() < 1e-7, "{found:?}");
            prop_assert!((found.lambda / lambda - 1.0).abs() < 1e-6);
        }

        #[test]
        fn any_points_give_a_valid_law_or_none(points in proptest::collection::vec((1.0..1e3, 1e-3..1e6), 0..12)) {
            if let Some(found) = Usl::fit(&points) {
                prop_assert!(found.lambda > 0.0 && found.sigma >= 0.0 && found.kappa >= 0.0);
                prop_assert!((0.0..=1.0).contains(&found.fit));
                let _ = found.knee();
            }
        }
    }
}
