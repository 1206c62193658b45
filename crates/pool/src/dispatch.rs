//! Decides which worker serves which request: holds one queue for all front threads, and the seats of all
//! workers. Pure: no clock, no I/O.
//!
//! Contract:
//! 1. Requests leave the queue in order of arrival. A request that is put back keeps its number and so its
//!    position.
//! 2. A request goes to the worker with the most free threads, because the threads of one process share a
//!    GVL. Among equals, it goes to the worker with the fewest open tunnels (WebSockets and other connections
//!    that the app has taken over). A worker whose threads have been computing for a while, with fibers
//!    waiting behind them, comes after all other workers with free threads.
//! 3. A request is handed to a worker in advance only when no thread is free anywhere, and only while
//!    requests are fast ([`Pace`]). Such prefetching creates batches, and batches make small requests cheap.
//! 4. A worker on trial gets its share of the requests and no more, as long as another worker is open.
//! 5. A seat is given back exactly once, through [`Dispatch::finished`] or [`Dispatch::worker_gone`].
//! 6. Each [`SeatKind`] has its own dispatch with its own queue and seats. The same rules hold for both, and
//!    no request changes from one to the other.
//! 7. A new request is refused at once if, at the queue's current rate ([`Throughput`]), it would wait longer
//!    than allowed; but never while fewer requests wait than there are seats. A request that has already
//!    waited is never refused.

use crate::throughput::Throughput;
use crate::verdict::Tally;
use crate::waits::Waits;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The number of a worker process; never reused.
pub type Serial = u32;

/// The kind of seat that serves a request. Without `fiber_paths` all seats are of the first kind, whether
/// threads or fibers serve.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum SeatKind {
    /// Serves all paths, or all but those of `fiber_paths`.
    #[default]
    Thread,
    /// A fiber for the paths of `fiber_paths`, beside threads that serve the others.
    Fiber,
}

impl SeatKind {
    pub const ALL: [SeatKind; 2] = [SeatKind::Thread, SeatKind::Fiber];
}

/// A request's position in the queue, and the front thread that holds the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// Grows with every request.
    pub number: u64,
    pub thread: u16,
    /// The index under which the front thread keeps the request.
    pub slot: u32,
    /// The queue that the request belongs to.
    pub kind: SeatKind,
}

/// A queued request. A cancelled request leaves its entry, without the ticket, until the entry reaches the
/// head of the queue.
#[derive(Debug)]
struct Entry {
    number: u64,
    since: Instant,
    ticket: Option<Ticket>,
}

/// Gives a seat to a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    pub ticket: Ticket,
    pub serial: Serial,
}

/// The result of asking for a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// The request can be sent to this worker now.
    Go(Serial),
    /// The request waits. An [`Assignment`] follows, unless the request expires.
    Wait,
    /// `max_queue` requests are waiting already.
    Full,
    /// The predicted wait, which is longer than allowed.
    Late(Duration),
}

/// The number of requests that got no seat, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refusals {
    /// `max_queue` requests were waiting.
    pub full: u64,
    /// The predicted wait was too long.
    pub early: u64,
    /// The request waited for too long.
    pub expired: u64,
}

/// The load since the last call of [`Dispatch::take_load`].
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// The waits of the requests that got a seat.
    pub waits: Waits,
    /// The time in the app of the requests whose waits for the GVL were measured, in microseconds.
    pub app_us: u64,
    /// The time that those requests waited for the GVL, in microseconds.
    pub gvl_us: u64,
    /// The number of those requests.
    pub measured: u32,
}

impl Load {
    /// Adds the load of another dispatch over the same time.
    pub fn add(&mut self, other: &Load) {
        self.waits.add(&other.waits);
        self.app_us += other.app_us;
        self.gvl_us += other.gvl_us;
        self.measured += other.measured;
    }
}

#[derive(Debug)]
struct Seats {
    serial: Serial,
    threads: u32,
    taken: u32,
    /// Whether the worker takes new requests.
    open: bool,
    /// Set while the worker makes no progress; it gets no new requests.
    suspended: bool,
    /// Set while the worker collects garbage; it gets no new requests.
    resting: bool,
    /// Set while the worker's threads compute. With fibers, a new request would wait for them, so other
    /// workers are preferred.
    held: bool,
    /// Connections that the worker's app has taken over. They hold no seat.
    tunnels: u32,
    /// Links over which the worker has returned requests and has not resumed.
    stalled: u32,
    /// The time of the last completed request, or of the request that ended an idle period.
    progress: Instant,
    tally: Tally,
}

#[derive(Debug)]
struct Trial {
    serial: Serial,
    /// In thousandths of all requests.
    share: u64,
    /// Requests since the trial began: all of them, and those that the worker on trial got.
    all: u64,
    given: u64,
}

impl Trial {
    /// Returns whether the next request goes to the worker on trial.
    fn is_due(&self) -> bool {
        self.given * 1000 < self.share * (self.all + 1)
    }
}

#[derive(Debug)]
pub struct Dispatch {
    kind: SeatKind,
    workers: Vec<Seats>,
    /// In order of the numbers.
    queue: VecDeque<Entry>,
    /// The number of queue entries that still have their ticket.
    waiting: usize,
    next: u64,
    max_queue: usize,
    longest: usize,
    pace: Pace,
    /// Whether requests are handed over in advance. Fibers need no prefetching: each request that a worker
    /// should hold has its own fiber.
    prefetches: bool,
    trial: Option<Trial>,
    /// The longest predicted wait that is accepted; `None` while predictions are off.
    longest_wait: Option<Duration>,
    throughput: Throughput,
    refusals: Refusals,
    load: Load,
}

impl Dispatch {
    /// Creates an empty queue with room for `max_queue` waiting requests.
    pub fn new(max_queue: usize) -> Dispatch {
        Dispatch {
            kind: SeatKind::Thread,
            workers: Vec::new(),
            queue: VecDeque::new(),
            waiting: 0,
            next: 0,
            max_queue,
            longest: 0,
            pace: Pace::default(),
            prefetches: true,
            trial: None,
            longest_wait: None,
            throughput: Throughput::default(),
            refusals: Refusals::default(),
            load: Load::default(),
        }
    }

    /// Turns prefetching off: for workers that serve with fibers, and for spawned workers.
    pub fn without_prefetching(self) -> Dispatch {
        Dispatch { prefetches: false, ..self }
    }

    /// Creates the queue of the fibers that serve beside threads.
    pub fn of_fibers(max_queue: usize) -> Dispatch {
        Dispatch { kind: SeatKind::Fiber, ..Dispatch::new(max_queue).without_prefetching() }
    }

    /// Sets whether a worker's threads have been computing for a while.
    pub fn worker_held(&mut self, serial: Serial, held: bool) {
        if let Some(worker) = self.worker(serial) {
            worker.held = held;
        }
    }

    /// Refuses new requests whose predicted wait is longer than `longest_wait`. `None` turns predictions off
    /// and discards the measured rate, because workers boot or run new code.
    pub fn predict(&mut self, longest_wait: Option<Duration>, now: Instant) {
        if longest_wait.is_none() {
            self.throughput.forget();
        }
        self.longest_wait = longest_wait;
        self.measure(now);
    }

    /// Asks for a seat for a new request, which front thread `thread` keeps in its `slot`.
    #[inline]
    pub fn ask(&mut self, thread: u16, slot: u32, now: Instant) -> (Ticket, Admission) {
        let ticket = Ticket { number: self.next, thread, slot, kind: self.kind };
        self.next += 1;
        let admission = match self.too_long(now) {
            Some(wait) => {
                self.refusals.early += 1;
                Admission::Late(wait)
            }
            None => self.ask_again(ticket, now, now),
        };
        (ticket, admission)
    }

    /// Returns whether new requests are refused if their predicted wait is too long.
    pub fn is_predicting(&self) -> bool {
        self.longest_wait.is_some()
    }

    /// Returns the predicted wait of a new request if it is too long.
    fn too_long(&mut self, now: Instant) -> Option<Duration> {
        let limit =
            self.longest_wait.filter(|_| self.waiting > 0 && self.waiting >= self.seats() as usize)?;
        self.throughput.wait(self.waiting, now).filter(|wait| *wait > limit)
    }

    /// Like [`Dispatch::ask`], for a request that already has a ticket and has waited since `since`.
    pub fn ask_again(&mut self, ticket: Ticket, since: Instant, now: Instant) -> Admission {
        // While requests are queued, no seat is free, or it belongs to a queued request.
        let seat = if self.waiting == 0 { self.free_seat(now) } else { None };
        match seat {
            Some(serial) => {
                self.load.waits.none();
                Admission::Go(serial)
            }
            None if self.waiting >= self.max_queue => {
                self.refusals.full += 1;
                Admission::Full
            }
            None => {
                self.insert(ticket, since);
                self.longest = self.longest.max(self.waiting);
                self.measure(now);
                Admission::Wait
            }
        }
    }

    /// Returns the number of threads of the workers that take requests.
    pub fn seats(&self) -> u32 {
        self.workers.iter().filter(|w| w.open && !w.suspended).map(|w| w.threads).sum()
    }

    /// Returns the number of threads that are serving a request.
    pub fn busy(&self) -> u32 {
        self.workers.iter().map(|worker| worker.taken.min(worker.threads)).sum()
    }

    /// Updates the measurement of the throughput. Costs nothing while no request waits.
    #[inline]
    fn measure(&mut self, now: Instant) {
        if self.longest_wait.is_some() && (self.waiting > 0 || self.throughput.is_measuring()) {
            let seats = self.seats();
            self.throughput.set(self.waiting > 0, seats, now);
        }
    }

    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Returns the load since the last call.
    pub fn take_load(&mut self) -> Load {
        std::mem::take(&mut self.load)
    }

    /// Adds `count` requests whose waits for the GVL were measured: microseconds in the app, and microseconds
    /// of waiting.
    pub fn measured(&mut self, count: u32, app_us: u64, gvl_us: u64) {
        self.load.measured += count;
        self.load.app_us += app_us;
        self.load.gvl_us += gvl_us;
    }

    /// Frees a seat: a worker has finished a request that took `app` in the app, or the request never reached
    /// it (`None`). Queued requests that get a seat are appended to `assigned`.
    #[inline]
    pub fn finished(
        &mut self,
        serial: Serial,
        app: Option<Duration>,
        now: Instant,
        assigned: &mut Vec<Assignment>,
    ) {
        if let Some(app) = app {
            self.pace.note(app, now);
            if self.throughput.is_measuring() {
                self.throughput.done(now);
            }
        }
        if let Some(worker) = self.worker(serial) {
            worker.taken = worker.taken.saturating_sub(1);
            worker.progress = now;
            worker.tally.requests += 1;
            worker.tally.app_us += app.map_or(0, |app| app.as_micros() as u64);
        }
        self.assign(now, assigned);
    }

    /// Takes back the `seats` requests that a worker has returned over one link, because another request in
    /// it is slow; see [`Dispatch::put_back`]. The worker gets no requests until [`Dispatch::resumed`].
    pub fn returned(
        &mut self,
        serial: Serial,
        seats: u32,
        tickets: &[(Ticket, Instant)],
        now: Instant,
        assigned: &mut Vec<Assignment>,
    ) {
        if let Some(worker) = self.worker(serial) {
            worker.stalled += 1;
        }
        self.put_back(serial, seats, tickets, now, assigned);
    }

    /// Takes `seats` requests back from a worker. Those in `tickets`, each with the time since which it has
    /// waited, return to their positions in the queue, even if the queue is full.
    pub fn put_back(
        &mut self,
        serial: Serial,
        seats: u32,
        tickets: &[(Ticket, Instant)],
        now: Instant,
        assigned: &mut Vec<Assignment>,
    ) {
        if let Some(worker) = self.worker(serial) {
            worker.taken = worker.taken.saturating_sub(seats);
        }
        tickets.iter().for_each(|&(ticket, since)| self.insert(ticket, since));
        self.longest = self.longest.max(self.waiting);
        self.assign(now, assigned);
    }

    /// Sends new requests to a worker that had returned some over a link.
    pub fn resumed(&mut self, serial: Serial, now: Instant, assigned: &mut Vec<Assignment>) {
        if let Some(worker) = self.worker(serial) {
            worker.stalled = worker.stalled.saturating_sub(1);
        }
        self.assign(now, assigned);
    }

    /// Counts `count` responses of a worker with a status of 500 or more.
    pub fn failed(&mut self, serial: Serial, count: u64) {
        if let Some(worker) = self.worker(serial) {
            worker.tally.failures += count;
        }
    }

    /// Returns the number of requests, failures and the time in the app of each worker so far.
    pub fn tallies(&self) -> impl Iterator<Item = (Serial, Tally)> + '_ {
        self.workers.iter().map(|worker| (worker.serial, worker.tally))
    }

    /// Adds a worker that gets `share` of 1,000 requests, until [`Dispatch::worker_up`] makes it equal to the
    /// others.
    pub fn worker_on_trial(
        &mut self,
        serial: Serial,
        threads: u32,
        share: u32,
        now: Instant,
        assigned: &mut Vec<Assignment>,
    ) {
        self.trial = Some(Trial { serial, share: share.into(), all: 0, given: 0 });
        self.add(serial, threads, now);
        self.assign(now, assigned);
    }

    /// Adds a worker, or ends its trial: it takes requests from now on.
    pub fn worker_up(&mut self, serial: Serial, threads: u32, now: Instant, assigned: &mut Vec<Assignment>) {
        if self.trial.take_if(|trial| trial.serial == serial).is_none() {
            self.add(serial, threads, now);
        }
        self.assign(now, assigned);
    }

    fn add(&mut self, serial: Serial, threads: u32, now: Instant) {
        self.workers.push(Seats {
            serial,
            threads,
            taken: 0,
            open: true,
            suspended: false,
            resting: false,
            held: false,
            tunnels: 0,
            stalled: 0,
            progress: now,
            tally: Tally::default(),
        });
    }

    /// Stops sending requests to a worker. It finishes those that it has.
    pub fn worker_closed(&mut self, serial: Serial) {
        if let Some(worker) = self.worker(serial) {
            worker.open = false;
        }
    }

    /// Stops sending requests to a worker that makes no progress, until [`Dispatch::worker_resumed`].
    pub fn worker_suspended(&mut self, serial: Serial) {
        if let Some(worker) = self.worker(serial) {
            worker.suspended = true;
        }
    }

    /// Sends requests again to a suspended worker that makes progress.
    pub fn worker_resumed(&mut self, serial: Serial, now: Instant, assigned: &mut Vec<Assignment>) {
        if let Some(worker) = self.worker(serial) {
            worker.suspended = false;
        }
        self.assign(now, assigned);
    }

    /// Stops sending requests to a worker until [`Dispatch::rested`], if the others can do without it: it holds no
    /// request, no request waits, and the others together have at least as many free threads as it has.
    /// Returns whether it rests.
    pub fn rest(&mut self, serial: Serial) -> bool {
        let Some(at) = self.workers.iter().position(|worker| worker.serial == serial) else { return false };
        let threads = self.workers[at].threads;
        let takes = |w: &Seats| w.open && !w.suspended && !w.resting && w.stalled == 0;
        let free = |w: &Seats| w.threads.saturating_sub(w.taken);
        let on_trial = |w: &Seats| self.trial.as_ref().is_some_and(|trial| trial.serial == w.serial);
        let others = self.workers.iter().filter(|w| w.serial != serial && takes(w) && !on_trial(w));
        let may = self.waiting == 0
            && self.workers[at].taken == 0
            && takes(&self.workers[at])
            && others.map(free).sum::<u32>() >= threads;
        self.workers[at].resting |= may;
        may
    }

    /// Sends requests again to a worker that has rested.
    pub fn rested(&mut self, serial: Serial, now: Instant, assigned: &mut Vec<Assignment>) {
        if let Some(worker) = self.worker(serial) {
            worker.resting = false;
        }
        self.assign(now, assigned);
    }

    /// Counts a connection that the app of a worker has taken over.
    pub fn tunnel_opened(&mut self, serial: Serial) {
        if let Some(worker) = self.worker(serial) {
            worker.tunnels += 1;
        }
    }

    /// Counts the end of such a connection.
    pub fn tunnel_closed(&mut self, serial: Serial) {
        if let Some(worker) = self.worker(serial) {
            worker.tunnels = worker.tunnels.saturating_sub(1);
        }
    }

    /// Removes a worker with all its seats.
    pub fn worker_gone(&mut self, serial: Serial) {
        self.workers.retain(|worker| worker.serial != serial);
        self.trial.take_if(|trial| trial.serial == serial);
    }

    /// Cancels a waiting request. Returns false if it was not waiting, because it had been assigned.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        let found = self.queue.binary_search_by_key(&ticket.number, |entry| entry.number).ok();
        let waited = found.is_some_and(|at| self.queue[at].ticket.take().is_some());
        self.waiting -= usize::from(waited);
        waited
    }

    /// Removes the requests that have waited since `limit` or longer.
    pub fn expire(&mut self, limit: Instant) -> Vec<Ticket> {
        let mut expired = Vec::new();
        while self.queue.front().is_some_and(|first| first.ticket.is_none() || first.since <= limit) {
            expired.extend(self.queue.pop_front().and_then(|entry| entry.ticket));
        }
        self.waiting -= expired.len();
        self.refusals.expired += expired.len() as u64;
        expired
    }

    /// Adds a request to the queue, almost always at the end: only a request that is put back is older than
    /// the last one.
    fn insert(&mut self, ticket: Ticket, since: Instant) {
        let entry = Entry { number: ticket.number, since, ticket: Some(ticket) };
        self.waiting += 1;
        if self.queue.back().is_none_or(|last| last.number < ticket.number) {
            return self.queue.push_back(entry);
        }
        match self.queue.binary_search_by_key(&ticket.number, |entry| entry.number) {
            Ok(at) => self.queue[at] = entry,
            Err(at) => self.queue.insert(at, entry),
        }
    }

    fn pop(&mut self, now: Instant) -> Option<Ticket> {
        let first = std::iter::from_fn(|| self.queue.pop_front()).find(|entry| entry.ticket.is_some())?;
        self.waiting -= 1;
        self.load.waits.record(now.saturating_duration_since(first.since));
        first.ticket
    }

    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the largest number of requests that have ever waited at the same time.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the time since which the first request of the queue has waited.
    pub fn oldest(&self) -> Option<Instant> {
        self.queue.iter().find(|entry| entry.ticket.is_some()).map(|entry| entry.since)
    }

    /// Returns whether a worker takes new requests, now or when it has finished its own; false when it is
    /// leaving or gone.
    pub fn is_open(&self, serial: Serial) -> bool {
        self.workers.iter().any(|worker| worker.serial == serial && worker.open)
    }

    /// Returns whether a worker has returned requests and has not resumed.
    pub fn is_stalled(&self, serial: Serial) -> bool {
        self.workers.iter().any(|w| w.serial == serial && w.stalled > 0)
    }

    /// Returns the number of connections that a worker's app has taken over.
    pub fn tunnels(&self, serial: Serial) -> u32 {
        self.workers.iter().find(|w| w.serial == serial).map_or(0, |w| w.tunnels)
    }

    /// Returns the number of requests that a worker holds.
    pub fn taken(&self, serial: Serial) -> u32 {
        self.workers.iter().find(|w| w.serial == serial).map_or(0, |w| w.taken)
    }

    /// Returns the number of workers that take new requests.
    pub fn open_workers(&self) -> usize {
        self.workers.iter().filter(|worker| worker.open).count()
    }

    /// Returns the number of requests that wait or that a worker holds.
    pub fn in_progress(&self) -> usize {
        self.waiting + self.workers.iter().map(|worker| worker.taken as usize).sum::<usize>()
    }

    /// Returns whether no worker holds a request.
    pub fn is_idle(&self) -> bool {
        self.workers.iter().all(|worker| worker.taken == 0)
    }

    fn worker(&mut self, serial: Serial) -> Option<&mut Seats> {
        self.workers.iter_mut().find(|worker| worker.serial == serial)
    }

    fn assign(&mut self, now: Instant, assigned: &mut Vec<Assignment>) {
        while self.waiting > 0 {
            let Some(serial) = self.free_seat(now) else { break };
            assigned.extend(self.pop(now).map(|ticket| Assignment { ticket, serial }));
        }
        self.measure(now);
    }

    /// Takes a seat of the worker with the most free threads; if no thread is free, one in advance from the
    /// least loaded worker.
    #[inline]
    fn free_seat(&mut self, now: Instant) -> Option<Serial> {
        let serial = match &self.trial {
            None => self.seat_of(|_| true, now),
            Some(trial) => {
                let (on_trial, due) = (trial.serial, trial.is_due());
                let others = |w: &Seats| w.serial != on_trial;
                let alone = !self.workers.iter().any(|w| others(w) && w.open);
                let first = if due || alone { self.seat_of(|w| !others(w), now) } else { None };
                first.or_else(|| self.seat_of(others, now))
            }
        }?;
        if let Some(trial) = &mut self.trial {
            trial.all += 1;
            trial.given += u64::from(trial.serial == serial);
        }
        Some(serial)
    }

    #[inline]
    fn seat_of(&mut self, may: impl Fn(&Seats) -> bool, now: Instant) -> Option<Serial> {
        let open = self
            .workers
            .iter_mut()
            .filter(|w| w.open && !w.suspended && !w.resting && w.stalled == 0 && may(w));
        // The first among equals wins: an idle worker that stays idle keeps sharing its memory with the
        // template.
        let best = open.min_by_key(|w| {
            let over = i64::from(w.taken) - i64::from(w.threads);
            // A worker that computes comes after those with free seats and before those without.
            (over >= 0, w.held, over, w.tunnels, w.taken)
        })?;
        if best.taken >= best.threads && !self.prefetches {
            return None;
        }
        if best.taken >= best.threads {
            let silent = now.saturating_duration_since(best.progress) > SILENT;
            let depth = if silent { 1 } else { self.pace.depth(now) };
            if best.taken >= best.threads.saturating_mul(depth) {
                return None;
            }
        }
        if best.taken == 0 {
            best.progress = now;
        }
        best.taken += 1;
        Some(best.serial)
    }
}

/// The recent speed of requests, which decides how many requests a thread may get in advance.
///
/// Two measures are needed, because each alone is wrong in some case. The mean reflects the average cost of a
/// queue, but lets a rare slow request delay all requests behind it. The slowest recent request prevents
/// that, but alone it would mistake every garbage collection for a slow app and stop all batching.
#[derive(Debug, Default)]
struct Pace {
    mean_us: f64,
    slowest_us: f64,
    noted: Option<Instant>,
}

/// The largest number of requests per worker thread, including the one being served.
const DEEPEST: u32 = 16;
/// The longest acceptable mean wait behind other requests on one thread.
const BEHIND_US: f64 = 1_000.0;
/// Requests above this are slow by any measure. The collection of a small heap is faster.
const SLOW_US: f64 = 10_000.0;
/// A worker that has finished nothing for this long gets nothing in advance.
const SILENT: Duration = Duration::from_millis(20);
/// The half-life of the slowest recent request, in seconds.
const HALF_LIFE: f64 = 0.5;

impl Pace {
    #[inline]
    fn note(&mut self, app: Duration, now: Instant) {
        let us = app.as_secs_f64() * 1e6;
        self.mean_us = if self.noted.is_none() { us } else { self.mean_us + (us - self.mean_us) / 16.0 };
        if us >= SLOW_US || self.slowest_us > 0.0 {
            self.slowest_us = self.slowest(now).max(us);
        }
        self.noted = Some(now);
    }

    fn slowest(&self, now: Instant) -> f64 {
        let age = self.noted.map_or(0.0, |noted| now.saturating_duration_since(noted).as_secs_f64());
        self.slowest_us * (-age / HALF_LIFE).exp2()
    }

    #[inline]
    fn depth(&self, now: Instant) -> u32 {
        if self.noted.is_none() || (self.slowest_us > 0.0 && self.slowest(now) >= SLOW_US / 8.0) {
            return 1;
        }
        // The last request of the batch waits for all others.
        ((BEHIND_US / self.mean_us.max(1.0)).ceil() as u32).clamp(1, DEEPEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn up(dispatch: &mut Dispatch, serial: Serial, threads: u32, now: Instant) -> Vec<Assignment> {
        let mut assigned = Vec::new();
        dispatch.worker_up(serial, threads, now, &mut assigned);
        assigned
    }

    fn finish(dispatch: &mut Dispatch, serial: Serial, app_ms: u64, now: Instant) -> Vec<Assignment> {
        let mut assigned = Vec::new();
        dispatch.finished(serial, Some(Duration::from_millis(app_ms)), now, &mut assigned);
        assigned
    }

    #[test]
    fn a_worker_on_trial_gets_its_share_however_idle_the_others_are() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10);
        up(&mut dispatch, 1, 4, now);
        dispatch.worker_on_trial(2, 4, 100, now, &mut Vec::new());
        let mut given = 0;
        for _ in 0..200 {
            let Admission::Go(serial) = dispatch.ask(0, 0, now).1 else { panic!("there is a seat") };
            given += u32::from(serial == 2);
            finish(&mut dispatch, serial, 20, now);
        }
        assert_eq!(given, 20);
        dispatch.failed(2, 3);
        let tally = dispatch.tallies().find(|(serial, _)| *serial == 2).unwrap().1;
        assert_eq!(tally, Tally { requests: 20, failures: 3, app_us: 400_000 });
        up(&mut dispatch, 2, 4, now);
        assert_eq!(dispatch.tallies().count(), 2, "it is no third worker");
        dispatch.worker_closed(1);
        assert_eq!(dispatch.ask(0, 0, now).1, Admission::Go(2));
    }

    #[test]
    fn a_worker_that_computes_is_chosen_last_but_before_one_that_is_full() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10).without_prefetching();
        up(&mut dispatch, 1, 3, now);
        up(&mut dispatch, 2, 2, now);
        dispatch.worker_held(1, true);
        let asked: Vec<Admission> = (0..6).map(|slot| dispatch.ask(0, slot, now).1).collect();
        let go = Admission::Go;
        assert_eq!(asked, [go(2), go(2), go(1), go(1), go(1), Admission::Wait], "nothing in advance");
        assert_eq!(finish(&mut dispatch, 2, 1, now).len(), 1);
        dispatch.worker_held(1, false);
        finish(&mut dispatch, 1, 1, now);
        finish(&mut dispatch, 1, 1, now);
        assert_eq!(dispatch.ask(0, 9, now).1, go(1));
    }

    #[test]
    fn a_worker_on_trial_serves_alone_when_there_is_no_other() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10);
        dispatch.worker_on_trial(1, 2, 100, now, &mut Vec::new());
        assert_eq!([dispatch.ask(0, 0, now).1, dispatch.ask(0, 1, now).1], [Admission::Go(1); 2]);
        dispatch.worker_gone(1);
        up(&mut dispatch, 2, 1, now);
        assert_eq!(dispatch.ask(0, 2, now).1, Admission::Go(2));
    }

    #[test]
    fn a_worker_rests_only_while_nobody_misses_it() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10);
        up(&mut dispatch, 1, 2, now);
        assert!(!dispatch.rest(1), "it is alone");
        up(&mut dispatch, 2, 2, now);
        assert!(!dispatch.rest(3), "there is no such worker");
        assert_eq!(dispatch.ask(0, 0, now).1, Admission::Go(1));
        assert!(!dispatch.rest(1), "it has a request");
        assert!(!dispatch.rest(2), "the other has fewer free threads");
        finish(&mut dispatch, 1, 1, now);
        assert!(dispatch.rest(1));
        assert!(!dispatch.rest(2) && !dispatch.rest(1), "nobody else takes requests");
        let went: Vec<_> = (0..3).map(|_| dispatch.ask(0, 0, now).1).collect();
        assert_eq!(went, [Admission::Go(2), Admission::Go(2), Admission::Wait]);
        let mut assigned = Vec::new();
        dispatch.rested(1, now, &mut assigned);
        assert_eq!(assigned.iter().map(|one| one.serial).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_worker_that_leaves_or_is_suspended_stands_in_for_nobody() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10);
        (1..=3).for_each(|serial| drop(up(&mut dispatch, serial, 1, now)));
        dispatch.worker_suspended(2);
        assert!(!dispatch.rest(2));
        dispatch.worker_closed(3);
        assert!(!dispatch.rest(1) && !dispatch.rest(3));
        dispatch.worker_resumed(2, now, &mut Vec::new());
        assert!(dispatch.rest(1));
    }

    #[test]
    fn processes_come_before_threads() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10);
        up(&mut dispatch, 1, 2, now);
        up(&mut dispatch, 2, 2, now);
        let went: Vec<_> = (0..5).map(|_| dispatch.ask(0, 0, now).1).collect();
        assert_eq!(
            went,
            [Admission::Go(1), Admission::Go(2), Admission::Go(1), Admission::Go(2), Admission::Wait]
        );
    }

    #[test]
    fn slow_requests_are_never_given_in_advance() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10);
        up(&mut dispatch, 1, 1, now);
        assert_eq!(dispatch.ask(0, 0, now).1, Admission::Go(1));
        let (second, admission) = dispatch.ask(0, 0, now);
        assert_eq!(admission, Admission::Wait);
        assert_eq!(dispatch.ask(0, 0, now).1, Admission::Wait);
        assert_eq!(finish(&mut dispatch, 1, 20, now), [Assignment { ticket: second, serial: 1 }]);
        assert_eq!(dispatch.waiting(), 1);
    }

    #[test]
    fn fast_requests_are_batched_until_one_is_slow() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(1000);
        up(&mut dispatch, 1, 1, now);
        dispatch.ask(0, 0, now);
        finish(&mut dispatch, 1, 0, now);
        let given = (0..100).filter(|_| dispatch.ask(0, 0, now).1 == Admission::Go(1)).count();
        assert_eq!(given, DEEPEST as usize);
        finish(&mut dispatch, 1, 50, now);
        assert_eq!(dispatch.taken(1), DEEPEST - 1, "nothing in advance while a slow request is recent");
        let later = now + Duration::from_secs(5);
        for _ in 0..60 {
            finish(&mut dispatch, 1, 0, later);
        }
        assert!(dispatch.taken(1) > 1);
    }

    #[test]
    fn a_request_that_is_put_back_keeps_its_position() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10);
        up(&mut dispatch, 1, 1, now);
        let (first, _) = dispatch.ask(0, 0, now);
        let (second, _) = dispatch.ask(0, 0, now);
        dispatch.worker_gone(1);
        assert_eq!(dispatch.ask_again(first, now, now), Admission::Wait);
        assert_eq!(up(&mut dispatch, 2, 1, now), [Assignment { ticket: first, serial: 2 }]);
        assert_eq!(finish(&mut dispatch, 2, 20, now), [Assignment { ticket: second, serial: 2 }]);
    }

    #[test]
    fn returned_requests_go_to_other_workers_in_their_order() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(1);
        up(&mut dispatch, 1, 1, now);
        dispatch.ask(0, 0, now);
        finish(&mut dispatch, 1, 0, now);
        let [_slow, second, third]: [Ticket; 3] = std::array::from_fn(|_| dispatch.ask(0, 0, now).0);
        assert_eq!(dispatch.taken(1), 3);
        let mut assigned = Vec::new();
        dispatch.returned(1, 2, &[(third, now), (second, now)], now, &mut assigned);
        assert_eq!(
            (assigned.as_slice(), dispatch.taken(1), dispatch.waiting()),
            (&[][..], 1, 2),
            "over max_queue"
        );
        assert_eq!(
            up(&mut dispatch, 2, 1, now),
            [second, third].map(|ticket| Assignment { ticket, serial: 2 })
        );
        finish(&mut dispatch, 1, 0, now);
        let (fourth, admission) = dispatch.ask(0, 0, now + SILENT * 2);
        assert_eq!(admission, Admission::Wait, "1 has not resumed");
        dispatch.resumed(1, now + SILENT * 2, &mut assigned);
        assert_eq!(assigned, [Assignment { ticket: fourth, serial: 1 }]);
    }

    #[test]
    fn a_worker_that_finishes_nothing_gets_nothing_in_advance() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10);
        up(&mut dispatch, 1, 1, now);
        dispatch.ask(0, 0, now);
        finish(&mut dispatch, 1, 0, now);
        assert_eq!(dispatch.ask(0, 0, now).1, Admission::Go(1));
        assert_eq!(dispatch.ask(0, 0, now).1, Admission::Go(1));
        assert_eq!(dispatch.ask(0, 0, now + SILENT * 2).1, Admission::Wait);
    }

    #[test]
    fn the_queue_is_bounded_by_length_and_time() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(1);
        let (ticket, admission) = dispatch.ask(0, 0, now);
        assert_eq!((admission, dispatch.ask(0, 0, now).1), (Admission::Wait, Admission::Full));
        assert_eq!(dispatch.expire(now - Duration::from_millis(1)), []);
        assert_eq!(dispatch.expire(now), [ticket]);
        assert!(!dispatch.cancel(ticket));
    }

    #[test]
    fn a_cancelled_request_leaves_no_gap() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(2);
        let (first, _) = dispatch.ask(0, 0, now);
        let (second, _) = dispatch.ask(0, 0, now);
        assert!(dispatch.cancel(first) && !dispatch.cancel(first));
        assert_eq!((dispatch.waiting(), dispatch.oldest()), (1, Some(now)));
        assert_eq!(dispatch.ask(0, 0, now).1, Admission::Wait, "its entry no longer counts");
        assert_eq!(up(&mut dispatch, 1, 1, now), [Assignment { ticket: second, serial: 1 }]);
    }

    #[test]
    fn a_closed_worker_gets_nothing_more() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10);
        up(&mut dispatch, 1, 1, now);
        dispatch.worker_closed(1);
        assert_eq!(dispatch.ask(0, 0, now).1, Admission::Wait);
    }

    #[test]
    fn tunnels_spread_over_workers_that_are_equally_free() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10);
        (1..=4).for_each(|serial| drop(up(&mut dispatch, serial, 5, now)));
        let mut sockets = [0; 4];
        for _ in 0..200 {
            let Admission::Go(serial) = dispatch.ask(0, 0, now).1 else { panic!("a free seat") };
            dispatch.tunnel_opened(serial);
            sockets[serial as usize - 1] += 1;
            finish(&mut dispatch, serial, 1, now);
        }
        assert_eq!(sockets, [50; 4]);
        (0..50).for_each(|_| dispatch.tunnel_closed(3));
        assert_eq!(dispatch.ask(0, 0, now).1, Admission::Go(3));
        assert_eq!(dispatch.ask(0, 0, now).1, Admission::Go(1), "free threads count before tunnels");
    }

    #[test]
    fn a_suspended_worker_gets_nothing_until_it_is_resumed() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10);
        up(&mut dispatch, 1, 1, now);
        up(&mut dispatch, 2, 1, now);
        let (first, _) = dispatch.ask(0, 0, now);
        dispatch.worker_suspended(1);
        let mut assigned = Vec::new();
        dispatch.finished(1, None, now, &mut assigned);
        assert_eq!(dispatch.ask_again(first, now, now), Admission::Go(2));
        let (second, admission) = dispatch.ask(0, 0, now);
        assert_eq!(admission, Admission::Wait);
        dispatch.worker_resumed(1, now, &mut assigned);
        assert_eq!(assigned, [Assignment { ticket: second, serial: 1 }]);
    }

    #[test]
    fn threads_and_fibers_are_two_queues() {
        let now = Instant::now();
        let [mut threads, mut fibers] = [Dispatch::new(2), Dispatch::of_fibers(2)];
        up(&mut threads, 1, 1, now);
        up(&mut fibers, 1, 3, now);
        let asked = |dispatch: &mut Dispatch, count: u32| -> Vec<Admission> {
            (0..count).map(|slot| dispatch.ask(0, slot, now).1).collect()
        };
        use Admission::{Full, Go, Wait};
        assert_eq!(asked(&mut threads, 4), [Go(1), Wait, Wait, Full], "each queue has its own bound");
        assert_eq!(asked(&mut fibers, 6), [Go(1), Go(1), Go(1), Wait, Wait, Full]);
        let kinds = |assigned: &[Assignment]| -> Vec<SeatKind> {
            assigned.iter().map(|assignment| assignment.ticket.kind).collect()
        };
        assert_eq!(kinds(&finish(&mut fibers, 1, 0, now)), [SeatKind::Fiber]);
        assert_eq!((threads.waiting(), fibers.waiting()), (2, 1), "a free fiber is no seat for the others");
        assert_eq!(kinds(&finish(&mut threads, 1, 50, now)), [SeatKind::Thread]);
    }

    #[test]
    fn fibers_get_nothing_in_advance_however_fast_they_are() {
        let now = Instant::now();
        let mut fibers = Dispatch::of_fibers(100);
        up(&mut fibers, 1, 2, now);
        for _ in 0..50 {
            fibers.ask(0, 0, now);
            finish(&mut fibers, 1, 0, now);
        }
        let given = (0..20).filter(|_| fibers.ask(0, 0, now).1 == Admission::Go(1)).count();
        assert_eq!(given, 2);
    }

    /// Events of a worker, on both of its kinds of seats.
    #[derive(Debug, Clone)]
    enum Happens {
        Asks(bool),
        Finishes(bool),
        Suspended,
        Resumed,
        Gone,
    }

    fn happens() -> impl Strategy<Value = Happens> {
        prop_oneof![
            4 => any::<bool>().prop_map(Happens::Asks),
            3 => any::<bool>().prop_map(Happens::Finishes),
            1 => Just(Happens::Suspended),
            1 => Just(Happens::Resumed),
            1 => Just(Happens::Gone),
        ]
    }

    proptest! {
        /// Under any sequence of events, a request gets a seat of its own kind or none, no worker holds more
        /// requests of a kind than it has seats, and requests of a kind wait only while it has no free seat.
        #[test]
        fn no_request_gets_a_seat_of_the_other_kind(steps in proptest::collection::vec(happens(), 1..300)) {
            let now = Instant::now();
            let seats = [2, 5];
            let mut both = [Dispatch::new(1000), Dispatch::of_fibers(1000)];
            let mut serial = 1;
            let mut suspended = false;
            // Slow requests, so that threads get nothing in advance either.
            for (dispatch, seats) in both.iter_mut().zip(seats) {
                up(dispatch, serial, seats, now);
                dispatch.ask(0, 0, now);
                finish(dispatch, serial, 50, now);
            }
            for step in steps {
                let mut assigned = Vec::new();
                match step {
                    Happens::Asks(of_fiber) => {
                        let (ticket, _) = both[usize::from(of_fiber)].ask(0, 0, now);
                        prop_assert_eq!(ticket.kind == SeatKind::Fiber, of_fiber);
                    }
                    Happens::Finishes(of_fiber) if both[usize::from(of_fiber)].taken(serial) > 0 => {
                        assigned = finish(&mut both[usize::from(of_fiber)], serial, 50, now);
                        prop_assert!(assigned.iter().all(|one| (one.ticket.kind == SeatKind::Fiber) == of_fiber));
                    }
                    Happens::Finishes(_) => {}
                    Happens::Suspended => {
                        suspended = true;
                        both.iter_mut().for_each(|dispatch| dispatch.worker_suspended(serial));
                    }
                    Happens::Resumed => {
                        suspended = false;
                        both.iter_mut().for_each(|dispatch| dispatch.worker_resumed(serial, now, &mut assigned));
                    }
                    Happens::Gone => {
                        both.iter_mut().for_each(|dispatch| dispatch.worker_gone(serial));
                        (serial, suspended) = (serial + 1, false);
                        for (dispatch, seats) in both.iter_mut().zip(seats) {
                            assigned.extend(up(dispatch, serial, seats, now));
                        }
                    }
                }
                prop_assert!(assigned.iter().all(|one| one.serial == serial));
                for (dispatch, seats) in both.iter().zip(seats) {
                    prop_assert!(dispatch.taken(serial) <= seats);
                    prop_assert!(suspended || dispatch.waiting() == 0 || dispatch.taken(serial) == seats);
                }
            }
        }

        /// Queued requests are served in the order of their numbers, and no worker holds more than its limit.
        #[test]
        fn first_come_first_served(steps in proptest::collection::vec(0u8..4, 1..200), workers in 1u32..4) {
            let now = Instant::now();
            let mut dispatch = Dispatch::new(1000);
            for serial in 0..workers { up(&mut dispatch, serial, 2, now); }
            let mut last = None;
            for step in steps {
                if step == 0 {
                    let (ticket, admission) = dispatch.ask(0, 0, now);
                    if let Admission::Go(_) = admission {
                        prop_assert!(last < Some(ticket));
                        last = Some(ticket);
                    }
                } else {
                    let serial = u32::from(step) % workers;
                    if dispatch.taken(serial) > 0 {
                        for assignment in finish(&mut dispatch, serial, 20, now) {
                            prop_assert!(last < Some(assignment.ticket));
                            last = Some(assignment.ticket);
                        }
                    }
                }
                prop_assert!((0..workers).all(|serial| dispatch.taken(serial) <= 2));
            }
        }
    }
}
