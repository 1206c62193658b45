//! Measures for the [shape](crate::shape), carries out its steps, and keeps the last ones for display.

use super::*;
use crate::reconciler::growth::Sample;
use crate::shape::{
    SAMPLE, ServingShape, ShapeBounds, ShapeMeasured, ShapeSample, ShapeStep, ShapeVerdict, Shaper,
};
use settings::{Machine, Pool, ShapeRule};
use stats::{ShapeFigures, ShapeSnapshot, ShapeStepSnapshot};

/// The number of steps that are kept.
const KEPT: usize = 50;
/// The GVL figures that are meaningful.
const MEASURED: u32 = 8;

/// The shape, and the time of the next sample.
pub(super) struct Shaping {
    shaper: Shaper,
    objective: String,
    next: Instant,
    /// The time of the last sample, if its figures continue from there.
    last: Option<Instant>,
    /// The requests refused until then.
    refused: u64,
    steps: VecDeque<ShapeStepSnapshot>,
    totals: Totals,
}

#[derive(Debug, Default)]
struct Totals {
    responses: u64,
    late: u64,
    refused: u64,
    kept: u64,
    reverted: u64,
    shrunk: u64,
    forbidden: u64,
    overloads: u64,
}

impl Shaping {
    /// Creates the shape of the default pool `own`.
    pub(super) fn new(rule: &ShapeRule, own: &Pool, source: Capabilities) -> Shaping {
        let all = seats(own).count();
        let fibers = own.fibers > 0;
        let first = if fibers { all } else { rule.start.into() };
        let workers = match source.can_replace {
            true => (rule.workers.min, rule.workers.max),
            false => (1, 1),
        };
        let bounds = ShapeBounds {
            objective: rule.slo.time,
            percentile: rule.slo.percentile,
            workers,
            seats: if fibers { (1, all) } else { (rule.threads.min.into(), rule.threads.max.into()) },
            start: ServingShape { workers: own.workers.clamp(workers.0, workers.1), seats: first },
        };
        Shaping {
            shaper: Shaper::new(bounds),
            objective: rule.slo.to_string(),
            next: Instant::now(),
            last: None,
            refused: 0,
            steps: VecDeque::new(),
            totals: Totals::default(),
        }
    }

    /// Puts the objective and the shape of the start in force.
    pub(super) fn begin(&self, shared: &Shared, now: Instant) {
        shared.set_objective(self.shaper.bounds().objective);
        shared.limit_seats(self.shaper.shape().seats, now);
    }

    /// Returns the least and the most workers.
    pub(super) fn workers(&self) -> (usize, usize) {
        let (least, most) = self.shaper.bounds().workers;
        (least as usize, most as usize)
    }

    /// Returns the longest wait in the queue under overload.
    pub(super) fn wait_limit(&self) -> Option<Duration> {
        self.shaper.wait_limit()
    }

    fn count(&mut self, sample: &ShapeSample) {
        self.totals.responses += sample.times.count();
        self.totals.late += sample.late;
        self.totals.refused += sample.refused;
    }

    /// Keeps a step. The verdict of a trial takes the place of its beginning.
    fn keep(&mut self, step: &ShapeStep) {
        let counter = match step.verdict {
            ShapeVerdict::Kept => Some(&mut self.totals.kept),
            ShapeVerdict::Reverted => Some(&mut self.totals.reverted),
            ShapeVerdict::Shrunk => Some(&mut self.totals.shrunk),
            ShapeVerdict::Refused => Some(&mut self.totals.forbidden),
            ShapeVerdict::Overload => Some(&mut self.totals.overloads),
            ShapeVerdict::Trying | ShapeVerdict::Undecided | ShapeVerdict::Relieved => None,
        };
        counter.into_iter().for_each(|counter| *counter += 1);
        let ends =
            matches!(step.verdict, ShapeVerdict::Kept | ShapeVerdict::Reverted | ShapeVerdict::Undecided);
        let trying = ShapeVerdict::Trying.word();
        if let Some(begun) = self.steps.back_mut().filter(|last| ends && last.verdict == trying) {
            begun.verdict = step.verdict.word().to_owned();
            begun.why = format!("{}; {}", begun.why, step.why);
            begun.after = step.after.map(figures);
            return;
        }
        while self.steps.len() >= KEPT {
            self.steps.pop_front();
        }
        self.steps.push_back(ShapeStepSnapshot {
            at: SystemTime::now(),
            verdict: step.verdict.word().to_owned(),
            from: step.from.to_string(),
            to: step.to.to_string(),
            why: step.why.clone(),
            before: step.before.map(figures),
            after: step.after.map(figures),
        });
    }

    fn snapshot(&self) -> ShapeSnapshot {
        let (bounds, shape) = (self.shaper.bounds(), self.shaper.shape());
        let holds = self.shaper.holds();
        let figures = holds.map(|(_, measured)| figures(measured));
        let Totals { responses, late, refused, kept, reverted, shrunk, forbidden, overloads } = self.totals;
        ShapeSnapshot {
            objective: self.objective.clone(),
            objective_ms: bounds.objective.as_secs_f64() * 1e3,
            holds: holds.map(|(holds, _)| holds),
            response_ms: figures.map(|figures| figures.response_ms),
            missed: figures.map(|figures| figures.missed),
            responses,
            late,
            refused,
            workers: shape.workers,
            workers_bounds: bounds.workers.into(),
            seats: shape.seats,
            seats_bounds: bounds.seats.into(),
            wait_limit_ms: self.wait_limit().map(|limit| limit.as_secs_f64() * 1e3),
            kept,
            reverted,
            shrunk,
            forbidden,
            overloads,
            steps: self.steps.iter().cloned().collect(),
        }
    }
}

fn figures(measured: ShapeMeasured) -> ShapeFigures {
    ShapeFigures {
        rate: measured.rate,
        response_ms: measured.time.as_secs_f64() * 1e3,
        missed: measured.missed,
        app_ms: measured.app.as_secs_f64() * 1e3,
    }
}

impl Supervisor {
    pub(super) fn shape(&self) -> Option<ShapeSnapshot> {
        self.subjects.shaping.as_ref().map(Shaping::snapshot)
    }

    /// Takes a sample when it is due, and carries out the steps that follow from it.
    pub(super) fn follow_objective(&mut self, rows: &[Row], now: Instant) {
        // Taken out, because measuring needs all of the rest.
        let Some(mut shaping) = self.subjects.shaping.take_if(|shaping| now >= shaping.next) else { return };
        shaping.next = now + SAMPLE;
        let (sample, waiting, refused) = self.shape_sample(rows, now);
        let refused_now = refused.saturating_sub(std::mem::replace(&mut shaping.refused, refused));
        let time = shaping.last.replace(now).map(|last| now.saturating_duration_since(last));
        let steps = match time.filter(|_| self.reconciler.is_steady()) {
            Some(time) => {
                let sample = self.shape_figures(sample, time, waiting, refused_now);
                shaping.count(&sample);
                shaping.shaper.observe(sample, now)
            }
            None => {
                let replaced = self.reconciler.is_reloading();
                replaced
                    .then(|| shaping.shaper.disturbed("the workers are replaced"))
                    .flatten()
                    .into_iter()
                    .collect()
            }
        };
        for step in &steps {
            shaping.keep(step);
            let text = match step.verdict {
                ShapeVerdict::Refused | ShapeVerdict::Overload | ShapeVerdict::Relieved => {
                    format!("shape: {}, {}: {}", step.to, step.verdict.word(), step.why)
                }
                verdict => format!("shape: {} → {}, {}: {}", step.from, step.to, verdict.word(), step.why),
            };
            self.log(text);
        }
        let (shape, limit) = (shaping.shaper.shape(), shaping.wait_limit());
        self.subjects.shaping = Some(shaping);
        let Some(last) = steps.last() else { return self.shared.limit_wait(limit) };
        self.shared.limit_wait(limit);
        self.shared.limit_seats(shape.seats, now);
        let wanted = self.reconciler.wish().counts[&PoolIndex::DEFAULT];
        if shape.workers as usize != wanted {
            let leaves = self.least_missed(rows);
            let acts = self.reconciler.shape(shape.workers as usize, leaves, &last.why, now);
            self.carry_out(acts);
        }
    }

    /// Returns the load, the number of waiting requests, and the requests refused so far.
    fn shape_sample(&mut self, rows: &[Row], now: Instant) -> (Sample, usize, u64) {
        let sample = self.sample(rows, now);
        let queue = self.shared.dispatch(PoolIndex::DEFAULT);
        let refusals = queue.refusals();
        (sample, queue.waiting(), refusals.full + refusals.early + refusals.expired)
    }

    fn shape_figures(&self, sample: Sample, time: Duration, waiting: usize, refused: u64) -> ShapeSample {
        let Sample { load, oldest, busy, worker_cpus, worker_share, idle_cpu, memory, .. } = sample;
        let responses = load.responses;
        let gvl =
            (load.measured >= MEASURED && load.app_us > 0).then(|| load.gvl_us as f64 / load.app_us as f64);
        let (_, pinned) = self.reconciler.range();
        ShapeSample {
            time,
            times: responses.times,
            late: responses.late,
            refused,
            ended: responses.ended,
            app_us: responses.app_us,
            waits: load.waits,
            oldest,
            waiting: u32::try_from(waiting).unwrap_or(u32::MAX),
            busy,
            gvl,
            worker_cpus,
            worker_share,
            idle_cpu,
            cpus: Machine::recent().cpu_time(),
            memory,
            connections: self.facts().and_then(|facts| facts.connections),
            workers: u32::try_from(self.reconciler.wish().counts[&PoolIndex::DEFAULT]).unwrap_or(u32::MAX),
            pinned,
        }
    }
}
