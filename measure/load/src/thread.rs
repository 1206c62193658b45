//! A thread of the load generator: starts its users, paces requests, enforces timeouts, and ends the run.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;

use crate::arrivals::Arrivals;
use crate::clock::{Moment, NEVER, nanoseconds};
use crate::h2::Http2;
use crate::h3::{self, Http3};
use crate::lane::Lane;
use crate::recorder::Recorder;
use crate::scenario::{Protocol, Scenario, Traffic};
use crate::schedule::stages;
use crate::shared::Shared;
use crate::streams::{Connection, SharedConnections, stream};
use crate::system::Timer;
use crate::user::user;

/// The shortest wait: at high rates, several requests share one timer.
const FINEST_WAIT: Duration = Duration::from_micros(50);
const TICK: Duration = Duration::from_millis(100);
/// Requests that are queued in a row, when many are due: then the users send some of them.
const QUEUED_AT_ONCE: usize = 64;
/// The time in which the pacing task notices the end.
const LAST_COUNT: Duration = Duration::from_secs(1);
/// The tick before the counted part, which must not start late.
const EARLY_TICK: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct ThreadResult {
    pub recorder: Recorder,
    /// CPU time of the counted part.
    pub cpu: Duration,
}

/// Runs a thread's share of the run.
///
/// # Errors
/// The event loop cannot be created.
pub(crate) fn run(shared: Arc<Shared>, thread: usize) -> io::Result<ThreadResult> {
    let threads = shared.published.len();
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async move {
        let lane = Rc::new(Lane::new(shared));
        let starter = Starter::new(&lane, share(connections(&lane.run.scenario.traffic), thread, threads));
        let paced = match lane.run.is_closed() {
            true => {
                while starter.start() {
                    // Not all at once: a server's accept queue is short.
                    tokio::task::yield_now().await;
                }
                None
            }
            false => Some(spawn_local(pace(lane.clone(), thread, threads, starter))),
        };
        let cpu = Monitor { lane: lane.clone(), thread, cpu_at_begin: None }.until_over().await;
        if let Some(paced) = paced {
            // It counts the requests that were due and can no longer be sent.
            let _ = tokio::time::timeout(LAST_COUNT, paced).await;
        }
        h3::close(&lane).await;
        let waiting = lane.queue.borrow().iter().filter(|job| job.counted).count();
        let mut recorder = lane.recorder.replace(Recorder::new(0));
        recorder.unsent(waiting as u64);
        Ok(ThreadResult { recorder, cpu })
    })
}

/// Returns the most connections of the traffic.
pub(crate) fn connections(traffic: &Traffic) -> usize {
    match traffic {
        Traffic::Closed { users, .. } => *users,
        Traffic::Open { connections, .. } | Traffic::Replay { connections, .. } => *connections,
    }
}

/// Returns one thread's share of a number.
fn share(all: usize, thread: usize, threads: usize) -> usize {
    all / threads + usize::from(thread < all % threads)
}

/// Starts users (with HTTP/2 and HTTP/3: streams) as needed, up to the limit.
struct Starter {
    lane: Rc<Lane>,
    started: Cell<usize>,
    most: usize,
    kind: Carrier,
}

/// The carrier of requests: a user's own connection, or a stream of a shared one. `shared` is the latest connection.
enum Carrier {
    Http1,
    Http2 { streams: usize, shared: RefCell<Rc<SharedConnections<Http2>>> },
    Http3 { streams: usize, shared: RefCell<Rc<SharedConnections<Http3>>> },
}

impl Starter {
    fn new(lane: &Rc<Lane>, connections: usize) -> Starter {
        let protocol = lane.run.scenario.transport.protocol;
        let streams = protocol.streams().unwrap_or(1).max(1);
        Starter {
            lane: lane.clone(),
            started: Cell::new(0),
            most: connections.saturating_mul(streams),
            kind: match protocol {
                Protocol::Http1 { .. } => Carrier::Http1,
                Protocol::Http2 { .. } => Carrier::Http2 { streams, shared: RefCell::default() },
                Protocol::Http3 { .. } => Carrier::Http3 { streams, shared: RefCell::default() },
            },
        }
    }

    /// Starts one more user; returns false at the limit.
    fn start(&self) -> bool {
        let started = self.started.get();
        if started >= self.most {
            return false;
        }
        self.started.set(started + 1);
        match &self.kind {
            Carrier::Http1 => drop(spawn_local(user(self.lane.clone()))),
            Carrier::Http2 { streams, shared } => self.stream(started, *streams, shared),
            Carrier::Http3 { streams, shared } => self.stream(started, *streams, shared),
        }
        true
    }

    /// Starts a stream, on a new connection or on the latest one.
    fn stream<C: Connection>(
        &self,
        started: usize,
        streams: usize,
        shared: &RefCell<Rc<SharedConnections<C>>>,
    ) {
        if started.is_multiple_of(streams) {
            *shared.borrow_mut() = Rc::default();
        }
        spawn_local(stream(self.lane.clone(), shared.borrow().clone()));
    }
}

/// Queues requests when they are due.
async fn pace(lane: Rc<Lane>, thread: usize, threads: usize, starter: Starter) {
    let run = &lane.run;
    let mut arrivals = Arrivals::new(&run.scenario, thread, threads);
    let timer = match Timer::new() {
        Ok(timer) => timer,
        Err(error) => {
            lane.recorder.borrow_mut().text(&format!("no timer: {error}"), 1);
            lane.drained.set(true);
            return;
        }
    };
    while run.began() == NEVER && !lane.cut.get() {
        tokio::time::sleep(EARLY_TICK).await;
    }
    let mut at_once = 0;
    while let Some(job) = arrivals.next(run, run.began()) {
        if job.due >= run.end() {
            break;
        }
        if lane.cut.get() {
            lane.recorder.borrow_mut().unsent(u64::from(job.counted));
            continue;
        }
        let now = lane.now();
        at_once = if job.due > now { 0 } else { at_once + 1 };
        if at_once == QUEUED_AT_ONCE {
            at_once = 0;
            tokio::task::yield_now().await;
        }
        if job.due > now {
            let wait = Duration::from_nanos(job.due - now).max(FINEST_WAIT);
            tokio::select! {
                slept = timer.sleep(wait) => if slept.is_err() { tokio::time::sleep(wait).await },
                () = lane.ended.notified() => {}
            }
            if job.due >= run.end() {
                break;
            }
        }
        if !lane.enqueue(job) && !starter.start() {
            lane.recorder.borrow_mut().crowded += 1;
        }
    }
    // The interval behind the last request belongs to the traffic, too.
    let length = length(&run.scenario).map(|length| run.began().saturating_add(nanoseconds(length)));
    while length.is_some_and(|over| lane.now() < over.min(run.end())) && !lane.cut.get() {
        tokio::select! {
            () = tokio::time::sleep(TICK.min(Duration::from_nanos(length.unwrap_or(0).saturating_sub(lane.now())))) => {}
            () = lane.ended.notified() => break,
        }
    }
    if run.scenario.stop.requests.is_some() {
        // All requests were due, so the run ends even if the server responds to none of the waiting ones.
        let timeouts = &run.scenario.timeouts;
        run.set_end(NEVER, lane.now().saturating_add(nanoseconds(timeouts.request + timeouts.grace)));
    }
    lane.drained.set(true);
    lane.wake_all();
    if lane.slots() == 0 {
        lane.empty.notify_one();
    }
}

/// Returns the length of the traffic of an open model; `None` if it is unlimited, or a number of requests ends it.
pub(crate) fn length(scenario: &Scenario) -> Option<Duration> {
    stages(scenario).1.filter(|_| scenario.stop.requests.is_none())
}

/// Enforces timeouts and reports progress of a thread.
struct Monitor {
    lane: Rc<Lane>,
    thread: usize,
    cpu_at_begin: Option<Duration>,
}

impl Monitor {
    /// Runs until the end; returns the CPU time of the counted part.
    async fn until_over(mut self) -> Duration {
        let mut end_announced = false;
        loop {
            let lane = self.lane.clone();
            let now = lane.now();
            self.note_begin(now);
            lane.expire(now);
            if now >= lane.run.end() && !end_announced {
                end_announced = true;
                lane.ended.notify_one();
                lane.wake_all();
            }
            if now >= lane.run.cut() {
                lane.cut.set(true);
                lane.wake_all();
            }
            self.publish();
            let all_begun = lane.run.is_closed() || lane.drained.get() || lane.cut.get();
            if lane.slots() == 0 && all_begun {
                break;
            }
            tokio::select! {
                () = lane.empty.notified() => {}
                () = tokio::time::sleep_until(self.next_tick(now).into()) => {}
            }
        }
        self.publish();
        self.cpu_at_begin.map_or(Duration::ZERO, |begin| cpu().saturating_sub(begin))
    }

    fn note_begin(&mut self, now: Moment) {
        let began = self.lane.run.began();
        if began <= now && self.cpu_at_begin.is_none() {
            self.cpu_at_begin = Some(cpu());
            let warmed_up = !self.lane.run.scenario.warm_up.is_zero();
            self.lane.recorder.borrow_mut().begin(began, warmed_up);
            self.lane.wake_all();
        }
    }

    fn next_tick(&self, now: Moment) -> std::time::Instant {
        let run = &self.lane.run;
        let timeouts = &run.scenario.timeouts;
        let finest = timeouts.connect.min(timeouts.request) / 10;
        let tick = match run.began() {
            NEVER => EARLY_TICK,
            _ => TICK.min(finest).max(EARLY_TICK),
        };
        let next = [run.began(), run.end(), run.cut()].into_iter().filter(|moment| *moment > now).min();
        run.clock.instant((now + nanoseconds(tick)).min(next.unwrap_or(NEVER)))
    }

    fn publish(&self) {
        let mut recorder = self.lane.recorder.borrow_mut();
        let Some(published) = self.lane.run.published.get(self.thread) else { return };
        let Ok(mut published) = published.lock() else { return };
        published.sent = recorder.sent;
        published.ok = recorder.ok;
        published.errors = recorder.failures;
        published.in_flight = recorder.in_flight;
        recorder.sample(&mut published.spread);
    }
}

/// Returns the CPU time of this thread, including kernel time.
pub(crate) fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
