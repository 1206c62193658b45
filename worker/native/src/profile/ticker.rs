//! The native thread that counts ticks while a profile is taken. It needs no GVL.

use super::{counts_cpu, wake_ruby};
use crate::raw::os::{self, Work};
use crate::raw::sampling::{self, Activity, Observed};
use crate::scoreboard::Scoreboard;
use crate::seat::Seat;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::profile::{Order, SampledState};

pub(super) static TICKER: Ticker = Ticker::new();

/// The time after which the records are sent, even if there are no samples, in microseconds.
const SEND_US: u64 = 1_000_000;
/// The longest time that one tick counts, in microseconds: more has passed only if the machine stood still.
const LONGEST_US: u64 = 1_000_000;

pub(super) struct Ticker {
    seats: Mutex<Vec<&'static Seat>>,
    state: Mutex<State>,
    changed: Condvar,
    ticks: AtomicU64,
    late: AtomicU64,
    /// A panic has ended the thread's first round.
    broken: AtomicBool,
}

struct State {
    job: Option<(Scoreboard, Order)>,
    running: bool,
}

/// The ticker's view of a seat.
struct View {
    seat: &'static Seat,
    observed: Observed,
    used_us: u64,
}

impl Ticker {
    const fn new() -> Ticker {
        Ticker {
            seats: Mutex::new(Vec::new()),
            state: Mutex::new(State { job: None, running: false }),
            changed: Condvar::new(),
            ticks: AtomicU64::new(0),
            late: AtomicU64::new(0),
            broken: AtomicBool::new(false),
        }
    }

    fn seats(&self) -> MutexGuard<'_, Vec<&'static Seat>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn adds(&self, seat: &'static Seat) {
        let mut seats = self.seats();
        seats.retain(|one| !ptr::eq(*one, seat));
        seats.push(seat);
    }

    pub(super) fn removes(&self, seat: &'static Seat) {
        self.seats().retain(|one| !ptr::eq(*one, seat));
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// As pthread_create(3).
    pub(super) fn start(&'static self, board: Scoreboard, order: Order) -> io::Result<()> {
        self.ticks.store(0, Relaxed);
        self.late.store(0, Relaxed);
        self.broken.store(false, Relaxed);
        *self.state() = State { job: Some((board, order)), running: true };
        os::native_thread(self).inspect_err(|_| self.state().running = false)
    }

    /// Ends the thread, and returns when it uses nothing any more.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.job = None;
        self.changed.notify_all();
        while state.running {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Records that this process does not have the thread.
    pub(super) fn lost(&self) {
        if let Ok(mut state) = self.state.try_lock() {
            *state = State { job: None, running: false };
        }
    }

    /// Returns the number of ticks, and of those that came too late.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.ticks.load(Relaxed), self.late.load(Relaxed))
    }

    /// Waits until `until_us`. Returns whether the thread goes on.
    fn sleep(&self, until_us: u64) -> bool {
        let mut state = self.state();
        loop {
            let now_us = os::now_us();
            if state.job.is_none() {
                return false;
            }
            if now_us >= until_us {
                return true;
            }
            let time = Duration::from_micros(until_us - now_us);
            state = self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn tick_on(&self, board: Scoreboard, order: Order) {
        let every_us = 1_000_000 / u64::from(order.hz.max(1));
        let (mut views, mut asked) = (Vec::<View>::new(), false);
        let mut last_us = os::now_us();
        let (mut next_us, mut sent_us) = (last_us + every_us, last_us);
        while self.sleep(next_us) {
            let now_us = os::now_us();
            let passed_us = now_us.saturating_sub(last_us).min(LONGEST_US);
            last_us = now_us;
            self.ticks.fetch_add(1, Relaxed);
            self.late.fetch_add(now_us.saturating_sub(next_us) / every_us, Relaxed);
            next_us = (next_us + every_us).max(now_us + every_us / 2);
            self.keep_up(&mut views);
            let mut waits = asked && views.iter().any(|view| view.seat.is_due());
            asked = false;
            let mut computes = false;
            for view in &mut views {
                let serving = board.serving(view.seat.index());
                let counted = view.look(serving, passed_us, counts_cpu(order));
                asked |= counted.is_some();
                if counted == Some(SampledState::Runs) || counted == Some(SampledState::Collects) {
                    computes = true;
                    sampling::ask_of(view.observed.thread);
                }
            }
            if asked {
                sampling::ask();
            }
            // Without a thread that computes the GVL is free, so the Ruby thread gets it at once. Otherwise it is woken only if nothing has come
            // of the last tick.
            waits |= (asked || board.served_by_fibers() > 0) && !computes;
            if waits || now_us.saturating_sub(sent_us) >= SEND_US {
                sent_us = now_us;
                wake_ruby();
            }
        }
    }

    /// Observes the threads that there are now.
    fn keep_up(&self, views: &mut Vec<View>) {
        let seats = self.seats();
        let is_same = views.len() == seats.len()
            && views.iter().zip(seats.iter()).all(|(view, seat)| ptr::eq(view.seat, *seat));
        if !is_same {
            views.clear();
            views.extend(seats.iter().filter_map(|seat| {
                let observed = seat.observe()?;
                let used_us = observed.used_us();
                Some(View { seat, observed, used_us })
            }));
        }
    }
}

impl View {
    /// Counts a tick of `passed_us` for the thread, if it serves a request. Returns what was seen.
    fn look(&mut self, serving: (u64, u64), passed_us: u64, cpu: bool) -> Option<SampledState> {
        let used_us = self.observed.used_us();
        let computed_us = used_us.saturating_sub(self.used_us).min(LONGEST_US);
        self.used_us = used_us;
        if serving.0 == 0 {
            self.seat.forget();
            return None;
        }
        let us = if cpu { computed_us } else { passed_us };
        if us == 0 {
            return None;
        }
        let seen = match self.observed.activity() {
            _ if self.seat.collects.load(Relaxed) => SampledState::Collects,
            _ if cpu => SampledState::Runs,
            _ if self.seat.waits_for_gvl() => SampledState::WaitsForGvl,
            Some(Activity::Runs) => SampledState::Runs,
            Some(Activity::WaitsForThread(address)) => self.seat.waits_at(address),
            Some(Activity::Sleeps) => SampledState::Sleeps,
            Some(Activity::Waits) => SampledState::Waits,
            None if computed_us * 2 > passed_us => SampledState::Runs,
            None => SampledState::WaitsForThread,
        };
        self.seat.count(serving, seen, us as u32);
        Some(seen)
    }
}

impl Work for Ticker {
    fn run(&self) {
        let job = self.state().job;
        if let Some((board, order)) = job.filter(|_| !self.broken.swap(true, Relaxed)) {
            self.tick_on(board, order);
        }
        self.state().running = false;
        self.changed.notify_all();
    }
}
