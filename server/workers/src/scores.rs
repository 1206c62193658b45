//! Writes the scoreboard on behalf of a worker that cannot write it itself, as far as the front knows its
//! state.
//!
//! Contract: a request counts as taken up when it is sent, so no request that was sent to such a worker is
//! given to another one.

use crate::scoreboard::Scoreboard;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::scoreboard::{self, Serving};

/// The view of one link.
#[derive(Debug, Clone)]
pub(crate) struct Scores {
    worker: Arc<Worker>,
    link: u16,
}

/// The state that the links of a worker share.
#[derive(Debug)]
struct Worker {
    scoreboard: Arc<Scoreboard>,
    index: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The requests that the worker's threads serve. Only the worker knows the real assignment; the indexes
    /// here are arbitrary.
    threads: Vec<Option<Serving>>,
    requests: u64,
    failures: u64,
}

impl Scores {
    /// Creates the view of the first link, for the worker in slot `index` with so many threads, and clears the
    /// slot.
    pub(crate) fn new(scoreboard: Arc<Scoreboard>, index: usize, threads: usize) -> Scores {
        let slot_len = scoreboard.layout().slot_len();
        let state = State { threads: vec![None; threads], requests: 0, failures: 0 };
        let worker = Worker { scoreboard, index, state: Mutex::new(state) };
        worker.write(0, &vec![0; slot_len]);
        worker.put(scoreboard::THREADS, threads as u64);
        Scores { worker: Arc::new(worker), link: 0 }
    }

    /// Returns the view of another link.
    pub(crate) fn of_link(&self, link: u16) -> Scores {
        Scores { link, ..self.clone() }
    }

    /// Records that a request was sent, the last of `count`.
    pub(crate) fn taken(&self, id: u32, count: u64) {
        let worker = &*self.worker;
        let mut state = worker.state();
        worker.put(scoreboard::link_at(self.link.into()), count);
        // A worker gets no more requests than it has threads.
        let Some(thread) = state.threads.iter().position(Option::is_none) else { return };
        let serving = Serving { link: self.link.into(), id };
        state.threads[thread] = Some(serving);
        worker.put(worker.thread_at(thread) + 8, crate::os::monotonic_us());
        worker.put(worker.thread_at(thread), serving.pack());
    }

    /// Records that a request has ended; `failed`: the app broke off.
    pub(crate) fn finished(&self, id: u32, failed: bool) {
        let Some(mut state) = self.end(id) else { return };
        state.requests += 1;
        state.failures += u64::from(failed);
        self.worker.put(scoreboard::FAILURES, state.failures);
        self.worker.put(scoreboard::REQUESTS, state.requests);
    }

    /// Records that the worker has returned a request unserved.
    pub(crate) fn returned(&self, id: u32) {
        self.end(id);
    }

    /// Marks the request's thread as idle and returns the worker's state; `None` if the thread was idle
    /// already.
    fn end(&self, id: u32) -> Option<MutexGuard<'_, State>> {
        let mut state = self.worker.state();
        let serving = Some(Serving { link: self.link.into(), id });
        let thread = state.threads.iter().position(|one| *one == serving)?;
        state.threads[thread] = None;
        self.worker.put(self.worker.thread_at(thread), 0);
        Some(state)
    }
}

impl Worker {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn thread_at(&self, thread: usize) -> usize {
        scoreboard::thread_at(self.scoreboard.layout().links, thread)
    }

    fn put(&self, at: usize, word: u64) {
        self.write(at, &word.to_le_bytes());
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        // The scoreboard is memory of this length, so the write cannot fail.
        let _ = self.scoreboard.write(self.index, at, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::scoreboard::Layout;

    #[test]
    fn the_slot_is_as_a_worker_would_write_it() {
        let board = Arc::new(Scoreboard::new(2, Layout { threads: 2, links: 2 }).unwrap());
        board.write(1, 0, &[7; 16]).unwrap();
        let first = Scores::new(board.clone(), 1, 2);
        let second = first.of_link(1);
        assert_eq!((board.slot(1).requests, board.slot(1).taken), (0, vec![0, 0]));
        first.taken(5, 1);
        second.taken(5, 1);
        second.taken(6, 2);
        let slot = board.slot(1);
        let serving: Vec<_> = slot.busy.iter().map(|busy| (busy.serving.link, busy.serving.id)).collect();
        assert_eq!((serving, slot.taken), (vec![(0, 5), (1, 5)], vec![1, 2]));
        assert!(slot.busy.iter().all(|busy| busy.since_us > 0));
        second.finished(5, true);
        second.finished(5, true);
        first.returned(5);
        let slot = board.slot(1);
        assert_eq!((slot.busy, slot.requests, slot.failures), (vec![], 1, 1));
        assert_eq!(board.slot(0).taken, [0, 0], "the neighbour's slot");
    }
}
