//! The deadlines of requests: finds requests that have held a worker for too long or have asked for more
//! time, and the source lines of slow ones.

use super::*;
use crate::process::WorkerSignal;
use crate::progress::{Decision, Observation};
use tokio::sync::oneshot;
use wire::scoreboard::{Busy, Slot};
use wire::traces::Trace;

/// A fiber that computes for longer than this delays new requests of its thread.
const HELD: Duration = Duration::from_millis(50);
/// The age of a request at which its worker logs backtraces, again at twice that age, and so on. If the
/// worker dies, the last backtrace is in the log.
const SLOW: Duration = Duration::from_secs(1);

/// The requests of a worker that need attention.
#[derive(Default)]
pub(super) struct Requests {
    /// Descriptions of the requests that were stuck.
    stuck: Vec<String>,
    /// Fibers that still run requests that were given up: their number by front thread, and the time of that
    /// report.
    kept: BTreeMap<u16, (usize, Instant)>,
    /// Requests that have asked for more time: (link, id) and the deadline, in microseconds of the monotonic
    /// clock.
    extended: BTreeMap<(u32, u32), u64>,
}

impl Requests {
    pub(super) fn stuck(&self) -> &[String] {
        &self.stuck
    }

    pub(super) fn kept(&mut self, thread: u16, count: usize, now: Instant) {
        self.kept.insert(thread, (count, now));
    }

    pub(super) fn extended(&mut self, link: u16, id: u32, until_us: u64) {
        self.extended.insert((link.into(), id), until_us);
    }

    /// Returns the number of fibers that still run requests that were given up. Reports older than a few
    /// ticks are ignored.
    fn kept_now(&self, now: Instant) -> usize {
        let recent = |told: Instant| now.saturating_duration_since(told) < BUSY_TICK * 3;
        self.kept.values().filter(|(_, told)| recent(*told)).map(|(count, _)| count).sum()
    }

    /// Returns the requests that have held the worker for `timeout` and have not been given more time.
    fn overdue<'a>(&mut self, slot: &'a Slot, timeout: Duration, now_us: u64) -> Vec<&'a Busy> {
        let key = |busy: &Busy| (busy.serving.link, busy.serving.id);
        self.extended.retain(|request, _| slot.busy.iter().any(|busy| key(busy) == *request));
        let limit = now_us.saturating_sub(timeout.as_micros() as u64);
        let is_extended = |busy: &Busy| self.extended.get(&key(busy)).is_some_and(|until| now_us < *until);
        slot.busy.iter().filter(|busy| busy.since_us < limit && !is_extended(busy)).collect()
    }
}

/// The backtraces of a worker's threads.
pub(super) struct Traces {
    /// Callers that wait for them.
    callers: Vec<oneshot::Sender<Vec<Trace>>>,
    last: Vec<Trace>,
    /// The age at which the oldest request triggers the next request for backtraces.
    next: Duration,
}

impl Default for Traces {
    fn default() -> Traces {
        Traces { callers: Vec::new(), last: Vec::new(), next: SLOW }
    }
}

impl Traces {
    pub(super) fn last(&self) -> &[Trace] {
        &self.last
    }

    /// Adds a caller. Callers that have timed out are dropped.
    fn wait(&mut self, caller: oneshot::Sender<Vec<Trace>>) {
        self.callers.retain(|caller| !caller.is_closed());
        self.callers.push(caller);
    }

    pub(super) fn arrived(&mut self, traces: Vec<Trace>) {
        for caller in self.callers.drain(..) {
            // The receiver may have timed out.
            let _ = caller.send(traces.clone());
        }
        self.last = traces;
    }

    /// Ends the wait of all callers, because the worker has gone.
    pub(super) fn close(&mut self) {
        self.callers.clear();
    }

    /// Returns whether a backtrace is due when the oldest request has this age: at intervals that double.
    fn is_due(&mut self, age: Duration) -> bool {
        if age < SLOW {
            self.next = SLOW;
        }
        let due = age >= self.next;
        if due {
            self.next = age * 2;
        }
        due
    }
}

impl Supervisor {
    /// Requests a worker's backtraces, which arrive as a frame.
    pub(super) fn trace(&mut self, serial: Serial, reply: oneshot::Sender<Vec<Trace>>) {
        let Some(worker) = self.workers.get_mut(&serial) else { return };
        worker.traces.wait(reply);
        self.ask_traces(serial);
    }

    pub(super) fn ask_traces(&self, serial: Serial) {
        let pid = self.reconciler.rows().find(|row| row.serial == serial).map(|row| row.pid);
        if let Some(pid) = pid {
            self.signal(serial, self.reconciler.signal_by(serial), pid, WorkerSignal::Traces);
        }
    }

    pub(super) fn stuck(&mut self, serial: Serial, request: String) {
        if let Some(worker) = self.workers.get_mut(&serial) {
            worker.requests.stuck.push(request);
        }
        self.see(Change::Health(serial, Health::Stuck));
        self.ask_traces(serial);
        // Requests that the worker has not started go back to the queue now, not when the worker is killed.
        self.shared.to_all(|| ThreadMessage::Withdraw(serial));
    }

    pub(super) fn check_worker(&mut self, row: &Row, now: Instant) {
        let slot = self.shared.scoreboard().slot(row.index as usize);
        self.check_progress(row, &slot, now);
        self.trace_slow(row, &slot);
        let (seats, timeout) = (self.shared.seats(row.pool), self.options.worker_timeout(row.pool));
        let Some(timeout) = timeout else { return };
        if seats.has_fibers() {
            // The scoreboard does not show which fibers are waiting.
            self.shared.to_all(|| ThreadMessage::OverdueSince { serial: row.serial, timeout });
        }
        let Some(worker) = self.workers.get_mut(&row.serial) else { return };
        let overdue = worker.requests.overdue(&slot, timeout, os::monotonic_us());
        for busy in &overdue {
            // The number of a link is that of its front thread.
            let thread = busy.serving.link as usize;
            if thread < self.shared.threads() {
                let message = ThreadMessage::Overdue { serial: row.serial, id: busy.serving.id };
                self.shared.mailbox(thread as u16).post(message);
            }
        }
        let serves = seats.serving(&slot) as usize;
        // Most fibers are waiting, which the scoreboard does not show; the front threads report them.
        let on_threads = if seats.has_fibers() { 0 } else { overdue.len() };
        let held = worker.requests.kept_now(now) + on_threads;
        if !worker.requests.stuck.is_empty() && (held >= serves || os::is_stopped(row.pid)) {
            self.see(Change::Health(row.serial, Health::OthersFinished));
        }
    }

    /// With fibers: finds workers that are computing on all of their threads. They get new requests only when
    /// all others are full.
    pub(super) fn look_for_held(&self) {
        let limit_us = os::monotonic_us().saturating_sub(HELD.as_micros() as u64);
        let (now, mut assigned) = (Instant::now(), Vec::new());
        for row in self.reconciler.rows().filter(|row| row.state == WorkerState::Ready) {
            let seats = self.shared.seats(row.pool);
            if !seats.has_fibers() {
                continue;
            }
            let slot = self.shared.scoreboard().slot(row.index as usize);
            let mut queue = self.shared.dispatch(row.pool);
            match seats.computes(&slot, limit_us) {
                true => queue.pass_over(row.serial, PassReason::Computing),
                false => queue.restore(row.serial, PassReason::Computing, now, &mut assigned),
            }
        }
        self.shared.deliver(&assigned);
    }

    fn trace_slow(&mut self, row: &Row, slot: &Slot) {
        let Some(worker) = self.workers.get_mut(&row.serial) else { return };
        let oldest = slot.busy.iter().map(|busy| busy.since_us).min();
        let age = oldest.map_or(0, |since| os::monotonic_us().saturating_sub(since));
        if worker.traces.is_due(Duration::from_micros(age)) {
            self.ask_traces(row.serial);
        }
    }

    fn check_progress(&mut self, row: &Row, slot: &Slot, now: Instant) {
        let (serial, pid) = (row.serial, row.pid);
        let Some(worker) = self.workers.get_mut(&serial) else { return };
        let pool = worker.pool;
        let queue = self.shared.dispatch(pool);
        let (handed, stalled) = (queue.taken(serial), queue.is_stalled(serial));
        drop(queue);
        let seen = Observation {
            handed,
            stalled,
            busy: self.shared.seats(pool).serving(slot) as u32,
            threads: worker.seats,
            work: slot.taken.iter().sum::<u64>().wrapping_add(slot.requests),
        };
        let (threads, timeout) = (self.options.front_threads(), self.options.worker_timeout(pool));
        let health = match worker.progress.observe(seen, now, threads, timeout, || os::is_stopped(pid)) {
            Decision::None => return,
            Decision::Suspend { idle_thread } => {
                self.shared.dispatch(pool).pass_over(serial, PassReason::Suspended);
                self.shared.to_all(|| ThreadMessage::Withdraw(serial));
                Health::Suspended { idle_thread }
            }
            Decision::Resume => {
                self.shared.restore(pool, serial, PassReason::Suspended, now);
                Health::Resumed
            }
            Decision::Freeze => Health::Frozen,
        };
        self.see(Change::Health(serial, health));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::scoreboard::Serving;

    const SECOND: Duration = Duration::from_secs(1);

    fn slot(ages: &[u64], now_us: u64) -> Slot {
        let busy = |(id, age): (u32, &u64)| Busy {
            thread: id,
            since_us: now_us - age * 1_000_000,
            serving: Serving { link: 0, id },
        };
        Slot { busy: (0..).zip(ages).map(busy).collect(), ..Slot::default() }
    }

    #[test]
    fn a_request_that_was_given_time_is_overdue_when_that_is_over() {
        let (mut requests, now_us) = (Requests::default(), 100_000_000);
        let slot = slot(&[5, 1, 3], now_us);
        let overdue = |requests: &mut Requests, at: u64| {
            requests.overdue(&slot, 2 * SECOND, at).iter().map(|busy| busy.serving.id).collect::<Vec<_>>()
        };
        assert_eq!(overdue(&mut requests, now_us), [0, 2]);
        requests.extended(0, 2, now_us + 1);
        requests.extended(0, 9, now_us + 1);
        assert_eq!(overdue(&mut requests, now_us), [0]);
        assert_eq!(requests.extended.len(), 1, "one has ended");
        assert_eq!(overdue(&mut requests, now_us + 1), [0, 2]);
    }

    #[test]
    fn reports_of_given_up_requests_count_while_they_are_new() {
        let (mut requests, now) = (Requests::default(), Instant::now());
        requests.kept(0, 2, now);
        requests.kept(1, 1, now + BUSY_TICK);
        assert_eq!(requests.kept_now(now + BUSY_TICK), 3);
        assert_eq!(requests.kept_now(now + BUSY_TICK * 3), 1);
    }

    #[test]
    fn backtraces_are_due_at_ages_that_double() {
        let mut traces = Traces::default();
        let due: Vec<u32> = (0..10).filter(|age| traces.is_due(*age * SECOND)).collect();
        assert_eq!(due, [1, 2, 4, 8]);
        assert!(!traces.is_due(SECOND / 2) && traces.is_due(SECOND), "another request");
    }
}
