//! The way of a request to a worker: it is submitted, waits if no seat is free, is assigned a seat, and sent.

use super::Local;
use crate::call::{Call, CallState};
use crate::messages::ThreadMessage;
use crate::reply::ReplyEvent;
use handler::Failure;
use queue::{Admission, Assignment, QueueKey, Serial, Ticket, Turn};
use std::rc::Rc;
use std::time::{Duration, Instant};

impl Local {
    /// Sends a request to a worker or queues it.
    pub(crate) fn submit(self: &Rc<Local>, call: &Rc<Call>) -> Result<(), Failure> {
        if let CallState::Postponed(ticket) = call.state() {
            return self.ask_again(ticket, call);
        }
        let (pool, asked) = (call.pool(), call.asked());
        let seat = self.shared.dispatch(pool).take(self.index, asked);
        if let Some((ticket, serial)) = seat {
            self.send(ticket, serial, None, call.clone());
            return Ok(());
        }
        // Only now, and before the queue is locked: it takes longer than the queue does.
        let key = self.key(call);
        let (ticket, admission) =
            self.waiting.ask(call, |slot| self.shared.dispatch(pool).ask(self.index, slot, key, asked));
        self.admitted(ticket, admission, call)
    }

    /// Returns the client whose turn a request uses if it has to wait.
    pub(super) fn key(&self, call: &Call) -> QueueKey {
        call.key(self.shared.clients(), &self.settings.get())
    }

    /// Returns a request that its worker has not started to its position in the queue.
    pub(super) fn again(self: &Rc<Local>, ticket: Ticket, call: &Rc<Call>) {
        if let Err(failure) = self.ask_again(ticket, call) {
            call.fail(failure);
        }
    }

    fn ask_again(self: &Rc<Local>, ticket: Ticket, call: &Rc<Call>) -> Result<(), Failure> {
        // The turn ended when the worker did, or when the request was postponed.
        call.take_turn();
        let key = self.key(call);
        let (ticket, admission) = self.waiting.ask(call, |slot| {
            let ticket = ticket.in_slot(slot);
            self.shared.dispatch(ticket.pool).ask_again(ticket, key, call.asked(), Instant::now())
        });
        self.admitted(ticket, admission, call)
    }

    fn admitted(
        self: &Rc<Local>,
        ticket: Ticket,
        admission: Admission,
        call: &Rc<Call>,
    ) -> Result<(), Failure> {
        match admission {
            Admission::Go(serial) => self.send(ticket, serial, None, call.clone()),
            Admission::Wait => {}
            Admission::Displaces(other) if other.thread == self.index => self.displaced(other),
            Admission::Displaces(other) => {
                self.shared.mailbox(other.thread).post(ThreadMessage::Displaced(other));
            }
            Admission::Full => return Err(Failure::busy("max_queue requests are waiting")),
            Admission::Late(wait) => return Err(too_late(wait)),
        }
        Ok(())
    }

    /// Carries out assignments in order: directly for this thread's requests, by message for others.
    pub(super) fn deliver(self: &Rc<Local>, mut assigned: Vec<Assignment>) {
        let mut next = 0;
        // A request that is postponed frees its seat, which adds an assignment to the end.
        while let Some(&assignment) = assigned.get(next) {
            let Assignment { ticket, serial, turn } = assignment;
            next += 1;
            if ticket.thread != self.index {
                self.shared.deliver(&[assignment]);
                continue;
            }
            match self.waiting.take(ticket) {
                Some(call) if self.is_over(&call) => {
                    call.finished();
                    call.fail(Failure::busy("waited for longer than the objective of response times leaves"));
                    self.shared.dispatch(ticket.pool).expired_late();
                }
                Some(call) if !call.account().is_some_and(|account| account.is_full()) => {
                    self.send(ticket, serial, Some(turn), call);
                    continue;
                }
                Some(call) => {
                    call.set_state(CallState::Postponed(ticket));
                    call.reply.on_event(ReplyEvent::Postponed);
                }
                None => {}
            }
            let mut queue = self.shared.dispatch(ticket.pool);
            queue.finished(serial, Some(turn), None, Instant::now(), &mut assigned);
        }
    }

    /// Returns whether the time of a request that has waited is over, under overload.
    fn is_over(&self, call: &Call) -> bool {
        self.shared.wait_limit(call.pool()).is_some_and(|limit| call.asked().elapsed() > limit)
    }

    fn send(self: &Rc<Local>, ticket: Ticket, serial: Serial, turn: Option<Turn>, call: Rc<Call>) {
        if self.link(serial).is_none() {
            // The message with the link was posted before any request could be assigned to the worker.
            self.read_messages();
        }
        let Some(link) = self.link(serial) else {
            return self.again(ticket, &call);
        };
        call.sent_to(serial, link.index);
        call.uses(turn);
        match link.send(call.clone()) {
            Ok(id) => call.set_state(CallState::Sent { ticket: Some(ticket), serial, id }),
            Err(e) => {
                call.fail(Failure::server(500, format!("cannot pass the body on: {e}")));
                let (turn, mut assigned) = (call.take_turn(), Vec::new());
                let mut queue = self.shared.dispatch(ticket.pool);
                queue.finished(serial, turn, None, Instant::now(), &mut assigned);
                drop(queue);
                self.deliver(assigned);
            }
        }
    }
}

fn too_late(wait: Duration) -> Failure {
    let seconds = wait.as_secs_f64();
    Failure::busy_for(wait, format!("would wait for {seconds:.1} s, longer than timeouts.queue"))
}
