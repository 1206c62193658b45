//! Removes a request from a worker or the queue: the request is abandoned, expires, is taken back unstarted,
//! or its worker dies.

use super::Local;
use crate::call::{Call, CallState};
use crate::in_flight::Served;
use crate::link::Link;
use crate::messages::{End, SupervisorMessage};
use handler::Failure;
use net::memory;
use queue::{Serial, TakenBack, Ticket};
use std::rc::Rc;
use std::time::Instant;
use wire::FrameKind;

impl Local {
    /// Gives up a request whose handler no longer wants the response.
    pub(crate) fn abandon(&self, call: &Call) {
        call.reply.unwanted();
        match call.state() {
            CallState::Waiting(ticket) => {
                self.waiting.take(ticket);
                // If it has left the queue, an assignment is on its way, and `deliver` frees the seat.
                self.shared.dispatch(ticket.pool).cancel(ticket);
            }
            CallState::Sent { serial, id, .. } => {
                self.send_frame(serial, FrameKind::Abort, id, &[]);
            }
            CallState::New | CallState::Postponed(_) | CallState::Finished => {}
        }
    }

    pub(super) fn expired(&self, ticket: Ticket) {
        if let Some(call) = self.waiting.take(ticket) {
            call.was_queued(Instant::now(), 0);
            call.set_state(CallState::Finished);
            call.fail(match memory::holds_requests_back() {
                true => Failure::busy(format!("waited for timeouts.queue: {}", memory::refuse())),
                false => Failure::busy("waited for timeouts.queue"),
            });
        }
    }

    /// Fails a request that the full queue dropped for another client's request.
    pub(super) fn displaced(&self, ticket: Ticket) {
        if let Some(call) = self.waiting.take(ticket) {
            call.was_queued(Instant::now(), 0);
            call.set_state(CallState::Finished);
            call.fail(Failure::busy("max_queue requests are waiting, most of them of this client"));
        }
    }

    pub(super) fn hopeless(&self) {
        for (ticket, call) in self.waiting.take_all() {
            self.shared.dispatch(ticket.pool).cancel(ticket);
            call.set_state(CallState::Finished);
            call.fail(Failure::busy("no worker can be started"));
        }
    }

    /// Returns sent requests to the queue. Returns the queue's data about each.
    pub(super) fn wait_again(&self, calls: Vec<Rc<Call>>) -> Vec<TakenBack> {
        let taken_back = |call: Rc<Call>| {
            let turn = call.take_turn();
            let CallState::Sent { ticket, .. } = call.state() else { return TakenBack { turn, again: None } };
            let again = match ticket {
                Some(ticket) if !call.reply.is_unwanted() => {
                    let (asked, key) = (call.asked(), self.key(&call));
                    Some((self.waiting.keep(ticket, call), asked, key))
                }
                Some(_) => {
                    call.finished();
                    None
                }
                None => {
                    call.fail(not_taken_up());
                    call.finished();
                    None
                }
            };
            TakenBack { turn, again }
        };
        calls.into_iter().map(taken_back).collect()
    }

    /// Takes back the requests that a worker has not started. The worker itself returns those that it has not
    /// read yet.
    pub(super) fn withdraw(self: &Rc<Local>, serial: Serial) {
        let count = self.link(serial).map_or(0, |link| self.withdraw_from(&link));
        self.shared.report(SupervisorMessage::Withdrawn { serial, count });
    }

    fn withdraw_from(self: &Rc<Local>, link: &Link) -> usize {
        let taken = match self.shared.scoreboard().withdraw(link.index.into(), self.index, link.sent()) {
            Ok(Some(taken)) => taken,
            Ok(None) => return 0,
            Err(e) => {
                (self.log)(&format!("requests cannot be withdrawn from worker {}: {e}", link.index));
                return 0;
            }
        };
        let calls = link.take_from(taken);
        let count = calls.len();
        let (taken_back, mut assigned) = (self.wait_again(calls), Vec::new());
        let End { serial, pool } = link.end;
        let mut queue = self.shared.dispatch(pool);
        queue.put_back(serial, &taken_back, Instant::now(), &mut assigned);
        drop(queue);
        self.deliver(assigned);
        count
    }

    pub(super) fn gone(self: &Rc<Local>, serial: Serial, taken: &[u64], stuck: bool) {
        let link = self.link(serial);
        link.iter().for_each(|link| link.read_rest(self));
        self.links.borrow_mut().retain(|link| link.end.serial != serial);
        let served = link.map(|link| self.lost(&link, taken, stuck)).unwrap_or_default();
        self.shared.report(SupervisorMessage::Cleared { serial, served });
    }

    /// Handles the requests of a dead worker's link: requests that it had taken up fail, the others go to
    /// another worker. Returns the failed ones.
    fn lost(self: &Rc<Local>, link: &Link, taken: &[u64], stuck: bool) -> Vec<Served> {
        let mut served = Vec::new();
        let keep = self.settings().stats.keep_requests > 0;
        let taken = taken.get(usize::from(self.index)).copied().unwrap_or(u64::MAX);
        for (id, number, call) in link.take_flights() {
            let CallState::Sent { ticket, .. } = call.state() else { continue };
            let (wanted, started) = (!call.reply.is_unwanted(), number < taken || call.reply.headed());
            if started {
                served.extend(call.served(self.index, id, wanted, keep));
            }
            match ticket {
                _ if !wanted => {}
                Some(ticket) if !started => self.again(ticket, &call),
                None if !started => call.fail(not_taken_up()),
                _ => {
                    call.set_state(CallState::Finished);
                    call.fail(if stuck { stuck_failure() } else { Failure::app(502, "the worker died") });
                }
            }
        }
        served
    }
}

/// The failure of a probe request, which has no position in the queue and is not sent to another worker.
fn not_taken_up() -> Failure {
    Failure::app(502, "the worker did not take it up")
}

pub(super) fn stuck_failure() -> Failure {
    Failure::app(504, "no response for timeouts.worker")
}
