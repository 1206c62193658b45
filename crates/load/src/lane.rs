//! One thread of a run: what its users share, who waits for work, and whose time is up.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::clock::{Moment, NEVER};
use crate::h1::reader::LastHead;
use crate::job::Job;
use crate::recorder::Recorder;
use crate::shared::Shared;
use crate::stream::Stream;

/// Read at once from a connection at most.
const BUFFER: usize = 64 * 1024;

pub(crate) struct Lane {
    pub run: Arc<Shared>,
    pub recorder: RefCell<Recorder>,
    /// What was just read; nobody keeps anything in it between two polls.
    pub buffer: RefCell<Box<[u8]>>,
    pub last_head: RefCell<LastHead>,
    slots: RefCell<slab::Slab<Rc<Slot>>>,
    /// Open models: what is due and waits for a connection.
    pub queue: RefCell<VecDeque<Job>>,
    idle: RefCell<Vec<Rc<Slot>>>,
    /// Nothing more will come into the queue.
    pub drained: Cell<bool>,
    /// The run is over for what is still under way.
    pub cut: Cell<bool>,
    /// No request begins any more.
    pub ended: tokio::sync::Notify,
    /// The last slot is gone.
    pub deserted: tokio::sync::Notify,
    /// What TLS was agreed on first.
    tls: RefCell<Option<String>>,
}

/// Where a task of a user (or of a stream) can be found: coarse timers instead of one for each request.
#[derive(Debug)]
pub(crate) struct Slot {
    key: Cell<usize>,
    /// When what is under way has taken too long.
    pub deadline: Cell<Moment>,
    /// It has.
    pub expired: Cell<bool>,
    idle: Cell<bool>,
    waker: RefCell<Waker>,
}

impl Slot {
    /// Notes the task that it is called in as the one to be woken.
    pub(crate) async fn watched(&self) {
        std::future::poll_fn(|cx| {
            self.waker.borrow_mut().clone_from(cx.waker());
            Poll::Ready(())
        })
        .await;
    }

    /// No work is taken for the time being.
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
            recorder: RefCell::new(Recorder::new(run.prepared.kinds.len())),
            run,
            buffer: RefCell::new(vec![0; BUFFER].into_boxed_slice()),
            last_head: RefCell::default(),
            slots: RefCell::default(),
            queue: RefCell::default(),
            idle: RefCell::default(),
            drained: Cell::new(false),
            cut: Cell::new(false),
            ended: tokio::sync::Notify::new(),
            deserted: tokio::sync::Notify::new(),
            tls: RefCell::default(),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.run.clock.now()
    }

    /// Notes how a connection is encrypted.
    pub(crate) fn note_tls(&self, stream: &Stream) {
        let mut tls = self.tls.borrow_mut();
        if tls.is_none() {
            *tls = stream.tls();
        }
    }

    /// How connections are encrypted.
    pub(crate) fn tls(&self) -> Option<String> {
        self.tls.borrow().clone()
    }

    /// A place for a task; given back by [`Lane::leave`].
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
            self.deserted.notify_one();
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots.borrow().len()
    }

    /// Wakes whoever waits for longer than he may.
    pub(crate) fn sweep(&self, now: Moment) {
        for (_, slot) in self.slots.borrow().iter() {
            if slot.deadline.get() <= now {
                slot.deadline.set(NEVER);
                slot.expired.set(true);
                slot.wake();
            }
        }
    }

    /// Something has changed that concerns all.
    pub(crate) fn wake_all(&self) {
        for (_, slot) in self.slots.borrow().iter() {
            slot.wake();
        }
    }

    /// A request is due. Whether somebody was waiting for it.
    pub(crate) fn hand_over(&self, job: Job) -> bool {
        self.queue.borrow_mut().push_back(job);
        while let Some(slot) = self.idle.borrow_mut().pop() {
            if slot.idle.take() {
                slot.wake();
                return true;
            }
        }
        false
    }

    /// The longest waiting request of an open model. `None` when there will be none.
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
