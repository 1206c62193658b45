//! One front thread's socket to one worker: the requests in flight, and the task that reads and writes.
//!
//! Why batches: one write per frame costs 30 to 60 % more CPU per request than one write per turn of the
//! event loop. [`outgoing`] appends frames and wakes the link's task. The task runs after all tasks that are
//! ready at that moment, and so writes everything that they have appended. In the other direction,
//! [`incoming`] handles all frames of a read, and then settles their effects on seats together.

mod incoming;
mod outgoing;

pub(crate) use incoming::{Owner, Settlement};

use crate::call::Call;
use crate::messages::{Descriptors, End, NewLink, SupervisorMessage};
use crate::os::Passed;
use crate::scores::Scores;
use outgoing::Batch;
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use tokio::net::UnixStream;

pub(crate) struct Link {
    pub(crate) end: End,
    /// The worker's scoreboard slot, which is the worker number that users see.
    pub(crate) index: u16,
    socket: UnixStream,
    descriptors: Descriptors,
    /// Set if the worker does not write the scoreboard itself.
    scores: Option<Scores>,
    out: RefCell<VecDeque<Batch>>,
    flights: RefCell<Slab<Flight>>,
    sent: Cell<u64>,
    partial: RefCell<Vec<u8>>,
    /// The names of the app's routes, by their numbers less one.
    routes: RefCell<Vec<Option<Arc<str>>>>,
    fds: RefCell<VecDeque<Passed>>,
    waker: RefCell<Option<Waker>>,
    scheduled: Cell<bool>,
}

/// A request that was sent to the worker and is not finished.
struct Flight {
    id: u32,
    /// The number of requests that were sent on this link before.
    number: u64,
    call: Rc<Call>,
}

/// The number of reads before other tasks get their turn.
const READS: usize = 8;

impl Link {
    pub(crate) fn new(new: NewLink) -> io::Result<Link> {
        let NewLink { end, index, socket, descriptors, scores } = new;
        Ok(Link {
            end,
            index,
            socket: UnixStream::from_std(socket)?,
            descriptors,
            scores,
            out: RefCell::default(),
            flights: RefCell::default(),
            sent: Cell::new(0),
            partial: RefCell::default(),
            routes: RefCell::default(),
            fds: RefCell::default(),
            waker: RefCell::default(),
            scheduled: Cell::new(false),
        })
    }

    /// Returns the request with this id if it is in flight.
    pub(crate) fn flight(&self, id: u32) -> Option<Rc<Call>> {
        self.flights
            .borrow()
            .get((id & 0xffff) as usize)
            .filter(|flight| flight.id == id)
            .map(|flight| flight.call.clone())
    }

    /// Calls `show` with the id and call of each request in flight.
    pub(crate) fn each_flight(&self, mut show: impl FnMut(u32, &Rc<Call>)) {
        self.flights.borrow().iter().for_each(|(_, flight)| show(flight.id, &flight.call));
    }

    /// Removes all requests in flight, and returns their ids, numbers and calls.
    pub(crate) fn take_flights(&self) -> Vec<(u32, u64, Rc<Call>)> {
        self.flights.borrow_mut().drain().map(|flight| (flight.id, flight.number, flight.call)).collect()
    }

    /// Returns the number of requests sent so far.
    pub(crate) fn sent(&self) -> u64 {
        self.sent.get()
    }

    /// Removes and returns the requests in flight whose number is `from` or higher.
    pub(crate) fn take_from(&self, from: u64) -> Vec<Rc<Call>> {
        let mut flights = self.flights.borrow_mut();
        let keys: Vec<usize> =
            flights.iter().filter(|(_, flight)| flight.number >= from).map(|(key, _)| key).collect();
        let taken: Vec<Flight> = keys.into_iter().map(|key| flights.remove(key)).collect();
        if let Some(scores) = &self.scores {
            taken.iter().for_each(|flight| scores.returned(flight.id));
        }
        taken.into_iter().map(|flight| flight.call).collect()
    }

    fn land(&self, id: u32) -> Option<Rc<Call>> {
        let mut flights = self.flights.borrow_mut();
        let key = (id & 0xffff) as usize;
        flights.get(key).filter(|flight| flight.id == id)?;
        Some(flights.remove(key).call)
    }

    /// Sends and receives frames until the link ends.
    pub(crate) async fn run(self: Rc<Link>, owner: Rc<impl Owner>) {
        let why = poll_fn(|cx| self.poll(&owner, cx)).await;
        owner.report(SupervisorMessage::LinkLost { serial: self.end.serial, why });
    }

    fn poll(&self, owner: &Rc<impl Owner>, cx: &mut Context<'_>) -> Poll<String> {
        self.remember(cx);
        // Frames that are sent during this call are written at its end.
        self.scheduled.set(true);
        let why = match self.read(owner, cx) {
            Ok(false) => "closed".to_owned(),
            Ok(true) => match self.write(cx) {
                Ok(()) => {
                    self.scheduled.set(false);
                    return Poll::Pending;
                }
                Err(e) => e.to_string(),
            },
            Err(e) => e.to_string(),
        };
        Poll::Ready(why)
    }

    fn remember(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
    }

    /// Reads the available bytes. Returns false at the end of the socket.
    fn read(&self, owner: &Rc<impl Owner>, cx: &mut Context<'_>) -> io::Result<bool> {
        for _ in 0..READS {
            match self.socket.poll_read_ready(cx) {
                Poll::Pending => return Ok(true),
                Poll::Ready(ready) => ready?,
            }
            match self.receive(owner, false) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        cx.waker().wake_by_ref();
        Ok(true)
    }
}

#[cfg(test)]
mod loan_tests;
