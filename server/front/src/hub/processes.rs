//! Processes of the app that listen to streams on the local socket ([`cable::process_listener`]): workers that hold WebSockets themselves.
//!
//! Contract:
//! 1. A process gets each message of its streams once, in order, and as long as it reads.
//! 2. One for which [`LONGEST_QUEUE`] waits is cut off; what waited is dropped. It connects again and names its positions.
//! 3. All of this runs on the thread of the local socket, which gets the messages among its orders.

use super::{SharedHub, now_ms, uncount};
use bytes::Bytes;
use cable::command::StreamPosition;
use cable::process_listener;
use cable::queue::ClientQueue;
use cable::streams::StreamMessage;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::Notify;

/// The most bytes that wait for a process.
const LONGEST_QUEUE: usize = 16 << 20;

/// All processes that listen.
pub(super) struct ListeningProcesses {
    hub: Arc<SharedHub>,
    /// By stream.
    listeners: RefCell<HashMap<Box<str>, Vec<StreamListener>>>,
}

/// A process in a stream, and the offset after which messages come by themselves.
struct StreamListener {
    outbox: Rc<ProcessOutbox>,
    offset: u64,
}

/// The messages that wait for a process.
#[derive(Default)]
struct ProcessOutbox {
    queue: RefCell<ClientQueue>,
    is_full: Cell<bool>,
    filled: Notify,
}

impl ProcessOutbox {
    fn put(&self, message: &Bytes) {
        if !self.is_full.get() && !self.queue.borrow_mut().push(message.clone(), LONGEST_QUEUE) {
            self.queue.borrow_mut().drop_waiting();
            self.is_full.set(true);
        }
        self.filled.notify_one();
    }
}

impl ListeningProcesses {
    pub(super) fn new(hub: &Arc<SharedHub>) -> Rc<ListeningProcesses> {
        Rc::new(ListeningProcesses { hub: hub.clone(), listeners: RefCell::default() })
    }

    /// Passes a message on to the processes that listen to its stream.
    pub(super) fn deliver(&self, message: &StreamMessage) {
        uncount(&self.hub.counts.backlog);
        let mut all = self.listeners.borrow_mut();
        let Some(listeners) = all.get_mut(&*message.stream) else { return };
        let Some(bytes) = process_listener::message(message) else { return };
        for listener in listeners.iter_mut().filter(|listener| listener.offset < message.offset) {
            listener.offset = message.offset;
            listener.outbox.put(&bytes);
        }
    }

    /// Undoes [`ProcessConnection::listen`].
    fn leave(&self, stream: &str, outbox: &Rc<ProcessOutbox>) {
        let mut all = self.listeners.borrow_mut();
        let Some(listeners) = all.get_mut(stream) else { return };
        let before = listeners.len();
        listeners.retain(|listener| !Rc::ptr_eq(&listener.outbox, outbox));
        let has_left = listeners.len() < before;
        if listeners.is_empty() {
            all.remove(stream);
        }
        if has_left {
            self.hub.streams().unlisten(stream, self.hub.process_thread(), now_ms());
        }
    }
}

/// The connection of a process. Dropping it ends its listening.
pub(super) struct ProcessConnection {
    processes: Rc<ListeningProcesses>,
    outbox: Rc<ProcessOutbox>,
}

impl ProcessConnection {
    pub(super) fn new(processes: &Rc<ListeningProcesses>) -> ProcessConnection {
        ProcessConnection { processes: processes.clone(), outbox: Rc::default() }
    }

    /// Listens to a stream from a position, or from now on; again from there, if it listens already. Returns the answer.
    pub(super) fn listen(&self, stream: &str, position: Option<&StreamPosition>) -> String {
        let ListeningProcesses { hub, listeners } = &*self.processes;
        self.unlisten(stream);
        let mut streams = hub.streams();
        let offset = streams.listen(stream, hub.process_thread(), now_ms());
        let missed = streams.resume(stream, position, None);
        let epoch = streams.epoch().clone();
        drop(streams);
        let missed = missed.map(|missed| {
            missed.iter().filter_map(|one| process_listener::message(one)).collect::<Vec<Bytes>>()
        });
        // More than fits counts as lost, because the process would be cut off as one that does not read.
        let missed = missed.filter(|missed| ClientQueue::cost(missed) <= LONGEST_QUEUE / 2);
        let listener = StreamListener { outbox: self.outbox.clone(), offset };
        listeners.borrow_mut().entry(stream.into()).or_default().push(listener);
        let from = position.filter(|_| missed.is_some()).map_or(offset, |position| position.offset);
        let answer = process_listener::answer(&epoch, from, missed.is_some());
        missed.iter().flatten().for_each(|message| self.outbox.put(message));
        answer
    }

    /// Ends listening to a stream.
    pub(super) fn unlisten(&self, stream: &str) {
        self.processes.leave(stream, &self.outbox);
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// The process does not read.
    pub(super) async fn next(&self) -> io::Result<Bytes> {
        loop {
            let next = self.outbox.queue.borrow_mut().pop();
            match next {
                Some(message) => return Ok(message),
                None if self.outbox.is_full.get() => {
                    return Err(io::Error::other("the process does not read"));
                }
                None => self.outbox.filled.notified().await,
            }
        }
    }
}

impl Drop for ProcessConnection {
    fn drop(&mut self) {
        let names: Vec<Box<str>> = {
            let all = self.processes.listeners.borrow();
            let has = |listeners: &[StreamListener]| {
                listeners.iter().any(|listener| Rc::ptr_eq(&listener.outbox, &self.outbox))
            };
            all.iter().filter(|(_, listeners)| has(listeners)).map(|(name, _)| name.clone()).collect()
        };
        names.iter().for_each(|name| self.unlisten(name));
    }
}
