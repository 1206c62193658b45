//! A front thread's part of the pool: its links, its queued requests and its mailbox.

use crate::call::{Call, CallState};
use crate::deaths::Served;
use crate::dispatch::{Admission, Assignment, SeatKind, Serial, Ticket};
use crate::in_flight::{InFlight, Sent};
use crate::link::{End, Link, Owner};
use crate::os;
use crate::reply::ReplyEvent;
use crate::shared::{Report, Shared, ThreadMessage};
use crate::spool::Room;
use handler::Failure;
use settings::{Current, Settings};
use slab::Slab;
use std::cell::{RefCell, RefMut};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::Kind;

/// The bytes read from a link at once.
const SCRATCH: usize = 256 << 10;

/// How long the fiber of a request that was given up may continue before its seat counts as lost. Ending its
/// wait takes a moment, and then `ensure` and `rescue` blocks of the app run.
const LOST_AFTER: Duration = Duration::from_secs(1);

/// One front thread's view of the pool. Not `Send`, because it stays on its thread.
pub struct Local {
    index: u16,
    shared: Arc<Shared>,
    links: RefCell<Vec<Rc<Link>>>,
    waiting: RefCell<Slab<(u64, Rc<Call>)>>,
    scratch: RefCell<Vec<u8>>,
    settings: Current,
    log: Box<dyn Fn(&str)>,
    /// The same moment as an `Instant` and in microseconds of the clock that workers read.
    clock: (Instant, u64),
}

impl Local {
    /// Creates the part of front thread `index`. `log` writes to the error log.
    pub fn new(index: u16, shared: Arc<Shared>, settings: Current, log: Box<dyn Fn(&str)>) -> Rc<Local> {
        let (links, waiting) = (RefCell::default(), RefCell::default());
        Rc::new(Local {
            index,
            shared,
            links,
            waiting,
            scratch: RefCell::new(vec![0; SCRATCH]),
            settings,
            log,
            clock: (Instant::now(), os::monotonic_us()),
        })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Converts `at` to microseconds of the monotonic clock.
    pub(crate) fn monotonic_us(&self, at: Instant) -> u64 {
        let (base, base_us) = self.clock;
        base_us + at.saturating_duration_since(base).as_micros() as u64
    }

    pub(crate) fn settings(&self) -> Rc<Settings> {
        self.settings.get()
    }

    /// Returns how much of a response may wait for its client.
    pub(crate) fn room(&self) -> Room {
        let limits = &self.settings.get().limits;
        Room { memory: limits.response_memory, file: limits.response_spool }
    }

    /// Handles messages as long as the thread lives.
    pub async fn run(self: Rc<Local>) {
        loop {
            self.read_messages();
            self.shared.mailbox(self.index).posted().await;
        }
    }

    /// Sends a request to a worker or queues it.
    pub(crate) fn submit(self: &Rc<Local>, call: &Rc<Call>) -> Result<(), Failure> {
        let slot = self.waiting.borrow().vacant_key() as u32;
        let (ticket, admission) = self.shared.dispatch(call.kind()).ask(self.index, slot, call.asked());
        match admission {
            Admission::Go(serial) => self.send(Assignment { ticket, serial }, call.clone()),
            Admission::Wait => self.wait(ticket, call.clone()),
            Admission::Full => return Err(queue_full()),
            Admission::Late(wait) => return Err(too_late(wait)),
        }
        Ok(())
    }

    fn wait(&self, ticket: Ticket, call: Rc<Call>) {
        call.set_state(CallState::Waiting(ticket));
        let mut waiting = self.waiting.borrow_mut();
        debug_assert_eq!(waiting.vacant_key(), ticket.slot as usize);
        waiting.insert((ticket.number, call));
    }

    /// Removes the queued request with this ticket, or returns `None` if it was abandoned.
    fn take_waiting(&self, ticket: Ticket) -> Option<Rc<Call>> {
        let (mut waiting, slot) = (self.waiting.borrow_mut(), ticket.slot as usize);
        // Numbers are unique within one queue only.
        let is_it =
            |(number, call): &&(u64, Rc<Call>)| *number == ticket.number && call.kind() == ticket.kind;
        waiting.get(slot).filter(is_it)?;
        Some(waiting.remove(slot).1)
    }

    /// Gives up a request whose handler no longer wants the response.
    pub(crate) fn abandon(self: &Rc<Local>, call: &Call) {
        call.reply.unwanted();
        match call.state() {
            CallState::Waiting(ticket) => {
                self.take_waiting(ticket);
                // If it has left the queue, an assignment is on its way, and `assigned` frees the seat.
                self.shared.dispatch(ticket.kind).cancel(ticket);
            }
            CallState::Sent { serial, id, .. } => {
                self.send_frame(End { serial, kind: call.kind() }, Kind::Abort, id, &[]);
            }
            CallState::New | CallState::Finished => {}
        }
    }

    pub(crate) fn send_frame(&self, end: End, kind: Kind, id: u32, payload: &[u8]) {
        if let Some(link) = self.link(end) {
            link.send_frame(kind, id, payload);
        }
    }

    /// Answers the offer of a call's worker. Returns false if there is no open offer.
    pub(crate) fn lend(&self, call: &Call, socket: Option<OwnedFd>) -> bool {
        let CallState::Sent { serial, id, .. } = call.state() else { return false };
        if !call.reply.close_offer(socket.is_some()) {
            return false;
        }
        if let Some(link) = self.link(End { serial, kind: call.kind() }) {
            link.lend(id, socket);
        }
        true
    }

    /// Carries out assignments: those of this thread directly, others by message.
    pub(crate) fn deliver(self: &Rc<Local>, assigned: Vec<Assignment>) {
        for assignment in assigned {
            if assignment.ticket.thread == self.index {
                self.assigned(assignment);
            } else {
                self.shared.deliver(&[assignment]);
            }
        }
    }

    fn assigned(self: &Rc<Local>, assignment: Assignment) {
        // A loop instead of recursion, because any number of requests may be postponed.
        let mut assigned = vec![assignment];
        while let Some(assignment) = assigned.pop() {
            let Assignment { ticket, serial } = assignment;
            if ticket.thread != self.index {
                self.shared.deliver(&[assignment]);
                continue;
            }
            let call = self.take_waiting(ticket);
            match call {
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
            self.shared.dispatch(ticket.kind).finished(serial, None, Instant::now(), &mut assigned);
        }
    }

    fn give_back(self: &Rc<Local>, end: End) {
        let mut assigned = Vec::new();
        self.shared.dispatch(end.kind).finished(end.serial, None, Instant::now(), &mut assigned);
        self.deliver(assigned);
    }

    fn send(self: &Rc<Local>, Assignment { ticket, serial }: Assignment, call: Rc<Call>) {
        let end = End { serial, kind: call.kind() };
        if self.link(end).is_none() {
            // The message with the link was posted before any request could be assigned to the worker.
            self.read_messages();
        }
        let Some(link) = self.link(end) else {
            return self.again(ticket, call);
        };
        call.sent_to(serial, link.index);
        match link.send(call.clone()) {
            Ok(id) => call.set_state(CallState::Sent { ticket, serial, id }),
            Err(e) => {
                call.fail(Failure::server(500, format!("cannot pass the body on: {e}")));
                self.give_back(end);
            }
        }
    }

    /// Sends a probe request to a worker that gets no client requests.
    fn probe(self: &Rc<Local>, serial: Serial, target: &str, limit: Duration) {
        let now = Instant::now();
        let settings = self.settings();
        let kind_of = |path: &[u8]| self.shared.kind_of(path, &settings);
        let call = crate::probe::call(target, kind_of, self.monotonic_us(now), now);
        let Some(link) = self.link(End { serial, kind: call.kind() }) else {
            return self.shared.report(Report::Probed { serial, result: Err("its link ended".to_owned()) });
        };
        call.sent_to(serial, link.index);
        let ticket = crate::probe::TICKET;
        match link.send(call.clone()) {
            Ok(id) => call.set_state(CallState::Sent { ticket, serial, id }),
            Err(e) => return self.shared.report(Report::Probed { serial, result: Err(e.to_string()) }),
        }
        let local = self.clone();
        tokio::task::spawn_local(async move {
            let result = match tokio::time::timeout(limit, crate::probe::status(&call)).await {
                Ok(result) => result,
                Err(_) => Err(format!("no response within {} s", limit.as_secs_f64())),
            };
            if call.state() != CallState::Finished {
                local.abandon(&call);
            }
            local.shared.report(Report::Probed { serial, result });
        });
    }

    /// Returns a request that its worker has not started to its position in the queue.
    fn again(self: &Rc<Local>, ticket: Ticket, call: Rc<Call>) {
        if ticket == crate::probe::TICKET {
            return call.fail(Failure::app(502, "the worker did not take it up"));
        }
        let ticket = Ticket { slot: self.waiting.borrow().vacant_key() as u32, ..ticket };
        let admission = self.shared.dispatch(ticket.kind).ask_again(ticket, call.asked(), Instant::now());
        match admission {
            Admission::Go(serial) => self.send(Assignment { ticket, serial }, call),
            Admission::Wait => self.wait(ticket, call),
            Admission::Full => call.fail(queue_full()),
            Admission::Late(wait) => call.fail(too_late(wait)),
        }
    }

    /// Makes sent requests wait again. Returns their tickets and the times when they were submitted.
    fn wait_again(&self, calls: Vec<Rc<Call>>) -> Vec<(Ticket, Instant)> {
        let mut tickets = Vec::new();
        for call in calls {
            let CallState::Sent { ticket, .. } = call.state() else { continue };
            if ticket == crate::probe::TICKET {
                call.fail(Failure::app(502, "the worker did not take it up"));
            }
            if call.reply.is_unwanted() || ticket == crate::probe::TICKET {
                call.finished();
                continue;
            }
            let ticket = Ticket { slot: self.waiting.borrow().vacant_key() as u32, ..ticket };
            tickets.push((ticket, call.asked()));
            self.wait(ticket, call);
        }
        tickets
    }

    /// Sends a call on a link that a test has created.
    #[cfg(test)]
    pub(crate) fn adopt(&self, link: &Rc<Link>, call: &Rc<Call>) -> std::io::Result<u32> {
        let (ticket, _) = self.shared.dispatch(call.kind()).ask(self.index, 0, Instant::now());
        self.links.borrow_mut().push(link.clone());
        let id = link.send(call.clone())?;
        call.set_state(CallState::Sent { ticket, serial: link.end.serial, id });
        Ok(id)
    }

    #[inline]
    fn link(&self, end: End) -> Option<Rc<Link>> {
        self.links.borrow().iter().find(|link| link.end == end).cloned()
    }

    fn links(&self, serial: Serial) -> impl Iterator<Item = Rc<Link>> {
        self.shared.kinds().iter().filter_map(move |&kind| self.link(End { serial, kind }))
    }

    /// Returns the number that the worker uses for a link of this thread.
    fn number(&self, link: &Link) -> u16 {
        self.shared.link_number(self.index, link.end.kind)
    }

    /// Returns whether a fiber serves the request.
    pub(crate) fn is_on_fiber(&self, call: &Call) -> bool {
        self.settings().fibers > 0 && (!self.shared.is_apart() || call.kind() == SeatKind::Fiber)
    }

    fn read_messages(self: &Rc<Local>) {
        for message in self.shared.mailbox(self.index).take() {
            match message {
                ThreadMessage::Assigned(assignment) => self.assigned(assignment),
                ThreadMessage::Expired(ticket) => self.expired(ticket),
                ThreadMessage::Link { end, index, socket, descriptors, scores } => {
                    self.open(end, Link::new(end, index, socket, descriptors, scores));
                }
                ThreadMessage::Drain(serial) => self.drain(serial),
                ThreadMessage::Collect(serial) => {
                    self.send_frame(End { serial, kind: SeatKind::Thread }, Kind::Collect, 0, &[]);
                }
                ThreadMessage::Promote { serial, socket } => self.promote(serial, socket.into()),
                ThreadMessage::Gone { serial, taken, stuck } => self.gone(serial, &taken, stuck),
                ThreadMessage::Overdue { end, id } => self.overdue(end, id),
                ThreadMessage::OverdueSince { serial, timeout } => self.overdue_since(serial, timeout),
                ThreadMessage::Withdraw(serial) => self.withdraw(serial),
                ThreadMessage::Probe { serial, target, limit } => self.probe(serial, &target, limit),
                // The receiver may have timed out.
                ThreadMessage::List { limit, to } => drop(to.send(self.in_flight(limit))),
                ThreadMessage::Hopeless => self.hopeless(),
            }
        }
    }

    /// Returns the `limit` oldest requests that are queued or sent to a worker.
    fn in_flight(&self, limit: usize) -> Vec<InFlight> {
        let waiting = self.waiting.borrow();
        let mut calls: Vec<(Option<Sent>, Rc<Call>)> =
            waiting.iter().map(|(_, (_, call))| (None, call.clone())).collect();
        for link in self.links.borrow().iter() {
            let sent = |id| Some(Sent { serial: link.end.serial, link: self.number(link), id });
            link.each_flight(|id, call| calls.push((sent(id), call.clone())));
        }
        calls.sort_by_key(|(_, call)| call.asked());
        calls.truncate(limit);
        let describe = |(sent, call): (Option<Sent>, Rc<Call>)| {
            call.with_head(|head| InFlight {
                sent,
                method: head.method.escape_ascii().to_string(),
                path: head.path().escape_ascii().to_string(),
                asked_us: head.asked_us,
                responding: call.reply.headed(),
            })
        };
        calls.into_iter().filter_map(describe).collect()
    }

    fn expired(&self, ticket: Ticket) {
        if let Some(call) = self.take_waiting(ticket) {
            call.was_queued(Instant::now(), 0);
            call.set_state(CallState::Finished);
            call.fail(Failure::busy("waited for timeouts.queue"));
        }
    }

    fn open(self: &Rc<Local>, end: End, link: std::io::Result<Link>) {
        match link {
            Ok(link) => {
                let link = Rc::new(link);
                self.links.borrow_mut().push(link.clone());
                tokio::task::spawn_local(link.run(self.clone()));
            }
            Err(e) => self.shared.report(Report::LinkLost { serial: end.serial, why: e.to_string() }),
        }
    }

    fn drain(&self, serial: Serial) {
        if self.index == 0 {
            self.links(serial).for_each(|link| link.send_frame(Kind::Drain, 0, &[]));
        }
    }

    /// Passes a template's socket to a worker. If the worker is gone, the socket is dropped, which ends the
    /// refork.
    fn promote(&self, serial: Serial, socket: std::os::fd::OwnedFd) {
        if let Some(link) = self.link(End { serial, kind: SeatKind::Thread }) {
            link.promote(socket);
        }
    }

    fn gone(self: &Rc<Local>, serial: Serial, taken: &[u64], stuck: bool) {
        let links: Vec<Rc<Link>> = self.links(serial).collect();
        links.iter().for_each(|link| link.read_rest(self));
        self.links.borrow_mut().retain(|link| link.end.serial != serial);
        let served = links.iter().flat_map(|link| self.lost(link, taken, stuck)).collect();
        self.shared.report(Report::Cleared { serial, served });
    }

    /// Handles the requests of a dead worker's link: those it had taken up fail, the others go to another
    /// worker. Returns those that it had taken up.
    fn lost(self: &Rc<Local>, link: &Rc<Link>, taken: &[u64], stuck: bool) -> Vec<Served> {
        let (mut served, name) = (Vec::new(), self.number(link));
        let taken = taken.get(usize::from(name)).copied().unwrap_or(u64::MAX);
        for (id, number, call) in link.take_flights() {
            let CallState::Sent { ticket, .. } = call.state() else { continue };
            let (wanted, started) = (!call.reply.is_unwanted(), number < taken || call.reply.headed());
            if started {
                served.extend(call.served(name, id, wanted));
            }
            if !wanted {
                continue;
            }
            if !started {
                self.again(ticket, call);
                continue;
            }
            call.set_state(CallState::Finished);
            if stuck {
                call.fail(stuck_failure());
            } else {
                call.fail(Failure::app(502, "the worker died"));
            }
        }
        served
    }

    /// Fails an overdue request: the client gets its response now, and the supervisor handles the worker.
    /// Later frames for this request are ignored.
    fn overdue(&self, end: End, id: u32) {
        let call = self.link(end).and_then(|link| link.flight(id));
        let call = call.filter(|call| !call.is_extended(os::monotonic_us()) && call.blames_worker());
        let Some(call) = call else { return };
        self.shared.report(Report::Stuck { serial: end.serial, request: call.describe() });
        // With fibers, the request may have been given up already while it was waiting.
        if !call.mark_overdue(os::monotonic_us()) && !call.reply.is_unwanted() {
            call.fail(stuck_failure());
        }
    }

    /// With fibers: gives up requests that were sent longer than `timeout` ago and have no response yet. Such
    /// a fiber ends at the app's next wait, and then the worker is not at fault. If the fiber continues for
    /// [`LOST_AFTER`], its seat is lost like a stuck thread, and the supervisor replaces the worker.
    fn overdue_since(&self, serial: Serial, timeout: Duration) {
        let now_us = os::monotonic_us();
        let limit_us = now_us.saturating_sub(timeout.as_micros() as u64);
        let (mut late, mut lost, mut kept) = (Vec::new(), Vec::new(), 0);
        let kind = if self.shared.is_apart() { SeatKind::Fiber } else { SeatKind::Thread };
        let Some(link) = self.link(End { serial, kind }) else { return };
        link.each_flight(|_, call| {
            if let Some(for_us) = call.overdue_for_us(now_us) {
                kept += 1;
                if for_us >= LOST_AFTER.as_micros() as u64 && call.blames_worker() {
                    lost.push(call.describe());
                }
                return;
            }
            let sent_us = match call.sent_us() {
                0 => {
                    call.sent_at(now_us);
                    now_us
                }
                sent_us => sent_us,
            };
            if sent_us < limit_us && !call.reply.headed() && !call.is_extended(now_us) {
                late.push(call.clone());
            }
        });
        for call in late.into_iter().filter(|call| !call.mark_overdue(now_us) && !call.reply.is_unwanted()) {
            call.fail(stuck_failure());
        }
        if kept > 0 {
            self.shared.report(Report::Kept { serial, thread: self.index, count: kept });
        }
        lost.into_iter().for_each(|request| self.shared.report(Report::Stuck { serial, request }));
    }

    /// Takes back the requests that a worker has not started. The worker will return those that it has not
    /// read yet.
    fn withdraw(self: &Rc<Local>, serial: Serial) {
        let count = self.links(serial).map(|link| self.withdraw_from(&link)).sum();
        self.shared.report(Report::Withdrawn { serial, count });
    }

    fn withdraw_from(self: &Rc<Local>, link: &Rc<Link>) -> usize {
        match self.shared.withdraw(link.index.into(), self.number(link), link.sent()) {
            Ok(Some(taken)) => {
                let calls = link.take_from(taken);
                let count = calls.len();
                let (tickets, mut assigned) = (self.wait_again(calls), Vec::new());
                let End { serial, kind } = link.end;
                self.shared.dispatch(kind).put_back(
                    serial,
                    count as u32,
                    &tickets,
                    Instant::now(),
                    &mut assigned,
                );
                self.deliver(assigned);
                count
            }
            Ok(None) => 0,
            Err(e) => {
                self.log(&format!("requests cannot be withdrawn from worker {}: {e}", link.index));
                0
            }
        }
    }

    fn hopeless(&self) {
        for (_, (_, call)) in self.waiting.take() {
            if let CallState::Waiting(ticket) = call.state() {
                self.shared.dispatch(ticket.kind).cancel(ticket);
            }
            call.set_state(CallState::Finished);
            call.fail(Failure::busy("no worker can be started"));
        }
    }
}

impl Owner for Local {
    fn report(&self, report: Report) {
        self.shared.report(report);
    }

    fn log(&self, line: &str) {
        (self.log)(line);
    }

    fn settings(&self) -> Rc<Settings> {
        self.settings.get()
    }

    fn room(&self) -> Room {
        Local::room(self)
    }

    fn scratch(&self) -> RefMut<'_, Vec<u8>> {
        self.scratch.borrow_mut()
    }

    fn returned(self: &Rc<Local>, end: End, calls: Vec<Rc<Call>>, now: Instant) {
        let (seats, tickets, mut assigned) = (calls.len() as u32, self.wait_again(calls), Vec::new());
        self.shared.dispatch(end.kind).returned(end.serial, seats, &tickets, now, &mut assigned);
        self.deliver(assigned);
    }

    fn extended(&self, end: End, id: u32, until_us: u64) {
        let link = self.shared.link_number(self.index, end.kind);
        self.shared.report(Report::Extended { serial: end.serial, link, id, until_us });
    }

    fn failed(&self, end: End, count: u64) {
        self.shared.dispatch(end.kind).failed(end.serial, count);
    }

    fn measured(&self, kind: SeatKind, count: u32, app_us: u64, gvl_us: u64) {
        self.shared.dispatch(kind).measured(count, app_us, gvl_us);
    }

    fn finished(
        self: &Rc<Local>,
        End { serial, kind }: End,
        apps: &[Duration],
        resumed: usize,
        now: Instant,
    ) {
        let mut assigned = Vec::new();
        let mut dispatch = self.shared.dispatch(kind);
        for &app in apps {
            dispatch.finished(serial, Some(app), now, &mut assigned);
        }
        (0..resumed).for_each(|_| dispatch.resumed(serial, now, &mut assigned));
        drop(dispatch);
        self.deliver(assigned);
    }
}

fn queue_full() -> Failure {
    Failure::busy("max_queue requests are waiting")
}

fn too_late(wait: Duration) -> Failure {
    let seconds = wait.as_secs_f64();
    Failure::busy_for(wait, format!("would wait for {seconds:.1} s, longer than timeouts.queue"))
}

fn stuck_failure() -> Failure {
    Failure::app(504, "no response for timeouts.worker")
}
