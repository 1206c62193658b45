//! Decides the steps: one trial at a time, what is tried next, when the shape shrinks.

use super::guards::{self, ForbiddenStep, GUARDS};
use super::measured::SampleSum;
use super::overload::WaitBound;
use super::trial::{CHANGES, ShapeChange, ShapeTrial};
use super::{
    AGAIN, AGAIN_MOST, CALM, LearntShape, ServingShape, ShapeBounds, ShapeMeasured, ShapeSample, ShapeStep,
    ShapeVerdict, milliseconds, percent,
};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The samples of a decision; [`PRESSED`] of them have to agree.
const WINDOW: usize = 4;
const PRESSED: usize = 2;
/// The samples over which the objective is said to hold or not.
const HOLDS: usize = 20;
/// The factor by which requests may take longer in the app than with few of them.
const TOLERANCE: f64 = 1.5;
/// The gradient from which fewer seats are tried.
const STEEP: f64 = 0.8;
/// The growth of the shortest time in the app with each sample, so that it follows an app that changes.
const FORGETS: f64 = 1.001;
/// The responses of a sample whose time in the app counts.
const MANY: u64 = 10;
/// The share of what would be left that may be in use when the shape shrinks.
const HALF: f64 = 0.5;
/// The weight of a sample in the average of the CPUs that the workers use: about 20 s.
const AVERAGED: f64 = 0.025;

/// A trial that did not help, and the time until which it is not tried again.
#[derive(Debug, Clone, Copy)]
struct FailedTrial {
    /// The number that the trial began with.
    from: u32,
    until: Instant,
    patience: Duration,
}

/// A time in which no request waits.
#[derive(Debug, Clone, Copy)]
struct Calm {
    since: Instant,
    /// When the second of `halves` began. Each lasts half of the time after which the shape shrinks.
    half: Instant,
    /// The most seats in use in the last two halves.
    halves: [u32; 2],
}

impl Calm {
    fn most(self) -> u32 {
        self.halves[0].max(self.halves[1])
    }
}

/// The state of the shape.
#[derive(Debug)]
pub struct Shaper {
    bounds: ShapeBounds,
    shape: ServingShape,
    recent: VecDeque<ShapeSample>,
    /// The last samples, for the question whether the objective holds.
    last: VecDeque<ShapeSample>,
    trial: Option<ShapeTrial>,
    failed: [Option<FailedTrial>; CHANGES],
    /// Which guards have been reported since requests last did not wait.
    said: [bool; GUARDS],
    overload: Option<WaitBound>,
    /// The shortest mean time in the app, in microseconds.
    least_app_us: f64,
    /// When requests last waited for long.
    pressed: Option<Instant>,
    /// Since requests no longer wait.
    calm: Option<Calm>,
    cpus: f64,
    shrunk: Option<Instant>,
    patience: Duration,
}

impl Shaper {
    pub fn new(bounds: ShapeBounds) -> Shaper {
        Shaper {
            bounds,
            shape: bounds.start,
            recent: VecDeque::new(),
            last: VecDeque::new(),
            trial: None,
            failed: [None; CHANGES],
            said: [false; GUARDS],
            overload: None,
            least_app_us: f64::INFINITY,
            pressed: None,
            calm: None,
            cpus: 0.0,
            shrunk: None,
            patience: CALM,
        }
    }

    /// Begins with what was learnt before, as far as these bounds allow it.
    pub fn resumed(bounds: ShapeBounds, learnt: LearntShape) -> Shaper {
        let LearntShape { shape, least_app } = learnt;
        let within = |number: u32, (least, most): (u32, u32)| number.clamp(least, most.max(least));
        let shape = ServingShape {
            workers: within(shape.workers, bounds.workers),
            seats: within(shape.seats, bounds.seats),
        };
        let least_app_us = least_app.map_or(f64::INFINITY, |least| least.as_secs_f64() * 1e6);
        Shaper { shape, least_app_us, ..Shaper::new(bounds) }
    }

    /// Returns what is worth keeping: the shape without the trial that runs.
    pub fn learnt(&self) -> LearntShape {
        let least = Some(self.least_app_us).filter(|us| us.is_finite());
        LearntShape {
            shape: self.trial.as_ref().map_or(self.shape, |trial| trial.from),
            least_app: least.map(|us| Duration::from_micros(us as u64)),
        }
    }

    /// Returns the shape that is to be in force.
    pub fn shape(&self) -> ServingShape {
        self.shape
    }

    pub fn bounds(&self) -> &ShapeBounds {
        &self.bounds
    }

    /// Returns the longest wait of a request in the queue; `None` without overload.
    pub fn wait_limit(&self) -> Option<Duration> {
        self.overload.as_ref().map(|overload| overload.limit)
    }

    /// Returns whether the objective held in the last seconds, with the figures; `None` without requests.
    pub fn holds(&self) -> Option<(bool, ShapeMeasured)> {
        let sum = SampleSum::of(&self.last);
        (sum.responses() + sum.refused() > 0)
            .then(|| (!sum.is_broken(&self.bounds), sum.measured(&self.bounds)))
    }

    /// Ends a trial without a verdict and discards the samples, because workers are replaced.
    pub fn disturbed(&mut self, why: &str) -> Option<ShapeStep> {
        self.recent.clear();
        self.calm = None;
        let trial = self.trial.take()?;
        Some(self.ended(&trial, ShapeVerdict::Undecided, why.to_owned()))
    }

    /// Judges a sample. The new shape, if any, is in [`Shaper::shape`].
    pub fn observe(&mut self, sample: ShapeSample, now: Instant) -> Vec<ShapeStep> {
        let mut steps = Vec::new();
        if self.trial.as_ref().is_none_or(|trial| trial.change != ShapeChange::MoreWorkers) {
            // A signal may have changed it.
            self.shape.workers = sample.workers;
        }
        self.remember(&sample, now);
        let (most, why) = guards::most_seats(&sample, &self.bounds);
        if self.shape.seats > most {
            self.trial = None;
            return vec![self.shrink(0, self.shape.seats - most, why, now)];
        }
        if let Some(mut trial) = self.trial.take() {
            match trial.skip {
                0 => trial.after.add(&sample),
                skip => trial.skip = skip - 1,
            }
            let Some((verdict, why)) = trial.verdict(&self.bounds) else {
                self.trial = Some(trial);
                return steps;
            };
            steps.push(self.judged(&trial, verdict, why, now));
            // A step that has helped may be followed by the next at once.
            if verdict == ShapeVerdict::Kept {
                self.recent.extend([sample.clone(), sample.clone()]);
            }
        }
        let sum = SampleSum::of(&self.recent);
        let pressed = self.recent.iter().filter(|one| self.is_pressed(one)).count() >= PRESSED;
        if pressed {
            self.pressed = Some(now);
        } else if self.pressed.is_none_or(|at| now.saturating_duration_since(at) >= CALM) {
            self.said = [false; GUARDS];
        }
        steps.extend(if pressed { self.more(&sample, &sum, now) } else { self.fewer(&sample, now) });
        steps.extend(self.overloaded(&sum));
        steps
    }

    fn is_pressed(&self, sample: &ShapeSample) -> bool {
        let sum = SampleSum::of([sample]);
        sum.waits_long(&self.bounds) || sum.is_broken(&self.bounds)
    }

    fn remember(&mut self, sample: &ShapeSample, now: Instant) {
        for (samples, most) in [(&mut self.recent, WINDOW), (&mut self.last, HOLDS)] {
            samples.push_back(sample.clone());
            while samples.len() > most {
                samples.pop_front();
            }
        }
        self.cpus += (sample.worker_cpus.unwrap_or(0.0) - self.cpus) * AVERAGED;
        self.least_app_us *= FORGETS;
        if sample.ended >= MANY {
            self.least_app_us = self.least_app_us.min(sample.app_us as f64 / sample.ended as f64);
        }
        if self.is_pressed(sample) {
            self.calm = None;
        } else {
            let new = Calm { since: now, half: now, halves: [0; 2] };
            let calm = self.calm.get_or_insert(new);
            if now.saturating_duration_since(calm.half) >= self.patience / 2 {
                (calm.half, calm.halves) = (now, [calm.halves[1], 0]);
            }
            calm.halves[1] = calm.halves[1].max(sample.busy);
        }
    }

    /// Returns a step towards more, or the reason why there is none.
    fn more(&mut self, sample: &ShapeSample, sum: &SampleSum, now: Instant) -> Option<ShapeStep> {
        let (measured, shape) = (sum.measured(&self.bounds), self.shape);
        let waited = sum.waits_long(&self.bounds);
        let why = if sum.refused() > 0 {
            format!("{} of the requests missed the objective", percent(measured.missed))
        } else if waited {
            format!("requests waited {} (p95)", milliseconds(sum.wait()))
        } else {
            format!("{} of the requests missed the objective, without waiting", percent(measured.missed))
        };
        let computes = guards::computes(sample, shape);
        let seats = match waited {
            true => guards::more_seats(sample, measured, shape, &self.bounds),
            // Seats that are free would not be used.
            false => Err((guards::ShapeGuard::Cpu, "no request waits for a seat".to_owned())),
        };
        let workers = match waited || computes.is_some() {
            true => guards::more_workers(sample, shape, &self.bounds),
            false => Err((guards::ShapeGuard::Cpu, "the app itself takes that long".to_owned())),
        };
        let seats = seats.map(|seats| (ShapeChange::MoreSeats, ServingShape { seats, ..shape }));
        let workers = workers.map(|workers| (ShapeChange::MoreWorkers, ServingShape { workers, ..shape }));
        let both = if computes.is_some() { [workers, seats] } else { [seats, workers] };
        let next = both.iter().flatten().copied().find(|(change, _)| self.may_try(*change, now));
        if let Some((change, to)) = next {
            let hint = computes.filter(|_| change == ShapeChange::MoreWorkers);
            let why = hint.map_or(why.clone(), |hint| format!("{why}, and {hint}"));
            if self.shrunk.is_some_and(|at| now.saturating_duration_since(at) < self.patience * 2) {
                self.patience = (self.patience * 2).min(AGAIN_MOST);
                self.shrunk = None;
            }
            return Some(self.begin(change, to, why, measured, waited));
        }
        if sum.is_broken(&self.bounds)
            && let Some((to, gradient)) = self.flatter(measured, now)
        {
            let least = milliseconds(Duration::from_micros(self.least_app_us as u64));
            let why = format!(
                "{why}, nothing else helps, and requests take {} in the app, {least} with few of them (gradient {gradient:.2})",
                milliseconds(measured.app)
            );
            return Some(self.begin(ShapeChange::FewerSeats, to, why, measured, waited));
        }
        // Of what forbids more, the rule that belongs to what would have been tried first is the reason.
        let (guard, reason) = both.into_iter().find_map(Result::err)?;
        self.refuse((guard, format!("{why}, but {reason}")), measured)
    }

    /// Returns fewer seats, and the gradient of the times in the app, if that is steep.
    fn flatter(&self, measured: ShapeMeasured, now: Instant) -> Option<(ServingShape, f64)> {
        let app_us = measured.app.as_secs_f64() * 1e6;
        let gradient = (TOLERANCE * self.least_app_us / app_us.max(1.0)).clamp(0.5, 1.0);
        let seats = ((f64::from(self.shape.seats) * gradient) as u32).max(self.bounds.seats.0);
        let may = gradient < STEEP && seats < self.shape.seats && self.may_try(ShapeChange::FewerSeats, now);
        may.then_some((ServingShape { seats, ..self.shape }, gradient))
    }

    fn may_try(&self, change: ShapeChange, now: Instant) -> bool {
        let from = self.number(change);
        self.failed[change as usize].is_none_or(|failed| failed.from != from || now >= failed.until)
    }

    /// Returns the number that a change changes.
    fn number(&self, change: ShapeChange) -> u32 {
        if change == ShapeChange::MoreWorkers { self.shape.workers } else { self.shape.seats }
    }

    fn begin(
        &mut self,
        change: ShapeChange,
        to: ServingShape,
        why: String,
        before: ShapeMeasured,
        waited: bool,
    ) -> ShapeStep {
        let from = std::mem::replace(&mut self.shape, to);
        let skip = if change == ShapeChange::MoreWorkers { 2 } else { 0 };
        self.trial = Some(ShapeTrial { change, from, to, before, after: SampleSum::default(), waited, skip });
        self.recent.clear();
        ShapeStep { verdict: ShapeVerdict::Trying, from, to, why, before: Some(before), after: None }
    }

    /// Carries out a verdict.
    fn judged(&mut self, trial: &ShapeTrial, verdict: ShapeVerdict, why: String, now: Instant) -> ShapeStep {
        let failed = &mut self.failed[trial.change as usize];
        if verdict != ShapeVerdict::Kept {
            self.shape = match trial.change {
                ShapeChange::MoreWorkers => ServingShape { workers: trial.from.workers, ..self.shape },
                _ => ServingShape { seats: trial.from.seats, ..self.shape },
            };
        }
        match verdict {
            ShapeVerdict::Kept => *failed = None,
            ShapeVerdict::Reverted => {
                let from = match trial.change {
                    ShapeChange::MoreWorkers => trial.from.workers,
                    _ => trial.from.seats,
                };
                let again = failed.filter(|failed| failed.from == from).map(|failed| failed.patience * 2);
                let patience = again.unwrap_or(AGAIN).min(AGAIN_MOST);
                *failed = Some(FailedTrial { from, until: now + patience, patience });
            }
            _ => {}
        }
        self.recent.clear();
        self.ended(trial, verdict, why)
    }

    fn ended(&self, trial: &ShapeTrial, verdict: ShapeVerdict, why: String) -> ShapeStep {
        let after = (trial.after.samples > 0).then(|| trial.after.measured(&self.bounds));
        let (from, to) = (trial.from, trial.to);
        ShapeStep { verdict, from, to, why, before: Some(trial.before), after }
    }

    /// Reports once that a guard forbids what might help.
    fn refuse(&mut self, (guard, why): ForbiddenStep, measured: ShapeMeasured) -> Option<ShapeStep> {
        let said = std::mem::replace(&mut self.said[guard as usize], true);
        (!said).then_some(ShapeStep {
            verdict: ShapeVerdict::Refused,
            from: self.shape,
            to: self.shape,
            why,
            before: Some(measured),
            after: None,
        })
    }

    /// Returns a step towards the shape of the start.
    fn fewer(&mut self, sample: &ShapeSample, now: Instant) -> Option<ShapeStep> {
        let (start, shape) = (self.bounds.start, self.shape);
        let may_close = !sample.pinned && shape.workers > self.bounds.workers.0;
        if sample.memory.is_exceeded() && may_close {
            return Some(self.shrink(1, 0, "the processes have outgrown the memory".to_owned(), now));
        }
        let calm = self.calm?;
        let (since, most) = (calm.since, calm.most());
        if now.saturating_duration_since(since) < self.patience {
            return None;
        }
        let calm = now.saturating_duration_since(since).as_secs();
        let all = shape.workers.saturating_mul(shape.seats);
        let why = format!("no request waited for {calm} s, and at most {most} of {all} seats were in use");
        let left = f64::from(shape.workers.saturating_sub(1));
        let fits = f64::from(most) <= HALF * left * f64::from(shape.seats) && self.cpus <= HALF * left;
        if may_close && shape.workers > start.workers && fits {
            return Some(self.shrink(1, 0, why, now));
        }
        // The shape of the start, if it has as many seats as were in use; otherwise twice that number.
        let enough = most <= shape.workers.saturating_mul(start.seats);
        let needed = match enough {
            true => start.seats,
            false => most.saturating_mul(2).div_ceil(shape.workers.max(1)).max(start.seats),
        };
        let worth = if enough { needed < shape.seats } else { needed <= shape.seats / 2 };
        worth.then(|| self.shrink(0, shape.seats - needed, why, now))
    }

    fn shrink(&mut self, workers: u32, seats: u32, why: String, now: Instant) -> ShapeStep {
        let from = self.shape;
        self.shape = ServingShape { workers: from.workers - workers, seats: from.seats - seats };
        (self.shrunk, self.calm) = (Some(now), None);
        self.recent.clear();
        let (before, after) = (None, None);
        ShapeStep { verdict: ShapeVerdict::Shrunk, from, to: self.shape, why, before, after }
    }

    /// Begins, adjusts and ends the limit of waits.
    fn overloaded(&mut self, sum: &SampleSum) -> Option<ShapeStep> {
        let measured = sum.measured(&self.bounds);
        let shape = self.shape;
        let step = |verdict, why| ShapeStep {
            verdict,
            from: shape,
            to: shape,
            why,
            before: Some(measured),
            after: None,
        };
        if let Some(overload) = &mut self.overload {
            let last = self.recent.back().map(|last| SampleSum::of([last]))?;
            if overload.follow(&last, &self.bounds) {
                self.overload = None;
                return Some(step(ShapeVerdict::Relieved, "no request was refused for a while".to_owned()));
            }
            return None;
        }
        let full = self.recent.len() >= WINDOW && self.trial.is_none();
        if full && sum.waits_long(&self.bounds) && sum.is_broken(&self.bounds) {
            let overload = WaitBound::new(measured, &self.bounds);
            let text = format!(
                "{} of the requests missed the objective, and no trial is left: those that would wait for more than {} are refused",
                percent(measured.missed),
                milliseconds(overload.limit)
            );
            let step = step(ShapeVerdict::Overload, text);
            self.overload = Some(overload);
            return Some(step);
        }
        None
    }
}
