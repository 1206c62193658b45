//! The distribution of service times: a gamma distribution with a given mean and coefficient of variation (cv).
//!
//! One family covers all needs: cv 0 is constant, cv 1 is exponential, and above that most times are short
//! and some are long. The distribution is represented by points (quantiles with weights), so that integrals
//! over it are sums over points.

use statrs::distribution::{ContinuousCDF, Gamma};

/// Above this, a gamma distribution is nearly all zeros and its percentiles are meaningless.
pub const LARGEST_CV: f64 = 4.0;
/// Up to here, points have equal weights; beyond, they get finer, so that the 99.99th percentile is accurate.
const BODY: f64 = 0.99;
const BODY_POINTS: u32 = 990;
const TAIL_POINTS: u32 = 400;
/// The rest of the tail is ignored.
const END: f64 = 1e-7;

/// A distribution of service times.
#[derive(Debug, Clone)]
pub struct Service {
    /// Mean, in the caller's unit.
    pub mean: f64,
    /// Standard deviation divided by the mean.
    pub cv: f64,
    points: Vec<Point>,
}

/// A fraction of all services with its time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub weight: f64,
    pub time: f64,
}

impl Service {
    /// Returns the distribution of `mean` and `cv`. A cv below 0.01 counts as 0; for percentiles, a cv above
    /// [`LARGEST_CV`] counts as that value.
    pub fn new(mean: f64, cv: f64) -> Service {
        let constant = vec![Point { weight: 1.0, time: mean }];
        let points = gamma(cv).filter(|_| mean > 0.0).map_or(constant, |gamma| points(&gamma, mean));
        Service { mean, cv, points }
    }

    /// Returns the same distribution scaled to another mean.
    pub fn scaled(&self, mean: f64) -> Service {
        let factor = mean / self.mean;
        let points = self.points.iter().map(|point| Point { time: point.time * factor, ..*point });
        Service { mean, cv: self.cv, points: points.collect() }
    }

    /// Returns the points, shortest first; the weights add up to 1.
    pub(crate) fn points(&self) -> &[Point] {
        &self.points
    }

    /// Returns a percentile (0 to 100) of the service time.
    pub fn percentile(&self, percentile: f64) -> f64 {
        let mut left = percentile / 100.0;
        let reached = self.points.iter().find(|point| {
            left -= point.weight;
            left <= 0.0
        });
        reached.or(self.points.last()).map_or(0.0, |point| point.time)
    }

    /// Returns the fraction of services that take longer than `time`.
    pub fn exceeds(&self, time: f64) -> f64 {
        self.points.iter().filter(|point| point.time > time).map(|point| point.weight).sum()
    }
}

fn gamma(cv: f64) -> Option<Gamma> {
    let shape = 1.0 / cv.min(LARGEST_CV).powi(2);
    (cv >= 0.01).then(|| Gamma::new(shape, shape).ok()).flatten()
}

fn points(gamma: &Gamma, mean: f64) -> Vec<Point> {
    let body = (0..BODY_POINTS).map(|i| {
        let weight = BODY / f64::from(BODY_POINTS);
        (weight, (f64::from(i) + 0.5) * weight)
    });
    let tail = (0..TAIL_POINTS).map(|i| {
        let left = |i: u32| (1.0 - BODY) * (END / (1.0 - BODY)).powf(f64::from(i) / f64::from(TAIL_POINTS));
        (left(i) - left(i + 1), 1.0 - (left(i) + left(i + 1)) / 2.0)
    });
    let mut points: Vec<Point> =
        body.chain(tail).map(|(weight, at)| Point { weight, time: gamma.inverse_cdf(at) }).collect();
    // Discretization changes mean and weight slightly; this corrects it.
    let total: f64 = points.iter().map(|point| point.weight).sum();
    let sum: f64 = points.iter().map(|point| point.weight * point.time).sum();
    for point in &mut points {
        point.time *= mean * total / sum;
        point.weight /= total;
    }
    points
}

/// The variation implied by a 95th percentile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FromP95 {
    /// The cv of the gamma distribution with this mean and 95th percentile.
    Cv(f64),
    /// No gamma distribution has such a long tail; this is the cv of the nearest one.
    AtLeast(f64),
    /// No distribution has this value: 5 % of the requests alone would give a larger mean.
    Impossible,
    /// The value is below the mean, which is possible only if a few requests take very long.
    BelowMean,
}

/// Returns the variation implied by a mean and a 95th percentile.
pub fn cv_from_p95(mean: f64, p95: f64) -> FromP95 {
    let wanted = p95 / mean;
    if wanted > 20.0 {
        return FromP95::Impossible;
    }
    if wanted < 1.0 {
        return FromP95::BelowMean;
    }
    // The ratio grows with cv up to its maximum, then falls again.
    let ratio = |cv: f64| gamma(cv).map_or(1.0, |gamma| gamma.inverse_cdf(0.95));
    let (mut low, mut high) = (0.0, TOP_CV);
    if wanted > ratio(high) {
        return FromP95::AtLeast(high);
    }
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if ratio(middle) < wanted { low = middle } else { high = middle }
    }
    FromP95::Cv(high)
}

/// The cv with the largest 95th percentile of a gamma distribution, 5.83 times its mean.
const TOP_CV: f64 = 3.4;

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, wanted: f64, within: f64) {
        assert!((found - wanted).abs() <= within * wanted.abs(), "{found} is not {wanted}");
    }

    #[test]
    fn points_have_the_moments_of_the_distribution() {
        for cv in [0.0, 0.05, 0.3, 0.7, 1.0, 1.5, 2.0, 3.0] {
            let service = Service::new(7.0, cv);
            let moment = |power| service.points.iter().map(|p| p.weight * p.time.powi(power)).sum::<f64>();
            near(moment(0), 1.0, 1e-9);
            near(moment(1), 7.0, 1e-9);
            let variance = moment(2) - 49.0;
            assert!((variance.sqrt() / 7.0 - cv).abs() < 0.02 * cv + 1e-6, "{cv} {}", variance.sqrt() / 7.0);
        }
    }

    #[test]
    fn cv_one_is_exponential() {
        let service = Service::new(2.0, 1.0);
        for (time, wanted) in [(1.0_f64, 0.606_53), (2.0, 0.367_88), (9.2103, 0.01), (13.8155, 0.001)] {
            near(service.exceeds(time), wanted, 0.03);
        }
    }

    #[test]
    fn p95_to_cv_and_back() {
        for cv in [0.1, 0.5, 1.0, 1.2, 2.0, 2.5] {
            let p95 = gamma(cv).unwrap().inverse_cdf(0.95) * 7.0;
            let FromP95::Cv(found) = cv_from_p95(7.0, p95) else { panic!("{cv}") };
            near(found, cv, 0.01);
        }
        // -ln 0.05 = 2.9957: the exponential distribution's.
        let FromP95::Cv(found) = cv_from_p95(1.0, 2.9957) else { panic!() };
        near(found, 1.0, 0.001);
        assert_eq!(cv_from_p95(7.0, 6.9), FromP95::BelowMean);
        assert_eq!(cv_from_p95(7.0, 141.0), FromP95::Impossible);
        assert!(matches!(cv_from_p95(7.0, 100.0), FromP95::AtLeast(cv) if cv > 3.0));
        assert!(matches!(cv_from_p95(7.0, 7.0), FromP95::Cv(cv) if cv < 0.01));
    }

    #[test]
    fn the_ratio_is_largest_at_top_cv() {
        let ratio = |cv: f64| gamma(cv).unwrap().inverse_cdf(0.95);
        let top = ratio(TOP_CV);
        assert!((1..=400).all(|i| ratio(f64::from(i) / 100.0) <= top + 0.001), "{top}");
        assert!((5.8..5.85).contains(&top), "{top}");
    }
}
