//! What all front threads and the supervisor share: the dispatch state, a mailbox for each thread, the scoreboard.

use crate::deaths::{Deaths, Served};
use crate::dispatch::{Assignment, Dispatch, SeatKind, Serial, Ticket};
use crate::fiber_paths;
use crate::in_flight::InFlight;
use crate::link::{Descriptors, End};
use crate::os;
use crate::room::Figures;
use crate::scores::Scores;
use crate::verdict::Tally;
use settings::Settings;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};
use wire::scoreboard::Slot;
use wire::traces::Trace;

/// A message to a front thread.
#[derive(Debug)]
pub(crate) enum ThreadMessage {
    /// A queued request of this thread has got a seat.
    Assigned(Assignment),
    /// A request of this thread has waited too long and was taken out of the queue.
    Expired(Ticket),
    /// The link to a worker that is about to be forked, or has connected; and the scoreboard, should the worker not write it.
    Link { end: End, index: u16, socket: UnixStream, descriptors: Descriptors, scores: Option<Scores> },
    /// A worker gets no more requests. The thread with link 0 tells it to finish.
    Drain(Serial),
    /// A worker leaves a template behind when it has finished: its end of the template's socket. [`ThreadMessage::Drain`] follows.
    Promote { serial: Serial, socket: UnixStream },
    /// A worker that rests is to collect garbage.
    Collect(Serial),
    /// A worker is dead. `taken`: how many requests of each link it had taken up, by [`Shared::link_number`].
    Gone { serial: Serial, taken: Arc<[u64]>, stuck: bool },
    /// A worker makes no progress: take back the requests that it has not started.
    Withdraw(Serial),
    /// Send a worker a request of our own, and report the result within `limit`.
    Probe { serial: Serial, target: String, limit: Duration },
    /// This request has held a worker for `worker_timeout`.
    Overdue { end: End, id: u32 },
    /// With fibers: a request that this worker was sent may take so long.
    OverdueSince { serial: Serial, timeout: Duration },
    /// No worker can be started: fail the queued requests.
    Hopeless,
    /// Send the `limit` oldest requests of this thread.
    List { limit: usize, to: mpsc::UnboundedSender<Vec<InFlight>> },
}

/// A message to the supervisor.
#[derive(Debug)]
pub(crate) enum Report {
    /// A worker can take requests.
    Ready { serial: Serial, seats: u16, fiber_seats: u16 },
    /// A worker wants to stop.
    Stopping(Serial),
    /// A full garbage collection is due in a worker.
    Due(Serial),
    /// It has been made; zero: it was not due any more.
    Collected { serial: Serial, took: Duration },
    /// The process of a worker has ended.
    Ended(Serial),
    /// A link ended, or a frame on it was malformed.
    LinkLost { serial: Serial, why: String },
    /// A request has held the worker for `worker_timeout`.
    Stuck { serial: Serial, request: String },
    /// So many fibers of the worker still serve requests of a front thread that have been given up.
    Kept { serial: Serial, thread: u16, count: usize },
    /// The status of the response to a probe, or why there is none.
    Probed { serial: Serial, result: Result<u16, String> },
    /// A front thread has withdrawn `count` requests from the worker.
    Withdrawn { serial: Serial, count: usize },
    /// Backtraces of a worker's threads, as requested.
    Traces { serial: Serial, traces: Vec<Trace> },
    /// A request of link `link` may take until then, microseconds of the monotonic clock.
    Extended { serial: Serial, link: u16, id: u32, until_us: u64 },
    /// The PSS of a worker, in bytes.
    Measured { serial: Serial, pss: u64 },
    /// The PSS of all templates, in bytes.
    TemplatesMeasured(u64),
    /// What a reload has to know of memory.
    Weighed(Figures),
    /// A front thread has cleared up after a worker's death; `served` are the requests that the worker had taken up.
    Cleared { serial: Serial, served: Vec<Served> },
}

/// The messages to one front thread.
#[derive(Debug, Default)]
pub struct Mailbox {
    messages: Mutex<Vec<ThreadMessage>>,
    posted: Notify,
}

impl Mailbox {
    pub(crate) fn post(&self, message: ThreadMessage) {
        locked(&self.messages).push(message);
        self.posted.notify_one();
    }

    /// Takes all messages.
    pub(crate) fn take(&self) -> Vec<ThreadMessage> {
        std::mem::take(&mut *locked(&self.messages))
    }

    /// Waits until a message has been posted.
    pub(crate) async fn posted(&self) {
        self.posted.notified().await;
    }
}

/// The pool as all threads see it.
#[derive(Debug)]
pub struct Shared {
    /// Of each [`SeatKind`].
    dispatch: [Mutex<Dispatch>; 2],
    /// The second of them is used, and workers have links for it.
    apart: bool,
    mailboxes: Vec<Mailbox>,
    reports: mpsc::UnboundedSender<Report>,
    scoreboard: File,
    /// Threads of a worker, the one of its fibers among them.
    worker_threads: usize,
    deaths: Deaths,
    wanted: AtomicUsize,
    /// Calls that have blocked fibers of workers that have ended, and for how long, microseconds.
    blocked: [AtomicU64; 2],
}

impl Shared {
    /// `fibers` are the seats of fibers beside the `worker_threads` threads of each worker, if there are such.
    pub(crate) fn new(
        dispatch: Dispatch,
        fibers: Option<Dispatch>,
        threads: usize,
        reports: mpsc::UnboundedSender<Report>,
        scoreboard: File,
        worker_threads: usize,
    ) -> Shared {
        let mailboxes = (0..threads).map(|_| Mailbox::default()).collect();
        let apart = fibers.is_some();
        let dispatch = [dispatch, fibers.unwrap_or_else(|| Dispatch::of_fibers(0))].map(Mutex::new);
        Shared {
            dispatch,
            apart,
            mailboxes,
            reports,
            scoreboard,
            worker_threads: worker_threads + usize::from(apart),
            deaths: Deaths::default(),
            wanted: AtomicUsize::new(0),
            blocked: [AtomicU64::new(0), AtomicU64::new(0)],
        }
    }

    /// The dispatch state of the requests that seats of this kind serve. Held for a few instructions only, and never two at a time.
    #[inline]
    pub fn dispatch(&self, kind: SeatKind) -> MutexGuard<'_, Dispatch> {
        locked(&self.dispatch[kind as usize])
    }

    /// What `of` says of each dispatch state in use, one after the other.
    pub fn each<R>(&self, mut of: impl FnMut(&mut Dispatch) -> R) -> impl Iterator<Item = R> {
        self.kinds().iter().map(move |&kind| of(&mut self.dispatch(kind)))
    }

    /// Gives a worker no requests until it has rested, if none of its seats is missed ([`Dispatch::rest`]).
    pub(crate) fn rest(&self, serial: Serial) -> bool {
        let rests = self.each(|dispatch| dispatch.rest(serial)).take_while(|rests| *rests).count();
        let all = rests == self.kinds().len();
        if !all {
            let (mut assigned, now) = (Vec::new(), Instant::now());
            for &kind in &self.kinds()[..rests] {
                self.dispatch(kind).rested(serial, now, &mut assigned);
            }
            self.deliver(&assigned);
        }
        all
    }

    /// What each worker has served so far, by all of its seats.
    pub(crate) fn tallies(&self) -> BTreeMap<Serial, Tally> {
        let mut all: BTreeMap<Serial, Tally> = BTreeMap::new();
        for (serial, tally) in self.each(|dispatch| dispatch.tallies().collect::<Vec<_>>()).flatten() {
            let sum = all.entry(serial).or_default();
            *sum = [*sum, tally].into_iter().sum();
        }
        all
    }

    /// The kinds of seats in use.
    pub fn kinds(&self) -> &'static [SeatKind] {
        if self.apart { &SeatKind::ALL } else { &SeatKind::ALL[..1] }
    }

    /// Whether workers have fibers beside their threads, for some paths.
    #[inline]
    pub fn is_apart(&self) -> bool {
        self.apart
    }

    /// What serves a request with this path, as the app gets it in PATH_INFO.
    #[inline]
    pub(crate) fn kind_of(&self, path: &[u8], settings: &Settings) -> SeatKind {
        if self.apart && fiber_paths::include(&settings.fiber_paths, path) {
            SeatKind::Fiber
        } else {
            SeatKind::Thread
        }
    }

    /// What the link of front thread `thread` to seats of this kind is called in a worker.
    pub fn link_number(&self, thread: u16, kind: SeatKind) -> u16 {
        match kind {
            SeatKind::Thread => thread,
            SeatKind::Fiber => thread + self.threads() as u16,
        }
    }

    /// Number of links of a worker.
    pub fn links(&self) -> usize {
        self.threads() * self.kinds().len()
    }

    /// The front thread whose link is called that, and the kind of its seats; `None` when there is no such link.
    pub(crate) fn link_end(&self, number: u32) -> Option<(u16, SeatKind)> {
        let kinds = self.kinds().iter().copied();
        kinds
            .flat_map(|kind| (0..self.threads() as u16).map(move |thread| (thread, kind)))
            .nth(number as usize)
    }

    /// Requests of a worker that it is serving, as its slot shows.
    ///
    /// With fibers most of them wait, which the list of busy threads does not show.
    pub fn serving(&self, slot: &Slot, fibers: bool) -> u64 {
        match (fibers, self.apart) {
            (false, _) => slot.busy.len() as u64,
            (true, false) => slot.serving,
            (true, true) => {
                let loops = self.worker_threads as u32 - 1;
                slot.serving + slot.busy.iter().filter(|busy| busy.thread < loops).count() as u64
            }
        }
    }

    /// Why workers have ended.
    pub fn deaths(&self) -> &Deaths {
        &self.deaths
    }

    /// Calls that have stopped fibers of workers that have ended, and how long those took, microseconds.
    pub fn blocked_before(&self) -> (u64, u64) {
        let [calls, us] = &self.blocked;
        (calls.load(Relaxed), us.load(Relaxed))
    }

    /// A worker has ended that had so many.
    pub(crate) fn add_blocked(&self, slot: &Slot) {
        let [calls, us] = &self.blocked;
        calls.fetch_add(slot.blocking_calls, Relaxed);
        us.fetch_add(slot.blocked_us, Relaxed);
    }

    /// How many workers there should be; 0 before the first is started.
    pub fn wanted(&self) -> usize {
        self.wanted.load(Relaxed)
    }

    pub(crate) fn set_wanted(&self, number: usize) {
        self.wanted.store(number, Relaxed);
    }

    pub(crate) fn mailbox(&self, thread: u16) -> &Mailbox {
        &self.mailboxes[thread as usize]
    }

    /// Number of front threads.
    pub fn threads(&self) -> usize {
        self.mailboxes.len()
    }

    pub(crate) fn to_all(&self, message: impl Fn() -> ThreadMessage) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.post(message()));
    }

    /// Sends each thread its assignments.
    pub(crate) fn deliver(&self, assigned: &[Assignment]) {
        for assignment in assigned {
            self.mailbox(assignment.ticket.thread).post(ThreadMessage::Assigned(*assignment));
        }
    }

    pub(crate) fn report(&self, report: Report) {
        // The supervisor outlives the front threads but for the very end, when reports no longer matter.
        let _ = self.reports.send(report);
    }

    /// What the worker in a scoreboard slot is doing. Words that change meanwhile may be of different moments.
    pub fn slot(&self, index: usize) -> Slot {
        os::read_slot(&self.scoreboard, index, self.worker_threads, self.links())
    }

    /// Withdraws the first `count` requests of a link from the worker in slot `index`, but for those that it has taken up. How many
    /// that are; `None` when it is just taking some up, so that it will return the others itself (`RETURNED`).
    pub(crate) fn withdraw(&self, index: usize, link: u16, count: u64) -> io::Result<Option<u64>> {
        let (sizes, link) = ((self.worker_threads, self.links()), usize::from(link));
        os::write_withdrawn(&self.scoreboard, index, sizes, link, count)?;
        // The worker counts a request as taken up and then looks at what was written here; see docs/wire.md.
        fence(SeqCst);
        let taken = || self.slot(index).taken.get(link).copied();
        // Two equal reads: the system copies words in pieces, so a word that changes meanwhile may be read as neither value.
        Ok(taken().filter(|first| taken() == Some(*first)))
    }

    /// The most threads that a worker may have.
    pub(crate) fn worker_threads(&self) -> usize {
        self.worker_threads
    }

    /// Bytes of a slot of the scoreboard.
    pub(crate) fn slot_len(&self) -> usize {
        wire::scoreboard::slot_len(self.worker_threads, self.threads())
    }

    pub(crate) fn scoreboard(&self) -> &File {
        &self.scoreboard
    }
}

/// These locks guard plain data that is valid after every statement, so a panic elsewhere leaves it usable.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
