//! Measures for the [shape](crate::shape), carries out its steps, and keeps the last ones for display. Follows the objective of
//! the settings in force, which may come, change and go while the server runs.

use super::shape_file::ShapeFile;
use super::*;
use crate::reconciler::growth::Sample;
use crate::shape::{
    LearntShape, SAMPLE, ServingShape, ShapeBounds, ShapeMeasured, ShapeSample, ShapeStep, ShapeTerms,
    ShapeVerdict, Shaper,
};
use settings::{Machine, Pool, ShapeRule, Workers};
use stats::{LastRunShape, ShapeFigures, ShapeSnapshot, ShapeStepSnapshot};

/// The number of steps that are kept.
const KEPT: usize = 50;
/// The GVL figures that are meaningful.
const MEASURED: u32 = 8;

/// The shape, and the time of the next sample.
pub(super) struct Shaping {
    rule: ShapeRule,
    shaper: Shaper,
    next: Instant,
    /// The time of the last sample, if its figures continue from there.
    last: Option<Instant>,
    /// The requests refused until then.
    refused: u64,
    steps: VecDeque<ShapeStepSnapshot>,
    totals: Totals,
    terms: ShapeTerms,
    file: ShapeFile,
    /// The shape that the server began with, if the last run had learnt it.
    last_run: Option<LastRunShape>,
    /// The shape that needs no (other) file.
    saved: ServingShape,
    /// Whether the file is being written.
    saving: bool,
    /// Whether the last attempt has failed.
    fails: bool,
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
    /// Creates the shape of the default pool `own`, of which there can be at most `most`, and which begins with that of the start.
    fn new(
        rule: ShapeRule,
        settings: &Settings,
        own: &Pool,
        source: Capabilities,
        most: ServingShape,
    ) -> Shaping {
        let all = seats(own).count();
        let is_fibers = own.fibers > 0;
        let within = |least: u32, highest: u32, most: u32| (least.min(most), highest.min(most));
        let workers = match source.can_replace {
            true => within(rule.workers.min, rule.workers.max, most.workers),
            false => (1, 1),
        };
        let in_use = match is_fibers {
            true => (1, all),
            false => within(rule.threads.min.into(), rule.threads.max.into(), most.seats),
        };
        let first = if is_fibers { all } else { u32::from(rule.start).clamp(in_use.0, in_use.1) };
        let bounds = ShapeBounds {
            objective: rule.slo.time,
            percentile: rule.slo.percentile,
            workers,
            seats: in_use,
            start: ServingShape { workers: settings.workers.min.clamp(workers.0, workers.1), seats: first },
        };
        let machine = Machine::recent();
        Shaping {
            rule,
            shaper: Shaper::new(bounds),
            next: Instant::now(),
            last: None,
            refused: 0,
            steps: VecDeque::new(),
            totals: Totals::default(),
            terms: ShapeTerms::new(&rule.slo, &bounds, is_fibers, machine.cpu_time(), machine.memory()),
            file: ShapeFile::of(settings),
            last_run: None,
            saved: bounds.start,
            saving: false,
            fails: false,
        }
    }

    /// Creates the shape at the start of the server, which may be that of the last run. Returns it with lines for the log; `None`
    /// without an objective.
    pub(super) fn at_start(
        settings: &Settings,
        own: &Pool,
        source: Capabilities,
    ) -> Option<(Shaping, Vec<String>)> {
        let any = ServingShape { workers: u32::MAX, seats: u32::MAX };
        let mut shaping = Shaping::new(settings.shape?, settings, own, source, any);
        let line = shaping.resume_last_run(None);
        Some((shaping, line.into_iter().collect()))
    }

    /// Begins with the shape of the last run, if it is kept, in workers that were started with `built` seats. Returns a line for the log.
    fn resume_last_run(&mut self, built: Option<u32>) -> Option<String> {
        let kept = if self.rule.keep { self.file.load(&self.terms) } else { Ok(None) };
        let (mut learnt, learnt_at) = match kept {
            Ok(kept) => kept?,
            Err(line) => return Some(line),
        };
        learnt.shape.seats = built.map_or(learnt.shape.seats, |built| built.min(learnt.shape.seats));
        self.resume(learnt);
        if self.saved == self.shaper.bounds().start {
            return None;
        }
        let last_run = LastRunShape { shape: self.saved.to_string(), learnt_at };
        let line = format!("shape: begins with that of the last run: {last_run}");
        self.last_run = Some(last_run);
        Some(line)
    }

    /// Goes on with what is known already.
    fn resume(&mut self, learnt: LearntShape) {
        self.shaper = Shaper::resumed(*self.shaper.bounds(), learnt);
        self.saved = self.shaper.shape();
    }

    /// Goes on from the shape of another objective, with its figures since the start.
    fn succeed(&mut self, before: Shaping) {
        self.resume(before.shaper.learnt());
        (self.steps, self.totals, self.last_run) = (before.steps, before.totals, before.last_run);
        (self.saving, self.fails) = (before.saving, before.fails);
    }

    /// Puts the objective and the shape in force.
    pub(super) fn begin(&self, shared: &Shared, now: Instant) {
        shared.set_objective(Some(self.shaper.bounds().objective));
        shared.limit_wait(None);
        shared.limit_seats(Some(self.shape().seats), now);
    }

    /// Returns the shape in force.
    pub(super) fn shape(&self) -> ServingShape {
        self.shaper.shape()
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
            objective: self.rule.slo.to_string(),
            objective_ms: bounds.objective.as_secs_f64() * 1e3,
            holds: holds.map(|(holds, _)| holds),
            response_ms: figures.map(|figures| figures.response_ms),
            missed: figures.map(|figures| figures.missed),
            responses,
            late,
            refused,
            last_run: self.last_run.clone(),
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
        let (shape, limit) = (shaping.shape(), shaping.wait_limit());
        self.save_shape(&mut shaping);
        self.subjects.shaping = Some(shaping);
        let Some(last) = steps.last() else { return self.shared.limit_wait(limit) };
        self.shared.limit_wait(limit);
        self.shared.limit_seats(Some(shape.seats), now);
        let wanted = self.reconciler.wish().counts[&PoolIndex::DEFAULT];
        if shape.workers as usize != wanted {
            let leaves = self.least_missed(rows);
            let acts = self.reconciler.shape(shape.workers as usize, leaves, &last.why, now);
            self.carry_out(acts);
        }
    }

    /// Takes over the objective of the settings in force: another one, other bounds, or none.
    pub(super) fn apply_objective(&mut self, rows: &[Row], now: Instant) {
        let settings = self.options.settings.borrow().clone();
        let before = self.subjects.shaping.as_mut();
        match (settings.shape, before) {
            (None, None) => {}
            (None, Some(_)) => self.end_objective(&settings, rows, now),
            (Some(rule), Some(shaping)) if ShapeRule { keep: shaping.rule.keep, ..rule } == shaping.rule => {
                shaping.rule.keep = rule.keep;
            }
            (Some(rule), _) => self.change_objective(rule, &settings, rows, now),
        }
    }

    fn change_objective(&mut self, rule: ShapeRule, settings: &Settings, rows: &[Row], now: Instant) {
        let most = ServingShape {
            workers: self.reconciler.capacity(),
            seats: u32::try_from(self.shared.scoreboard().layout().threads).unwrap_or(u32::MAX),
        };
        let own = &pools(settings)[0];
        let mut shaping = Shaping::new(rule, settings, own, self.reconciler.source(), most);
        let wanted = u32::try_from(self.reconciler.wish().counts[&PoolIndex::DEFAULT]).unwrap_or(u32::MAX);
        match self.subjects.shaping.take() {
            Some(before) => shaping.succeed(before),
            None => {
                let start = shaping.shape();
                shaping.resume(LearntShape {
                    shape: ServingShape { workers: wanted, ..start },
                    least_app: None,
                });
                shaping.resume_last_run(self.built()).into_iter().for_each(|line| self.log(line));
            }
        }
        let (slo, shape) = (rule.slo, shaping.shape());
        self.log(format!("shape: the objective is {slo} now, from {shape} on"));
        if rule.workers.max > most.workers {
            let (workers, most) = (rule.workers, most.workers);
            self.log(format!(
                "shape.workers is {workers}, but there can be at most {most} in this server; restart it for more"
            ));
        }
        if own.fibers == 0 && u32::from(rule.threads.max) > most.seats {
            let (threads, most) = (rule.threads, most.seats);
            self.log(format!(
                "shape.threads is {threads}, but a worker of this server can have at most {most}; restart it for more"
            ));
        } else if let Some(built) = self.built().filter(|built| *built < shaping.shaper.bounds().seats.1) {
            self.log(format!(
                "shape: the workers were started with {built} threads each; more are in use after `firebrick reload`"
            ));
        }
        shaping.begin(&self.shared, now);
        self.subjects.shaping = Some(shaping);
        self.resize(shape.workers, Workers::exactly(shape.workers), "the objective has changed", rows, now);
    }

    /// Gives the workers and threads of the settings back.
    fn end_objective(&mut self, settings: &Settings, rows: &[Row], now: Instant) {
        self.subjects.shaping = None;
        let own = &pools(settings)[0];
        let threads = own.threads.max;
        self.shared.set_objective(None);
        self.shared.limit_wait(None);
        self.shared.limit_seats((own.fibers == 0).then(|| threads.into()), now);
        let workers = self.auto_number().map_or(settings.workers, |chosen| Workers::exactly(chosen.number));
        let most = self.reconciler.capacity();
        let workers = Workers { min: workers.min.min(most), max: workers.max.min(most) };
        let wanted = u32::try_from(self.reconciler.wish().counts[&PoolIndex::DEFAULT]).unwrap_or(u32::MAX);
        self.log(format!("shape: the objective is off: workers {workers}, at most {threads} threads each"));
        let number = wanted.clamp(workers.min, workers.max);
        self.resize(number, workers, "the objective is off", rows, now);
    }

    /// Sets the number of workers, and the range in which it follows the load.
    fn resize(&mut self, number: u32, range: Workers, why: &str, rows: &[Row], now: Instant) {
        let leaves = self.least_missed(rows);
        let mut acts = self.reconciler.shape(number as usize, leaves, why, now);
        acts.extend(self.reconciler.allow(range, why, now));
        self.carry_out(acts);
        // The figures since the last sample belong to what was before.
        self.shared.dispatch(PoolIndex::DEFAULT).take_load();
    }

    /// Returns the seats with which each worker of the default pool was started, the least of them.
    fn built(&self) -> Option<u32> {
        let up = self
            .reconciler
            .rows()
            .filter(|row| row.state == WorkerState::Ready && row.pool == PoolIndex::DEFAULT);
        up.filter_map(|row| self.workers.get(&row.serial)).map(|worker| worker.seats).min()
    }

    /// Writes what was learnt, on another thread, because a disk may be slow.
    fn save_shape(&mut self, shaping: &mut Shaping) {
        let (learnt, (_, pinned)) = (shaping.shaper.learnt(), self.reconciler.range());
        if !shaping.rule.keep || shaping.saving || pinned || learnt.shape == shaping.saved {
            return;
        }
        (shaping.saved, shaping.saving) = (learnt.shape, true);
        let (file, terms, shared) = (shaping.file.clone(), shaping.terms.clone(), self.shared.clone());
        tokio::task::spawn_blocking(move || {
            shared.report(SupervisorMessage::ShapeSaved(file.save(terms, learnt)));
        });
    }

    pub(super) fn shape_saved(&mut self, result: Result<(), String>) {
        let Some(shaping) = &mut self.subjects.shaping else { return };
        shaping.saving = false;
        let failed_before = std::mem::replace(&mut shaping.fails, result.is_err());
        if let Err(line) = result
            && !failed_before
        {
            self.log(line);
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
            built: self.built(),
            connections: self.facts().and_then(|facts| facts.connections),
            workers: u32::try_from(self.reconciler.wish().counts[&PoolIndex::DEFAULT]).unwrap_or(u32::MAX),
            pinned,
        }
    }
}
