//! When requests of an open model are due: the moment at which the integral of the rate reaches their number. So nothing
//! drifts, however long it takes.

use crate::clock::{Moment, nanoseconds};
use crate::plan::{Arrivals, Plan, Stage, Traffic};
use std::time::Duration;

/// Moments since the counted part began, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    stages: Vec<Stage>,
    /// The stage we are in, when it began (seconds) and how many were due before it.
    stage: usize,
    began: f64,
    before: f64,
    /// How many (with Poisson: how much of the integral) are due before the next one.
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

    /// Distance to the next one, in numbers.
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
            let lasting = stage.lasting.map(|lasting| lasting.as_secs_f64());
            let all = lasting.map_or(f64::INFINITY, |lasting| (stage.from + stage.to) / 2.0 * lasting);
            if number < all {
                let into = when(stage, lasting, number);
                let gap = self.gap();
                self.next += gap;
                return Some(nanoseconds(
                    Duration::try_from_secs_f64(self.began + into).unwrap_or(Duration::MAX),
                ));
            }
            self.began += lasting?;
            self.before += all;
            self.stage += 1;
        }
    }
}

/// Seconds into a stage at which the integral of its rate is `number`.
fn when(stage: &Stage, lasting: Option<f64>, number: f64) -> f64 {
    let slope = lasting.map_or(0.0, |lasting| (stage.to - stage.from) / lasting);
    // Of the two forms of the root this is the one that holds for a slope of 0.
    let root = (stage.from * stage.from + 2.0 * slope * number).max(0.0).sqrt();
    match number == 0.0 {
        true => 0.0,
        false => 2.0 * number / (stage.from + root),
    }
}

/// Stages with their lengths filled in, and how long all of them last: `None` for ever. A last stage without a length
/// lasts as long as the run; when that has no end either, its rate stays what it begins with.
pub(crate) fn stages(plan: &Plan) -> (Vec<Stage>, Option<Duration>) {
    let Traffic::Open { stages, .. } = &plan.traffic else { return (Vec::new(), None) };
    let mut stages = stages.clone();
    let before: Duration = stages.iter().filter_map(|stage| stage.lasting).sum();
    if let Some(last) = stages.last_mut().filter(|stage| stage.lasting.is_none()) {
        last.lasting = plan.stop.after.map(|after| after.saturating_sub(before));
        if last.lasting.is_none() {
            last.to = last.from;
        }
    }
    let endless = stages.last().is_some_and(|stage| stage.lasting.is_none());
    let total = stages.iter().filter_map(|stage| stage.lasting).sum();
    (stages, (!endless).then_some(total))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stage(from: f64, to: f64, seconds: f64) -> Stage {
        Stage { from, to, lasting: Some(Duration::from_secs_f64(seconds)) }
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
        // 0 to 8 per second within a second: the square root of k / 4.
        let expected: Vec<f64> = (0..4u32).map(|number| (f64::from(number) / 4.0).sqrt()).collect();
        for (time, expected) in times(&[stage(0.0, 8.0, 1.0)]).iter().zip(&expected) {
            assert!((time - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn nothing_drifts() {
        let stages = [Stage { from: 3.0, to: 3.0, lasting: None }];
        let time = Schedule::new(&stages, Arrivals::Even).nth(30_000_000).expect("it goes on");
        assert_eq!(time, 10_000_000 * 1_000_000_000);
    }

    #[test]
    fn poisson_gaps_vary_as_they_should() {
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
        fn as_many_as_the_integral_of_the_rate_at_the_right_times(
            stages in prop::collection::vec((0.0..500.0f64, 0.0..500.0f64, 0.01..3.0f64), 1..5)
        ) {
            let stages: Vec<Stage> = stages.into_iter().map(|(from, to, seconds)| stage(from, to, seconds)).collect();
            let times = times(&stages);
            let integral = |until: f64| {
                let mut left = until;
                let mut sum = 0.0;
                for stage in &stages {
                    let lasting = stage.lasting.expect("a length").as_secs_f64();
                    let here = left.clamp(0.0, lasting);
                    sum += stage.from * here + (stage.to - stage.from) / lasting * here * here / 2.0;
                    left -= lasting;
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
