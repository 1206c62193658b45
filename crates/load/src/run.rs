//! A run from its plan to its outcome: what is checked before, who watches, how the threads' shares come together.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use crate::bands::quantile;
use crate::clock::{NEVER, nanoseconds};
use crate::finish::outcome;
use crate::plan::{Plan, Protocol, Traffic};
use crate::prepare::Prepared;
use crate::recorder::COURSE;
use crate::schedule::stages;
use crate::shared::Shared;
use crate::target::Target;
use crate::thread::{self, Left};
use crate::validate::validate;
use crate::{Outcome, Progress, Verdict, bands};

const AHEAD: Duration = Duration::from_millis(10);
const LOOK: Duration = Duration::from_millis(100);
const EARLY_LOOK: Duration = Duration::from_millis(1);
/// When no connection was opened for so long, those that are still missing are not waited for.
const STRAGGLERS: Duration = Duration::from_millis(250);
/// Connections of its own that a process has besides: files, event loops, timers.
const OTHER_DESCRIPTORS: u64 = 64;

/// See [`crate::run`].
pub(crate) fn run(plan: &Plan, watch: &mut dyn FnMut(&Progress) -> Verdict) -> Result<Outcome, String> {
    validate(plan)?;
    let prepared = Prepared::new(plan)?;
    let targets = Target::all(&prepared.origins, &plan.transport)?;
    let connections = thread::connections(&plan.traffic);
    descriptors(connections, targets.len())?;
    let threads = plan.threads.min(connections).max(1);
    let shared = Arc::new(Shared::new(plan.clone(), prepared, targets, threads));
    let (sender, receiver) = channel();
    for number in 0..threads {
        let (theirs, sender) = (shared.clone(), sender.clone());
        let spawned = Builder::new().name(format!("load-{number}")).spawn(move || {
            let left = thread::run(theirs, number);
            // Nobody listens any more after a run that could not begin.
            let _ = sender.send(left);
        });
        if let Err(error) = spawned {
            shared.set_end(0, 0);
            return Err(format!("no thread for the load generator: {error}"));
        }
    }
    drop(sender);
    let mut running =
        Running { shared: &shared, receiver, left: Vec::new(), threads, seen: Seen::default(), watch };
    let begun = running.start();
    let (started_at, began) = begun.inspect_err(|_| shared.set_end(0, 0))?;
    running.watch_until_over()?;
    let left = std::mem::take(&mut running.left);
    Ok(outcome(&shared, left, started_at, began))
}

/// Raises the limit of open files as far as it may be raised, and counts whether that is enough.
fn descriptors(connections: usize, origins: usize) -> Result<(), String> {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let needed = (connections as u64).saturating_mul(origins as u64).saturating_add(OTHER_DESCRIPTORS);
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let most = limit.maximum.unwrap_or(u64::MAX);
        limit.current = Some(needed.min(most));
        // When this is refused, the number below says what is missing.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    match getrlimit(Resource::Nofile).current {
        Some(current) if current < needed => Err(format!(
            "{connections} connections{} need {needed} open files, and the limit is {current}: raise it (ulimit -n {needed}, as root \
             where the hard limit stands against it), or use fewer connections, or HTTP/2 with many streams on each",
            if origins > 1 { format!(" to {origins} servers") } else { String::new() }
        )),
        _ => Ok(()),
    }
}

/// What was seen at the last look.
#[derive(Default)]
struct Seen {
    at: Option<Instant>,
    ok: u64,
}

struct Running<'a> {
    shared: &'a Shared,
    receiver: Receiver<std::io::Result<Left>>,
    left: Vec<Left>,
    threads: usize,
    seen: Seen,
    watch: &'a mut dyn FnMut(&Progress) -> Verdict,
}

impl Running<'_> {
    /// Sets when the counted part begins: with the warm-up over, or all users of the closed model connected. Says when that is.
    fn start(&mut self) -> Result<(jiff::Timestamp, u64), String> {
        let plan = &self.shared.plan;
        let keeps = !matches!(plan.transport.protocol, Protocol::Http1 { keep_alive: false, .. });
        if self.shared.is_closed() && keeps && plan.warm_up.is_zero() {
            self.wait_for_connections()?;
        }
        // Threads that keep a pace have to know of the beginning before it is there.
        let ahead = if self.shared.is_closed() { plan.warm_up } else { plan.warm_up + AHEAD };
        let began = self.shared.clock.now().saturating_add(nanoseconds(ahead));
        let started_at = jiff::Timestamp::now().checked_add(ahead).unwrap_or_default();
        let whole = whole(plan).map(nanoseconds);
        if let Some(after) = plan.stop.after.map(nanoseconds) {
            let end = began.saturating_add(after);
            self.shared.set_end(end, end.saturating_add(nanoseconds(plan.timeouts.grace)));
        }
        if let Some(whole) = whole {
            let cut = began.saturating_add(whole).saturating_add(nanoseconds(plan.timeouts.grace));
            self.shared.set_end(NEVER, cut);
        }
        self.shared.begin(began);
        Ok((started_at, began))
    }

    fn wait_for_connections(&mut self) -> Result<(), String> {
        use std::sync::atomic::Ordering::Relaxed;
        let tries = &self.shared.first_tries;
        let streams = match self.shared.plan.transport.protocol {
            Protocol::Http2 { streams } => streams,
            Protocol::Http1 { .. } => 1,
        };
        let users = thread::connections(&self.shared.plan.traffic).saturating_mul(streams);
        let (mut settled, mut at) = (0, Instant::now());
        let mut looked = at;
        loop {
            std::thread::sleep(EARLY_LOOK);
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
            if looked.elapsed() >= LOOK {
                looked = Instant::now();
                if self.look() == Verdict::End {
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
        while self.left.len() < self.threads {
            let opened = self.shared.first_tries.opened.load(std::sync::atomic::Ordering::Relaxed);
            match self.receiver.recv_timeout(if opened { LOOK } else { EARLY_LOOK * 10 }) {
                Ok(left) => {
                    self.left.push(left.map_err(|error| {
                        self.shared.set_end(0, 0);
                        format!("the load generator has no event loop: {error}")
                    })?);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    self.shared.set_end(0, 0);
                    return Err("a thread of the load generator ended before its time".to_owned());
                }
            }
            if !opened && let Some(why) = self.shared.first_tries.all_failed() {
                self.shared.set_end(0, 0);
                return Err(why);
            }
            self.look();
        }
        if let Some(why) = self.shared.first_tries.all_failed() {
            return Err(why);
        }
        self.look();
        Ok(())
    }

    /// Tells the watcher how it stands, and ends the run when he says so.
    fn look(&mut self) -> Verdict {
        let progress = self.progress();
        let verdict = (self.watch)(&progress);
        if verdict == Verdict::End {
            let now = self.shared.clock.now();
            self.shared.set_end(now, now.saturating_add(nanoseconds(self.shared.plan.timeouts.grace)));
        }
        verdict
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
        progress.p50_us = quantile::<COURSE>(&spread, 0.5);
        progress.p99_us = quantile::<COURSE>(&spread, 0.99);
        progress.max_us = spread.last().map_or(0, |(upto, _)| *upto);
        let now = Instant::now();
        if let Some(at) = self.seen.at {
            let seconds = now.duration_since(at).as_secs_f64();
            progress.rate = (progress.ok - self.seen.ok) as f64 / seconds.max(1e-6);
        }
        self.seen = Seen { at: Some(now), ok: progress.ok };
        let elapsed = self.shared.clock.now().checked_sub(self.shared.began());
        progress.elapsed = elapsed.map(Duration::from_nanos);
        progress.done = self.done(&progress);
        progress
    }

    /// How much is over: by the clock or by count, whichever is nearer to its end.
    #[allow(clippy::cast_precision_loss)]
    fn done(&self, progress: &Progress) -> f64 {
        let plan = &self.shared.plan;
        let elapsed = progress.elapsed.unwrap_or_default().as_secs_f64();
        let answered = progress.ok + progress.errors;
        let lasting = plan.stop.after.into_iter().chain(whole(plan)).min();
        let by_clock = lasting.map_or(0.0, |lasting| elapsed / lasting.as_secs_f64().max(1e-6));
        let by_count = self.shared.share_begun(answered);
        let by_rounds = match (&plan.traffic, plan.stop.rounds) {
            (Traffic::Closed { users, .. }, Some(rounds)) => {
                answered as f64 / (*users as f64 * rounds as f64).max(1.0)
            }
            _ => 0.0,
        };
        by_clock.max(by_count).max(by_rounds).min(1.0)
    }
}

/// How long the traffic lasts by itself; `None` for ever.
fn whole(plan: &Plan) -> Option<Duration> {
    match &plan.traffic {
        Traffic::Closed { .. } => None,
        Traffic::Open { .. } => stages(plan).1,
        Traffic::Replay { arrivals, .. } => arrivals.last().map(|(last, _)| *last),
    }
}
