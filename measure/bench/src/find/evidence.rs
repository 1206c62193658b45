//! The evidence of the responses at one rate about the objectives, so far.
//!
//! Pure: slices of a step in, a figure of confidence out. A step ends as soon as that figure is clear, which saves the time for rates near the
//! limit. The figure is the number of standard deviations by which the responses lie on the good side (positive) or on the bad side (negative):
//! of a binomial share for percentiles and errors, of the mean of batches for the mean. Requests that wait behind each other are slow together,
//! so the number of independent ones is less than their count; the scatter between batches tells by how much.

use crate::objective::{Goal, Objective};

/// Numbers of batches among which the scatter is measured; the larger scatter counts. Short batches alone would not see long waves.
const BATCHES: [usize; 2] = [16, 7];
/// No figure is clearer than this.
pub(crate) const CLEAREST: f64 = 9.0;
/// The first part of a step is left out of the test for a growing queue: a queue of a rate that the server can hold grows, too, until it has its
/// usual length.
const SETTLING: f64 = 0.3;
/// The share of the offered requests by which the queue of an overloaded server grows, at least, and the standard deviations of a queue that
/// only varies.
const GROWTH: f64 = 0.005;
const GROWTH_DEVIATIONS: f64 = 3.0;

/// A part of a step, usually a tenth of a second.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Slice {
    /// Its end, in seconds since the start of the step.
    pub at: f64,
    /// Failed requests that ended in it.
    pub failed: u64,
    /// Requests in flight at its end.
    pub in_flight: u64,
    /// Requests started up to its end, since the start of the step.
    pub sent: u64,
    /// Requests ended up to its end, in any way.
    pub ended: u64,
    /// Times of good responses in it: a duration in microseconds and the count of responses that took about as long; in any order.
    pub spread: Vec<(u64, u64)>,
}

impl Slice {
    /// Returns the number of requests that ended in it.
    fn all(&self) -> u64 {
        self.spread.iter().map(|(_, count)| count).sum::<u64>() + self.failed
    }

    /// Returns the number of those that were slower than the limit or failed.
    fn beyond(&self, limit_us: f64) -> u64 {
        let slow = self.spread.iter().filter(|(us, _)| *us as f64 > limit_us);
        slow.map(|(_, count)| count).sum::<u64>() + self.failed
    }
}

/// All slices at one rate; several steps at the same rate are put together.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    slices: Vec<Slice>,
    /// The index of the first slice of the current step.
    step: usize,
}

impl Evidence {
    /// Begins another step at the same rate.
    pub fn begin_step(&mut self) {
        self.step = self.slices.len();
    }

    pub fn add(&mut self, slice: Slice) {
        self.slices.push(slice);
    }

    /// Adds the end of a step to its last slice, so that it is no moment of its own when the queue's length is compared.
    pub fn add_rest(&mut self, rest: Slice) {
        match self.slices.get_mut(self.step..).and_then(<[Slice]>::last_mut) {
            Some(last) => {
                last.failed += rest.failed;
                last.sent = last.sent.max(rest.sent);
                last.ended = last.ended.max(rest.ended);
                last.spread.extend(rest.spread);
            }
            None => self.slices.push(rest),
        }
    }

    /// Returns the number of good responses.
    pub fn good(&self) -> u64 {
        self.slices.iter().flat_map(|slice| &slice.spread).map(|(_, count)| count).sum()
    }

    pub fn failed(&self) -> u64 {
        self.slices.iter().map(|slice| slice.failed).sum()
    }

    /// Returns by how many standard deviations all objectives hold; negative if one of them is missed.
    pub fn deviations(&self, objectives: &[Objective]) -> f64 {
        let all = objectives.iter().map(|objective| self.of(objective));
        all.fold(CLEAREST, f64::min)
    }

    /// Returns the objective that is held least.
    pub fn tightest<'a>(&self, objectives: &'a [Objective]) -> Option<&'a Objective> {
        objectives.iter().min_by(|a, b| self.of(a).total_cmp(&self.of(b)))
    }

    /// Returns the figure for one objective.
    pub fn of(&self, objective: &Objective) -> f64 {
        let found = match objective.goal {
            Goal::Quantile { beyond, limit_us } => {
                // Where hardly any request is slow, those that are slower than most show how slow ones come together.
                let usual = self.scatter(self.quantile(1.0 - beyond).unwrap_or(f64::INFINITY));
                self.share(beyond, self.overdue(limit_us), limit_us, usual)
            }
            Goal::Errors { share } => self.share(share, 0, f64::INFINITY, 1.0),
            Goal::Mean { limit_us } => self.mean_deviations(limit_us),
        };
        found.clamp(-CLEAREST, CLEAREST)
    }

    /// Returns how clearly the share of bad requests is below `allowed`. `late` requests are in flight and already bad.
    fn share(&self, allowed: f64, late: u64, limit_us: f64, usual: f64) -> f64 {
        let bad: u64 = self.slices.iter().map(|slice| slice.beyond(limit_us)).sum();
        let (bad, all) = ((bad + late) as f64, (self.good() + self.failed() + late) as f64);
        if all < 1.0 {
            return 0.0;
        }
        if allowed <= 0.0 {
            // No number of good responses proves that none fails; some hundred are taken as clear.
            return if bad > 0.0 { -CLEAREST } else { (all / 100.0).sqrt() };
        }
        let independent = all / self.scatter(limit_us).max(usual);
        let likelihood = 2.0 * independent * divergence(bad / all, allowed);
        likelihood.max(0.0).sqrt().copysign(allowed - bad / all)
    }

    /// Returns how many times more the requests slower than `limit_us` scatter among batches than if each were slow by itself; at least 1.
    fn scatter(&self, limit_us: f64) -> f64 {
        let all: Vec<(f64, f64)> =
            self.slices.iter().map(|slice| (slice.beyond(limit_us) as f64, slice.all() as f64)).collect();
        BATCHES.iter().map(|count| scatter(&batches(&all, *count))).fold(1.0, f64::max)
    }

    /// Returns the number of requests that have been in flight for longer than the limit: at least those that were sent that long ago and have not
    /// ended, whichever have.
    fn overdue(&self, limit_us: f64) -> u64 {
        let slices = &self.slices[self.step.min(self.slices.len())..];
        let Some(last) = slices.last() else { return 0 };
        let then = slices.iter().rev().find(|slice| slice.at <= last.at - limit_us / 1e6);
        then.map_or(0, |then| then.sent.saturating_sub(last.ended))
    }

    fn mean_deviations(&self, limit_us: f64) -> f64 {
        let sums: Vec<(f64, f64)> = self.slices.iter().map(sum).collect();
        let batches = batches(&sums, BATCHES[0]);
        let count: f64 = batches.iter().map(|(_, count)| count).sum();
        if batches.len() < 4 {
            return 0.0;
        }
        let mean = batches.iter().map(|(sum, _)| sum).sum::<f64>() / count;
        let squares: f64 = batches.iter().map(|(sum, n)| (sum - n * mean).powi(2)).sum();
        let groups = batches.len() as f64;
        let error = (squares * groups / (groups - 1.0)).sqrt() / count;
        // Equal times have no scatter, but are measured to within a band.
        (limit_us - mean) / error.max(mean * 0.01).max(1e-9)
    }

    /// Returns the quantile `share` in microseconds; failed requests are slower than all. `None` if it is among those, or without requests.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        self.at_rank(share * (self.good() + self.failed()) as f64)
    }

    /// Returns the interval in which the quantile lies with 95 % confidence, in microseconds. `None` as an end: there is none.
    pub fn quantile_interval(&self, share: f64) -> (Option<f64>, Option<f64>) {
        let all = (self.good() + self.failed()) as f64;
        let value = self.quantile(share).unwrap_or(f64::INFINITY);
        let off = 1.96 * (all * share * (1.0 - share) * self.scatter(value)).sqrt();
        (self.at_rank((share * all - off).max(1.0)), self.at_rank(share * all + off))
    }

    fn at_rank(&self, rank: f64) -> Option<f64> {
        let mut all: Vec<(u64, u64)> =
            self.slices.iter().flat_map(|slice| slice.spread.iter().copied()).collect();
        all.sort_unstable();
        let mut seen = 0;
        all.into_iter().find_map(|(us, count)| {
            seen += count;
            (seen as f64 >= rank).then_some(us as f64)
        })
    }

    /// Returns the mean in microseconds.
    pub fn mean(&self) -> Option<f64> {
        let (total, count) = self.slices.iter().map(sum).fold((0.0, 0.0), |(a, b), (c, d)| (a + c, b + d));
        (count > 0.0).then(|| total / count)
    }

    /// Returns by how many requests per second the queue grows while `rate` requests per second are due; `None` if it does not, or may only vary.
    pub fn growth(&self, rate: f64) -> Option<f64> {
        let slices = &self.slices[self.step.min(self.slices.len())..];
        let last = slices.last()?.at;
        let late: Vec<&Slice> = slices.iter().filter(|slice| slice.at >= last * SETTLING).collect();
        let (first, end) = (late.first()?, late.last()?);
        let seconds = end.at - first.at;
        if late.len() < 6 || seconds <= 0.0 {
            return None;
        }
        let n = late.len() as f64;
        let middle = late.iter().map(|slice| slice.at).sum::<f64>() / n;
        let spread: f64 = late.iter().map(|slice| (slice.at - middle).powi(2)).sum();
        let slope =
            late.iter().map(|slice| (slice.at - middle) * slice.in_flight as f64).sum::<f64>() / spread;
        // The queue of a server at its limit varies as a random walk of arrivals and departures.
        let varies = GROWTH_DEVIATIONS * (2.0 * rate * seconds).sqrt();
        (slope * seconds > varies && slope > GROWTH * rate).then_some(slope)
    }
}

fn sum(slice: &Slice) -> (f64, f64) {
    slice
        .spread
        .iter()
        .fold((0.0, 0.0), |(sum, all), (us, count)| (sum + *us as f64 * *count as f64, all + *count as f64))
}

/// Adds up neighbours, so that about `count` batches remain; those without requests are left out.
fn batches(slices: &[(f64, f64)], count: usize) -> Vec<(f64, f64)> {
    let size = slices.len().div_ceil(count).max(1);
    let add = |part: &[(f64, f64)]| part.iter().fold((0.0, 0.0), |(a, b), (c, d)| (a + c, b + d));
    slices.chunks(size).map(add).filter(|(_, all)| *all > 0.0).collect()
}

/// Returns the scatter of batches, each with its bad requests and all of them, in terms of that of independent requests.
fn scatter(batches: &[(f64, f64)]) -> f64 {
    let (bad, all) = batches.iter().fold((0.0, 0.0), |(a, b), (c, d)| (a + c, b + d));
    let (share, groups) = (bad / all, batches.len() as f64);
    if groups < 3.0 || bad <= 0.0 || bad >= all {
        return 1.0;
    }
    let expected = |all: f64| all * share * (1.0 - share);
    batches.iter().map(|(bad, all)| (bad - all * share).powi(2) / expected(*all)).sum::<f64>()
        / (groups - 1.0)
}

/// Returns the Kullback-Leibler divergence of two shares, in nats.
fn divergence(found: f64, allowed: f64) -> f64 {
    let part = |p: f64, q: f64| if p <= 0.0 { 0.0 } else { p * (p / q.max(1e-12)).ln() };
    part(found, allowed) + part(1.0 - found, 1.0 - allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objective::objective;
    use proptest::prelude::*;

    fn slices(all: &[(u64, u64)]) -> Evidence {
        let mut evidence = Evidence::default();
        evidence.begin_step();
        let mut sent = 0;
        for (index, (fast, slow)) in all.iter().enumerate() {
            sent += fast + slow;
            evidence.add(Slice {
                at: 0.1 * (index + 1) as f64,
                sent,
                ended: sent,
                spread: vec![(10_000, *fast), (500_000, *slow)],
                ..Slice::default()
            });
        }
        evidence
    }

    fn of(text: &str, evidence: &Evidence) -> f64 {
        evidence.of(&objective(text).unwrap())
    }

    #[test]
    fn more_responses_are_clearer() {
        let (few, many) = (slices(&[(5, 0); 4]), slices(&[(50, 0); 10]));
        assert!((0.5..3.0).contains(&of("p95<200ms", &few)), "{}", of("p95<200ms", &few));
        assert!(of("p95<200ms", &many) > 5.0);
        assert!(of("p95<200ms", &slices(&[(50, 10); 10])) < -5.0);
        assert!(
            of("mean<200ms", &slices(&[(50, 1); 10])) > 3.0
                && of("mean<15ms", &slices(&[(50, 10); 10])) < -3.0
        );
        assert_eq!(Evidence::default().deviations(&[objective("p95<1s").unwrap()]), 0.0);
    }

    #[test]
    fn requests_that_are_slow_together_count_less() {
        let apart = slices(&[(45, 5); 32]);
        let mut rows = [(50, 0); 32];
        rows[10..14].fill((10, 40));
        let together = slices(&rows);
        let (apart, together) = (of("p95<200ms", &apart), of("p95<200ms", &together));
        assert!(apart < -3.0 && together < 0.0 && together > apart / 2.0, "{apart} {together}");
    }

    #[test]
    fn failed_and_overdue_requests_are_slow() {
        let mut evidence = slices(&[(20, 0); 10]);
        assert!(of("p95<200ms", &evidence) > 2.0 && of("errors<0.1%", &evidence) > 0.0);
        evidence = Evidence::default();
        for tenth in 1..=20u32 {
            evidence.add(Slice {
                at: f64::from(tenth) / 10.0,
                failed: 4,
                spread: vec![(10_000, 16)],
                ..Slice::default()
            });
        }
        assert!(of("p95<200ms", &evidence) < -2.0 && of("errors<0.1%", &evidence) < -2.0);
        assert_eq!(of("errors<=0%", &evidence), -CLEAREST);
        // A server that responds to nothing.
        let mut silent = Evidence::default();
        silent.begin_step();
        for tenth in 1..=20u32 {
            let sent = u64::from(tenth) * 10;
            silent.add(Slice { at: f64::from(tenth) / 10.0, sent, in_flight: sent, ..Slice::default() });
        }
        assert!(of("p95<200ms", &silent) < -5.0);
        assert!(silent.growth(100.0).is_some_and(|growth| (95.0..105.0).contains(&growth)));
        assert_eq!(silent.quantile(0.95), None);
    }

    #[test]
    fn a_queue_that_varies_does_not_grow() {
        let mut evidence = Evidence::default();
        for tenth in 1..=50u32 {
            let in_flight = 20 + u64::from(tenth * 7 % 13);
            evidence.add(Slice { at: f64::from(tenth) / 10.0, in_flight, ..Slice::default() });
        }
        assert_eq!(evidence.growth(100.0), None);
    }

    #[test]
    fn quantiles_have_an_interval() {
        let mut evidence = Evidence::default();
        for tenth in 1..=10u64 {
            let spread = (1..=100).map(|ms| (ms * 1_000, 1)).collect();
            evidence.add(Slice { at: tenth as f64 / 10.0, spread, ..Slice::default() });
        }
        assert_eq!(evidence.quantile(0.95), Some(95_000.0));
        let (low, high) = evidence.quantile_interval(0.95);
        assert!(
            low.unwrap() < 95_000.0 && high.unwrap() > 95_000.0 && high.unwrap() < 98_000.0,
            "{low:?} {high:?}"
        );
        assert!((evidence.mean().unwrap() - 50_500.0).abs() < 1.0);
    }

    proptest! {
        #[test]
        fn figures_are_finite_and_worse_with_more_slow_requests(rows in proptest::collection::vec((0u64..100, 0u64..100), 1..40)) {
            let objective = objective("p90<200ms").unwrap();
            let evidence = slices(&rows);
            let figure = evidence.of(&objective);
            prop_assert!(figure.is_finite() && figure.abs() <= CLEAREST);
            let (fast, slow) = rows.iter().fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
            if fast + slow > 0 {
                let share = slow as f64 / (fast + slow) as f64;
                prop_assert!(figure == 0.0 || (figure > 0.0) == (share < 0.1), "{} {}", figure, share);
            }
        }
    }
}
