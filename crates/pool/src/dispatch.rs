//! Who serves next: one queue for all front threads, and the seats of all workers. Pure: no clock, no I/O.
//!
//! Contract:
//! 1. Requests leave the queue in the order in which they came; a request that is given back keeps its number and so its place.
//! 2. A request goes to the worker with the most free threads: processes before threads, because threads of one process share a GVL.
//! 3. Only when no thread anywhere is free, and only while requests are fast, is a request handed to a worker in advance
//!    ([`Pace`]); such prefetching is what makes batches, and batches are what make small requests cheap.
//! 4. A seat that was taken is given back exactly once, through [`Dispatch::finished`] or [`Dispatch::worker_gone`].

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Number of a worker process, never used twice.
pub type Serial = u32;

/// A request's place in the line: its number, and who holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket {
    /// Grows with every request.
    pub number: u64,
    /// Index of the front thread.
    pub thread: u16,
    /// Where the thread keeps the request.
    pub slot: u32,
}

/// A request in the queue. One that was cancelled stays until it is at the head, without its ticket.
#[derive(Debug)]
struct Place {
    number: u64,
    since: Instant,
    ticket: Option<Ticket>,
}

/// A waiting request has got a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// Whose turn it is.
    pub ticket: Ticket,
    /// Where it goes.
    pub serial: Serial,
}

/// What became of a request that asked for a seat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Send it to this worker now.
    Go(Serial),
    /// It waits; an [`Assignment`] will follow, or it expires.
    Wait,
    /// `max_queue` requests are waiting already.
    Full,
}

#[derive(Debug)]
struct Seats {
    serial: Serial,
    threads: u32,
    taken: u32,
    open: bool,
}

/// The queue and the seats.
#[derive(Debug)]
pub struct Dispatch {
    workers: Vec<Seats>,
    /// In the order of the numbers.
    queue: VecDeque<Place>,
    /// Places in the queue that have their ticket.
    waiting: usize,
    next: u64,
    max_queue: usize,
    longest: usize,
    pace: Pace,
}

impl Dispatch {
    /// An empty queue that takes `max_queue` waiting requests.
    pub fn new(max_queue: usize) -> Dispatch {
        Dispatch {
            workers: Vec::new(),
            queue: VecDeque::new(),
            waiting: 0,
            next: 0,
            max_queue,
            longest: 0,
            pace: Pace::default(),
        }
    }

    /// A new request of front thread `thread`, kept in its `slot`, asks for a seat.
    #[inline]
    pub fn ask(&mut self, thread: u16, slot: u32, now: Instant) -> (Ticket, Asked) {
        let ticket = Ticket { number: self.next, thread, slot };
        self.next += 1;
        (ticket, self.ask_again(ticket, now, now))
    }

    /// As [`Dispatch::ask`] for a request that has a ticket already, waiting since `since`.
    pub fn ask_again(&mut self, ticket: Ticket, since: Instant, now: Instant) -> Asked {
        // With somebody waiting there is no free seat, or it belongs to them.
        let seat = if self.waiting == 0 { self.free_seat(now) } else { None };
        match seat {
            Some(serial) => Asked::Go(serial),
            None if self.waiting >= self.max_queue => Asked::Full,
            None => {
                self.insert(ticket, since);
                self.longest = self.longest.max(self.waiting);
                Asked::Wait
            }
        }
    }

    /// A worker finished a request that took `app` in the app, or never got it (`None`). The seats that this frees are
    /// assigned to `assigned`.
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
        }
        if let Some(worker) = self.worker(serial) {
            worker.taken = worker.taken.saturating_sub(1);
        }
        self.assign(now, assigned);
    }

    /// A worker takes requests from now on.
    pub fn worker_up(&mut self, serial: Serial, threads: u32, now: Instant, assigned: &mut Vec<Assignment>) {
        self.workers.push(Seats { serial, threads, taken: 0, open: true });
        self.assign(now, assigned);
    }

    /// A worker gets no more requests; what it has, it finishes.
    pub fn worker_closed(&mut self, serial: Serial) {
        if let Some(worker) = self.worker(serial) {
            worker.open = false;
        }
    }

    /// A worker is gone with all its seats.
    pub fn worker_gone(&mut self, serial: Serial) {
        self.workers.retain(|worker| worker.serial != serial);
    }

    /// A waiting request is no longer wanted. False when it was not waiting: it has been assigned.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        let place = self.queue.binary_search_by_key(&ticket.number, |place| place.number).ok();
        let waited = place.is_some_and(|at| self.queue[at].ticket.take().is_some());
        self.waiting -= usize::from(waited);
        waited
    }

    /// Takes out the requests that have waited since before `limit`.
    pub fn expire(&mut self, limit: Instant) -> Vec<Ticket> {
        let mut expired = Vec::new();
        while self.queue.front().is_some_and(|first| first.ticket.is_none() || first.since <= limit) {
            expired.extend(self.queue.pop_front().and_then(|place| place.ticket));
        }
        self.waiting -= expired.len();
        expired
    }

    /// Almost always at the end: only a request that is given back has a number that was passed.
    fn insert(&mut self, ticket: Ticket, since: Instant) {
        let place = Place { number: ticket.number, since, ticket: Some(ticket) };
        self.waiting += 1;
        if self.queue.back().is_none_or(|last| last.number < ticket.number) {
            return self.queue.push_back(place);
        }
        match self.queue.binary_search_by_key(&ticket.number, |place| place.number) {
            Ok(at) => self.queue[at] = place,
            Err(at) => self.queue.insert(at, place),
        }
    }

    fn pop(&mut self) -> Option<Ticket> {
        let ticket = std::iter::from_fn(|| self.queue.pop_front()).find_map(|place| place.ticket);
        self.waiting -= usize::from(ticket.is_some());
        ticket
    }

    /// Number of waiting requests.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Most requests that have ever been waiting at a time.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Since when the first in line has been waiting.
    pub fn oldest(&self) -> Option<Instant> {
        self.queue.iter().find(|place| place.ticket.is_some()).map(|place| place.since)
    }

    /// Requests that a worker holds at the moment.
    pub fn taken(&self, serial: Serial) -> u32 {
        self.workers.iter().find(|w| w.serial == serial).map_or(0, |w| w.taken)
    }

    fn worker(&mut self, serial: Serial) -> Option<&mut Seats> {
        self.workers.iter_mut().find(|worker| worker.serial == serial)
    }

    fn assign(&mut self, now: Instant, assigned: &mut Vec<Assignment>) {
        while self.waiting > 0 {
            let Some(serial) = self.free_seat(now) else { return };
            assigned.extend(self.pop().map(|ticket| Assignment { ticket, serial }));
        }
    }

    /// Takes a seat: of the worker with most free threads, else one in advance of the least loaded.
    #[inline]
    fn free_seat(&mut self, now: Instant) -> Option<Serial> {
        let open = self.workers.iter_mut().filter(|worker| worker.open);
        // Of equals the first: an idle worker that stays idle keeps its memory shared with the template.
        let best = open.min_by_key(|w| (i64::from(w.taken) - i64::from(w.threads), w.taken))?;
        if best.taken >= best.threads {
            let depth = self.pace.depth(now);
            if best.taken >= best.threads.saturating_mul(depth) {
                return None;
            }
        }
        best.taken += 1;
        Some(best.serial)
    }
}

/// How fast requests are, and so how many a thread may be given in advance.
///
/// Two measures, because each alone is wrong somewhere. The mean follows what a queue costs on average, but lets a rare
/// slow request hold up all that were put behind it. The slowest of late prevents that, but alone would take every
/// garbage collection for a slow app and end all batching.
#[derive(Debug, Default)]
struct Pace {
    mean_us: f64,
    slowest_us: f64,
    noted: Option<Instant>,
}

/// Requests that one thread may hold: itself busy with one, the others in advance.
const DEEPEST: u32 = 16;
/// Waiting behind others on one thread must cost less than this on average.
const BEHIND_US: f64 = 1_000.0;
/// A request slower than this is slow by any measure; a collection of a small heap is not.
const SLOW_US: f64 = 10_000.0;
/// The slowest is forgotten by half in this time.
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
        ((BEHIND_US / self.mean_us.max(1.0)) as u32).clamp(1, DEEPEST)
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
    fn processes_come_before_threads() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10);
        up(&mut dispatch, 1, 2, now);
        up(&mut dispatch, 2, 2, now);
        let went: Vec<_> = (0..5).map(|_| dispatch.ask(0, 0, now).1).collect();
        assert_eq!(went, [Asked::Go(1), Asked::Go(2), Asked::Go(1), Asked::Go(2), Asked::Wait]);
    }

    #[test]
    fn slow_requests_are_never_given_in_advance() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10);
        up(&mut dispatch, 1, 1, now);
        assert_eq!(dispatch.ask(0, 0, now).1, Asked::Go(1));
        let (second, asked) = dispatch.ask(0, 0, now);
        assert_eq!(asked, Asked::Wait);
        assert_eq!(dispatch.ask(0, 0, now).1, Asked::Wait);
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
        let given = (0..100).filter(|_| dispatch.ask(0, 0, now).1 == Asked::Go(1)).count();
        assert_eq!(given, DEEPEST as usize);
        finish(&mut dispatch, 1, 50, now);
        assert_eq!(dispatch.taken(1), DEEPEST - 1, "nothing new while a slow one is remembered");
        let later = now + Duration::from_secs(5);
        for _ in 0..60 {
            finish(&mut dispatch, 1, 0, later);
        }
        assert!(dispatch.taken(1) > 1);
    }

    #[test]
    fn a_request_that_is_given_back_keeps_its_place() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10);
        up(&mut dispatch, 1, 1, now);
        let (first, _) = dispatch.ask(0, 0, now);
        let (second, _) = dispatch.ask(0, 0, now);
        dispatch.worker_gone(1);
        assert_eq!(dispatch.ask_again(first, now, now), Asked::Wait);
        assert_eq!(up(&mut dispatch, 2, 1, now), [Assignment { ticket: first, serial: 2 }]);
        assert_eq!(finish(&mut dispatch, 2, 20, now), [Assignment { ticket: second, serial: 2 }]);
    }

    #[test]
    fn the_queue_is_bounded_by_length_and_time() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(1);
        let (ticket, asked) = dispatch.ask(0, 0, now);
        assert_eq!((asked, dispatch.ask(0, 0, now).1), (Asked::Wait, Asked::Full));
        assert_eq!(dispatch.expire(now - Duration::from_millis(1)), []);
        assert_eq!(dispatch.expire(now), [ticket]);
        assert!(!dispatch.cancel(ticket));
    }

    #[test]
    fn who_cancels_leaves_no_gap() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(2);
        let (first, _) = dispatch.ask(0, 0, now);
        let (second, _) = dispatch.ask(0, 0, now);
        assert!(dispatch.cancel(first) && !dispatch.cancel(first));
        assert_eq!((dispatch.waiting(), dispatch.oldest()), (1, Some(now)));
        assert_eq!(dispatch.ask(0, 0, now).1, Asked::Wait, "its place counts no more");
        assert_eq!(up(&mut dispatch, 1, 1, now), [Assignment { ticket: second, serial: 1 }]);
    }

    #[test]
    fn a_closed_worker_gets_nothing_more() {
        let now = Instant::now();
        let mut dispatch = Dispatch::new(10);
        up(&mut dispatch, 1, 1, now);
        dispatch.worker_closed(1);
        assert_eq!(dispatch.ask(0, 0, now).1, Asked::Wait);
    }

    proptest! {
        /// Whatever happens, those who wait are served in the order of their numbers and no worker holds more than its limit.
        #[test]
        fn first_come_first_served(steps in proptest::collection::vec(0u8..4, 1..200), workers in 1u32..4) {
            let now = Instant::now();
            let mut dispatch = Dispatch::new(1000);
            for serial in 0..workers { up(&mut dispatch, serial, 2, now); }
            let mut last = None;
            for step in steps {
                if step == 0 {
                    let (ticket, asked) = dispatch.ask(0, 0, now);
                    if let Asked::Go(_) = asked {
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
