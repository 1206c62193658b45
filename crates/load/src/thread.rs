//! A thread of the load generator: starts its users, keeps the pace, looks whose time is up, and ends in time.

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
use crate::h2::{self, Link};
use crate::lane::Lane;
use crate::plan::{Protocol, Traffic};
use crate::recorder::Recorder;
use crate::shared::Shared;
use crate::timer::Timer;
use crate::user::user;

/// What is due sooner waits this long, so that high rates do not cost a timer for each request.
const FINEST_WAIT: Duration = Duration::from_micros(50);
const LOOK: Duration = Duration::from_millis(100);
/// Before the counted part begins, which must not begin late.
const EARLY_LOOK: Duration = Duration::from_millis(1);

/// What a thread leaves behind.
#[derive(Debug)]
pub(crate) struct Left {
    pub recorder: Recorder,
    /// Of the counted part.
    pub cpu: Duration,
}

/// Runs a thread's share of the run, until it is over.
///
/// # Errors
/// The system refuses an event loop.
pub(crate) fn run(shared: Arc<Shared>, thread: usize) -> io::Result<Left> {
    let threads = shared.published.len();
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async move {
        let lane = Rc::new(Lane::new(shared));
        let starter = Starter::new(&lane, share(connections(&lane.run.plan.traffic), thread, threads));
        let paced = match lane.run.is_closed() {
            true => {
                while starter.start() {
                    // Not all at once: a server's queue of new connections is short.
                    tokio::task::yield_now().await;
                }
                None
            }
            false => Some(spawn_local(pace(lane.clone(), thread, threads, starter))),
        };
        let cpu = Watch { lane: lane.clone(), thread, cpu_at_begin: None }.until_over().await;
        if let Some(paced) = paced {
            paced.abort();
        }
        let waiting = lane.queue.borrow().iter().filter(|job| job.counted).count();
        let mut recorder = lane.recorder.replace(Recorder::new(0));
        recorder.unsent(waiting as u64);
        Ok(Left { recorder, cpu })
    })
}

/// How many connections there may be.
pub(crate) fn connections(traffic: &Traffic) -> usize {
    match traffic {
        Traffic::Closed { users, .. } => *users,
        Traffic::Open { connections, .. } | Traffic::Replay { connections, .. } => *connections,
    }
}

/// One thread's share of a number.
fn share(all: usize, thread: usize, threads: usize) -> usize {
    all / threads + usize::from(thread < all % threads)
}

/// Starts users (over HTTP/2: streams), as many as there may be.
struct Starter {
    lane: Rc<Lane>,
    started: Cell<usize>,
    most: usize,
    /// Over HTTP/2: so many share a connection, the latest of which is this.
    streams: Option<usize>,
    link: RefCell<Rc<Link>>,
}

impl Starter {
    fn new(lane: &Rc<Lane>, connections: usize) -> Starter {
        let streams = match lane.run.plan.transport.protocol {
            Protocol::Http2 { streams } => Some(streams.max(1)),
            Protocol::Http1 { .. } => None,
        };
        Starter {
            lane: lane.clone(),
            started: Cell::new(0),
            most: connections.saturating_mul(streams.unwrap_or(1)),
            streams,
            link: RefCell::default(),
        }
    }

    /// Whether there was one more to be started.
    fn start(&self) -> bool {
        let started = self.started.get();
        if started >= self.most {
            return false;
        }
        self.started.set(started + 1);
        match self.streams {
            None => spawn_local(user(self.lane.clone())),
            Some(streams) => {
                if started.is_multiple_of(streams) {
                    *self.link.borrow_mut() = Rc::default();
                }
                spawn_local(h2::stream(self.lane.clone(), self.link.borrow().clone()))
            }
        };
        true
    }
}

/// Hands over what is due when it is due.
async fn pace(lane: Rc<Lane>, thread: usize, threads: usize, starter: Starter) {
    let run = &lane.run;
    let mut arrivals = Arrivals::new(&run.plan, thread, threads);
    let timer = match Timer::new() {
        Ok(timer) => timer,
        Err(error) => {
            lane.recorder.borrow_mut().text(&format!("no timer: {error}"), 1);
            lane.drained.set(true);
            return;
        }
    };
    while run.began() == NEVER && !lane.cut.get() {
        tokio::time::sleep(EARLY_LOOK).await;
    }
    while let Some(job) = arrivals.next(run, run.began()) {
        if job.due >= run.end() {
            break;
        }
        let now = lane.now();
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
        if !lane.hand_over(job) {
            starter.start();
        }
    }
    if run.plan.stop.requests.is_some() {
        // All were due, so this ends too, even when the server answers none of those that wait.
        let timeouts = &run.plan.timeouts;
        run.set_end(NEVER, lane.now().saturating_add(nanoseconds(timeouts.request + timeouts.grace)));
    }
    lane.drained.set(true);
    lane.wake_all();
    if lane.slots() == 0 {
        lane.deserted.notify_one();
    }
}

/// Looks after the users of a thread.
struct Watch {
    lane: Rc<Lane>,
    thread: usize,
    cpu_at_begin: Option<Duration>,
}

impl Watch {
    /// Says how much CPU time the counted part took.
    async fn until_over(mut self) -> Duration {
        let mut told_end = false;
        loop {
            let lane = self.lane.clone();
            let now = lane.now();
            self.note_begin(now);
            lane.sweep(now);
            if now >= lane.run.end() && !told_end {
                told_end = true;
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
                () = lane.deserted.notified() => {}
                () = tokio::time::sleep_until(self.next_look(now).into()) => {}
            }
        }
        self.publish();
        self.cpu_at_begin.map_or(Duration::ZERO, |begin| cpu().saturating_sub(begin))
    }

    fn note_begin(&mut self, now: Moment) {
        let began = self.lane.run.began();
        if began <= now && self.cpu_at_begin.is_none() {
            self.cpu_at_begin = Some(cpu());
            let warmed_up = !self.lane.run.plan.warm_up.is_zero();
            self.lane.recorder.borrow_mut().begin(began, warmed_up);
            self.lane.wake_all();
        }
    }

    fn next_look(&self, now: Moment) -> std::time::Instant {
        let run = &self.lane.run;
        let timeouts = &run.plan.timeouts;
        let finest = timeouts.connect.min(timeouts.request) / 10;
        let look = match run.began() {
            NEVER => EARLY_LOOK,
            _ => LOOK.min(finest).max(EARLY_LOOK),
        };
        let next = [run.began(), run.end(), run.cut()].into_iter().filter(|moment| *moment > now).min();
        run.clock.instant((now + nanoseconds(look)).min(next.unwrap_or(NEVER)))
    }

    fn publish(&self) {
        let mut recorder = self.lane.recorder.borrow_mut();
        let Some(published) = self.lane.run.published.get(self.thread) else { return };
        let Ok(mut published) = published.lock() else { return };
        published.sent = recorder.sent;
        published.ok = recorder.ok;
        published.errors = recorder.wrong;
        published.in_flight = recorder.in_flight;
        recorder.look(&mut published.spread);
    }
}

/// CPU time of this thread, the kernel's part included.
fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}
