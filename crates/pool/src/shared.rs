//! What all front threads and the supervisor share: the dispatch state, a mailbox for each thread, the scoreboard.

use crate::dispatch::{Assignment, Dispatch, Serial, Ticket};
use crate::os;
use crate::under_way::UnderWay;
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, mpsc};
use wire::scoreboard::Slot;
use wire::traces::Trace;

/// A message to a front thread.
#[derive(Debug)]
pub(crate) enum Letter {
    /// A request of yours has got a seat.
    Assigned(Assignment),
    /// A request of yours has waited too long and is out of the queue.
    Expired(Ticket),
    /// Your link to a worker that is about to be forked.
    Link { serial: Serial, index: u16, socket: UnixStream },
    /// A worker gets no more requests: tell it to finish, when you hold link 0.
    Drain(Serial),
    /// A worker is dead; of each link it had taken up so many requests.
    Gone { serial: Serial, taken: Arc<[u64]>, stuck: bool },
    /// Has the answer to this request begun? If not, its worker is stuck.
    Overdue { serial: Serial, id: u32 },
    /// No worker will come: fail what waits.
    Hopeless,
    /// Which are the `limit` oldest of your requests?
    Tell { limit: usize, to: mpsc::UnboundedSender<Vec<UnderWay>> },
}

/// A message to the supervisor.
#[derive(Debug)]
pub(crate) enum Report {
    /// A worker said that it can take requests.
    Ready { serial: Serial, threads: u16 },
    /// A worker wants to stop.
    Stopping(Serial),
    /// A link ended or what came over it made no sense.
    LinkLost { serial: Serial, why: String },
    /// A request has not been answered for `worker_timeout`.
    Stuck { serial: Serial, request: String },
    /// Where the threads of a worker are, which had been asked.
    Traces { serial: Serial, traces: Vec<Trace> },
    /// A front thread has dealt with a worker's death; these requests of its were lost.
    Buried { serial: Serial, lost: Vec<String> },
}

/// Where a front thread gets its letters.
#[derive(Debug, Default)]
pub struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    bell: Notify,
}

impl Mailbox {
    pub(crate) fn post(&self, letter: Letter) {
        locked(&self.letters).push(letter);
        self.bell.notify_one();
    }

    /// Takes what is there.
    pub(crate) fn take(&self) -> Vec<Letter> {
        std::mem::take(&mut *locked(&self.letters))
    }

    /// Waits until something has been posted.
    pub(crate) async fn rung(&self) {
        self.bell.notified().await;
    }
}

/// The pool as all threads see it.
#[derive(Debug)]
pub struct Shared {
    dispatch: Mutex<Dispatch>,
    mailboxes: Vec<Mailbox>,
    reports: mpsc::UnboundedSender<Report>,
    scoreboard: File,
    worker_threads: usize,
}

impl Shared {
    pub(crate) fn new(
        dispatch: Dispatch,
        threads: usize,
        reports: mpsc::UnboundedSender<Report>,
        scoreboard: File,
        worker_threads: usize,
    ) -> Shared {
        let mailboxes = (0..threads).map(|_| Mailbox::default()).collect();
        Shared { dispatch: Mutex::new(dispatch), mailboxes, reports, scoreboard, worker_threads }
    }

    /// The dispatch state. Held for a few instructions only.
    #[inline]
    pub fn dispatch(&self) -> MutexGuard<'_, Dispatch> {
        locked(&self.dispatch)
    }

    pub(crate) fn mailbox(&self, thread: u16) -> &Mailbox {
        &self.mailboxes[thread as usize]
    }

    /// Number of front threads.
    pub fn threads(&self) -> usize {
        self.mailboxes.len()
    }

    pub(crate) fn to_all(&self, letter: impl Fn() -> Letter) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.post(letter()));
    }

    /// Tells each thread what it has been assigned.
    pub(crate) fn deliver(&self, assigned: &[Assignment]) {
        for assignment in assigned {
            self.mailbox(assignment.ticket.thread).post(Letter::Assigned(*assignment));
        }
    }

    pub(crate) fn report(&self, report: Report) {
        // The supervisor outlives the front threads; at the very end nobody listens, and nobody needs to.
        let _ = self.reports.send(report);
    }

    /// What the worker in a scoreboard slot is doing.
    pub fn slot(&self, index: usize) -> Slot {
        os::read_slot(&self.scoreboard, index, self.worker_threads, self.threads())
    }

    pub(crate) fn scoreboard(&self) -> &File {
        &self.scoreboard
    }
}

/// What is behind these locks is plain data that is valid after every statement, so a panic elsewhere does not spoil it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
