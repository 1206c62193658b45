//! A run from the scenario to its outcome: checks, threads, progress reports.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::clock::{NEVER, nanoseconds};
use crate::endpoint::Endpoint;
use crate::finish::outcome;
use crate::prepare::Prepared;
use crate::recorder::COURSE;
use crate::scenario::{Protocol, Scenario, Traffic};
use crate::schedule::stages;
use crate::shared::Shared;
use crate::thread::{self, ThreadResult};
use crate::validate::validate;
use crate::{Flow, Outcome, Progress, bands};

const LEAD_TIME: Duration = Duration::from_millis(10);
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
const EARLY_INTERVAL: Duration = Duration::from_millis(1);
/// If no connection was opened for this long, the run starts without the missing ones.
const STRAGGLERS: Duration = Duration::from_millis(250);
/// File descriptors for other uses: files, event loops, timers.
const OTHER_DESCRIPTORS: u64 = 64;

/// See [`crate::run`].
pub(crate) fn run(
    scenario: &Scenario,
    watch: &mut dyn FnMut(&Progress) -> Flow,
    gate: &mut dyn FnMut() -> Result<Duration, String>,
) -> Result<Outcome, String> {
    validate(scenario)?;
    let prepared = Prepared::new(scenario)?;
    let endpoints = Endpoint::all(&prepared.origins, &scenario.transport)?;
    let connections = thread::connections(&scenario.traffic);
    descriptors(connections, endpoints.len())?;
    let threads = scenario.threads.min(connections).max(1);
    let shared = Arc::new(Shared::new(scenario.clone(), prepared, endpoints, threads));
    let (sender, receiver) = channel();
    for number in 0..threads {
        let (theirs, sender) = (shared.clone(), sender.clone());
        let spawned = Builder::new().name(format!("load-{number}")).spawn(move || {
            let result = thread::run(theirs, number);
            // After a failed start the receiver is gone.
            let _ = sender.send(result);
        });
        if let Err(error) = spawned {
            shared.set_end(0, 0);
            return Err(format!("cannot start a thread for the load generator: {error}"));
        }
    }
    drop(sender);
    let mut running = Running {
        shared: &shared,
        receiver,
        results: Vec::new(),
        threads,
        last: LastReport::default(),
        watch,
    };
    let begun = running.start(gate);
    let (started_at, began) = begun.inspect_err(|_| shared.set_end(0, 0))?;
    running.watch_until_over()?;
    let results = std::mem::take(&mut running.results);
    Ok(outcome(&shared, results, started_at, began))
}

/// Raises the limit on open files as needed and checks that it suffices.
pub(crate) fn descriptors(connections: usize, origins: usize) -> Result<(), String> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let needed = (connections as u64).saturating_mul(origins as u64).saturating_add(OTHER_DESCRIPTORS);
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let most = limit.maximum.unwrap_or(u64::MAX);
        limit.current = Some(needed.min(most));
        // If this fails, the check below reports it.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    match getrlimit(Resource::Nofile).current {
        Some(current) if current < needed => Err(format!(
            "{connections} connections{} need {needed} open files, but the limit is {current}: raise it (ulimit -n {needed}, as root \
             if the hard limit is lower), or use fewer connections, or HTTP/2 with many streams on each",
            if origins > 1 { format!(" to {origins} servers") } else { String::new() }
        )),
        _ => Ok(()),
    }
}

/// The state at the last progress report.
#[derive(Default)]
struct LastReport {
    at: Option<Instant>,
    ok: u64,
}

struct Running<'a> {
    shared: &'a Shared,
    receiver: Receiver<std::io::Result<ThreadResult>>,
    results: Vec<ThreadResult>,
    threads: usize,
    last: LastReport,
    watch: &'a mut dyn FnMut(&Progress) -> Flow,
}

impl Running<'_> {
    /// Sets the start of the counted part: after the warm-up, or when all users of the closed model are
    /// connected. Returns that time.
    fn start(
        &mut self,
        gate: &mut dyn FnMut() -> Result<Duration, String>,
    ) -> Result<(jiff::Timestamp, u64), String> {
        let scenario = &self.shared.scenario;
        let keeps = !matches!(scenario.transport.protocol, Protocol::Http1 { keep_alive: false, .. });
        if self.shared.is_closed() && keeps && scenario.warm_up.is_zero() {
            self.wait_for_connections()?;
        }
        let wait = gate()?;
        let ahead = if self.shared.is_closed() {
            // Users who know the start would send requests up to it.
            std::thread::sleep(wait);
            scenario.warm_up
        } else {
            // Paced threads must know the start in advance.
            scenario.warm_up + wait.max(LEAD_TIME)
        };
        let began = self.shared.clock.now().saturating_add(nanoseconds(ahead));
        let started_at = jiff::Timestamp::now().checked_add(ahead).unwrap_or_default();
        let length = traffic_duration(scenario).map(nanoseconds);
        if let Some(after) = scenario.stop.after.map(nanoseconds) {
            let end = began.saturating_add(after);
            self.shared.set_end(end, end.saturating_add(nanoseconds(scenario.timeouts.grace)));
        }
        if let Some(length) = length {
            let cut = began.saturating_add(length).saturating_add(nanoseconds(scenario.timeouts.grace));
            self.shared.set_end(NEVER, cut);
        }
        self.shared.begin(began);
        Ok((started_at, began))
    }

    fn wait_for_connections(&mut self) -> Result<(), String> {
        use std::sync::atomic::Ordering::Relaxed;
        let tries = &self.shared.first_tries;
        let streams = self.shared.scenario.transport.protocol.streams().unwrap_or(1);
        let users = thread::connections(&self.shared.scenario.traffic).saturating_mul(streams);
        let (mut settled, mut at) = (0, Instant::now());
        let mut reported = at;
        loop {
            std::thread::sleep(EARLY_INTERVAL);
            let now = tries.settled.load(Relaxed);
            if now > settled {
                (settled, at) = (now, Instant::now());
            }
            if settled == users {
                break;
            }
            if tries.opened.load(Relaxed) && at.elapsed() >= STRAGGLERS {
                return Ok(());
            }
            if reported.elapsed() >= REPORT_INTERVAL {
                reported = Instant::now();
                if self.report() == Flow::Stop {
                    return Ok(());
                }
            }
        }
        match tries.all_failed() {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }

    fn watch_until_over(&mut self) -> Result<(), String> {
        while self.results.len() < self.threads {
            let opened = self.shared.first_tries.opened.load(std::sync::atomic::Ordering::Relaxed);
            match self.receiver.recv_timeout(if opened { REPORT_INTERVAL } else { EARLY_INTERVAL * 10 }) {
                Ok(result) => {
                    self.results.push(result.map_err(|error| {
                        self.shared.set_end(0, 0);
                        format!("cannot start the load generator's event loop: {error}")
                    })?);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.shared.set_end(0, 0);
                    return Err("a thread of the load generator ended unexpectedly".to_owned());
                }
            }
            if !opened && let Some(why) = self.shared.first_tries.all_failed() {
                self.shared.set_end(0, 0);
                return Err(why);
            }
            self.report();
        }
        if let Some(why) = self.shared.first_tries.all_failed() {
            return Err(why);
        }
        self.report();
        Ok(())
    }

    /// Reports the progress, and ends the run if the callback asks for it.
    fn report(&mut self) -> Flow {
        let progress = self.progress();
        let flow = (self.watch)(&progress);
        if flow == Flow::Stop {
            let now = self.shared.clock.now();
            self.shared.set_end(now, now.saturating_add(nanoseconds(self.shared.scenario.timeouts.grace)));
        }
        flow
    }

    #[allow(clippy::cast_precision_loss)]
    fn progress(&mut self) -> Progress {
        let mut progress = Progress::default();
        let mut spread: Vec<u64> = Vec::new();
        for published in &self.shared.published {
            let Ok(mut published) = published.lock() else { continue };
            progress.sent += published.sent;
            progress.ok += published.ok;
            progress.errors += published.errors;
            progress.in_flight += published.in_flight;
            spread.resize(spread.len().max(published.spread.len()), 0);
            for (sum, count) in spread.iter_mut().zip(&mut published.spread) {
                *sum += std::mem::take(count);
            }
        }
        let spread: Vec<(u64, u64)> = spread
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(band, count)| (bands::upto::<COURSE>(band), *count))
            .collect();
        progress.set_spread(spread);
        let now = Instant::now();
        if let Some(at) = self.last.at {
            let seconds = now.duration_since(at).as_secs_f64();
            progress.rate = (progress.ok - self.last.ok) as f64 / seconds.max(1e-6);
        }
        self.last = LastReport { at: Some(now), ok: progress.ok };
        let elapsed = self.shared.clock.now().checked_sub(self.shared.began());
        progress.elapsed = elapsed.map(Duration::from_nanos);
        progress.done = self.done(&progress);
        progress
    }

    /// Returns the completed part by time or by count, whichever is further.
    #[allow(clippy::cast_precision_loss)]
    fn done(&self, progress: &Progress) -> f64 {
        let scenario = &self.shared.scenario;
        let elapsed = progress.elapsed.unwrap_or_default().as_secs_f64();
        let finished = progress.ok + progress.errors;
        let duration = scenario.stop.after.into_iter().chain(traffic_duration(scenario)).min();
        let by_clock = duration.map_or(0.0, |duration| elapsed / duration.as_secs_f64().max(1e-6));
        let by_count = self.shared.share_begun(finished);
        let by_rounds = match (&scenario.traffic, scenario.stop.rounds) {
            (Traffic::Closed { users, .. }, Some(rounds)) => {
                finished as f64 / (*users as f64 * rounds as f64).max(1.0)
            }
            _ => 0.0,
        };
        by_clock.max(by_count).max(by_rounds).min(1.0)
    }
}

/// Returns the duration of the traffic itself; `None` if it is unlimited.
fn traffic_duration(scenario: &Scenario) -> Option<Duration> {
    match &scenario.traffic {
        Traffic::Closed { .. } => None,
        Traffic::Open { .. } => stages(scenario).1,
        Traffic::Replay { arrivals, .. } => arrivals.last().map(|(last, _)| *last),
    }
}
