//! The way of a request to a worker: it is submitted, waits if no seat is free, is assigned a seat, and sent.

use super::Local;
use crate::call::{Call, CallState};
use crate::reply::ReplyEvent;
use handler::Failure;
use queue::{Admission, Assignment, Ticket};
use std::rc::Rc;
use std::time::{Duration, Instant};

impl Local {
    /// Sends a request to a worker or queues it.
    pub(crate) fn submit(self: &Rc<Local>, call: &Rc<Call>) -> Result<(), Failure> {
        let (ticket, admission) = self
            .waiting
            .ask(call, |slot| self.shared.dispatch(call.pool()).ask(self.index, slot, call.asked()));
        self.admitted(ticket, admission, call)
    }

    /// Returns a request that its worker has not started to its position in the queue.
    pub(super) fn again(self: &Rc<Local>, ticket: Ticket, call: &Rc<Call>) {
        let (ticket, admission) = self.waiting.ask(call, |slot| {
            let ticket = Ticket { slot, ..ticket };
            let mut queue = self.shared.dispatch(ticket.pool);
            (ticket, queue.ask_again(ticket, call.asked(), Instant::now()))
        });
        if let Err(failure) = self.admitted(ticket, admission, call) {
            call.fail(failure);
        }
    }

    fn admitted(
        self: &Rc<Local>,
        ticket: Ticket,
        admission: Admission,
        call: &Rc<Call>,
    ) -> Result<(), Failure> {
        match admission {
            Admission::Go(serial) => self.send(Assignment { ticket, serial }, call.clone()),
            Admission::Wait => {}
            Admission::Full => return Err(Failure::busy("max_queue requests are waiting")),
            Admission::Late(wait) => return Err(too_late(wait)),
        }
        Ok(())
    }

    /// Carries out assignments in their order: those of this thread directly, others by message.
    pub(super) fn deliver(self: &Rc<Local>, mut assigned: Vec<Assignment>) {
        let mut next = 0;
        // A request that is postponed frees its seat, which adds an assignment to the end.
        while let Some(&assignment) = assigned.get(next) {
            let Assignment { ticket, serial } = assignment;
            next += 1;
            if ticket.thread != self.index {
                self.shared.deliver(&[assignment]);
                continue;
            }
            match self.waiting.take(ticket) {
                Some(call) if !call.account().is_some_and(|account| account.is_full()) => {
                    self.send(assignment, call);
                    continue;
                }
                Some(call) => {
                    call.set_state(CallState::New);
                    call.reply.on_event(ReplyEvent::Postponed);
                }
                None => {}
            }
            self.shared.dispatch(ticket.pool).finished(serial, None, Instant::now(), &mut assigned);
        }
    }

    fn send(self: &Rc<Local>, Assignment { ticket, serial }: Assignment, call: Rc<Call>) {
        if self.link(serial).is_none() {
            // The message with the link was posted before any request could be assigned to the worker.
            self.read_messages();
        }
        let Some(link) = self.link(serial) else {
            return self.again(ticket, &call);
        };
        call.sent_to(serial, link.index);
        match link.send(call.clone()) {
            Ok(id) => call.set_state(CallState::Sent { ticket: Some(ticket), serial, id }),
            Err(e) => {
                call.fail(Failure::server(500, format!("cannot pass the body on: {e}")));
                let mut assigned = Vec::new();
                self.shared.dispatch(ticket.pool).finished(serial, None, Instant::now(), &mut assigned);
                self.deliver(assigned);
            }
        }
    }
}

fn too_late(wait: Duration) -> Failure {
    let seconds = wait.as_secs_f64();
    Failure::busy_for(wait, format!("would wait for {seconds:.1} s, longer than timeouts.queue"))
}
