//! A front thread's part of the pool: its links, its waiting requests, its mailbox.

use crate::dispatch::{Asked, Assignment, Serial, Ticket};
use crate::link::Link;
use crate::reply::{News, Reply};
use crate::shared::{Letter, Report, Shared};
use crate::spool::Room;
use handler::{Broken, Failure, FailureKind, Trace};
use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use wire::Kind;

/// Bytes read from a link in one go.
const SCRATCH: usize = 256 << 10;

/// One request from the moment it asks for a seat until its worker thread is free again.
pub(crate) struct Call {
    pub(crate) frame: RefCell<Vec<u8>>,
    pub(crate) body: Option<File>,
    pub(crate) reply: Reply,
    pub(crate) trace: Rc<Trace>,
    asked: Instant,
    place: Cell<Place>,
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
    pub(crate) fn new(frame: Vec<u8>, body: Option<File>, trace: Rc<Trace>) -> Call {
        let (frame, place) = (RefCell::new(frame), Cell::new(Place::Nowhere));
        Call { frame, body, reply: Reply::default(), trace, asked: Instant::now(), place }
    }

    pub(crate) fn place(&self) -> Place {
        self.place.get()
    }

    pub(crate) fn landed(&self) {
        self.place.set(Place::Over);
        // The request will not be sent again.
        self.frame.take();
    }

    /// Microseconds since it asked; noted as its time in the queue.
    pub(crate) fn waited_us(&self) -> u32 {
        let waited = u32::try_from(self.asked.elapsed().as_micros()).unwrap_or(u32::MAX);
        self.trace.queue_us.set(waited);
        waited
    }

    fn describe(&self) -> String {
        let frame = self.frame.borrow();
        match wire::request::Request::decode(frame.get(wire::frame::HEADER..).unwrap_or_default()) {
            Ok(request) => {
                let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
                format!("{} {}", text(request.head.method), text(request.head.target))
            }
            Err(_) => "a request".to_owned(),
        }
    }
}

/// What a front thread knows of the pool. Not `Send`: it lives and dies on its thread.
pub struct Local {
    index: u16,
    shared: Arc<Shared>,
    links: RefCell<Vec<Rc<Link>>>,
    waiting: RefCell<BTreeMap<Ticket, Rc<Call>>>,
    scratch: RefCell<Vec<u8>>,
    room: Room,
    temp_dir: PathBuf,
    complain: Box<dyn Fn(&str)>,
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
        })
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
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
        let now = call.asked;
        let (ticket, asked) = self.shared.dispatch().ask(self.index, now);
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
        self.waiting.borrow_mut().insert(ticket, call);
    }

    /// The handler of a request is no longer interested.
    pub(crate) fn abandon(self: &Rc<Local>, call: &Call) {
        call.reply.unwanted();
        match call.place() {
            Place::Waiting(ticket) => {
                self.waiting.borrow_mut().remove(&ticket);
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
        let call = self.waiting.borrow_mut().remove(&assignment.ticket);
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
        call.trace.worker.set(serial as u16);
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
        let (ticket, _) = self.shared.dispatch().ask(self.index, Instant::now());
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
                Letter::Link { serial, socket } => self.open(serial, socket),
                Letter::Drain(serial) => self.drain(serial),
                Letter::Gone { serial, taken, stuck } => self.gone(serial, &taken, stuck),
                Letter::Overdue { serial, id } => self.overdue(serial, id),
                Letter::Hopeless => self.hopeless(),
            }
        }
    }

    fn expired(&self, ticket: Ticket) {
        if let Some(call) = self.waiting.borrow_mut().remove(&ticket) {
            call.waited_us();
            call.place.set(Place::Over);
            fail(&call, FailureKind::QueueTimeout, "waited for queue_timeout");
        }
    }

    fn open(self: &Rc<Local>, serial: Serial, socket: std::os::unix::net::UnixStream) {
        match Link::new(serial, socket) {
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
        for (ticket, call) in self.waiting.take() {
            self.shared.dispatch().cancel(ticket);
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
