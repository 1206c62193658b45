//! The queue and the seats of one pool.
//!
//! Contract:
//! 1. Clients take turns, and the requests of a client leave the queue in order of arrival ([`FairQueue`]). A request
//!    that is put back keeps its number and so its position among those of its client.
//! 2. A request goes to the worker with the most free seats, because the threads of one process share a GVL.
//!    Among equals, it goes to the worker with the fewest open tunnels (WebSockets and other connections that
//!    the app has taken over). A worker is passed over while a [`PassReason`] holds. A worker that computes comes
//!    after all other workers with free seats.
//! 3. A request is handed to a worker in advance only when no seat is free anywhere, and only while requests
//!    are fast ([`Pace`]). Such prefetching creates batches, and batches make small requests cheap.
//! 4. A worker on trial gets its share of the requests and no more, as long as another worker is open.
//! 5. A seat is given back exactly once, through [`Dispatch::finished`], [`Dispatch::put_back`] or
//!    [`Dispatch::worker_gone`].
//! 6. A new request is refused at once if, at the queue's current rate ([`Throughput`]), it would wait longer
//!    than allowed for the requests ahead of it; but never while fewer requests wait than there are seats. A
//!    request that has already waited is never refused for this reason.
//! 7. While requests are held back ([`Dispatch::hold_back`]), none gets a seat, and the queue grows; the time that they wait counts. No
//!    rate is measured meanwhile, because the seats are free.
//! 8. While the requests at a worker are limited ([`Dispatch::limit_seats`]), a worker holds no more than that,
//!    also in advance. Requests that it has beyond a new limit finish.
//! 9. A full queue refuses a new request of the client with the most waiting requests. A new request of
//!    another client replaces the newest request of that client.

use crate::availability::PassReason;
use crate::class::{ClassFigures, ClassShare};
use crate::client::QueueKey;
use crate::line::{FairQueue, Waiter};
use crate::links::NONE;
use crate::load::{Load, Refusals};
use crate::pace::Pace;
use crate::tally::Tally;
use crate::throughput::Throughput;
use crate::ticket::{Admission, Assignment, PoolIndex, Serial, TakenBack, Ticket, Turn};
use crate::trial::Trial;
use crate::worker::Worker;
use std::time::{Duration, Instant};

/// How long requests may be on their way to the queue.
const SOON: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Dispatch {
    pool: PoolIndex,
    workers: Vec<Worker>,
    queue: FairQueue,
    next: u64,
    max_queue: usize,
    pace: Pace,
    /// Whether requests are handed over in advance.
    prefetches: bool,
    /// Requests are not handed over in advance while a request waits that arrived before this time; see
    /// [`Dispatch::serve_in_order`].
    in_order: Option<Instant>,
    held_back: bool,
    trial: Option<Trial>,
    /// The longest predicted wait that is accepted; `None` while predictions are off.
    longest_wait: Option<Duration>,
    throughput: Throughput,
    refusals: Refusals,
    load: Load,
    /// The most requests that a worker may hold; `None`: as its threads allow.
    limit: Option<u32>,
    /// The time within which responses are to begin.
    objective: Option<Duration>,
}

/// Requests: from their arrival to the end.
impl Dispatch {
    /// Creates an empty queue with room for `max_queue` waiting requests.
    pub fn new(max_queue: usize) -> Dispatch {
        Dispatch {
            pool: PoolIndex::DEFAULT,
            workers: Vec::new(),
            queue: FairQueue::default(),
            next: 0,
            max_queue,
            pace: Pace::default(),
            prefetches: true,
            in_order: None,
            held_back: false,
            trial: None,
            longest_wait: None,
            throughput: Throughput::default(),
            refusals: Refusals::default(),
            load: Load::default(),
            limit: None,
            objective: None,
        }
    }

    /// Turns prefetching off: for workers with fibers, where each request that a worker holds needs its own
    /// fiber, and for workers that cannot return requests.
    pub fn without_prefetching(self) -> Dispatch {
        Dispatch { prefetches: false, ..self }
    }

    pub(crate) fn of_pool(self, pool: PoolIndex) -> Dispatch {
        let queue = self.queue.of_pool(pool);
        Dispatch { pool, queue, ..self }
    }

    /// Takes a free seat for a new request of front thread `thread`. Returns `None` if no seat is free, or if
    /// requests wait, which come first.
    #[inline]
    pub fn take(&mut self, thread: u16, now: Instant) -> Option<(Ticket, Serial)> {
        // If requests are queued, any free seat is already promised to one of them.
        let serial = if self.waiting() == 0 && !self.held_back { self.free_seat(now)? } else { return None };
        self.load.waits.none();
        Some((self.ticket(thread, NONE), serial))
    }

    /// Asks for a seat for a new request, which front thread `thread` keeps in its `slot`. If the request has
    /// to wait, it uses a turn of the client `key`.
    pub fn ask(&mut self, thread: u16, slot: u32, key: QueueKey, now: Instant) -> (Ticket, Admission) {
        if let Some((ticket, serial)) = self.take(thread, now) {
            return (ticket.in_slot(slot), Admission::Go(serial));
        }
        let ticket = self.ticket(thread, slot);
        if let Some(wait) = self.too_long(key, now) {
            self.refusals.early += 1;
            self.queue.refused(key);
            return (ticket, Admission::Late(wait));
        }
        let admission = self.room(key);
        if admission == Admission::Full {
            return (ticket, admission);
        }
        let ticket = self.queue.push(ticket, now, key);
        self.measure(now);
        (ticket, admission)
    }

    fn ticket(&mut self, thread: u16, slot: u32) -> Ticket {
        let number = self.next;
        self.next += 1;
        Ticket { number, thread, slot, pool: self.pool, place: NONE }
    }

    /// Returns the predicted wait of a new request if it is too long.
    fn too_long(&mut self, key: QueueKey, now: Instant) -> Option<Duration> {
        let waiting = self.waiting();
        let limit = self.longest_wait.filter(|_| waiting > 0 && waiting >= self.seats() as usize)?;
        // All that wait are the most that can be before it, and mostly they are few enough.
        self.throughput.wait(waiting, now).filter(|most| *most > limit)?;
        self.throughput.wait(self.queue.ahead(key), now).filter(|wait| *wait > limit)
    }

    /// Makes room for another request in the queue. Returns how it is admitted.
    fn room(&mut self, key: QueueKey) -> Admission {
        if self.waiting() < self.max_queue {
            return Admission::Wait;
        }
        self.refusals.full += 1;
        match self.queue.displace(key) {
            Some(ticket) => Admission::Displaces(ticket),
            None => {
                self.queue.refused(key);
                Admission::Full
            }
        }
    }

    /// Like [`Dispatch::ask`], for a request that already has a ticket and has waited since `since`.
    pub fn ask_again(
        &mut self,
        ticket: Ticket,
        key: QueueKey,
        since: Instant,
        now: Instant,
    ) -> (Ticket, Admission) {
        let seat = if self.waiting() == 0 && !self.held_back { self.free_seat(now) } else { None };
        if let Some(serial) = seat {
            self.load.waits.none();
            return (ticket, Admission::Go(serial));
        }
        let admission = self.room(key);
        if admission == Admission::Full {
            return (ticket, admission);
        }
        let ticket = self.queue.put_back(ticket, since, key);
        self.measure(now);
        (ticket, admission)
    }

    /// Stops handing over requests in advance until all requests that ask now or soon have a seat: a worker
    /// may start requests from several front threads in another order.
    pub fn serve_in_order(&mut self, now: Instant) {
        self.in_order = Some(now + SOON);
    }

    /// Sets whether requests are held back: all that ask wait, and those that wait get no seat. After the end,
    /// [`Dispatch::resume`] gives them seats.
    #[inline]
    pub fn hold_back(&mut self, held_back: bool) {
        self.held_back = held_back;
    }

    /// Gives free seats to waiting requests, which are appended to `assigned`. Changes nothing while requests are held back, or unless
    /// they were.
    pub fn resume(&mut self, now: Instant, assigned: &mut Vec<Assignment>) {
        self.assign(now, assigned);
    }

    /// Cancels a waiting request. Returns false if it was not waiting, because it had been assigned.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        self.queue.cancel(ticket)
    }

    /// Removes the requests that have waited since `limit` or longer.
    pub fn expire(&mut self, limit: Instant) -> Vec<Ticket> {
        let expired = self.queue.expire(limit);
        self.refusals.expired += expired.len() as u64;
        expired
    }

    /// Frees a seat: a worker has finished a request that took `app` in the app, or the request never reached
    /// it (`None`). `turn` is the turn that the request used; `None` if it had not waited. Queued requests
    /// that get a seat are appended to `assigned`.
    #[inline]
    pub fn finished(
        &mut self,
        serial: Serial,
        turn: Option<Turn>,
        app: Option<Duration>,
        now: Instant,
        assigned: &mut Vec<Assignment>,
    ) {
        if let Some(app) = app {
            self.pace.note(app, now);
            if self.objective.is_some() {
                self.load.responses.ended(app);
            }
            if self.throughput.is_measuring() {
                self.throughput.done(now);
            }
        }
        if let Some(worker) = self.worker(serial) {
            worker.finished(app, now);
        }
        if let Some(turn) = turn {
            self.queue.give_back(turn, serial, app);
        }
        self.assign(now, assigned);
    }

    /// Takes requests back from a worker. Those that are still wanted return to their positions in the queue,
    /// even if the queue is full.
    pub fn put_back(
        &mut self,
        serial: Serial,
        taken_back: &[TakenBack],
        now: Instant,
        assigned: &mut Vec<Assignment>,
    ) {
        if let Some(worker) = self.worker(serial) {
            worker.free_up(taken_back.len() as u32);
        }
        for one in taken_back {
            if let Some(turn) = one.turn {
                self.queue.give_back(turn, serial, None);
            }
            if let Some((ticket, since, key)) = one.again {
                self.queue.put_back(ticket, since, key);
            }
        }
        self.assign(now, assigned);
    }

    fn assign(&mut self, now: Instant, assigned: &mut Vec<Assignment>) {
        while self.waiting() > 0 && !self.held_back {
            let Some(serial) = self.free_seat(now) else { break };
            if let Some((ticket, wait, turn)) = self.queue.pop(serial, now) {
                self.load.waits.record(wait);
                assigned.push(Assignment { ticket, serial, turn });
            }
        }
        self.measure(now);
    }

    /// Takes a seat of the worker with the most free seats. If no seat is free, takes one in advance from the
    /// least loaded worker.
    #[inline]
    fn free_seat(&mut self, now: Instant) -> Option<Serial> {
        let Some(trial) = &self.trial else { return self.seat_of(|_| true, now) };
        let (on_trial, due) = (trial.serial, trial.is_due());
        let others = |w: &Worker| w.serial != on_trial;
        let alone = !self.workers.iter().any(|w| others(w) && w.is_open());
        let first = if due || alone { self.seat_of(|w| !others(w), now) } else { None };
        let serial = first.or_else(|| self.seat_of(others, now))?;
        self.trial.iter_mut().for_each(|trial| trial.went_to(serial));
        Some(serial)
    }

    #[inline]
    fn seat_of(&mut self, may: impl Fn(&Worker) -> bool, now: Instant) -> Option<Serial> {
        let in_order = self.in_order.is_some_and(|until| self.is_in_order(until, now));
        let prefetches = self.prefetches && !in_order;
        let open = self.workers.iter_mut().filter(|w| w.availability.gets_requests() && may(w));
        // The first among equals wins: an idle worker that stays idle keeps sharing its memory with the
        // template.
        let best = open.min_by_key(|w| w.rank())?;
        best.take(prefetches.then_some(&self.pace), now).then_some(best.serial)
    }

    /// Returns whether order is more important than batches.
    #[cold]
    fn is_in_order(&mut self, until: Instant, now: Instant) -> bool {
        let lasts = now < until || self.queue.oldest().is_some_and(|since| since < until);
        if !lasts {
            self.in_order = None;
        }
        lasts
    }
}

/// Workers: from READY to the end.
impl Dispatch {
    /// Adds a worker that gets `share` of 1,000 requests, until [`Dispatch::worker_up`] makes it equal to the
    /// others.
    pub fn worker_on_trial(
        &mut self,
        serial: Serial,
        seats: u32,
        share: u32,
        now: Instant,
        assigned: &mut Vec<Assignment>,
    ) {
        self.trial = Some(Trial::new(serial, share));
        self.add(serial, seats, now);
        self.assign(now, assigned);
    }

    fn add(&mut self, serial: Serial, seats: u32, now: Instant) {
        let mut worker = Worker::new(serial, seats, now);
        worker.limit(self.limit);
        self.workers.push(worker);
    }

    /// Limits the requests that a worker may hold at a time, if `limit` is less than it can serve. Queued
    /// requests that get a seat are appended to `assigned`.
    pub fn limit_seats(&mut self, limit: Option<u32>, now: Instant, assigned: &mut Vec<Assignment>) {
        self.limit = limit;
        self.workers.iter_mut().for_each(|worker| worker.limit(limit));
        self.assign(now, assigned);
    }

    /// Changes the share of the worker on trial, in thousandths; does nothing if it is not on trial.
    pub fn set_trial_share(&mut self, serial: Serial, share: u32) {
        if let Some(trial) = self.trial.as_mut().filter(|trial| trial.serial == serial) {
            trial.set_share(share);
        }
    }

    /// Adds a worker, or ends its trial: it takes requests from now on.
    pub fn worker_up(&mut self, serial: Serial, seats: u32, now: Instant, assigned: &mut Vec<Assignment>) {
        if self.trial.take_if(|trial| trial.serial == serial).is_none() {
            self.add(serial, seats, now);
        }
        self.assign(now, assigned);
    }

    /// Passes a worker over for a reason, until [`Dispatch::restore`]. The worker finishes the requests that it
    /// has.
    pub fn pass_over(&mut self, serial: Serial, reason: PassReason) {
        if let Some(worker) = self.worker(serial) {
            worker.availability.add(reason);
        }
    }

    /// Sends requests to a worker again, unless it must be passed over for another reason.
    pub fn restore(
        &mut self,
        serial: Serial,
        reason: PassReason,
        now: Instant,
        assigned: &mut Vec<Assignment>,
    ) {
        if let Some(worker) = self.worker(serial) {
            worker.availability.remove(reason);
        }
        self.assign(now, assigned);
    }

    /// Passes a worker over as [`PassReason::Resting`] if the pool does not need it: it holds no request, no
    /// request waits, and the others together have at least as many free seats. Returns whether it rests.
    pub fn rest(&mut self, serial: Serial) -> bool {
        let on_trial = self.trial.as_ref().map(|trial| trial.serial);
        let stands_in =
            |w: &&Worker| w.serial != serial && w.availability.gets_requests() && Some(w.serial) != on_trial;
        let free: u32 = self.workers.iter().filter(stands_in).map(Worker::free).sum();
        let calm = self.waiting() == 0;
        let Some(worker) = self.worker(serial) else { return false };
        let may = calm && worker.taken == 0 && worker.availability.gets_requests() && free >= worker.seats;
        if may {
            worker.availability.add(PassReason::Resting);
        }
        may
    }

    /// Removes a worker with all its seats.
    pub fn worker_gone(&mut self, serial: Serial) {
        self.workers.retain(|worker| worker.serial != serial);
        self.queue.worker_gone(serial);
        self.trial.take_if(|trial| trial.serial == serial);
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

    fn worker(&mut self, serial: Serial) -> Option<&mut Worker> {
        self.workers.iter_mut().find(|worker| worker.serial == serial)
    }
}

/// Figures.
impl Dispatch {
    /// Refuses new requests whose predicted wait is longer than `longest_wait`. `None` turns predictions off
    /// and discards the measured rate, because workers boot or run new code.
    pub fn predict(&mut self, longest_wait: Option<Duration>, now: Instant) {
        if longest_wait.is_none() {
            self.throughput.forget();
        }
        self.longest_wait = longest_wait;
        self.measure(now);
    }

    /// Returns whether new requests are refused if their predicted wait is too long.
    pub fn is_predicting(&self) -> bool {
        self.longest_wait.is_some()
    }

    /// Updates the measurement of the throughput. Costs nothing while no request waits.
    #[inline]
    fn measure(&mut self, now: Instant) {
        let waits = self.waiting() > 0 && !self.held_back;
        if self.longest_wait.is_some() && (waits || self.throughput.is_measuring()) {
            let seats = self.seats();
            self.throughput.set(waits, seats, now);
        }
    }

    /// Sets the time within which responses are to begin. Without one, response times are not counted.
    pub fn set_objective(&mut self, objective: Option<Duration>) {
        self.objective = objective;
    }

    /// Counts responses that began after these times, if there is an objective.
    pub fn responded(&mut self, times: impl IntoIterator<Item = Duration>) {
        if let Some(objective) = self.objective {
            times.into_iter().for_each(|time| self.load.responses.began(time, objective));
        }
    }

    /// Counts a request that got a seat after its time in the queue was over, so that it did not begin.
    pub fn expired_late(&mut self) {
        self.refusals.expired += 1;
    }

    /// Adds `count` requests whose waits for the GVL were measured: microseconds in the app, and microseconds
    /// of waiting.
    pub fn measured(&mut self, count: u32, app_us: u64, gvl_us: u64) {
        self.load.measured += count;
        self.load.app_us += app_us;
        self.load.gvl_us += gvl_us;
    }

    /// Counts `count` responses of a worker with a status of 500 or more.
    pub fn failed(&mut self, serial: Serial, count: u64) {
        if let Some(worker) = self.worker(serial) {
            worker.tally.failures += count;
        }
    }

    /// Returns the load since the last call.
    pub fn take_load(&mut self) -> Load {
        std::mem::take(&mut self.load)
    }

    pub fn refusals(&self) -> Refusals {
        self.refusals
    }

    /// Returns the number of requests, failures and the time in the app of each worker so far.
    pub fn tallies(&self) -> impl Iterator<Item = (Serial, Tally)> + '_ {
        self.workers.iter().map(|worker| (worker.serial, worker.tally))
    }

    /// Returns the number of seats of the workers that take requests.
    pub fn seats(&self) -> u32 {
        let takes = |w: &&Worker| w.is_open() && !w.availability.has(PassReason::Suspended);
        self.workers.iter().filter(takes).map(|w| w.seats).sum()
    }

    /// Returns the number of seats whose request is being served.
    pub fn busy(&self) -> u32 {
        self.workers.iter().map(|worker| worker.taken.min(worker.seats)).sum()
    }

    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }

    /// Sets the classes of requests; the first is the default one. See [`ClassIndex`](crate::ClassIndex).
    pub fn set_classes(&mut self, shares: &[ClassShare]) {
        self.queue.set_classes(shares);
    }

    /// Returns each class with its figures.
    pub fn classes(&self) -> impl Iterator<Item = (&ClassShare, ClassFigures)> + '_ {
        self.queue.classes()
    }

    /// Returns the number of clients with waiting requests.
    pub fn clients(&self) -> usize {
        self.queue.clients()
    }

    /// Returns the number of waiting requests of a client with about the most: at least half of any other's.
    pub fn most_of_client(&self) -> u32 {
        self.queue.most_of_client()
    }

    /// Returns the `limit` clients with the most waiting requests, in descending order. Visits all clients.
    pub fn waiters(&self, limit: usize) -> Vec<Waiter> {
        self.queue.waiters(limit)
    }

    /// Returns the number of requests that may wait.
    pub fn max(&self) -> usize {
        self.max_queue
    }

    /// Returns the largest number of requests that have ever waited at the same time.
    pub fn longest(&self) -> usize {
        self.queue.longest()
    }

    /// Returns the time since which the first request of the queue has waited.
    pub fn oldest(&self) -> Option<Instant> {
        self.queue.oldest()
    }

    /// Returns the number of requests that wait or that a worker holds.
    pub fn in_progress(&self) -> usize {
        self.waiting() + self.workers.iter().map(|worker| worker.taken as usize).sum::<usize>()
    }

    /// Returns whether no worker holds a request.
    pub fn is_idle(&self) -> bool {
        self.workers.iter().all(|worker| worker.taken == 0)
    }

    /// Returns the number of workers that take new requests.
    pub fn open_workers(&self) -> usize {
        self.workers.iter().filter(|worker| worker.is_open()).count()
    }

    /// Returns whether a worker takes new requests, now or after its current ones; false when it is leaving
    /// or gone.
    pub fn is_open(&self, serial: Serial) -> bool {
        self.known(serial).is_some_and(Worker::is_open)
    }

    /// Returns whether a worker has returned requests and has not resumed.
    pub fn is_stalled(&self, serial: Serial) -> bool {
        self.known(serial).is_some_and(|worker| worker.availability.has(PassReason::Stalled))
    }

    /// Returns the number of connections that a worker's app has taken over.
    pub fn tunnels(&self, serial: Serial) -> u32 {
        self.known(serial).map_or(0, |worker| worker.tunnels)
    }

    /// Returns the number of requests that a worker holds.
    pub fn taken(&self, serial: Serial) -> u32 {
        self.known(serial).map_or(0, |worker| worker.taken)
    }

    fn known(&self, serial: Serial) -> Option<&Worker> {
        self.workers.iter().find(|worker| worker.serial == serial)
    }
}

#[cfg(test)]
mod tests;
