//! The send times of an open model: request number n is due when the integral of the rate reaches n. So
//! errors do not accumulate, however long the run is.

use crate::clock::{Moment, nanoseconds};
use crate::scenario::{Arrivals, Scenario, Stage, Traffic};
use std::time::Duration;

/// An iterator over send times relative to the start of the counted part.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    stages: Vec<Stage>,
    /// The current stage, its start in seconds, and the number of requests due before it.
    stage: usize,
    began: f64,
    before: f64,
    /// The number (for Poisson arrivals: the value of the integral) at which the next request is due.
    next: f64,
    random: Option<fastrand::Rng>,
}

impl Schedule {
    pub(crate) fn new(stages: &[Stage], arrivals: Arrivals) -> Schedule {
        let random = match arrivals {
            Arrivals::Even => None,
            Arrivals::Random(seed) => Some(fastrand::Rng::with_seed(seed)),
        };
        let mut schedule =
            Schedule { stages: stages.to_vec(), stage: 0, began: 0.0, before: 0.0, next: 0.0, random };
        if schedule.random.is_some() {
            schedule.next = schedule.gap();
        }
        schedule
    }

    /// Returns the distance to the next request, in units of the integral.
    fn gap(&mut self) -> f64 {
        match &mut self.random {
            None => 1.0,
            Some(random) => -(1.0 - random.f64()).ln(),
        }
    }
}

impl Iterator for Schedule {
    type Item = Moment;

    fn next(&mut self) -> Option<Moment> {
        loop {
            let stage = self.stages.get(self.stage)?;
            let number = self.next - self.before;
            let duration = stage.duration.map(|duration| duration.as_secs_f64());
            let all = duration.map_or(f64::INFINITY, |duration| (stage.from + stage.to) / 2.0 * duration);
            if number < all {
                let into = when(stage, duration, number);
                let gap = self.gap();
                self.next += gap;
                return Some(nanoseconds(
                    Duration::try_from_secs_f64(self.began + into).unwrap_or(Duration::MAX),
                ));
            }
            self.began += duration?;
            self.before += all;
            self.stage += 1;
        }
    }
}

/// Returns the seconds into a stage at which the integral of its rate is `number`.
fn when(stage: &Stage, duration: Option<f64>, number: f64) -> f64 {
    let slope = duration.map_or(0.0, |duration| (stage.to - stage.from) / duration);
    // This form of the root also holds for a slope of 0.
    let root = (stage.from * stage.from + 2.0 * slope * number).max(0.0).sqrt();
    match number == 0.0 {
        true => 0.0,
        false => 2.0 * number / (stage.from + root),
    }
}

/// Returns the stages with all durations, and their total (`None` if unlimited). A last stage without a
/// duration lasts as long as the run; if the run is unlimited, too, the rate stays at the stage's first
/// value.
pub(crate) fn stages(scenario: &Scenario) -> (Vec<Stage>, Option<Duration>) {
    let Traffic::Open { stages, .. } = &scenario.traffic else { return (Vec::new(), None) };
    let mut stages = stages.clone();
    let before: Duration = stages.iter().filter_map(|stage| stage.duration).sum();
    if let Some(last) = stages.last_mut().filter(|stage| stage.duration.is_none()) {
        last.duration = scenario.stop.after.map(|after| after.saturating_sub(before));
        if last.duration.is_none() {
            last.to = last.from;
        }
    }
    let endless = stages.last().is_some_and(|stage| stage.duration.is_none());
    let total = stages.iter().filter_map(|stage| stage.duration).sum();
    (stages, (!endless).then_some(total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stage(from: f64, to: f64, seconds: f64) -> Stage {
        Stage { from, to, duration: Some(Duration::from_secs_f64(seconds)) }
    }

    fn times(stages: &[Stage]) -> Vec<f64> {
        Schedule::new(stages, Arrivals::Even)
            .map(|moment| Duration::from_nanos(moment).as_secs_f64())
            .collect()
    }

    #[test]
    fn constant_and_ramp() {
        assert_eq!(times(&[stage(4.0, 4.0, 1.0)]), [0.0, 0.25, 0.5, 0.75]);
        assert_eq!(
            times(&[stage(2.0, 2.0, 1.0), stage(0.0, 0.0, 5.0), stage(1.0, 1.0, 1.0)]),
            [0.0, 0.5, 6.0]
        );
        // 0 to 8 per second within one second: the square root of k / 4.
        let expected: Vec<f64> = (0..4u32).map(|number| (f64::from(number) / 4.0).sqrt()).collect();
        for (time, expected) in times(&[stage(0.0, 8.0, 1.0)]).iter().zip(&expected) {
            assert!((time - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn errors_do_not_accumulate() {
        let stages = [Stage { from: 3.0, to: 3.0, duration: None }];
        let time = Schedule::new(&stages, Arrivals::Even).nth(30_000_000).expect("it goes on");
        assert_eq!(time, 10_000_000 * 1_000_000_000);
    }

    #[test]
    fn poisson_gaps_have_the_expected_mean_and_variance() {
        let stages = [stage(1000.0, 1000.0, 20.0)];
        let times: Vec<Moment> = Schedule::new(&stages, Arrivals::Random(5)).collect();
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((0.95..1.05).contains(&mean), "{mean}");
        assert!((0.93..1.07).contains(&(variance.sqrt() / mean)), "{}", variance.sqrt() / mean);
        assert_eq!(times, Schedule::new(&stages, Arrivals::Random(5)).collect::<Vec<_>>());
    }

    proptest! {
        #[test]
        fn count_and_times_match_the_integral_of_the_rate(
            stages in prop::collection::vec((0.0..500.0f64, 0.0..500.0f64, 0.01..3.0f64), 1..5)
        ) {
            let stages: Vec<Stage> = stages.into_iter().map(|(from, to, seconds)| stage(from, to, seconds)).collect();
            let times = times(&stages);
            let integral = |until: f64| {
                let mut left = until;
                let mut sum = 0.0;
                for stage in &stages {
                    let duration = stage.duration.expect("a length").as_secs_f64();
                    let here = left.clamp(0.0, duration);
                    sum += stage.from * here + (stage.to - stage.from) / duration * here * here / 2.0;
                    left -= duration;
                }
                sum
            };
            let all = integral(f64::INFINITY.min(1e6));
            prop_assert!((times.len() as f64 - all.ceil()).abs() <= 1.0, "{} {all}", times.len());
            prop_assert!(times.is_sorted());
            for (number, time) in times.iter().enumerate() {
                prop_assert!((integral(*time) - number as f64).abs() < 1e-3, "{number} at {time}");
            }
        }
    }
}
