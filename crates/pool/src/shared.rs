//! The state that all front threads and the supervisor share: the dispatch, a mailbox for each thread, the
//! scoreboard.

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
    /// A request of this thread has waited too long and was removed from the queue.
    Expired(Ticket),
    /// The link to a worker that is about to be forked or has connected. `scores` is set if the worker does
    /// not write the scoreboard itself.
    Link { end: End, index: u16, socket: UnixStream, descriptors: Descriptors, scores: Option<Scores> },
    /// A worker gets no more requests. The thread with link 0 tells it to finish.
    Drain(Serial),
    /// A worker leaves a template behind when it has finished, and gets this end of the template's socket.
    /// [`ThreadMessage::Drain`] follows.
    Promote { serial: Serial, socket: UnixStream },
    /// Tell a worker that gets no requests to collect garbage.
    Collect(Serial),
    /// A worker is dead. `taken`: the number of requests of each link that it had taken up, by
    /// [`Shared::link_number`].
    Gone { serial: Serial, taken: Arc<[u64]>, stuck: bool },
    /// A worker makes no progress: take back the requests that it has not started.
    Withdraw(Serial),
    /// Send a worker a probe request, and report the result within `limit`.
    Probe { serial: Serial, target: String, limit: Duration },
    /// This request has held a worker for `worker_timeout`.
    Overdue { end: End, id: u32 },
    /// With fibers: end the requests of this worker that were sent longer than `timeout` ago.
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
    /// A worker was told to stop by a signal.
    Stopping(Serial),
    /// A full garbage collection is due in a worker.
    Due(Serial),
    /// The collection is done. Zero means that it was no longer due.
    Collected { serial: Serial, took: Duration },
    /// The process of a worker has ended.
    Ended(Serial),
    /// A link ended, or a frame on it was malformed.
    LinkLost { serial: Serial, why: String },
    /// A request has held the worker for `worker_timeout`.
    Stuck { serial: Serial, request: String },
    /// The number of the worker's fibers that still run requests of a front thread that were given up.
    Kept { serial: Serial, thread: u16, count: usize },
    /// The status of the response to a probe, or the reason why there is none.
    Probed { serial: Serial, result: Result<u16, String> },
    /// A front thread has withdrawn `count` requests from the worker.
    Withdrawn { serial: Serial, count: usize },
    /// The backtraces of a worker's threads, as requested.
    Traces { serial: Serial, traces: Vec<Trace> },
    /// A request of link `link` may take until `until_us`, in microseconds of the monotonic clock.
    Extended { serial: Serial, link: u16, id: u32, until_us: u64 },
    /// The PSS of a worker, in bytes.
    Measured { serial: Serial, pss: u64 },
    /// The PSS of all templates, in bytes.
    TemplatesMeasured(u64),
    /// The memory figures for a reload.
    Weighed(Figures),
    /// A front thread has cleaned up after a worker's death. `served` are the requests that the worker had
    /// taken up.
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

    pub(crate) fn take(&self) -> Vec<ThreadMessage> {
        std::mem::take(&mut *locked(&self.messages))
    }

    pub(crate) async fn posted(&self) {
        self.posted.notified().await;
    }
}

/// The state of the pool that all threads share.
#[derive(Debug)]
pub struct Shared {
    /// One for each [`SeatKind`].
    dispatch: [Mutex<Dispatch>; 2],
    /// Whether the second dispatch is used, and workers have links for it.
    apart: bool,
    mailboxes: Vec<Mailbox>,
    reports: mpsc::UnboundedSender<Report>,
    scoreboard: File,
    /// The number of threads of a worker, including the thread of its fibers.
    worker_threads: usize,
    deaths: Deaths,
    wanted: AtomicUsize,
    /// Blocking calls in workers that have ended: their number and their total duration in microseconds.
    blocked: [AtomicU64; 2],
}

impl Shared {
    /// `fibers` is the dispatch of the fibers that serve beside the `worker_threads` threads of each worker,
    /// if there are any.
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

    /// Returns the dispatch of this kind of seats. The lock is held for a few instructions only, and never
    /// two locks at a time.
    #[inline]
    pub fn dispatch(&self, kind: SeatKind) -> MutexGuard<'_, Dispatch> {
        locked(&self.dispatch[kind as usize])
    }

    /// Calls `of` for each dispatch in use, one after the other, and returns the results.
    pub fn each<R>(&self, mut of: impl FnMut(&mut Dispatch) -> R) -> impl Iterator<Item = R> {
        self.kinds().iter().map(move |&kind| of(&mut self.dispatch(kind)))
    }

    /// Stops sending requests to a worker until it has rested, if the others can do without all of its seats
    /// ([`Dispatch::rest`]). Returns whether it rests.
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

    /// Returns the totals of each worker over all of its seats.
    pub(crate) fn tallies(&self) -> BTreeMap<Serial, Tally> {
        let mut all: BTreeMap<Serial, Tally> = BTreeMap::new();
        for (serial, tally) in self.each(|dispatch| dispatch.tallies().collect::<Vec<_>>()).flatten() {
            let sum = all.entry(serial).or_default();
            *sum = [*sum, tally].into_iter().sum();
        }
        all
    }

    /// Returns the kinds of seats in use.
    pub fn kinds(&self) -> &'static [SeatKind] {
        if self.apart { &SeatKind::ALL } else { &SeatKind::ALL[..1] }
    }

    /// Returns whether workers have fibers beside their threads, for some paths.
    #[inline]
    pub fn is_apart(&self) -> bool {
        self.apart
    }

    /// Returns the kind of seat for a request with this path, which is the app's PATH_INFO.
    #[inline]
    pub(crate) fn kind_of(&self, path: &[u8], settings: &Settings) -> SeatKind {
        if self.apart && fiber_paths::include(&settings.fiber_paths, path) {
            SeatKind::Fiber
        } else {
            SeatKind::Thread
        }
    }

    /// Returns the number that a worker uses for the link of front thread `thread` to seats of this kind.
    pub fn link_number(&self, thread: u16, kind: SeatKind) -> u16 {
        match kind {
            SeatKind::Thread => thread,
            SeatKind::Fiber => thread + self.threads() as u16,
        }
    }

    /// Returns the number of links of a worker.
    pub fn links(&self) -> usize {
        self.threads() * self.kinds().len()
    }

    /// Returns the front thread and the kind of seats of the link with this number, or `None` if there is no
    /// such link.
    pub(crate) fn link_end(&self, number: u32) -> Option<(u16, SeatKind)> {
        let kinds = self.kinds().iter().copied();
        kinds
            .flat_map(|kind| (0..self.threads() as u16).map(move |thread| (thread, kind)))
            .nth(number as usize)
    }

    /// Returns the number of requests that a worker is serving according to its slot.
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

    pub fn deaths(&self) -> &Deaths {
        &self.deaths
    }

    /// Returns the blocking calls in workers that have ended: their number and their total duration in
    /// microseconds.
    pub fn blocked_before(&self) -> (u64, u64) {
        let [calls, us] = &self.blocked;
        (calls.load(Relaxed), us.load(Relaxed))
    }

    /// Adds the blocking calls of a worker that has ended.
    pub(crate) fn add_blocked(&self, slot: &Slot) {
        let [calls, us] = &self.blocked;
        calls.fetch_add(slot.blocking_calls, Relaxed);
        us.fetch_add(slot.blocked_us, Relaxed);
    }

    /// Returns the wanted number of workers; 0 before the first is started.
    pub fn wanted(&self) -> usize {
        self.wanted.load(Relaxed)
    }

    pub(crate) fn set_wanted(&self, number: usize) {
        self.wanted.store(number, Relaxed);
    }

    pub(crate) fn mailbox(&self, thread: u16) -> &Mailbox {
        &self.mailboxes[thread as usize]
    }

    /// Returns the number of front threads.
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
        // Front threads end before the supervisor, except during the final shutdown, when reports no longer
        // matter.
        let _ = self.reports.send(report);
    }

    /// Returns the state of the worker in a scoreboard slot. Words that change during the copy may be
    /// inconsistent with each other.
    pub fn slot(&self, index: usize) -> Slot {
        os::read_slot(&self.scoreboard, index, self.worker_threads, self.links())
    }

    /// Withdraws the first `count` requests of a link from the worker in slot `index`, except those that it
    /// has taken up. Returns the number taken up, or `None` if the worker is taking some up right now; it
    /// then returns the others itself (`RETURNED`).
    pub(crate) fn withdraw(&self, index: usize, link: u16, count: u64) -> io::Result<Option<u64>> {
        let (sizes, link) = ((self.worker_threads, self.links()), usize::from(link));
        os::write_withdrawn(&self.scoreboard, index, sizes, link, count)?;
        // The worker counts a request as taken up and then reads the word written here; see docs/internals/wire.md.
        fence(SeqCst);
        let taken = || self.slot(index).taken.get(link).copied();
        // Requires two equal reads: the system copies words in pieces, so a word that changes during the copy
        // may be read as neither value.
        Ok(taken().filter(|first| taken() == Some(*first)))
    }

    /// Returns the largest number of threads that a worker may have.
    pub(crate) fn worker_threads(&self) -> usize {
        self.worker_threads
    }

    /// Returns the size of a scoreboard slot in bytes.
    pub(crate) fn slot_len(&self) -> usize {
        wire::scoreboard::slot_len(self.worker_threads, self.threads())
    }

    pub(crate) fn scoreboard(&self) -> &File {
        &self.scoreboard
    }
}

/// Locks a mutex, even if it is poisoned: the data is plain and valid after every statement, so a panic
/// elsewhere leaves it usable.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
