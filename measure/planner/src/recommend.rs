//! Recommends a shape within a budget, with reasons.
//!
//! Without a required rate, the highest rate within the budget wins; with one, the smallest memory that reaches it with a reserve. Differences
//! within measurement noise count as equal; then less memory wins, then fewer threads.

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Shape, Times};
use crate::choose;
use crate::format::{figure, memory, millis, percent};
use crate::memory::Memory;
use crate::model::{Model, Prediction};
use crate::open;
use crate::profile::{Crash, crash};
use crate::slo::Slo;

/// Resources and requirements; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// Memory of all processes together.
    pub memory_bytes: Option<u64>,
    /// Cores; fewer than in the measurement reduce the rates accordingly.
    pub cpus: Option<f64>,
    /// Database connections; each thread may need one.
    pub db_connections: Option<u32>,
    /// Response time objective: at `rate_per_s` if given, otherwise under the load of the measurement.
    pub slo: Option<Slo>,
    /// Required requests per second. With it, the least memory wins; without it, the highest rate.
    pub rate_per_s: Option<f64>,
}

/// A shape and its performance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    pub shape: Shape,
    /// Whether the shape was measured, rather than predicted from others.
    pub measured: bool,
    /// The highest rate on the budget's cores, in requests per second.
    pub rate_per_s: f64,
    /// Latency at the clients: at the budget's rate if it is given and the model's lock time is known, else under the load of the measurement.
    pub latency_ms: Times,
    /// Memory; 0 if unknown.
    pub pss_bytes: f64,
    /// The number of requests for which sentences quote durations.
    pub requests: u64,
    /// The relative difference between its measurements.
    pub spread: f64,
}

/// An alternative shape, compared with the best.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunnerUp {
    pub choice: Choice,
    /// A sentence such as "2x10 needs a fifth of the memory of 10x10 and takes 2 s more for 600 requests".
    pub words: String,
}

/// A shape that does not fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    pub shape: Shape,
    /// A reason such as "needs 735 MiB, 512 MiB available".
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The shape; `None` if nothing fits the budget.
    pub best: Option<Choice>,
    /// The reasons, as sentences; or what to change if nothing fits.
    pub reasons: Vec<String>,
    /// At most two alternatives.
    pub runners_up: Vec<RunnerUp>,
    /// Shapes that do not fit, with reasons.
    pub rejected: Vec<Rejected>,
}

/// The highest accepted fraction of failed requests.
const TOLERATED_ERRORS: f64 = 0.01;

/// Returns the best of the measured and predicted shapes within `budget`. A measurement overrides the prediction for the same shape.
pub fn recommend(cells: &[Cell], predictions: &[Prediction], budget: &Budget) -> Recommendation {
    let evaluator = Evaluator::new(cells, budget);
    let measured = cells.iter().map(|cell| (cell.shape(), evaluator.measured(cell)));
    let predicted = predictions.iter().filter(|one| cells.iter().all(|cell| cell.shape() != one.shape()));
    let predicted = predicted.map(|one| (one.shape(), evaluator.predicted(one)));
    let (mut fits, mut rejected) = (Vec::new(), Vec::new());
    for (shape, judged) in measured.chain(predicted) {
        match judged.and_then(|choice| evaluator.within_budget(&choice).map(|()| choice)) {
            Ok(choice) => fits.push(choice),
            Err(why) => rejected.push(Rejected { shape, why }),
        }
    }
    choose::among(fits, rejected, budget)
}

/// Returns the shape of `shapes` to measure next: one that may be better than the measured ones, if its prediction is taken at the favourable end
/// of its bounds. `None` if there is none. Measuring each returned shape finds the best of the grid after a few measurements.
///
/// # Errors
/// The errors of [`Model::fit`].
pub fn worth_measuring(cells: &[Cell], shapes: &[Shape], budget: &Budget) -> Result<Option<Shape>, String> {
    let model = Model::fit(cells)?;
    let new = shapes.iter().filter(|shape| cells.iter().all(|cell| cell.shape() != **shape));
    let optimistic = |shape: &Shape| {
        let mut prediction = model.predict(*shape, model.users);
        prediction.pss_bytes.value = prediction.pss_bytes.low;
        prediction
    };
    let predictions: Vec<Prediction> = new.map(optimistic).collect();
    let expected = recommend(cells, &predictions, budget).best;
    if let Some(best) = expected.filter(|best| !best.measured) {
        return Ok(Some(best.shape));
    }
    // A shape with a slightly lower prediction may still turn out better.
    let raised = predictions.into_iter().map(|mut prediction| {
        let (value, high) = (prediction.rate_per_s.value, prediction.rate_per_s.high);
        prediction.rate_per_s.value = f64::midpoint(value, high);
        prediction
    });
    let raised: Vec<Prediction> = raised.collect();
    Ok(recommend(cells, &raised, budget).best.filter(|best| !best.measured).map(|best| best.shape))
}

/// Returns the measured shapes that fit the budget.
pub(crate) fn evaluated(cells: &[Cell], budget: &Budget) -> Vec<Choice> {
    let evaluator = Evaluator::new(cells, budget);
    let measured = cells.iter().filter_map(|cell| evaluator.measured(cell).ok());
    measured.filter(|choice| evaluator.within_budget(choice).is_ok()).collect()
}

struct Evaluator<'a> {
    model: Option<Model>,
    memory: Option<Memory>,
    crash: Option<Crash>,
    cells: &'a [Cell],
    budget: &'a Budget,
}

impl<'a> Evaluator<'a> {
    fn new(cells: &'a [Cell], budget: &'a Budget) -> Evaluator<'a> {
        Evaluator {
            model: Model::fit(cells).ok(),
            memory: Memory::fit(cells),
            crash: crash(cells),
            cells,
            budget,
        }
    }

    fn measured(&self, cell: &Cell) -> Result<Choice, String> {
        if let Some(text) = &cell.crashed {
            let error = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no output");
            return Err(format!("did not run: {error}"));
        }
        let wrong = cell.errors as f64 / (cell.errors + cell.requests).max(1) as f64;
        if wrong > TOLERATED_ERRORS {
            return Err(format!("{} of its requests failed", percent(wrong)));
        }
        if !(cell.rate_per_s.is_finite() && cell.rate_per_s > 0.0) {
            return Err("did not respond".to_owned());
        }
        Ok(self.on_the_cores(Choice {
            shape: cell.shape(),
            measured: true,
            rate_per_s: cell.rate_per_s,
            latency_ms: cell.latency_ms,
            pss_bytes: cell.pss_bytes as f64,
            requests: cell.requests,
            spread: cell.spread,
        }))
    }

    fn predicted(&self, one: &Prediction) -> Result<Choice, String> {
        if let Some(crash) = &self.crash {
            let beyond = |line: Option<u32>, value: u32| line.is_some_and(|from| value >= from);
            if beyond(crash.from_processes, one.processes) || beyond(crash.from_threads, one.threads) {
                return Err("would not run: smaller shapes did not".to_owned());
            }
        }
        let requests = self.cells.iter().map(|cell| cell.requests).max().unwrap_or(0);
        Ok(self.on_the_cores(Choice {
            shape: one.shape(),
            measured: false,
            rate_per_s: one.rate_per_s.value,
            latency_ms: one.latency_ms,
            pss_bytes: if self.memory.is_some() { one.pss_bytes.value } else { 0.0 },
            requests,
            spread: one.rate_per_s.high / one.rate_per_s.value - 1.0,
        }))
    }

    /// Returns the choice with its rate on the budget's cores, and its latency at the budget's rate.
    fn on_the_cores(&self, mut choice: Choice) -> Choice {
        let Some(model) = &self.model else { return choice };
        let cores = self.budget.cpus.map_or(model.cores, |cpus| cpus.min(model.cores));
        if cores < model.cores {
            let fewer = Model { cores, ..model.clone() }.predict(choice.shape, model.users).rate_per_s.value;
            let factor = (fewer / model.predict(choice.shape, model.users).rate_per_s.value).min(1.0);
            choice.rate_per_s *= factor;
            for time in [
                &mut choice.latency_ms.mean,
                &mut choice.latency_ms.p50,
                &mut choice.latency_ms.p95,
                &mut choice.latency_ms.p99,
            ] {
                *time /= factor;
            }
        }
        if let Some(times) = self
            .budget
            .rate_per_s
            .and_then(|rate| open::times(model, choice.shape, cores, rate, choice.rate_per_s))
        {
            choice.latency_ms = times;
        }
        choice
    }

    fn within_budget(&self, choice: &Choice) -> Result<(), String> {
        let budget = self.budget;
        if let Some(available) = budget.memory_bytes.filter(|available| choice.pss_bytes > *available as f64)
        {
            return Err(format!(
                "needs {}, {} available",
                memory(choice.pss_bytes),
                memory(available as f64)
            ));
        }
        if let Some(available) = budget.db_connections.filter(|available| choice.shape.slots() > *available) {
            return Err(format!(
                "may need {} database connections, {available} available",
                choice.shape.slots()
            ));
        }
        if let Some(wanted) = budget.rate_per_s.filter(|wanted| choice.rate_per_s <= *wanted) {
            return Err(format!(
                "handles at most {} requests per second, {} required",
                figure(choice.rate_per_s),
                figure(wanted)
            ));
        }
        if let Some(slo) = budget.slo {
            let time = percentile(&choice.latency_ms, slo.percentile);
            if time > 0.0 && time >= slo.under_ms {
                return Err(format!("its p{} is {}, the objective is {slo}", slo.percentile, millis(time)));
            }
        }
        Ok(())
    }
}

/// Returns any percentile, interpolated between the three known ones on a logarithmic scale (exact for an exponential tail).
pub(crate) fn percentile(times: &Times, percentile: f64) -> f64 {
    let rareness = |percentile: f64| -(1.0 - percentile / 100.0).ln();
    let between = |(a, low): (f64, f64), (b, high): (f64, f64)| {
        low + (high - low) * (rareness(percentile) - rareness(a)) / (rareness(b) - rareness(a))
    };
    let (p50, p95, p99) = ((50.0, times.p50), (95.0, times.p95), (99.0, times.p99));
    match percentile {
        p if p <= 50.0 => times.p50,
        p if p <= 95.0 => between(p50, p95),
        _ => between(p95, p99),
    }
}
