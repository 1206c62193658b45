//! The server under search: sends each step as a run of the load generator, and waits until an overloaded server is back at its usual times.

use std::time::{Duration, Instant};

use ::report::Unit;
use control::client::ControlClient;
use load::scenario::{Arrivals, Stage, Stop, Think, Traffic};
use load::{Flow, Outcome, Progress, Scenario};

use super::cause::{is_displaced, is_local};
use super::evidence::{Evidence, Slice};
use super::search::{Measured, Step, Target, Tried};
use super::text;
use super::trial::{Alone, Findings, Trial};
use crate::document;
use crate::figures::ms;
use crate::interrupt::Interrupt;
use crate::invocation::Run;
use crate::live::Live;
use crate::objective::Wanted;
use crate::server_stats;
use crate::validity::BUSY;

/// One user alone: the time and number of requests that show the usual response time.
const ALONE: Duration = Duration::from_secs(1);
const ALONE_REQUESTS: u64 = 300;
/// After an overload: requests of one probe, the pause between probes, and the longest wait in all.
const PROBE: u64 = 3;
const PAUSE: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(10);
/// A probe is back at the usual times below this many times the median of one user alone.
const BACK: f64 = 2.5;
/// The time for which requests in flight at the end of a step are awaited: at least as long as the limit, so that they can miss it.
const GRACE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(10));

pub(crate) struct Server<'a> {
    run: &'a Run,
    wanted: &'a Wanted,
    client: Option<ControlClient>,
    interrupt: Interrupt,
    live: Live,
    began: Instant,
    says: bool,
    p50_us: u64,
    steps: u64,
    /// In the order of the steps.
    trials: Vec<Trial>,
    remarks: Vec<String>,
}

impl<'a> Server<'a> {
    pub fn new(run: &'a Run, wanted: &'a Wanted, client: Option<ControlClient>, says: bool) -> Server<'a> {
        Server {
            run,
            wanted,
            client,
            interrupt: Interrupt::listen(),
            live: Live::new(run.output.progress),
            began: Instant::now(),
            says,
            p50_us: 0,
            steps: 0,
            trials: Vec::new(),
            remarks: run.remarks.clone(),
        }
    }

    fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Ends the search and returns what happened beside the verdicts.
    pub fn findings(self) -> Findings {
        Findings { seconds: self.seconds(), trials: self.trials, remarks: self.remarks }
    }

    /// Measures one user alone.
    ///
    /// # Errors
    /// The server cannot be reached, or no response is successful.
    pub fn alone(&mut self) -> Result<Alone, String> {
        let (mut evidence, mut slices) = (Evidence::default(), Slices::default());
        evidence.begin_step();
        let interrupt = self.interrupt.clone();
        let outcome = load::run(&self.single(ALONE_REQUESTS, Some(ALONE)), &mut |progress| {
            slices.add(progress, &mut evidence);
            if interrupt.requested() { Flow::Stop } else { Flow::Continue }
        })?;
        slices.rest(&outcome, &mut evidence);
        if outcome.ok == 0 {
            return Err(format!("no successful response{}", crate::first_error(&outcome)));
        }
        self.p50_us = outcome.latency.value_at_quantile(0.5);
        let alone =
            Alone { rate: outcome.ok as f64 / outcome.seconds.max(1e-3), p50_ms: ms(self.p50_us), evidence };
        if self.says {
            output::print(text::alone(&alone, &self.wanted.objectives));
        }
        Ok(alone)
    }

    /// Returns the scenario of one user.
    fn single(&self, requests: u64, after: Option<Duration>) -> Scenario {
        Scenario {
            traffic: Traffic::Closed { users: 1, think: Think::None },
            stop: Stop { requests: Some(requests), after, rounds: None },
            warm_up: Duration::ZERO,
            threads: 1,
            ..self.run.scenario.clone()
        }
    }

    fn scenario(&mut self, step: &Step) -> Scenario {
        let mut scenario = self.run.scenario.clone();
        self.steps += 1;
        let stage = Stage { from: step.rate, to: step.rate, duration: None };
        if let Traffic::Open { stages, arrivals, .. } = &mut scenario.traffic {
            *stages = vec![stage];
            // Each step has arrivals of its own, or the bunches of one sequence would shift all results.
            if let Arrivals::Random(seed) = arrivals {
                *seed = seed.wrapping_add(self.steps);
            }
        }
        let limits = self.wanted.objectives.iter().filter_map(|objective| objective.goal.limit_us());
        let limit = Duration::from_secs_f64(limits.fold(0.0, f64::max) / 1e6);
        scenario.timeouts.grace = limit.clamp(GRACE.0, GRACE.1);
        scenario.warm_up = Duration::from_secs_f64(step.warm_up);
        scenario.stop = Stop { after: Some(Duration::from_secs_f64(step.most)), ..Stop::default() };
        scenario
    }

    /// Waits until one user sees about the usual times again. Returns whether that happened.
    fn settle(&self) -> bool {
        let began = Instant::now();
        let mut probe = self.single(PROBE, None);
        probe.timeouts.request = probe.timeouts.request.min(PATIENCE / 2);
        loop {
            let usual = load::run(&probe, &mut |_| Flow::Continue).is_ok_and(|outcome| {
                outcome.ok > 0
                    && outcome.latency.value_at_quantile(0.5) as f64 <= self.p50_us as f64 * BACK + 1_000.0
            });
            if usual || self.interrupt.requested() {
                return true;
            }
            if began.elapsed() > PATIENCE {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn snapshot(&self) -> Option<stats::ServerSnapshot> {
        self.client.as_ref().and_then(|client| server_stats::snapshot(client).ok())
    }
}

impl Target for Server<'_> {
    fn left(&self) -> f64 {
        self.wanted.within.as_secs_f64() - self.seconds()
    }

    fn step(&mut self, step: &Step, evidence: &mut Evidence) -> Result<Option<Measured>, String> {
        let scenario = self.scenario(step);
        let before = self.snapshot();
        let clock = sys::machine::Machine::cpu_clock();
        let (mut slices, mut over, mut after, mut idle) = (Slices::default(), false, None, None);
        let (interrupt, live, client) = (&self.interrupt, &mut self.live, &self.client);
        let outcome = load::run(&scenario, &mut |progress| {
            live.draw(progress);
            slices.add(progress, evidence);
            let at = progress.elapsed.unwrap_or_default().as_secs_f64();
            if !over && (interrupt.requested() || step.is_over(at, evidence, &self.wanted.objectives)) {
                over = true;
                // While the load still runs.
                idle = sys::machine::Machine::cpu_clock().idle_since(&clock);
                after = client.as_ref().and_then(|client| server_stats::snapshot(client).ok());
            }
            if over { Flow::Stop } else { Flow::Continue }
        })?;
        self.live.clear();
        slices.rest(&outcome, evidence);
        let server = before.zip(after.or_else(|| self.snapshot()));
        let server = server.map(|(before, after)| document::Server { before, after });
        let trial = Trial { rate: step.rate, outcome, idle, server };
        let local = is_local(&self.run.description);
        let limited = trial.outcome.busy >= BUSY || (local && is_displaced(&trial));
        self.trials.push(trial);
        if self.interrupt.requested() {
            return Ok(None);
        }
        let settled = evidence.deviations(&self.wanted.objectives) > 0.0 || self.settle();
        if !settled {
            self.remarks.push(format!(
                "after {} one user waited for more than {} for {} s: the server did not recover",
                Unit::PerSecond.show(step.rate),
                Unit::Milliseconds.show(ms(self.p50_us) * BACK),
                PATIENCE.as_secs()
            ));
        }
        Ok(Some(Measured { limited, settled }))
    }

    fn judged(&mut self, step: &Step, tried: &Tried) {
        if self.says {
            let seconds = self.trials.last().map_or(step.most, |trial| trial.outcome.seconds);
            output::print(text::step(seconds, tried, &self.wanted.objectives));
        }
    }
}

/// Turns the reports of progress, which count from the start of a run, into slices.
#[derive(Default)]
struct Slices {
    errors: u64,
    good: u64,
    at: f64,
}

impl Slices {
    fn add(&mut self, progress: &Progress, evidence: &mut Evidence) {
        let Some(elapsed) = progress.elapsed else { return };
        self.at = elapsed.as_secs_f64();
        self.good += progress.spread.iter().map(|(_, count)| count).sum::<u64>();
        evidence.add(Slice {
            at: self.at,
            failed: progress.errors.saturating_sub(self.errors),
            in_flight: progress.sent.saturating_sub(progress.ok + progress.errors),
            sent: progress.sent,
            ended: progress.ok + progress.errors,
            spread: progress.spread.iter().map(|(upto, count)| (Progress::middle(*upto), *count)).collect(),
        });
        self.errors = progress.errors;
    }

    /// Adds the requests that ended after the last report, or never.
    fn rest(&self, outcome: &Outcome, evidence: &mut Evidence) {
        let failed = outcome.errors.total().saturating_sub(self.errors);
        let missing = outcome.ok.saturating_sub(self.good);
        let spread =
            if missing > 0 { vec![(outcome.latency.value_at_quantile(0.5), missing)] } else { Vec::new() };
        evidence.add_rest(Slice {
            at: self.at,
            failed,
            sent: outcome.sent,
            ended: outcome.sent,
            spread,
            in_flight: 0,
        });
    }
}
