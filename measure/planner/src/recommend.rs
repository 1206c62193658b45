//! Recommends a shape within a budget, with reasons.
//!
//! Without a required rate, the highest rate within the budget wins; with one, the smallest memory that
//! reaches it with a reserve. Differences within measurement noise count as equal; then less memory wins,
//! then fewer threads.

use crate::cell::{Cell, Shape};
use crate::choice::{Budget, Choice, Recommendation, Rejected};
use crate::choose;
use crate::format::{figure, memory, millis, percent};
use crate::memory::Memory;
use crate::model::{Model, Prediction};
use crate::open;
use crate::profile::{Crash, crash};

/// The highest accepted fraction of failed requests.
const TOLERATED_ERRORS: f64 = 0.01;

/// Returns the best of the measured and predicted shapes within `budget`. A measurement overrides the
/// prediction for the same shape.
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

/// Returns the shape of `shapes` to measure next: one that may be better than the measured ones, if its
/// prediction is taken at the favourable end of its bounds. `None` if there is none. Measuring each returned
/// shape finds the best of the grid after a few measurements.
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
            let time = choice.latency_ms.percentile(slo.percentile);
            if time > 0.0 && time >= slo.under_ms {
                return Err(format!("its p{} is {}, the objective is {slo}", slo.percentile, millis(time)));
            }
        }
        Ok(())
    }
}
