//! A front thread's part of the pool: its links, its queued requests and its mailbox.
//!
//! A request is [submitted](submit), and sent on a [link](crate::link). It ends with the last frame of its
//! response ([`Local::settle`]), or as [`take_back`] and [`overdue`] describe.

mod copies;
mod overdue;
mod stalled;
mod submit;
mod take_back;
mod waiting;
mod write_backlog;

use crate::call::{Call, CallState};
use crate::disk::Disk;
use crate::in_flight::{InFlight, Sent};
use crate::link::{Link, Owner, Settlement};
use crate::messages::{End, NewLink, SupervisorMessage, ThreadMessage};
use crate::os;
use crate::shared::Shared;
use crate::spool::Room;
use queue::{PassReason, PoolIndex, Serial};
use settings::{Current, Settings};
use std::cell::{Cell, RefCell, RefMut};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use waiting::WaitingCalls;
use wire::FrameKind;

/// The bytes read from a link at once.
const SCRATCH: usize = 256 << 10;

/// One front thread's view of the pool. Not `Send`, because it stays on its thread.
pub struct Local {
    index: u16,
    shared: Arc<Shared>,
    links: RefCell<Vec<Rc<Link>>>,
    waiting: WaitingCalls,
    scratch: RefCell<Vec<u8>>,
    disk: Rc<Disk>,
    settings: Current,
    log: Box<dyn Fn(&str)>,
    /// Connections that apps of this thread have taken over, and streaming bodies.
    tunnels: Cell<usize>,
    /// The same moment as an `Instant` and in microseconds of the clock that workers read.
    clock: (Instant, u64),
}

impl Local {
    /// Creates the part of front thread `index`. `log` writes to the error log.
    pub fn new(index: u16, shared: Arc<Shared>, settings: Current, log: Box<dyn Fn(&str)>) -> Rc<Local> {
        Rc::new(Local {
            index,
            shared,
            links: RefCell::default(),
            waiting: WaitingCalls::default(),
            scratch: RefCell::new(vec![0; SCRATCH]),
            disk: Rc::default(),
            settings,
            log,
            tunnels: Cell::new(0),
            clock: (Instant::now(), os::monotonic_us()),
        })
    }

    /// Returns the number of connections that apps have taken over and whose clients may not have everything yet.
    pub fn tunnels(&self) -> usize {
        self.tunnels.get()
    }

    pub(crate) fn follow_tunnels(&self, change: isize) {
        self.tunnels.update(|count| count.saturating_add_signed(change));
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

    pub(crate) fn send_frame(&self, serial: Serial, kind: FrameKind, id: u32, payload: &[u8]) {
        if let Some(link) = self.link(serial) {
            link.send_frame(kind, id, payload);
        }
    }

    /// Answers the offer of a call's worker. Returns false if there is no open offer.
    pub(crate) fn lend(&self, call: &Call, socket: Option<OwnedFd>) -> bool {
        let CallState::Sent { serial, id, .. } = call.state() else { return false };
        if !call.reply.close_offer(socket.is_some()) {
            return false;
        }
        if let Some(link) = self.link(serial) {
            link.lend(id, socket);
        }
        true
    }

    /// Sends a call on a link that a test has created.
    #[cfg(test)]
    pub(crate) fn adopt(&self, link: &Rc<Link>, call: &Rc<Call>) -> std::io::Result<u32> {
        let key = queue::QueueKey::default();
        let (ticket, _) = self.shared.dispatch(call.pool()).ask(self.index, 0, key, Instant::now());
        self.links.borrow_mut().push(link.clone());
        let id = link.send(call.clone())?;
        call.set_state(CallState::Sent { ticket: Some(ticket), serial: link.end.serial, id });
        Ok(id)
    }

    #[inline]
    pub(crate) fn link(&self, serial: Serial) -> Option<Rc<Link>> {
        self.links.borrow().iter().find(|link| link.end.serial == serial).cloned()
    }

    /// Returns whether a fiber serves the request.
    pub(crate) fn is_on_fiber(&self, call: &Call) -> bool {
        self.shared.seats(call.pool()).has_fibers()
    }

    fn read_messages(self: &Rc<Local>) {
        for message in self.shared.mailbox(self.index).take() {
            match message {
                ThreadMessage::Assigned(assignment) => self.deliver(vec![assignment]),
                ThreadMessage::Expired(ticket) => self.expired(ticket),
                ThreadMessage::Displaced(ticket) => self.displaced(ticket),
                ThreadMessage::Link(link) => self.open(link),
                ThreadMessage::Drain(serial) => self.drain(serial),
                ThreadMessage::Collect(serial) => self.send_frame(serial, FrameKind::Collect, 0, &[]),
                ThreadMessage::Promote { serial, socket } => self.promote(serial, socket.into()),
                ThreadMessage::Heap { serial, order, pipe, reply } => {
                    let sent = self.link(serial).is_some_and(|link| link.heap(order, pipe));
                    // The asking side may be gone.
                    let _ = reply.send(sent);
                }
                ThreadMessage::Gone { serial, taken, stuck } => self.gone(serial, &taken, stuck),
                ThreadMessage::Overdue { serial, id } => self.overdue(serial, id),
                ThreadMessage::OverdueSince { serial, timeout } => self.overdue_since(serial, timeout),
                ThreadMessage::Withdraw(serial) => self.withdraw(serial),
                ThreadMessage::Probe { serial, target, limit } => self.probe(serial, &target, limit),
                ThreadMessage::Shadow { pair, targets } => self.shadow_targets(pair, targets),
                // The receiver may have timed out.
                ThreadMessage::List { limit, to } => drop(to.send(self.in_flight(limit))),
                ThreadMessage::FreeSeats { pool, count } => self.free_seats(pool, count),
                ThreadMessage::Hopeless => self.hopeless(),
            }
        }
    }

    /// Returns the `limit` oldest requests that are queued or sent to a worker.
    fn in_flight(&self, limit: usize) -> Vec<InFlight> {
        let waiting = self.waiting.calls().into_iter();
        let mut calls: Vec<(Option<Sent>, Rc<Call>)> = waiting.map(|call| (None, call)).collect();
        for link in self.links.borrow().iter() {
            let sent = |id| Some(Sent { serial: link.end.serial, link: self.index, id });
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

    fn open(self: &Rc<Local>, link: NewLink) {
        let serial = link.end.serial;
        match Link::new(link) {
            Ok(link) => {
                let link = Rc::new(link);
                self.links.borrow_mut().push(link.clone());
                net::task::spawn_local(link.run(self.clone()));
            }
            Err(e) => self.shared.report(SupervisorMessage::LinkLost { serial, why: e.to_string() }),
        }
    }

    fn drain(&self, serial: Serial) {
        if self.index == 0 {
            self.send_frame(serial, FrameKind::Drain, 0, &[]);
        }
    }

    /// Passes a template's socket to a worker. If the worker is gone, the socket is dropped, which ends the
    /// refork.
    fn promote(&self, serial: Serial, socket: OwnedFd) {
        if let Some(link) = self.link(serial) {
            link.promote(socket);
        }
    }
}

impl Owner for Local {
    fn report(&self, report: SupervisorMessage) {
        self.shared.report(report);
    }

    fn log(&self, line: &str) {
        (self.log)(line);
    }

    fn settings(&self) -> Rc<Settings> {
        self.settings.get()
    }

    fn disk(&self) -> &Rc<Disk> {
        &self.disk
    }

    fn write_backlog(self: &Rc<Local>, call: Rc<Call>) {
        Local::write_backlog(self, call);
    }

    fn room(&self) -> Room {
        Local::room(self)
    }

    fn scratch(&self) -> RefMut<'_, Vec<u8>> {
        self.scratch.borrow_mut()
    }

    fn extended(&self, serial: Serial, id: u32, until_us: u64) {
        self.shared.report(SupervisorMessage::Extended { serial, link: self.index, id, until_us });
    }

    fn is_on_trial(&self) -> bool {
        self.shared.comparison().is_on()
    }

    fn has_objective(&self) -> bool {
        self.shared.has_objective()
    }

    fn settle(self: &Rc<Local>, End { serial, pool }: End, settlement: Settlement) {
        let Settlement {
            apps,
            responded,
            measured: (count, app_us, gvl_us),
            failed,
            returned,
            resumed,
            tried,
            now,
        } = settlement;
        // A trial compares workers of the default pool.
        if let Some(tried) = tried.filter(|tried| pool == PoolIndex::DEFAULT && !tried.is_empty()) {
            self.shared.comparison().add(serial, tried);
        }
        let returned: Vec<_> = returned.into_iter().map(|calls| self.wait_again(calls)).collect();
        let mut assigned = Vec::new();
        let mut queue = self.shared.dispatch(pool);
        for taken_back in returned {
            // Another request in the worker is slow, so it gets no more until it resumes.
            queue.pass_over(serial, PassReason::Stalled);
            queue.put_back(serial, &taken_back, now, &mut assigned);
        }
        if failed > 0 {
            queue.failed(serial, failed);
        }
        queue.measured(count, app_us, gvl_us);
        queue.responded(responded.into_iter().flatten());
        for (app, turn) in apps {
            queue.finished(serial, turn, Some(app), now, &mut assigned);
        }
        (0..resumed).for_each(|_| queue.restore(serial, PassReason::Stalled, now, &mut assigned));
        drop(queue);
        self.deliver(assigned);
    }
}
