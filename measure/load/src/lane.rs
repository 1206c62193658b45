//! One thread of a run: the state shared by its users, its queue, and its time-outs.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::clock::{Moment, NEVER};
use crate::job::Job;
use crate::recorder::Recorder;
use crate::response::reader::LastHead;
use crate::shared::Shared;
use crate::stream::Negotiated;

/// The size of the read buffer in bytes.
const BUFFER: usize = 64 * 1024;

pub(crate) struct Lane {
    pub run: Arc<Shared>,
    pub recorder: RefCell<Recorder>,
    /// Holds the bytes of one read; empty between two polls.
    pub buffer: RefCell<Box<[u8]>>,
    pub last_head: RefCell<LastHead>,
    slots: RefCell<slab::Slab<Rc<Slot>>>,
    /// In open models: due requests that wait for a connection.
    pub queue: RefCell<VecDeque<Job>>,
    idle: RefCell<Vec<Rc<Slot>>>,
    /// Whether the queue is complete.
    pub drained: Cell<bool>,
    /// Whether requests in flight must be cut off.
    pub cut: Cell<bool>,
    /// Notified when no more requests are started.
    pub ended: tokio::sync::Notify,
    /// Notified when the last slot is removed.
    pub empty: tokio::sync::Notify,
    /// TLS version and cipher of the first connection.
    tls: RefCell<Option<String>>,
    /// QUIC connections, which must be closed explicitly.
    pub quic: RefCell<Vec<quic::quinn::Connection>>,
}

/// The handle of a user's (or stream's) task: one coarse timer for all instead of a timer per request.
#[derive(Debug)]
pub(crate) struct Slot {
    key: Cell<usize>,
    /// The time when the current operation times out.
    pub deadline: Cell<Moment>,
    /// Whether the operation has timed out.
    pub expired: Cell<bool>,
    idle: Cell<bool>,
    waker: RefCell<Waker>,
}

impl Slot {
    /// Registers the current task as the one to wake.
    pub(crate) async fn register_waker(&self) {
        std::future::poll_fn(|cx| {
            self.waker.borrow_mut().clone_from(cx.waker());
            Poll::Ready(())
        })
        .await;
    }

    /// Removes this slot from the list of idle ones.
    pub(crate) fn unavailable(&self) {
        self.idle.set(false);
    }

    fn wake(&self) {
        self.waker.borrow().wake_by_ref();
    }
}

impl Lane {
    pub(crate) fn new(run: Arc<Shared>) -> Lane {
        Lane {
            recorder: RefCell::new(
                Recorder::new(run.prepared.kinds.len()).in_groups(run.scenario.checks.recorded.as_ref()),
            ),
            run,
            buffer: RefCell::new(vec![0; BUFFER].into_boxed_slice()),
            last_head: RefCell::default(),
            slots: RefCell::default(),
            queue: RefCell::default(),
            idle: RefCell::default(),
            drained: Cell::new(false),
            cut: Cell::new(false),
            ended: tokio::sync::Notify::new(),
            empty: tokio::sync::Notify::new(),
            tls: RefCell::default(),
            quic: RefCell::default(),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.run.clock.now()
    }

    /// Records the encryption of a connection.
    pub(crate) fn note_tls(&self, tls: impl FnOnce() -> Option<Negotiated>) {
        let mut known = self.tls.borrow_mut();
        if known.is_none() {
            *known = tls().map(|tls| tls.suite);
        }
    }

    /// Returns TLS version and cipher of the first connection.
    pub(crate) fn tls(&self) -> Option<String> {
        self.tls.borrow().clone()
    }

    /// Returns a new slot for a task; [`Lane::leave`] removes it.
    pub(crate) fn enter(&self) -> Rc<Slot> {
        let slot = Rc::new(Slot {
            key: Cell::new(0),
            deadline: Cell::new(NEVER),
            expired: Cell::new(false),
            idle: Cell::new(false),
            waker: RefCell::new(Waker::noop().clone()),
        });
        slot.key.set(self.slots.borrow_mut().insert(slot.clone()));
        slot
    }

    pub(crate) fn leave(&self, slot: &Slot) {
        let mut slots = self.slots.borrow_mut();
        slots.remove(slot.key.get());
        if slots.is_empty() {
            self.empty.notify_one();
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots.borrow().len()
    }

    /// Wakes every task whose deadline has passed.
    pub(crate) fn expire(&self, now: Moment) {
        for (_, slot) in self.slots.borrow().iter() {
            if slot.deadline.get() <= now {
                slot.deadline.set(NEVER);
                slot.expired.set(true);
                slot.wake();
            }
        }
    }

    /// Wakes all tasks after a change that concerns all of them.
    pub(crate) fn wake_all(&self) {
        for (_, slot) in self.slots.borrow().iter() {
            slot.wake();
        }
    }

    /// Queues a due request. Returns whether an idle task was woken for it.
    pub(crate) fn enqueue(&self, job: Job) -> bool {
        self.queue.borrow_mut().push_back(job);
        while let Some(slot) = self.idle.borrow_mut().pop() {
            if slot.idle.take() {
                slot.wake();
                return true;
            }
        }
        false
    }

    /// Returns the oldest request in the queue of an open model; `None` if there are no more.
    pub(crate) fn poll_queue(&self, slot: &Rc<Slot>, now: Moment) -> Poll<Option<Job>> {
        if now < self.run.end()
            && !self.cut.get()
            && let Some(job) = self.queue.borrow_mut().pop_front()
        {
            slot.idle.set(false);
            return Poll::Ready(Some(job));
        }
        if self.cut.get() || self.drained.get() || now >= self.run.end() {
            return Poll::Ready(None);
        }
        if !slot.idle.replace(true) {
            self.idle.borrow_mut().push(slot.clone());
        }
        Poll::Pending
    }
}
