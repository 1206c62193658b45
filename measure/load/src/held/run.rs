//! Runs a plan: threads, phases, progress.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::LocalOptions;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::connection::{Phase, Thread};
use super::outcome::HoldOutcome;
use super::tally::{Shared, Tally, add};
use super::{Plan, STRAGGLERS, Talk, events, web_socket};
use crate::endpoint::Endpoint;
use crate::run::descriptors;
use crate::scenario::{Origin, Protocol};
use crate::thread::cpu;
use crate::{Flow, Progress};

/// The bytes that a thread reads at once.
const BUFFER: usize = 64 * 1024;
/// Handshakes of a thread at once.
const HANDSHAKES: usize = 64;
const TICK: Duration = Duration::from_millis(100);
/// How much longer than `grace` a thread may take to end.
const LAST: Duration = Duration::from_millis(500);

/// Runs `plan` and blocks until it is over. Calls `watch` about ten times a second: `ok` of its progress counts events or
/// messages, `in_flight` open connections.
///
/// # Errors
/// The plan cannot run, a name cannot be resolved, or none of the connections can be opened. The text contains the
/// remedy.
pub fn run(plan: Plan, watch: &mut dyn FnMut(&Progress) -> Flow) -> Result<HoldOutcome, String> {
    if !matches!(plan.transport.protocol, Protocol::Http1 { .. }) {
        return Err("held connections need HTTP/1.1".to_owned());
    }
    if plan.requests.is_empty() || plan.connections == 0 || plan.threads == 0 {
        return Err("nothing to hold: expected a URL, a connection and a thread at least".to_owned());
    }
    let origins: Vec<Origin> = plan.requests.iter().map(|request| request.origin.clone()).collect();
    let endpoints = Arc::new(Endpoint::all(&origins, &plan.transport)?);
    descriptors(plan.connections, 1)?;
    let (plan, shared) = (Arc::new(plan), Arc::new(Shared::default()));
    let (phases, phase) = watch::channel(Phase::Opening);
    let threads = plan.threads.min(plan.connections);
    let spawned: io::Result<Vec<JoinHandle<io::Result<HoldOutcome>>>> = (0..threads)
        .map(|number| {
            let (plan, endpoints, shared, phase) =
                (plan.clone(), endpoints.clone(), shared.clone(), phase.clone());
            let part = move || hold(plan, endpoints, shared, phase, number, threads);
            Builder::new().name(format!("load-{number}")).spawn(part)
        })
        .collect();
    // Dropping the sender would end the threads that were started.
    let spawned =
        spawned.map_err(|error| format!("cannot start a thread for the load generator: {error}"))?;
    let mut course = Course { plan: &plan, shared: &shared, watch, last: (Instant::now(), 0) };
    let begun = Instant::now();
    let flow = course.opening();
    let opening_seconds = begun.elapsed().as_secs_f64();
    let began = Instant::now();
    let mut sampled = Vec::new();
    if flow == Flow::Continue && shared.opened.load(Relaxed) > 0 {
        phases.send_replace(Phase::Counted(began));
        sampled = course.counted(began);
    }
    let seconds = began.elapsed().as_secs_f64();
    let held_at_end = shared.open.load(Relaxed);
    phases.send_replace(Phase::Over);
    let mut held = HoldOutcome::default();
    for thread in spawned {
        let ended =
            thread.join().map_err(|_| "a thread of the load generator ended unexpectedly".to_owned())?;
        add(
            &mut held,
            ended.map_err(|error| format!("cannot start the load generator's event loop: {error}"))?,
        );
    }
    if held.opened == 0 {
        let why = held.errors.into_iter().max_by_key(|(_, count)| *count).map(|(text, _)| text);
        return Err(why.unwrap_or_else(|| "the run ended before a connection was open".to_owned()));
    }
    held.course.resize(sampled.len(), super::Interval::default());
    held.course.iter_mut().zip(&sampled).for_each(|(second, open)| second.held = *open);
    held.most_held = sampled.iter().copied().max().unwrap_or(held_at_end);
    held.fewest_held = sampled.iter().copied().min().unwrap_or(held_at_end);
    Ok(HoldOutcome { seconds, opening_seconds, held_at_end, ..held })
}

/// The main thread's view of a run.
struct Course<'a> {
    plan: &'a Plan,
    shared: &'a Shared,
    watch: &'a mut dyn FnMut(&Progress) -> Flow,
    /// Time and count of the last report.
    last: (Instant, u64),
}

impl Course<'_> {
    /// Waits until all connections have been opened, or have failed once.
    fn opening(&mut self) -> Flow {
        let (mut settled, mut at) = (0, Instant::now());
        loop {
            std::thread::sleep(TICK / 10);
            let now = self.shared.settled.load(Relaxed);
            if now > settled {
                (settled, at) = (now, Instant::now());
            }
            let straggle = self.shared.opened.load(Relaxed) > 0 && at.elapsed() >= STRAGGLERS;
            if settled == self.plan.connections as u64 || straggle {
                return Flow::Continue;
            }
            if self.last.0.elapsed() >= TICK && self.report(None) == Flow::Stop {
                return Flow::Stop;
            }
        }
    }

    /// Waits for the end of the counted part, and returns the open connections at the end of each second.
    fn counted(&mut self, began: Instant) -> Vec<u64> {
        let mut sampled = Vec::new();
        loop {
            let elapsed = began.elapsed();
            let left = self.plan.duration.saturating_sub(elapsed);
            if elapsed.as_secs() > sampled.len() as u64 || left.is_zero() {
                let open = self.shared.open.load(Relaxed);
                let seconds = if left.is_zero() {
                    self.plan.duration.as_secs_f64().ceil()
                } else {
                    elapsed.as_secs_f64().floor()
                };
                // At most the seconds of a year.
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                sampled.resize(seconds as usize, open);
            }
            if left.is_zero() || self.report(Some(elapsed)) == Flow::Stop {
                return sampled;
            }
            std::thread::sleep(left.min(TICK));
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn report(&mut self, elapsed: Option<Duration>) -> Flow {
        let received = self.shared.received.load(Relaxed);
        let seconds = self.last.0.elapsed().as_secs_f64().max(1e-6);
        let rate = (received - self.last.1) as f64 / seconds;
        self.last = (Instant::now(), received);
        let done = elapsed.unwrap_or_default().as_secs_f64() / self.plan.duration.as_secs_f64().max(1e-6);
        (self.watch)(&Progress {
            elapsed,
            done,
            ok: received,
            errors: self.shared.errors.load(Relaxed),
            in_flight: self.shared.open.load(Relaxed),
            rate,
            ..Progress::default()
        })
    }
}

/// Holds one thread's share of the connections.
fn hold(
    plan: Arc<Plan>,
    endpoints: Arc<Vec<Endpoint>>,
    shared: Arc<Shared>,
    phase: watch::Receiver<Phase>,
    number: usize,
    threads: usize,
) -> io::Result<HoldOutcome> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async move {
        let grace = plan.timeouts.grace;
        let thread = Rc::new(Thread {
            plan,
            endpoints,
            tally: Tally::default(),
            shared,
            phase,
            buffer: RefCell::new(vec![0; BUFFER].into_boxed_slice()),
            handshakes: Semaphore::new(HANDSHAKES),
        });
        let mut users = JoinSet::new();
        for user in (number..thread.plan.connections).step_by(threads) {
            let thread = thread.clone();
            users.spawn_local(async move {
                let plan = thread.plan.clone();
                match &plan.talk {
                    Talk::Events => events::hold(thread, user).await,
                    Talk::WebSocket(talk) => web_socket::hold(thread, user, talk).await,
                }
            });
        }
        let mut phase = thread.phase.clone();
        let counted = phase.wait_for(|phase| *phase != Phase::Opening).await.is_ok();
        let (began, computed) = (Instant::now(), cpu());
        let _ = phase.wait_for(|phase| *phase == Phase::Over).await;
        let (wall, computed) = (began.elapsed().as_secs_f64(), cpu().saturating_sub(computed).as_secs_f64());
        // Connections that are being opened are dropped.
        let ended = async { while users.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(
            if thread.shared.closing.load(Relaxed) > 0 { grace + LAST } else { LAST },
            ended,
        )
        .await;
        users.abort_all();
        while users.join_next().await.is_some() {}
        let mut held = Rc::into_inner(thread).map(|thread| thread.tally.into_held()).unwrap_or_default();
        held.busy = if counted && wall > 0.0 { (computed / wall).min(1.0) } else { 0.0 };
        Ok(held)
    })
}
