//! A front thread's part of the pool: its links, its waiting requests, its mailbox.

use crate::dispatch::{Asked, Assignment, Serial, Ticket};
use crate::link::Link;
use crate::os;
use crate::reply::{News, Reply};
use crate::shared::{Letter, Report, Shared};
use crate::spool::Room;
use crate::under_way::{Sent, UnderWay};
use bytes::Bytes;
use handler::{Broken, Failure, FailureKind, Trace};
use slab::Slab;
use std::cell::{Cell, RefCell, RefMut};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use wire::Kind;
use wire::request::Head;
use wire::times::Times;

/// Bytes read from a link in one go.
const SCRATCH: usize = 256 << 10;

/// One request from the moment it asks for a seat until its worker thread is free again.
pub(crate) struct Call {
    /// The REQUEST frame but for body bytes.
    pub(crate) frame: RefCell<Vec<u8>>,
    pub(crate) body: Carried,
    pub(crate) reply: Reply,
    pub(crate) trace: Rc<Trace>,
    asked: Instant,
    place: Cell<Place>,
}

/// How the body travels.
#[derive(Debug)]
pub(crate) enum Carried {
    Nothing,
    Bytes(Bytes),
    File(File),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Not in line yet.
    Nowhere,
    Waiting(Ticket),
    Sent {
        ticket: Ticket,
        serial: Serial,
        id: u32,
    },
    /// The worker is done with it.
    Over,
}

impl Call {
    /// A request that asks for a seat at `asked`.
    pub(crate) fn new(frame: Vec<u8>, body: Carried, trace: Rc<Trace>, asked: Instant) -> Call {
        let (frame, place) = (RefCell::new(frame), Cell::new(Place::Nowhere));
        Call { frame, body, reply: Reply::default(), trace, asked, place }
    }

    pub(crate) fn place(&self) -> Place {
        self.place.get()
    }

    pub(crate) fn landed(&self) {
        self.place.set(Place::Over);
        // The request will not be sent again.
        self.frame.take();
    }

    /// Notes how long it was queued: what was not spent in the app, in microseconds. `now` is when the answer came.
    pub(crate) fn was_queued(&self, now: Instant, app_us: u32) {
        let total = u32::try_from(now.saturating_duration_since(self.asked).as_micros()).unwrap_or(u32::MAX);
        self.trace.queue_us.set(total.saturating_sub(app_us));
    }

    /// Notes what an answer that came at `now` says of times.
    #[inline]
    pub(crate) fn took(&self, now: Instant, times: Times) {
        self.trace.app_us.set(times.app_us);
        self.trace.cpu_us.set(times.cpu_us);
        self.trace.gvl_us.set(times.gvl_us);
        self.was_queued(now, times.app_us);
    }

    pub(crate) fn asked(&self) -> Instant {
        self.asked
    }

    /// What `tell` makes of the request's head; `None` once the worker is done with it.
    pub(crate) fn with_head<R>(&self, tell: impl FnOnce(&Head<'_>) -> R) -> Option<R> {
        let frame = self.frame.borrow();
        let head = wire::request::head_of(frame.get(wire::frame::HEADER..)?).ok()?;
        Some(tell(&head))
    }

    fn describe(&self) -> String {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let named = self.with_head(|head| format!("{} {}", text(head.method), text(head.target)));
        named.unwrap_or_else(|| "a request".to_owned())
    }
}

/// What a front thread knows of the pool. Not `Send`: it lives and dies on its thread.
pub struct Local {
    index: u16,
    shared: Arc<Shared>,
    links: RefCell<Vec<Rc<Link>>>,
    waiting: RefCell<Slab<(u64, Rc<Call>)>>,
    scratch: RefCell<Vec<u8>>,
    room: Room,
    temp_dir: PathBuf,
    complain: Box<dyn Fn(&str)>,
    /// A moment on both of the monotonic clock's faces: ours, and the one that workers read.
    clock: (Instant, u64),
}

impl Local {
    /// The part of front thread `index`. `complain` gets what belongs in the error log.
    pub fn new(
        index: u16,
        shared: Arc<Shared>,
        response_memory: usize,
        response_spool: u64,
        temp_dir: PathBuf,
        complain: Box<dyn Fn(&str)>,
    ) -> Rc<Local> {
        let room = Room { memory: response_memory, file: response_spool };
        let (links, waiting) = (RefCell::default(), RefCell::default());
        Rc::new(Local {
            index,
            shared,
            links,
            waiting,
            scratch: RefCell::new(vec![0; SCRATCH]),
            room,
            temp_dir,
            complain,
            clock: (Instant::now(), os::monotonic_us()),
        })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// `at` in microseconds of the monotonic clock.
    pub(crate) fn monotonic_us(&self, at: Instant) -> u64 {
        let (base, base_us) = self.clock;
        base_us + at.saturating_duration_since(base).as_micros() as u64
    }

    pub(crate) fn room(&self) -> &Room {
        &self.room
    }

    pub(crate) fn temp_dir(&self) -> &Path {
        &self.temp_dir
    }

    pub(crate) fn scratch(&self) -> RefMut<'_, Vec<u8>> {
        self.scratch.borrow_mut()
    }

    pub(crate) fn complain(&self, what: &str) {
        (self.complain)(what);
    }

    /// Reads letters for as long as the thread lives.
    pub async fn run(self: Rc<Local>) {
        loop {
            self.read_letters();
            self.shared.mailbox(self.index).rung().await;
        }
    }

    /// Sends a request to a worker or puts it in line.
    pub(crate) fn submit(self: &Rc<Local>, call: &Rc<Call>) -> Result<(), Failure> {
        let slot = self.waiting.borrow().vacant_key() as u32;
        let (ticket, asked) = self.shared.dispatch().ask(self.index, slot, call.asked);
        match asked {
            Asked::Go(serial) => self.send(Assignment { ticket, serial }, call.clone()),
            Asked::Wait => self.wait(ticket, call.clone()),
            Asked::Full => {
                return Err(Failure::new(FailureKind::QueueFull, "max_queue requests are waiting"));
            }
        }
        Ok(())
    }

    fn wait(&self, ticket: Ticket, call: Rc<Call>) {
        call.place.set(Place::Waiting(ticket));
        let mut waiting = self.waiting.borrow_mut();
        debug_assert_eq!(waiting.vacant_key(), ticket.slot as usize);
        waiting.insert((ticket.number, call));
    }

    /// The waiting request with this ticket; `None` when it has been given up.
    fn take_waiting(&self, ticket: Ticket) -> Option<Rc<Call>> {
        let (mut waiting, slot) = (self.waiting.borrow_mut(), ticket.slot as usize);
        waiting.get(slot).filter(|(number, _)| *number == ticket.number)?;
        Some(waiting.remove(slot).1)
    }

    /// The handler of a request is no longer interested.
    pub(crate) fn abandon(self: &Rc<Local>, call: &Call) {
        call.reply.unwanted();
        match call.place() {
            Place::Waiting(ticket) => {
                self.take_waiting(ticket);
                // When it is not in line any more its letter is on the way; `assigned` then gives the seat back.
                self.shared.dispatch().cancel(ticket);
            }
            Place::Sent { serial, id, .. } => self.tell(serial, Kind::Abort, id, &[]),
            Place::Nowhere | Place::Over => {}
        }
    }

    pub(crate) fn tell(&self, serial: Serial, kind: Kind, id: u32, payload: &[u8]) {
        if let Some(link) = self.link(serial) {
            link.tell(kind, id, payload);
        }
    }

    /// Answers the offer of a call's worker; `false` when there is none to be answered.
    pub(crate) fn lend(&self, call: &Call, socket: Option<OwnedFd>) -> bool {
        let Place::Sent { serial, id, .. } = call.place() else { return false };
        if !call.reply.answer_offer(socket.is_some()) {
            return false;
        }
        if let Some(link) = self.link(serial) {
            link.lend(id, socket);
        }
        true
    }

    /// Passes assignments on: our own at once, others' by letter.
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
        let call = self.take_waiting(assignment.ticket);
        match call {
            Some(call) => self.send(assignment, call),
            None => self.give_back(assignment.serial),
        }
    }

    fn give_back(self: &Rc<Local>, serial: Serial) {
        let mut assigned = Vec::new();
        self.shared.dispatch().finished(serial, None, Instant::now(), &mut assigned);
        self.deliver(assigned);
    }

    fn send(self: &Rc<Local>, Assignment { ticket, serial }: Assignment, call: Rc<Call>) {
        if self.link(serial).is_none() {
            // The letter with the link was posted before anyone could have been assigned to it.
            self.read_letters();
        }
        let Some(link) = self.link(serial) else {
            return self.again(ticket, call);
        };
        call.trace.worker.set(link.index + 1);
        match link.send(call.clone()) {
            Ok(id) => call.place.set(Place::Sent { ticket, serial, id }),
            Err(e) => {
                call.reply.on_news(News::Failed(Failure::new(
                    FailureKind::Internal,
                    format!("cannot pass the body on: {e}"),
                )));
                call.reply.on_end(Err(Broken));
                self.give_back(serial);
            }
        }
    }

    /// A request whose worker was lost before it had started goes back to its place in the line.
    fn again(self: &Rc<Local>, ticket: Ticket, call: Rc<Call>) {
        let ticket = Ticket { slot: self.waiting.borrow().vacant_key() as u32, ..ticket };
        let asked = self.shared.dispatch().ask_again(ticket, call.asked, Instant::now());
        match asked {
            Asked::Go(serial) => self.send(Assignment { ticket, serial }, call),
            Asked::Wait => self.wait(ticket, call),
            Asked::Full => fail(&call, FailureKind::QueueFull, "max_queue requests are waiting"),
        }
    }

    /// Sends a call on a link of a test's own.
    #[cfg(test)]
    pub(crate) fn adopt(&self, link: &Rc<Link>, call: &Rc<Call>) -> std::io::Result<u32> {
        let (ticket, _) = self.shared.dispatch().ask(self.index, 0, Instant::now());
        self.links.borrow_mut().push(link.clone());
        let id = link.send(call.clone())?;
        call.place.set(Place::Sent { ticket, serial: link.serial, id });
        Ok(id)
    }

    fn link(&self, serial: Serial) -> Option<Rc<Link>> {
        self.links.borrow().iter().find(|link| link.serial == serial).cloned()
    }

    fn read_letters(self: &Rc<Local>) {
        for letter in self.shared.mailbox(self.index).take() {
            match letter {
                Letter::Assigned(assignment) => self.assigned(assignment),
                Letter::Expired(ticket) => self.expired(ticket),
                Letter::Link { serial, index, socket } => self.open(serial, index, socket),
                Letter::Drain(serial) => self.drain(serial),
                Letter::Gone { serial, taken, stuck } => self.gone(serial, &taken, stuck),
                Letter::Overdue { serial, id } => self.overdue(serial, id),
                // Who asked may have lost patience.
                Letter::Tell { limit, to } => drop(to.send(self.under_way(limit))),
                Letter::Hopeless => self.hopeless(),
            }
        }
    }

    /// The `limit` oldest requests that wait or that a worker has.
    fn under_way(&self, limit: usize) -> Vec<UnderWay> {
        let waiting = self.waiting.borrow();
        let mut calls: Vec<(Option<Sent>, Rc<Call>)> =
            waiting.iter().map(|(_, (_, call))| (None, call.clone())).collect();
        for link in self.links.borrow().iter() {
            let sent = |id| Some(Sent { serial: link.serial, link: self.index, id });
            link.each_flight(|id, call| calls.push((sent(id), call.clone())));
        }
        calls.sort_by_key(|(_, call)| call.asked());
        calls.truncate(limit);
        let tell = |(sent, call): (Option<Sent>, Rc<Call>)| {
            call.with_head(|head| UnderWay {
                sent,
                method: head.method.escape_ascii().to_string(),
                path: head.path().escape_ascii().to_string(),
                asked_us: head.asked_us,
                answering: call.reply.headed(),
            })
        };
        calls.into_iter().filter_map(tell).collect()
    }

    fn expired(&self, ticket: Ticket) {
        if let Some(call) = self.take_waiting(ticket) {
            call.was_queued(Instant::now(), 0);
            call.place.set(Place::Over);
            fail(&call, FailureKind::QueueTimeout, "waited for queue_timeout");
        }
    }

    fn open(self: &Rc<Local>, serial: Serial, index: u16, socket: std::os::unix::net::UnixStream) {
        match Link::new(serial, index, socket) {
            Ok(link) => {
                let link = Rc::new(link);
                self.links.borrow_mut().push(link.clone());
                tokio::task::spawn_local(link.run(self.clone()));
            }
            Err(e) => self.shared.report(Report::LinkLost { serial, why: e.to_string() }),
        }
    }

    fn drain(&self, serial: Serial) {
        if self.index == 0 {
            self.tell(serial, Kind::Drain, 0, &[]);
        }
    }

    fn gone(self: &Rc<Local>, serial: Serial, taken: &[u64], stuck: bool) {
        let Some(link) = self.link(serial) else {
            return self.shared.report(Report::Buried { serial, lost: Vec::new() });
        };
        link.read_rest(self);
        self.links.borrow_mut().retain(|link| link.serial != serial);
        let mut lost = Vec::new();
        let taken = taken.get(usize::from(self.index)).copied().unwrap_or(u64::MAX);
        for (number, call) in link.take_flights() {
            let Place::Sent { ticket, .. } = call.place() else { continue };
            if call.reply.is_unwanted() {
                continue;
            }
            if number >= taken && !call.reply.headed() {
                self.again(ticket, call);
                continue;
            }
            lost.push(call.describe());
            call.place.set(Place::Over);
            if stuck {
                fail(&call, FailureKind::WorkerStuck, "no answer for worker_timeout");
            } else {
                fail(&call, FailureKind::WorkerDied, "the worker died");
            }
        }
        self.shared.report(Report::Buried { serial, lost });
    }

    fn overdue(&self, serial: Serial, id: u32) {
        let call = self.link(serial).and_then(|link| link.flight(id));
        if let Some(call) = call.filter(|call| !call.reply.headed()) {
            self.shared.report(Report::Stuck { serial, request: call.describe() });
        }
    }

    fn hopeless(&self) {
        for (_, (_, call)) in self.waiting.take() {
            if let Place::Waiting(ticket) = call.place() {
                self.shared.dispatch().cancel(ticket);
            }
            call.place.set(Place::Over);
            fail(&call, FailureKind::NoWorker, "no worker can be started");
        }
    }
}

fn fail(call: &Call, kind: FailureKind, why: &'static str) {
    if !call.reply.headed() {
        call.reply.on_news(News::Failed(Failure::new(kind, why)));
    }
    call.reply.on_end(Err(Broken));
}
