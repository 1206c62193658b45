//! The server's health, for probes, the control server and the service manager: whether it responds and
//! accepts requests.
//!
//! Front threads are asked when health is read: a question is a number, and each thread stores the last
//! number that it has seen. Without questions no thread does anything, so an idle server stays idle.
//!
//! Contract:
//! 1. Reading takes no lock that a thread holds while it works. A probe gets an answer while all workers are busy.
//! 2. A thread that has not started has no questions to answer.
//! 3. A thread counts as silent only after [`PATIENCE`] without an answer, because it may lack CPU time for a while.

use stats::{Health, ServerState};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use workers::{Dispatch, PoolIndex, Shared};

/// How long a thread may take to answer before it counts as silent.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a probe waits for the answers.
const MOMENT: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Vitals {
    state: watch::Sender<ServerState>,
    /// The app's pool once it has booted; the inner `None` means that there is no app.
    pool: OnceLock<Option<Arc<Shared>>>,
    pulse: Pulse,
    /// See [`Health::withdrawn`].
    withdrawn: AtomicBool,
}

/// Questions to the front threads, and the last answer of each.
#[derive(Debug)]
struct Pulse {
    asked: watch::Sender<u64>,
    asked_at: Mutex<Instant>,
    answered: Vec<AtomicU64>,
    heard: Notify,
}

/// The value of a thread that has not started.
const NOT_STARTED: u64 = u64::MAX;

impl Vitals {
    /// Creates the state of a booting server with `threads` front threads.
    pub(crate) fn new(threads: usize) -> Arc<Vitals> {
        let answered = (0..threads).map(|_| AtomicU64::new(NOT_STARTED)).collect();
        let pulse = Pulse {
            asked: watch::Sender::new(0),
            asked_at: Mutex::new(Instant::now()),
            answered,
            heard: Notify::new(),
        };
        let state = watch::Sender::new(ServerState::Booting);
        Arc::new(Vitals { state, pool: OnceLock::new(), pulse, withdrawn: AtomicBool::new(false) })
    }

    /// Records that the app has booted, or that there is none.
    pub(crate) fn booted(&self, pool: Option<Arc<Shared>>) {
        // Only the first call has an effect.
        let _ = self.pool.set(pool);
    }

    /// Enters a later phase. A phase never goes back.
    pub(crate) fn enter(&self, state: ServerState) {
        self.state.send_if_modified(|now| {
            let later = state > *now;
            *now = state.max(*now);
            later
        });
    }

    /// Records whether the server should get no requests because of a maintenance.
    pub(crate) fn withdraw(&self, is: bool) {
        self.withdrawn.store(is, Ordering::Relaxed);
    }

    pub(crate) fn state(&self) -> ServerState {
        *self.state.borrow()
    }

    /// Returns the health without asking the threads.
    pub(crate) fn known(&self) -> Health {
        let pool = self.pool.get().and_then(Option::as_ref);
        // Without a worker of the default pool, most requests would wait.
        let workers = pool.map(|shared| {
            let own = shared.dispatch(PoolIndex::DEFAULT).open_workers();
            if own == 0 { 0 } else { shared.each(|dispatch: &mut Dispatch| dispatch.open_workers()).sum() }
        });
        let withdrawn = self.withdrawn.load(Ordering::Relaxed);
        Health { state: self.state(), workers, silent: self.pulse.silent(), withdrawn }
    }

    /// Returns the wanted number of workers; `None` before the first is started and without an app.
    pub(crate) fn wanted_workers(&self) -> Option<u32> {
        let pool = self.pool.get().and_then(Option::as_ref)?;
        u32::try_from(pool.wanted()).ok().filter(|wanted| *wanted > 0)
    }

    /// Returns the number of requests to the app that wait or are being served.
    pub(crate) fn in_progress(&self) -> usize {
        let pool = self.pool.get().and_then(Option::as_ref);
        pool.map_or(0, |shared| shared.each(|dispatch: &mut Dispatch| dispatch.in_progress()).sum())
    }

    /// Asks the front threads and waits up to [`MOMENT`] for their answers.
    pub(crate) async fn ask(&self) -> Health {
        // Threads still silent are judged by the length of their silence.
        let _ = tokio::time::timeout(MOMENT, self.all_answer()).await;
        self.known()
    }

    /// Waits until every front thread has answered a question that was asked, or still open, at this call.
    pub(crate) async fn all_answer(&self) {
        let number = self.pulse.ask();
        loop {
            let mut heard = pin!(self.pulse.heard.notified());
            // Registered before the check, so that no answer is missed.
            heard.as_mut().enable();
            if self.pulse.missing(number).next().is_none() {
                return;
            }
            heard.await;
        }
    }

    /// Answers the questions to front thread `index`; runs until the server ends.
    pub(crate) async fn answer(self: Arc<Vitals>, index: u16) {
        let mut asked = self.pulse.asked.subscribe();
        loop {
            let number = *asked.borrow_and_update();
            self.pulse.answered[usize::from(index)].store(number, Ordering::Release);
            // The figures of memory that follow a question are exact.
            net::memory::settle();
            self.pulse.heard.notify_waiters();
            if asked.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Pulse {
    /// Asks a new question unless the last one is still open. Returns its number.
    fn ask(&self) -> u64 {
        let last = *self.asked.borrow();
        if self.missing(last).next().is_some() {
            return last;
        }
        *self.asked_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.asked.send_replace(last + 1);
        last + 1
    }

    /// Returns the threads that have not answered a question.
    fn missing(&self, number: u64) -> impl Iterator<Item = u16> {
        let late = move |(_, answered): &(u16, &AtomicU64)| answered.load(Ordering::Acquire) < number;
        (0..).zip(&self.answered).filter(late).map(|(index, _)| index)
    }

    fn silent(&self) -> Vec<(u16, u64)> {
        let since = self.asked_at.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        if since < PATIENCE {
            return Vec::new();
        }
        self.missing(*self.asked.borrow()).map(|index| (index, since.as_secs())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_state_is_never_left_for_an_earlier_one() {
        let vitals = Vitals::new(0);
        vitals.enter(ServerState::Draining);
        vitals.enter(ServerState::Serving);
        assert_eq!(vitals.state(), ServerState::Draining);
    }

    #[tokio::test]
    async fn threads_answer_and_who_does_not_is_found() {
        let vitals = Vitals::new(2);
        vitals.all_answer().await;
        let first = tokio::spawn(vitals.clone().answer(0));
        let second = tokio::spawn(vitals.clone().answer(1));
        // Lets both tasks start: a thread that has not started owes no answer.
        tokio::task::yield_now().await;
        for _ in 0..100 {
            vitals.all_answer().await;
        }
        assert_eq!(vitals.ask().await.silent, []);
        second.abort();
        assert!(second.await.unwrap_err().is_cancelled());
        assert_eq!(vitals.ask().await.silent, [], "it has time");
        let long_ago = Instant::now().checked_sub(PATIENCE * 2).unwrap();
        *vitals.pulse.asked_at.lock().unwrap() = long_ago;
        assert_eq!(vitals.known().silent, [(1, 10)]);
        assert!(vitals.known().live().is_err());
        first.abort();
    }
}
