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
                return Some(nanoseconds(Duration::try_from_secs_f64(self.began + into).unwrap_or(Duration::MAX)));
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
