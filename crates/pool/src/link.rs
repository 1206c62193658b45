//! One front thread's socket to one worker: frames out in batches, frames in, and the requests under way.
//!
//! Why batches: a write per frame costs 30 to 60 % more CPU per request than one write per turn of the event loop.
//! Whoever sends appends to `out` and wakes the link's task, which then runs after all tasks that are ready now, and so
//! writes what all of them appended.

use crate::dispatch::Serial;
use crate::local::{Call, Carried, Local};
use crate::os;
use crate::reply::{Head, News};
use crate::shared::Report;
use bytes::Bytes;
use handler::{Broken, Fields, FileRegion};
use slab::Slab;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::UnixStream;
use wire::{Frame, Kind, Malformed, flag, frame, response::Response, times::Times};

pub(crate) struct Link {
    pub(crate) serial: Serial,
    /// The worker's place in the scoreboard, which is how people know it.
    pub(crate) index: u16,
    socket: UnixStream,
    out: RefCell<VecDeque<Batch>>,
    flights: RefCell<Slab<Flight>>,
    sent: Cell<u64>,
    partial: RefCell<Vec<u8>>,
    fds: RefCell<VecDeque<OwnedFd>>,
    waker: RefCell<Option<Waker>>,
    scheduled: Cell<bool>,
}

/// A request that the worker has.
struct Flight {
    id: u32,
    /// How many were sent on this link before it.
    number: u64,
    call: Rc<Call>,
}

/// Bytes that go out in one write, those of a large body behind them, and a descriptor for the first.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    behind: Bytes,
    sent: usize,
    fd: Option<OwnedFd>,
}

/// Smaller bodies are copied behind their frame: that is cheaper than a write of their own.
const COPIED: usize = 8 << 10;
/// Turns of reading before others have their turn.
const READS: usize = 8;

impl Link {
    pub(crate) fn new(
        serial: Serial,
        index: u16,
        socket: std::os::unix::net::UnixStream,
    ) -> io::Result<Link> {
        Ok(Link {
            serial,
            index,
            socket: UnixStream::from_std(socket)?,
            out: RefCell::default(),
            flights: RefCell::default(),
            sent: Cell::new(0),
            partial: RefCell::default(),
            fds: RefCell::default(),
            waker: RefCell::default(),
            scheduled: Cell::new(false),
        })
    }

    /// Sends a request; its id on this link.
    pub(crate) fn send(&self, call: Rc<Call>) -> io::Result<u32> {
        let mut flights = self.flights.borrow_mut();
        let entry = flights.vacant_entry();
        let number = self.sent.get();
        // The low half finds the flight, the high half tells it from the one that had the place before.
        let id = (number as u32) << 16 | (entry.key() as u32 & 0xffff);
        {
            let mut request = call.frame.borrow_mut();
            wire::request::stamp(&mut request, id);
            match &call.body {
                Carried::Nothing => self.append(&request, Bytes::new(), None),
                Carried::Bytes(body) => self.append(&request, body.clone(), None),
                Carried::File(file) => {
                    self.append(&request, Bytes::new(), Some(file.as_fd().try_clone_to_owned()?))
                }
            }
        }
        self.sent.set(number + 1);
        entry.insert(Flight { id, number, call });
        Ok(id)
    }

    /// Sends a small frame.
    pub(crate) fn tell(&self, kind: Kind, id: u32, payload: &[u8]) {
        let mut bytes = Vec::with_capacity(frame::HEADER + payload.len());
        frame::append(&mut bytes, kind, 0, id, payload);
        self.append(&bytes, Bytes::new(), None);
    }

    /// Answers an offer: with the client's socket, or without one.
    pub(crate) fn lend(&self, id: u32, socket: Option<OwnedFd>) {
        let flags = if socket.is_some() { flag::FD } else { 0 };
        let mut bytes = Vec::with_capacity(frame::HEADER);
        frame::append(&mut bytes, Kind::Lend, flags, id, &[]);
        self.append(&bytes, Bytes::new(), socket);
    }

    fn append(&self, bytes: &[u8], behind: Bytes, fd: Option<OwnedFd>) {
        let mut out = self.out.borrow_mut();
        let at = match out.back() {
            Some(batch) if fd.is_none() && batch.behind.is_empty() => out.len() - 1,
            _ => {
                out.push_back(Batch { fd, ..Batch::default() });
                out.len() - 1
            }
        };
        let batch = &mut out[at];
        batch.bytes.extend_from_slice(bytes);
        if behind.len() < COPIED {
            batch.bytes.extend_from_slice(&behind);
        } else {
            batch.behind = behind;
        }
        drop(out);
        if !self.scheduled.replace(true)
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
    }

    /// The request with this id, if it is under way.
    pub(crate) fn flight(&self, id: u32) -> Option<Rc<Call>> {
        self.flights
            .borrow()
            .get((id & 0xffff) as usize)
            .filter(|flight| flight.id == id)
            .map(|flight| flight.call.clone())
    }

    /// Shows all requests that are under way: id and call.
    pub(crate) fn each_flight(&self, mut show: impl FnMut(u32, &Rc<Call>)) {
        self.flights.borrow().iter().for_each(|(_, flight)| show(flight.id, &flight.call));
    }

    /// Takes all requests that are under way out: how many were sent before each, and the call.
    pub(crate) fn take_flights(&self) -> Vec<(u64, Rc<Call>)> {
        self.flights.borrow_mut().drain().map(|flight| (flight.number, flight.call)).collect()
    }

    fn land(&self, id: u32) -> Option<Rc<Call>> {
        let mut flights = self.flights.borrow_mut();
        let key = (id & 0xffff) as usize;
        flights.get(key).filter(|flight| flight.id == id)?;
        Some(flights.remove(key).call)
    }

    /// Carries frames both ways until the link ends.
    pub(crate) async fn run(self: Rc<Link>, local: Rc<Local>) {
        let why = poll_fn(|cx| self.poll(&local, cx)).await;
        local.shared().report(Report::LinkLost { serial: self.serial, why });
    }

    fn poll(&self, local: &Rc<Local>, cx: &mut Context<'_>) -> Poll<String> {
        self.remember(cx);
        // What is sent while this runs goes out at its end.
        self.scheduled.set(true);
        let why = match self.read(local, cx) {
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

    /// Reads what is there; false at the end.
    fn read(&self, local: &Rc<Local>, cx: &mut Context<'_>) -> io::Result<bool> {
        for _ in 0..READS {
            match self.socket.poll_read_ready(cx) {
                Poll::Pending => return Ok(true),
                Poll::Ready(ready) => ready?,
            }
            match self.receive(local) {
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

    /// Reads what is left of a dead worker's answers.
    pub(crate) fn read_rest(&self, local: &Rc<Local>) {
        while self.receive(local).is_ok_and(|n| n > 0) {}
    }

    /// One read. A short one does not mean that nothing is left: it also ends before bytes that bring a descriptor.
    fn receive(&self, local: &Rc<Local>) -> io::Result<usize> {
        let mut buffer = local.scratch();
        let mut fds = self.fds.borrow_mut();
        let n =
            self.socket.try_io(Interest::READABLE, || os::receive(&self.socket, &mut buffer, &mut fds))?;
        drop(fds);
        let mut partial = self.partial.borrow_mut();
        let mut ended = Ended { apps: Vec::new(), now: Instant::now() };
        if partial.is_empty() {
            let used = self.frames(&buffer[..n], local, &mut ended)?;
            partial.extend_from_slice(&buffer[used..n]);
        } else {
            partial.extend_from_slice(&buffer[..n]);
            let used = self.frames(&partial, local, &mut ended)?;
            partial.drain(..used);
        }
        drop((partial, buffer));
        ended.settle(self.serial, local);
        Ok(n)
    }

    /// Takes in all complete frames; the bytes that they took.
    fn frames(&self, bytes: &[u8], local: &Rc<Local>, ended: &mut Ended) -> io::Result<usize> {
        let mut used = 0;
        let bad = |e: Malformed| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
        while let Some((frame, len)) = Frame::cut(&bytes[used..]).map_err(bad)? {
            self.frame(frame, local, ended)?;
            used += len;
        }
        Ok(used)
    }

    fn frame(&self, frame: Frame<'_>, local: &Rc<Local>, ended: &mut Ended) -> io::Result<()> {
        let bad = |e: Malformed| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
        let fd = if frame.header.has_fd() {
            let fd = self.fds.borrow_mut().pop_front();
            Some(fd.ok_or_else(|| bad(Malformed("a frame came without its descriptor")))?)
        } else {
            None
        };
        let (id, flags) = (frame.header.id, frame.header.flags);
        match frame.header.kind {
            Kind::Ready => {
                let (_pid, threads) = frame::ready_payload(frame.payload).map_err(bad)?;
                local.shared().report(Report::Ready { serial: self.serial, threads });
                return Ok(());
            }
            Kind::Stopping => {
                local.shared().report(Report::Stopping(self.serial));
                return Ok(());
            }
            Kind::Traces => {
                let traces = wire::traces::decode(frame.payload).map_err(bad)?;
                local.shared().report(Report::Traces { serial: self.serial, traces });
                return Ok(());
            }
            _ => {}
        }
        let whole = frame.header.kind == Kind::Response && flags & flag::END != 0;
        let call = if whole || frame.header.kind == Kind::End { self.land(id) } else { self.flight(id) };
        let call = call.ok_or_else(|| bad(Malformed("an answer to a request that is not under way")))?;
        if call.reply.is_lending() && !call.reply.is_unwanted() && !may_come_while_lending(&frame) {
            return Err(bad(Malformed("a frame other than TAKEN while an offer is open")));
        }
        match frame.header.kind {
            Kind::Response => {
                let response = Response::decode(frame.payload).map_err(bad)?;
                call.reply.on_news(News::Head(head(&response, fd)));
                if whole {
                    self.end(&call, response.times, Ok(()), ended);
                } else {
                    call.took(ended.now, response.times);
                }
            }
            Kind::Interim => {
                let response = Response::decode_interim(frame.payload).map_err(bad)?;
                call.reply.on_news(News::Interim(response.status, fields(&response)));
            }
            Kind::Body => match call.reply.on_body(frame.payload, local.room(), local.temp_dir()) {
                Ok(0) => {}
                Ok(grant) => self.tell(Kind::Window, id, &grant.to_le_bytes()),
                Err(e) => {
                    local.complain(&format!(
                        "a response cannot be spooled to {}: {e}",
                        local.temp_dir().display()
                    ));
                    call.reply.on_end(Err(Broken));
                    self.tell(Kind::Abort, id, &[]);
                }
            },
            Kind::File => {
                let (offset, len) = frame::file_payload(frame.payload).map_err(bad)?;
                let file = fd.ok_or_else(|| bad(Malformed("FILE without a descriptor")))?;
                call.reply.on_file(FileRegion { file: Rc::new(File::from(file)), offset, len });
            }
            Kind::Offer => {
                let len = frame::u64_payload(frame.payload).map_err(bad)?;
                if len == 0 || !call.reply.headed() {
                    return Err(bad(Malformed("OFFER of nothing, or before RESPONSE")));
                }
                if !call.reply.on_offer(len) {
                    self.lend(id, None);
                }
            }
            Kind::Taken => {
                let count = frame::u64_payload(frame.payload).map_err(bad)?;
                if !call.reply.on_taken(count) {
                    return Err(bad(Malformed("TAKEN without a loan, or of more than was offered")));
                }
            }
            Kind::Hijack => {
                let fd = fd.ok_or_else(|| bad(Malformed("HIJACK without a descriptor")))?;
                call.reply.on_news(News::Hijacked(fd));
            }
            Kind::End => {
                let times = Times::decode(frame.payload).map_err(bad)?;
                let end = if flags & flag::FAILED != 0 { Err(Broken) } else { Ok(()) };
                self.end(&call, times, end, ended);
            }
            _ => return Err(bad(Malformed("a kind that only the front may send"))),
        }
        Ok(())
    }

    fn end(&self, call: &Call, times: Times, end: Result<(), Broken>, ended: &mut Ended) {
        call.took(ended.now, times);
        if !call.reply.headed() {
            let failure = handler::Failure::new(
                handler::FailureKind::BadResponse,
                "the worker ended without a response",
            );
            call.reply.on_news(News::Failed(failure));
        }
        call.reply.on_end(end);
        call.landed();
        ended.apps.push(Duration::from_micros(times.app_us.into()));
    }

    /// Writes what has been appended, as far as the socket takes it.
    fn write(&self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut out = self.out.borrow_mut();
        while let Some(batch) = out.front_mut() {
            let fds: Vec<_> = batch.fd.iter().map(AsFd::as_fd).collect();
            let first = &batch.bytes[batch.sent.min(batch.bytes.len())..];
            let second = &batch.behind[batch.sent.saturating_sub(batch.bytes.len())..];
            match self.socket.try_io(Interest::WRITABLE, || os::send(&self.socket, [first, second], &fds)) {
                Ok(n) => {
                    batch.sent += n;
                    batch.fd = None;
                    if batch.sent == batch.bytes.len() + batch.behind.len() {
                        out.pop_front();
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match self.socket.poll_write_ready(cx) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(ready) => ready?,
                },
                // The worker is dead; what it still said is being read, and its end is reported by the reading side.
                Err(e) if matches!(e.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                    out.clear();
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Requests that ended in one batch of frames: their seats are given back together, after the batch.
struct Ended {
    apps: Vec<Duration>,
    now: Instant,
}

impl Ended {
    fn settle(self, serial: Serial, local: &Rc<Local>) {
        if self.apps.is_empty() {
            return;
        }
        let (now, mut assigned) = (self.now, Vec::new());
        let mut dispatch = local.shared().dispatch();
        for app in self.apps {
            dispatch.finished(serial, Some(app), now, &mut assigned);
        }
        drop(dispatch);
        local.deliver(assigned);
    }
}

/// While the worker waits for the answer to an offer, or has the client's socket, it says how that ended and nothing else.
fn may_come_while_lending(frame: &Frame<'_>) -> bool {
    match frame.header.kind {
        Kind::Taken => true,
        Kind::End => frame.header.flags & flag::FAILED != 0,
        _ => false,
    }
}

fn head(response: &Response<'_>, stream: Option<OwnedFd>) -> Head {
    Head {
        status: response.status,
        fields: fields(response),
        body: Bytes::copy_from_slice(response.body),
        stream,
    }
}

fn fields(response: &Response<'_>) -> Fields {
    let mut fields = Fields::with_capacity(response.field_count(), 256);
    for (name, value) in response.fields() {
        fields.push(name, value);
    }
    fields
}

#[cfg(test)]
#[path = "loan_tests.rs"]
mod loan_tests;
