//! Which shape to run under a budget, and why.
//!
//! Without a wanted rate the largest rate wins that fits the budget; with one, the least memory that serves it with a
//! reserve. What differs by less than measurements do counts as equal; then less memory wins, then fewer threads.

use serde::{Deserialize, Serialize};

use crate::cell::{Cell, Shape, Times};
use crate::choose;
use crate::memory::Memory;
use crate::model::{Model, Prediction};
use crate::nature::{Crash, crash};
use crate::open;
use crate::slo::Slo;
use crate::words::{figure, memory, millis, percent};

/// What there is, and what is wanted; `None` is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Budget {
    /// For all processes together.
    pub memory_bytes: Option<u64>,
    /// Cores; fewer than it was measured on lower the rates accordingly.
    pub cpus: Option<f64>,
    /// Each thread of each process may need one.
    pub db_connections: Option<u32>,
    /// How fast answers have to be: at `rate_per_s` when that is given, else under the load of the measurement.
    pub slo: Option<Slo>,
    /// Requests per second that have to be served. With it the least memory wins, without it the largest rate.
    pub rate_per_s: Option<f64>,
}

/// A shape and what it does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Which.
    pub shape: Shape,
    /// Measured, or predicted from others.
    pub measured: bool,
    /// The most requests per second, on the budget's cores.
    pub rate_per_s: f64,
    /// As clients see it: at the budget's rate when there is one and it is known how the app behaves, else under the load
    /// of the measurement.
    pub latency_ms: Times,
    /// Memory; 0 when unknown.
    pub pss_bytes: f64,
    /// Requests that seconds are quoted for in words.
    pub requests: u64,
    /// What its measurements differed by.
    pub spread: f64,
}

/// What one would gain and lose with another shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunnerUp {
    /// Which.
    pub choice: Choice,
    /// Such as "2x10 costs a fifth of the memory of 10x10 and takes 2 s more for 600 requests".
    pub words: String,
}

/// A shape that is out of the question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rejected {
    /// Which.
    pub shape: Shape,
    /// Such as "needs 735 MiB, 512 MiB are there".
    pub why: String,
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The shape; `None` when nothing fits the budget.
    pub best: Option<Choice>,
    /// Why, in plain words; what to change when nothing fits.
    pub reasons: Vec<String>,
    /// At most two others that are worth a thought.
    pub runners_up: Vec<RunnerUp>,
    /// What is out of the question, and why.
    pub rejected: Vec<Rejected>,
}

/// More wrong answers than this share are too many.
const TOLERATED_ERRORS: f64 = 0.01;

/// The best shape of those measured and predicted (a measured one hides its prediction) under `budget`.
pub fn recommend(cells: &[Cell], predictions: &[Prediction], budget: &Budget) -> Recommendation {
    let known = Known {
        model: Model::fit(cells).ok(),
        memory: Memory::fit(cells),
        crash: crash(cells),
        cells,
        budget,
    };
    let measured = cells.iter().map(|cell| (cell.shape(), known.measured(cell)));
    let predicted = predictions.iter().filter(|one| cells.iter().all(|cell| cell.shape() != one.shape()));
    let predicted = predicted.map(|one| (one.shape(), known.predicted(one)));
    let (mut fits, mut rejected) = (Vec::new(), Vec::new());
    for (shape, judged) in measured.chain(predicted) {
        match judged.and_then(|choice| known.within_budget(&choice).map(|()| choice)) {
            Ok(choice) => fits.push(choice),
            Err(why) => rejected.push(Rejected { shape, why }),
        }
    }
    choose::among(fits, rejected, budget)
}

/// The shape of `shapes` that is best measured next: it may be better than what was measured, when its prediction is taken
/// at the favourable end of its bounds. `None` when none may. Whoever measures what this says, and asks again with what
/// was measured, has the best of the grid after a few.
///
/// # Errors
/// Those of [`Model::fit`].
pub fn worth_measuring(cells: &[Cell], shapes: &[Shape], budget: &Budget) -> Result<Option<Shape>, String> {
    let model = Model::fit(cells)?;
    let new = shapes.iter().filter(|shape| cells.iter().all(|cell| cell.shape() != **shape));
    let hopeful = |shape: &Shape| {
        let mut said = model.predict(*shape, model.users);
        said.pss_bytes.value = said.pss_bytes.low;
        said
    };
    let predictions: Vec<Prediction> = new.map(hopeful).collect();
    let expected = recommend(cells, &predictions, budget).best;
    if let Some(best) = expected.filter(|best| !best.measured) {
        return Ok(Some(best.shape));
    }
    // What is expected to be a little worse may turn out to be better.
    let raised = predictions.into_iter().map(|mut said| {
        let (value, high) = (said.rate_per_s.value, said.rate_per_s.high);
        said.rate_per_s.value = f64::midpoint(value, high);
        said
    });
    let raised: Vec<Prediction> = raised.collect();
    Ok(recommend(cells, &raised, budget).best.filter(|best| !best.measured).map(|best| best.shape))
}

struct Known<'a> {
    model: Option<Model>,
    memory: Option<Memory>,
    crash: Option<Crash>,
    cells: &'a [Cell],
    budget: &'a Budget,
}

impl Known<'_> {
    fn measured(&self, cell: &Cell) -> Result<Choice, String> {
        if let Some(text) = &cell.crashed {
            let said =
                text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("nothing was said");
            return Err(format!("did not run: {said}"));
        }
        let wrong = cell.errors as f64 / (cell.errors + cell.requests).max(1) as f64;
        if wrong > TOLERATED_ERRORS {
            return Err(format!("{} of its answers were wrong", percent(wrong)));
        }
        if !(cell.rate_per_s.is_finite() && cell.rate_per_s > 0.0) {
            return Err("answered nothing".to_owned());
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
            let beyond = |line: Option<u32>, asked: u32| line.is_some_and(|from| asked >= from);
            if beyond(crash.from_processes, one.processes) || beyond(crash.from_threads, one.threads) {
                return Err("would not run: smaller ones did not".to_owned());
            }
        }
        let asked = self.cells.iter().map(|cell| cell.requests).max().unwrap_or(0);
        Ok(self.on_the_cores(Choice {
            shape: one.shape(),
            measured: false,
            rate_per_s: one.rate_per_s.value,
            latency_ms: one.latency_ms,
            pss_bytes: if self.memory.is_some() { one.pss_bytes.value } else { 0.0 },
            requests: asked,
            spread: one.rate_per_s.high / one.rate_per_s.value - 1.0,
        }))
    }

    /// What is left of a rate on the budget's cores, and latency at the budget's rate.
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
        if let Some(there) = budget.memory_bytes.filter(|there| choice.pss_bytes > *there as f64) {
            return Err(format!("needs {}, {} are there", memory(choice.pss_bytes), memory(there as f64)));
        }
        if let Some(there) = budget.db_connections.filter(|there| choice.shape.slots() > *there) {
            return Err(format!("may need {} database connections, {there} are there", choice.shape.slots()));
        }
        if let Some(wanted) = budget.rate_per_s.filter(|wanted| choice.rate_per_s <= *wanted) {
            return Err(format!(
                "serves {} requests per second at most, {} are wanted",
                figure(choice.rate_per_s),
                figure(wanted)
            ));
        }
        if let Some(slo) = budget.slo {
            let time = percentile(&choice.latency_ms, slo.percentile);
            if time > 0.0 && time >= slo.under_ms {
                return Err(format!("its p{} is {}, the promise is {slo}", slo.percentile, millis(time)));
            }
        }
        Ok(())
    }
}

/// Any percentile from the three that are known: those between lie on the line that an exponential tail would make.
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
