//! The search for the highest rate that holds the objectives: doubles the rate until they are missed, then halves the interval.
//!
//! Pure: it says which rate to try next and for how long at most; a [`Target`] tries it, which is a server, or a simulation in tests. A verdict
//! near the limit can be wrong, so none is final: the boundary is where the fewest verdicts, by their clearness, lie on the wrong side, and the
//! time that is left goes to the less clear end.

use super::evidence::{CLEAREST, Evidence};
use crate::objective::Objective;

/// A verdict is clear from here on, in standard deviations: while the interval is halved, and while the rate is doubled, whose errors show later.
const CLEAR: f64 = 2.6;
const CLEAR_DOUBLING: f64 = 2.2;
/// Both ends of the final interval are tried again until they are as clear as this, or the time is over.
const CLEAR_END: f64 = 4.0;
/// The ends of the reported interval are as clear as this: 95 % on both sides.
pub(crate) const CERTAIN: f64 = 2.0;
/// The wait after a step until the queues are empty, in seconds; on average.
const OVERHEAD: f64 = 0.6;
/// The warm-up of a step in terms of the limit, and its shortest and longest time in seconds.
const WARM_UP: f64 = 10.0;
const WARM_UPS: (f64, f64) = (0.5, 2.0);
/// The shortest and the longest step, in seconds.
const SHORTEST: f64 = 1.0;
const LONGEST: f64 = 20.0;
/// How often the rate is halved if the first one is missed.
const HALVINGS: i32 = 7;

/// One rate to try.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step {
    /// Requests per second.
    pub rate: f64,
    /// The time for which the rate is sent before anything counts, in seconds: a queue that is empty at first would look better than it is.
    pub warm_up: f64,
    /// The time before which it is not taken to hold the objectives, in seconds: a queue that grows slowly needs time to be seen.
    pub least: f64,
    /// The time after which the responses so far decide, in seconds.
    pub most: f64,
    /// The standard deviations that decide earlier.
    pub clear: f64,
}

impl Step {
    /// Returns whether the step can end `at` seconds after its start.
    pub fn is_over(&self, at: f64, evidence: &Evidence, objectives: &[Objective]) -> bool {
        if at >= self.most {
            return true;
        }
        if at < SHORTEST / 2.0 {
            return false;
        }
        let deviations = evidence.deviations(objectives);
        deviations <= -self.clear
            || (at >= SHORTEST && evidence.growth(self.rate).is_some())
            || (at >= self.least && deviations >= self.clear)
    }
}

/// The result of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Measured {
    /// The load generator could not keep the rate, so the step says nothing about the server.
    pub limited: bool,
    /// Whether the target went back to its usual times.
    pub settled: bool,
}

/// The subject of a search: a server, or a simulated one.
pub(crate) trait Target {
    /// Returns the seconds that are left for the search.
    fn left(&self) -> f64;

    /// Tries a rate and adds to the evidence, until [`Step::is_over`]. `None` if the user has ended the search.
    ///
    /// # Errors
    /// The step could not run at all.
    fn step(&mut self, step: &Step, evidence: &mut Evidence) -> Result<Option<Measured>, String>;

    /// Called after each step with all verdicts so far.
    fn judged(&mut self, _step: &Step, _tried: &Tried) {}
}

/// A rate that was tried.
#[derive(Debug, Clone)]
pub(crate) struct Tried {
    pub rate: f64,
    pub evidence: Evidence,
    /// See [`Evidence::deviations`]; the worst figure if the queue grew.
    pub deviations: f64,
    /// By how many requests per second the queue grew.
    pub growth: Option<f64>,
    /// See [`Measured::limited`].
    pub limited: bool,
}

impl Tried {
    pub fn holds(&self) -> bool {
        self.deviations > 0.0 && !self.limited
    }

    /// Returns the objectives that are missed, as text.
    pub fn missed(&self, objectives: &[Objective]) -> String {
        let missed = objectives.iter().filter(|objective| self.evidence.of(objective) < 0.0);
        missed.map(|objective| objective.text.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the clearness with which the rate holds (positive) or not; a limited step counts little.
    fn weight(&self) -> f64 {
        if self.limited { -CLEAREST } else { self.deviations }
    }
}

/// Why the search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The interval is as narrow as wanted.
    Found,
    /// The time was over before.
    TimeOver,
    /// Not even the lowest rate holds the objectives.
    NothingHolds,
    /// The load generator cannot send faster.
    Generator,
    /// The user ended the search.
    Interrupted,
    /// The server did not go back to its usual times after an overload.
    Unsettled,
}

#[derive(Debug)]
pub(crate) struct Search {
    start: f64,
    /// The wanted ratio of the ends of the interval, minus 1.
    accuracy: f64,
    /// The longest time limit among the objectives, in seconds.
    limit: f64,
    /// By rising rate.
    pub tried: Vec<Tried>,
    unsettled: u32,
}

impl Search {
    pub fn new(start: f64, accuracy: f64, objectives: &[Objective]) -> Search {
        let limits = objectives.iter().filter_map(|objective| objective.goal.limit_us());
        Search { start, accuracy, limit: limits.fold(0.0, f64::max) / 1e6, tried: Vec::new(), unsettled: 0 }
    }

    /// Runs the search.
    ///
    /// # Errors
    /// A step could not run at all.
    pub fn run(&mut self, objectives: &[Objective], target: &mut dyn Target) -> Result<Ending, String> {
        loop {
            let step = match self.next(target.left()) {
                Ok(step) => step,
                Err(ending) => return Ok(ending),
            };
            let at = self.place(step.rate);
            let mut evidence = std::mem::take(&mut self.tried[at].evidence);
            evidence.begin_step();
            let measured = target.step(&step, &mut evidence);
            let tried = &mut self.tried[at];
            tried.growth = evidence.growth(step.rate);
            tried.deviations =
                if tried.growth.is_some() { -CLEAREST } else { evidence.deviations(objectives) };
            tried.evidence = evidence;
            match measured {
                Ok(Some(measured)) => {
                    tried.limited = measured.limited;
                    self.unsettled += u32::from(!measured.settled);
                    target.judged(&step, &self.tried[at]);
                    if self.unsettled > 1 {
                        return Ok(Ending::Unsettled);
                    }
                }
                Ok(None) => {
                    // Half a step is no verdict.
                    if tried.deviations.abs() < CLEAR {
                        self.tried.remove(at);
                    }
                    return Ok(Ending::Interrupted);
                }
                Err(why) => return Err(why),
            }
        }
    }

    /// Returns the index of a rate, which is added if it is new.
    fn place(&mut self, rate: f64) -> usize {
        let at = self.tried.partition_point(|tried| tried.rate < rate);
        if self.tried.get(at).is_none_or(|tried| tried.rate > rate) {
            let evidence = Evidence::default();
            self.tried.insert(at, Tried { rate, evidence, deviations: 0.0, growth: None, limited: false });
        }
        at
    }

    /// Returns how many of the rates, from the lowest, hold the objectives: the number with the least contradiction, and of several the least.
    fn boundary(&self) -> usize {
        let wrong = |held: usize| -> f64 {
            let (below, above) = self.tried.split_at(held);
            below.iter().map(|tried| (-tried.weight()).max(0.0)).sum::<f64>()
                + above.iter().map(|tried| tried.weight().max(0.0)).sum::<f64>()
        };
        (0..=self.tried.len()).min_by(|a, b| wrong(*a).total_cmp(&wrong(*b))).unwrap_or(0)
    }

    /// Returns the highest rate that holds the objectives and the lowest that does not.
    pub fn ends(&self) -> (Option<&Tried>, Option<&Tried>) {
        let held = self.boundary();
        (held.checked_sub(1).and_then(|at| self.tried.get(at)), self.tried.get(held))
    }

    /// Returns the interval of rates in which the limit lies: from the highest that clearly holds to the lowest that clearly does not. As arrivals
    /// are random, what was sent differs from these rates, the more the fewer requests there were.
    pub fn interval(&self) -> (Option<f64>, Option<f64>) {
        let (below, above) = self.tried.split_at(self.boundary());
        let low = below.iter().rev().find(|tried| tried.deviations >= CERTAIN);
        let high = above.iter().find(|tried| tried.limited || tried.deviations <= -CERTAIN);
        let off = |tried: &Tried| {
            CERTAIN / ((tried.evidence.good() + tried.evidence.failed()).max(16) as f64).sqrt()
        };
        let up = |tried: &Tried| if tried.limited { tried.rate } else { tried.rate * (1.0 + off(tried)) };
        (low.map(|tried| tried.rate * (1.0 - off(tried))), high.map(up))
    }

    /// Returns the next step, or why there is none.
    fn next(&self, left: f64) -> Result<Step, Ending> {
        match self.ends() {
            (None, None) => Ok(self.doubling(self.start, left)),
            (_, _) if left < SHORTEST => Err(self.ending()),
            (Some(low), None) => Ok(self.doubling(low.rate * 2.0, left)),
            (None, Some(high)) if high.rate < self.start * 0.5f64.powi(HALVINGS) * 1.5 => Err(self.ending()),
            (None, Some(high)) => Ok(self.doubling(high.rate / 2.0, left)),
            (Some(low), Some(high)) if high.rate / low.rate > 1.0 + self.accuracy => {
                Ok(self.halving(low, high, left))
            }
            (Some(low), Some(high)) => self.repeated(low, high, left).ok_or_else(|| self.ending()),
        }
    }

    fn ending(&self) -> Ending {
        match self.ends() {
            (None, Some(high)) if high.limited => Ending::Generator,
            (None, _) => Ending::NothingHolds,
            (_, None) => Ending::TimeOver,
            (Some(low), Some(high)) if high.rate / low.rate > 1.0 + self.accuracy * 1.001 => Ending::TimeOver,
            (_, Some(high)) if high.limited => Ending::Generator,
            _ => Ending::Found,
        }
    }

    fn warm_up(&self) -> f64 {
        (WARM_UP * self.limit).clamp(WARM_UPS.0, WARM_UPS.1)
    }

    fn doubling(&self, rate: f64, left: f64) -> Step {
        let least = (4.0 * self.limit).clamp(SHORTEST, (left / 8.0).max(SHORTEST));
        // A low rate takes longer for as many responses.
        let enough = 40.0 / rate;
        let most = (2.0 * least).max(enough).clamp(SHORTEST, (left / 6.0).max(SHORTEST));
        Step { rate, warm_up: WARM_UPS.0, least: least.min(most), most, clear: CLEAR_DOUBLING }
    }

    /// Tries the middle. The narrower the interval, the longer: an excess of 3 % takes 33 times the limit to fill the queue up to it.
    fn halving(&self, low: &Tried, high: &Tried, left: f64) -> Step {
        let ratio = high.rate / low.rate;
        let steps = (ratio.ln() / self.accuracy.ln_1p()).log2().max(0.0).ceil();
        let warm_up = self.warm_up();
        let most = (left / (steps + 2.5) - OVERHEAD - warm_up).clamp(SHORTEST, LONGEST);
        let least = (2.0 * self.limit / (ratio - 1.0)).clamp(SHORTEST, most);
        Step { rate: (low.rate * high.rate).sqrt(), warm_up, least, most, clear: CLEAR }
    }

    /// Tries the less clear end once more.
    fn repeated(&self, low: &Tried, high: &Tried, left: f64) -> Option<Step> {
        let clear = |tried: &Tried| if tried.limited { CLEAREST } else { tried.deviations.abs() };
        let end = if clear(low) <= clear(high) { low } else { high };
        let warm_up = self.warm_up();
        let most = (left - OVERHEAD - warm_up).min(LONGEST / 2.0);
        let least = (self.limit / self.accuracy).clamp(SHORTEST, LONGEST / 4.0);
        (clear(end) < CLEAR_END && most >= least).then_some(Step {
            rate: end.rate,
            warm_up,
            least,
            most,
            clear: CLEAR_END,
        })
    }
}
