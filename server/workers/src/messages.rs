//! The messages between front threads and supervisor.

use crate::in_flight::{InFlight, Served};
use crate::scores::Scores;
use crate::shadow::Pair;
use crate::trial::Figures;
use queue::{Assignment, PoolIndex, Serial, Ticket};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, oneshot};
use wire::heap::HeapOrder;
use wire::traces::Trace;

/// A message to a front thread.
#[derive(Debug)]
pub(crate) enum ThreadMessage {
    /// A queued request of this thread has got a seat.
    Assigned(Assignment),
    /// A request of this thread has waited too long and was removed from the queue.
    Expired(Ticket),
    /// The full queue dropped a request of this thread for another client's request.
    Displaced(Ticket),
    /// The link to a worker that will be forked or has connected.
    Link(NewLink),
    /// A worker gets no more requests. The thread with link 0 tells it to finish.
    Drain(Serial),
    /// A worker leaves a template behind when it has finished, and gets this end of the template's socket.
    /// [`ThreadMessage::Drain`] follows.
    Promote { serial: Serial, socket: UnixStream },
    /// Make an idle worker, which gets no requests, collect garbage.
    Collect(Serial),
    /// Make a worker describe its heap to the reader of this pipe. The reply is false if it cannot.
    Heap { serial: Serial, order: HeapOrder, pipe: OwnedFd, reply: oneshot::Sender<bool> },
    /// A worker is dead. `taken`: for each link, by its number, how many requests the worker had taken up.
    Gone { serial: Serial, taken: Arc<[u64]>, stuck: bool },
    /// A worker makes no progress: take back the requests that it has not started.
    Withdraw(Serial),
    /// Send a worker a probe request, and report the result within `limit`.
    Probe { serial: Serial, target: String, limit: Duration },
    /// Compare the responses of two workers to these targets.
    Shadow { pair: Pair, targets: Vec<String> },
    /// This request has held a worker for `worker_timeout`.
    Overdue { serial: Serial, id: u32 },
    /// With fibers: end the requests of this worker that were sent longer than `timeout` ago.
    OverdueSince { serial: Serial, timeout: Duration },
    /// Requests wait for seats of this pool: end up to `count` responses for which the app waits although
    /// their clients do not read.
    FreeSeats { pool: PoolIndex, count: usize },
    /// No worker can be started: fail the queued requests.
    Hopeless,
    /// Send the `limit` oldest requests of this thread.
    List { limit: usize, to: mpsc::UnboundedSender<Vec<InFlight>> },
}

/// A link that a front thread begins to use.
#[derive(Debug)]
pub(crate) struct NewLink {
    pub(crate) end: End,
    /// The worker's scoreboard slot.
    pub(crate) index: u16,
    pub(crate) socket: UnixStream,
    pub(crate) descriptors: Descriptors,
    /// Set if the worker does not write the scoreboard itself.
    pub(crate) scores: Option<Scores>,
}

/// The other end of a link: a worker and its pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) serial: Serial,
    pub(crate) pool: PoolIndex,
}

/// How descriptors are passed on a link.
#[derive(Debug, Default)]
pub(crate) enum Descriptors {
    /// In the same messages as the frames.
    #[default]
    WithFrames,
    /// On this socket, each with one byte, and always before its frame.
    Beside(UnixStream),
    /// Not at all: the worker connects a socket instead. Contains the connections that no frame has referred
    /// to yet.
    Connections(Connections),
}

/// Sockets that a worker has connected.
pub(crate) type Connections = Arc<Mutex<VecDeque<OwnedFd>>>;

#[derive(Debug)]
pub(crate) enum SupervisorMessage {
    /// A worker can take requests.
    Ready { serial: Serial, seats: u32 },
    /// A signal told the worker to stop.
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
    /// The number of the worker's fibers that still run a front thread's given-up requests.
    Kept { serial: Serial, thread: u16, count: usize },
    /// The status of the response to a probe, or the reason why there is none.
    Probed { serial: Serial, result: Result<u16, String> },
    /// A front thread has withdrawn `count` requests from the worker.
    Withdrawn { serial: Serial, count: usize },
    /// The backtraces of a worker's threads, as requested.
    Traces { serial: Serial, traces: Vec<Trace> },
    /// A part of the profile that `order` has ordered; `last`: there is no more.
    Profile { serial: Serial, order: u32, records: Vec<u8>, last: bool },
    /// A request of link `link` may take until `until_us`, in microseconds of the monotonic clock.
    Extended { serial: Serial, link: u16, id: u32, until_us: u64 },
    /// The PSS of a worker, in bytes.
    Measured { serial: Serial, pss: u64 },
    /// The PSS of all templates, in bytes.
    TemplatesMeasured(u64),
    /// The learnt shape has been written to its file, or the reason why not.
    ShapeSaved(Result<(), String>),
    /// The memory figures for a reload.
    Weighed(Figures),
    /// A front thread has cleaned up after a worker's death. `served`: the requests that the worker had taken
    /// up.
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
        self.messages().push(message);
        self.posted.notify_one();
    }

    pub(crate) fn take(&self) -> Vec<ThreadMessage> {
        std::mem::take(&mut *self.messages())
    }

    pub(crate) async fn posted(&self) {
        self.posted.notified().await;
    }

    /// Locks the messages, which are valid after every statement, so that a panic elsewhere leaves them usable.
    fn messages(&self) -> MutexGuard<'_, Vec<ThreadMessage>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
