//! One front thread's socket to one worker: sends and receives frames, and keeps the requests in flight.
//!
//! Why batches: one write per frame costs 30 to 60 % more CPU per request than one write per turn of the
//! event loop. A sender appends to `out` and wakes the link's task. The task runs after all tasks that are
//! ready at that moment, and so writes everything that they have appended.

use crate::call::{Call, Carried};
use crate::dispatch::{SeatKind, Serial};
use crate::os::{self, Dropped, Passed};
use crate::reply::{Head, ReplyEvent};
use crate::scores::Scores;
use crate::shared::{Report, locked};
use crate::spool::Room;
use bytes::Bytes;
use handler::held::{Amount, OpenFile};
use handler::{Failure, Fields, FileRegion};
use settings::Settings;
use slab::Slab;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::net::UnixStream;
use wire::{Frame, Kind, Malformed, flag, frame, frame::Ready, response::Response, times::Times};

/// The services of the front thread that a link uses.
pub(crate) trait Owner {
    fn report(&self, report: Report);

    fn log(&self, line: &str);

    fn settings(&self) -> Rc<Settings>;

    /// Returns how much of a response may wait for its client.
    fn room(&self) -> Room;

    /// Returns a buffer for one read, which must not be kept across another call of a link.
    fn scratch(&self) -> RefMut<'_, Vec<u8>>;

    /// Returns requests that the worker has sent back unstarted to their positions in the queue.
    fn returned(self: &Rc<Self>, end: End, calls: Vec<Rc<Call>>, now: Instant);

    /// Gives a request of the worker time until `until_us`, in microseconds of the monotonic clock.
    fn extended(&self, end: End, id: u32, until_us: u64);

    /// Frees the seats of requests that took `apps` in the app, and records `resumed` RESUMED frames.
    fn finished(self: &Rc<Self>, end: End, apps: &[Duration], resumed: usize, now: Instant);
    /// Records that `count` requests with `app_us` in the app waited for the GVL for `gvl_us` of that time.
    fn measured(&self, _kind: SeatKind, _count: u32, _app_us: u64, _gvl_us: u64) {}
    /// Records `count` responses with a status of 500 or more.
    fn failed(&self, _end: End, _count: u64) {}
}

/// The other end of a link: the threads of a worker, or its fibers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) serial: Serial,
    pub(crate) kind: SeatKind,
}

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
    fds: RefCell<VecDeque<Passed>>,
    waker: RefCell<Option<Waker>>,
    scheduled: Cell<bool>,
}

/// How descriptors are passed on a link.
#[derive(Debug, Default)]
pub(crate) enum Descriptors {
    /// In the same messages as the frames.
    #[default]
    WithFrames,
    /// On this socket, each with one byte, and always before its frame.
    Beside(std::os::unix::net::UnixStream),
    /// Not at all: the worker connects a socket instead. Contains the connections that no frame has referred
    /// to yet.
    Connections(Connections),
}

/// Sockets that a worker has connected.
pub(crate) type Connections = Arc<Mutex<VecDeque<OwnedFd>>>;

/// A request that was sent to the worker and is not finished.
struct Flight {
    id: u32,
    /// The number of requests that were sent on this link before.
    number: u64,
    call: Rc<Call>,
}

/// Bytes for one write, a large body that follows them, and a descriptor that goes with the first byte.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    behind: Bytes,
    sent: usize,
    fd: Option<OwnedFd>,
    upload: Option<Upload>,
}

impl Batch {
    /// Replaces the sent bytes by the next piece of the upload. Returns false if there is none.
    fn go_on(&mut self) -> io::Result<bool> {
        let Some(upload) = self.upload.as_mut().filter(|upload| upload.at < upload.len) else {
            return Ok(false);
        };
        let mut piece = vec![0; PIECE.min(upload.len - upload.at) as usize];
        upload.file.read_exact_at(&mut piece, upload.at)?;
        upload.at += piece.len() as u64;
        (self.sent, self.behind) = (0, Bytes::new());
        self.bytes.clear();
        frame::append(&mut self.bytes, Kind::Input, 0, upload.id, &piece);
        Ok(true)
    }
}

/// A request body that is sent in frames.
struct Upload {
    file: File,
    id: u32,
    at: u64,
    len: u64,
}

/// Smaller bodies are copied behind their frame, which is cheaper than a separate write.
const COPIED: usize = 8 << 10;
/// The bytes of an upload in one frame.
const PIECE: u64 = 256 << 10;
/// The number of reads before other tasks get their turn.
const READS: usize = 8;

impl Link {
    pub(crate) fn new(
        end: End,
        index: u16,
        socket: std::os::unix::net::UnixStream,
        descriptors: Descriptors,
        scores: Option<Scores>,
    ) -> io::Result<Link> {
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
            fds: RefCell::default(),
            waker: RefCell::default(),
            scheduled: Cell::new(false),
        })
    }

    /// Sends a request and returns its id on this link.
    pub(crate) fn send(&self, call: Rc<Call>) -> io::Result<u32> {
        let mut flights = self.flights.borrow_mut();
        let entry = flights.vacant_entry();
        let number = self.sent.get();
        // The low half is the key of the flight. The high half distinguishes it from earlier flights with the
        // same key.
        let id = (number as u32) << 16 | (entry.key() as u32 & 0xffff);
        {
            let mut request = call.frame.borrow_mut();
            wire::request::stamp(&mut request, id);
            match &*call.body.borrow() {
                Carried::Nothing => self.append(&request, Bytes::new(), None),
                Carried::Bytes(body) => self.append(&request, body.clone(), None),
                Carried::File { file, .. } => {
                    let file = file.as_fd().try_clone_to_owned()?;
                    let in_frames = matches!(self.descriptors, Descriptors::Connections(_));
                    wire::request::put_in_frames(&mut request, in_frames);
                    if in_frames {
                        self.append_upload(&request, file.into(), id)?;
                    } else {
                        self.append(&request, Bytes::new(), Some(file));
                    }
                }
            }
        }
        self.sent.set(number + 1);
        if let Some(scores) = &self.scores {
            scores.taken(id, number + 1);
        }
        entry.insert(Flight { id, number, call });
        Ok(id)
    }

    /// Sends a frame without body or descriptor.
    pub(crate) fn send_frame(&self, kind: Kind, id: u32, payload: &[u8]) {
        let mut bytes = Vec::with_capacity(frame::HEADER + payload.len());
        frame::append(&mut bytes, kind, 0, id, payload);
        self.append(&bytes, Bytes::new(), None);
    }

    /// Answers an offer with the client's socket, or with `None` to decline it.
    pub(crate) fn lend(&self, id: u32, socket: Option<OwnedFd>) {
        let flags = if socket.is_some() { flag::FD } else { 0 };
        let mut bytes = Vec::with_capacity(frame::HEADER);
        frame::append(&mut bytes, Kind::Lend, flags, id, &[]);
        self.append(&bytes, Bytes::new(), socket);
    }

    /// Orders the worker to leave a template behind, which communicates over this socket.
    pub(crate) fn promote(&self, socket: OwnedFd) {
        let mut bytes = Vec::with_capacity(frame::HEADER);
        frame::append(&mut bytes, Kind::Promote, flag::FD, 0, &[]);
        self.append(&bytes, Bytes::new(), Some(socket));
    }

    fn append(&self, bytes: &[u8], behind: Bytes, fd: Option<OwnedFd>) {
        let mut out = self.out.borrow_mut();
        let at = match out.back() {
            Some(batch) if fd.is_none() && batch.behind.is_empty() && batch.upload.is_none() => out.len() - 1,
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
        self.schedule();
    }

    /// Appends the request, followed by its body in frames.
    fn append_upload(&self, request: &[u8], file: File, id: u32) -> io::Result<()> {
        let (at, len) = (0, file.metadata()?.len());
        let upload = Some(Upload { file, id, at, len });
        self.out.borrow_mut().push_back(Batch { bytes: request.to_vec(), upload, ..Batch::default() });
        self.schedule();
        Ok(())
    }

    fn schedule(&self) {
        if !self.scheduled.replace(true)
            && let Some(waker) = &*self.waker.borrow()
        {
            waker.wake_by_ref();
        }
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
        owner.report(Report::LinkLost { serial: self.end.serial, why });
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

    /// Reads the remaining frames of a dead worker.
    pub(crate) fn read_rest(&self, owner: &Rc<impl Owner>) {
        while self.receive(owner, true).is_ok_and(|n| n > 0) {}
    }

    /// Reads once. A short read does not mean that no more bytes are available, because a read also ends
    /// before bytes that carry a descriptor. If `asks` is set, the socket is read even if the event loop has
    /// not reported it as readable.
    fn receive(&self, owner: &Rc<impl Owner>, asks: bool) -> io::Result<usize> {
        let mut buffer = owner.scratch();
        let mut fds = self.fds.borrow_mut();
        let mut read = || os::receive(&self.socket, &mut buffer, &mut fds);
        let n = if asks { read() } else { self.socket.try_io(Interest::READABLE, read) }?;
        drop(fds);
        let mut partial = self.partial.borrow_mut();
        let mut ended = Ended::new();
        if partial.is_empty() {
            let used = self.frames(&buffer[..n], owner, &mut ended)?;
            partial.extend_from_slice(&buffer[used..n]);
        } else {
            partial.extend_from_slice(&buffer[..n]);
            let used = self.frames(&partial, owner, &mut ended)?;
            partial.drain(..used);
        }
        drop((partial, buffer));
        ended.settle(self.end, owner);
        Ok(n)
    }

    /// Handles all complete frames and returns their total length.
    fn frames(&self, bytes: &[u8], owner: &Rc<impl Owner>, ended: &mut Ended) -> io::Result<usize> {
        let mut used = 0;
        let bad = |e: Malformed| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
        while let Some((frame, len)) = Frame::cut(&bytes[used..]).map_err(bad)? {
            self.frame(frame, owner, ended)?;
            used += len;
        }
        Ok(used)
    }

    fn frame(&self, frame: Frame<'_>, owner: &Rc<impl Owner>, ended: &mut Ended) -> io::Result<()> {
        let bad = |e: Malformed| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
        let fd = if frame.header.has_fd() {
            let mut fds = self.fds.borrow_mut();
            match &self.descriptors {
                // The descriptor was sent before the frame. A missing one is reported below.
                Descriptors::Beside(beside) if fds.is_empty() => {
                    drop(os::receive(beside, &mut [0], &mut fds));
                }
                // The same for connections.
                Descriptors::Connections(come) => fds.extend(locked(come).pop_front().map(Ok)),
                Descriptors::Beside(_) | Descriptors::WithFrames => {}
            }
            let fd = fds.pop_front();
            Some(fd.ok_or_else(|| bad(Malformed("a frame came without its descriptor")))?)
        } else {
            None
        };
        let (id, flags, serial) = (frame.header.id, frame.header.flags, self.end.serial);
        match frame.header.kind {
            Kind::Ready => {
                let Ready { seats, fiber_seats, .. } = Ready::decode(frame.payload).map_err(bad)?;
                owner.report(Report::Ready { serial, seats, fiber_seats });
                return Ok(());
            }
            Kind::Stopping => {
                owner.report(Report::Stopping(serial));
                return Ok(());
            }
            Kind::Due => {
                owner.report(Report::Due(serial));
                return Ok(());
            }
            Kind::Collected => {
                let us = frame::u64_payload(frame.payload).map_err(bad)?;
                owner.report(Report::Collected { serial, took: Duration::from_micros(us) });
                return Ok(());
            }
            Kind::Traces => {
                let traces = wire::traces::decode(frame.payload).map_err(bad)?;
                owner.report(Report::Traces { serial, traces });
                return Ok(());
            }
            Kind::Returned => {
                // The front may have withdrawn some of them already.
                let calls = self.take_from(frame::u64_payload(frame.payload).map_err(bad)?);
                if calls.iter().any(|call| call.reply.headed()) {
                    return Err(bad(Malformed("RETURNED takes back a request whose response has begun")));
                }
                self.send_frame(Kind::Resume, 0, &[]);
                ended.returned.push(calls);
                return Ok(());
            }
            Kind::Resumed => {
                ended.resumed += 1;
                return Ok(());
            }
            _ => {}
        }
        let whole = frame.header.kind == Kind::Response && flags & flag::END != 0;
        if let Some(scores) = self.scores.as_ref().filter(|_| whole || frame.header.kind == Kind::End) {
            scores.finished(id, flags & flag::FAILED != 0 && !whole);
        }
        let call = if whole || frame.header.kind == Kind::End { self.land(id) } else { self.flight(id) };
        let call = call.ok_or_else(|| bad(Malformed("a frame for a request that is not in flight")))?;
        if call.reply.is_lending() && !call.reply.is_unwanted() && !may_come_while_lending(&frame) {
            return Err(bad(Malformed("a frame other than TAKEN while an offer is open")));
        }
        match frame.header.kind {
            Kind::Response => {
                let response = Response::decode(frame.payload).map_err(bad)?;
                // If the client has gone, the status says nothing about the app.
                ended.failed += u64::from(response.status >= 500 && !call.reply.is_unwanted());
                call.reply.on_event(match fd.map(app_stream).transpose() {
                    Ok(stream) => ReplyEvent::Head(head(&response, stream)),
                    Err(failure) => ReplyEvent::Failed(failure),
                });
                if whole {
                    self.end(&call, response.times, Ok(()), ended);
                } else {
                    call.took(ended.now, response.times);
                }
            }
            Kind::Interim => {
                let response = Response::decode_interim(frame.payload).map_err(bad)?;
                call.reply.on_event(ReplyEvent::Interim(response.status, fields(&response)));
            }
            Kind::Extend => {
                let milliseconds = frame::u64_payload(frame.payload).map_err(bad)?;
                let until_us = os::monotonic_us().saturating_add(milliseconds.saturating_mul(1_000));
                owner.extended(self.end, id, call.extend(until_us));
            }
            Kind::Body => {
                let settings = owner.settings();
                let dir = &settings.process.temp_dir;
                let holding = || call.holding();
                let (grant, unspooled) =
                    call.reply.on_body(frame.payload, owner.room().of(&call), dir, &holding);
                if grant > 0 {
                    self.send_frame(Kind::Window, id, &grant.to_le_bytes());
                }
                if let Some(error) = unspooled {
                    owner.log(&format!(
                        "a response cannot be spooled to {}: {error}; the app waits for the client",
                        dir.display()
                    ));
                }
            }
            Kind::File => {
                let (offset, len) = frame::file_payload(frame.payload).map_err(bad)?;
                match fd.ok_or_else(|| bad(Malformed("FILE without a descriptor")))? {
                    Ok(file) => {
                        let amount = amount(len, flags, &owner.settings().limits);
                        let hold = || call.holding().map(|holding| holding.hold(amount));
                        call.reply.on_file(|| {
                            let file = OpenFile::of_response(File::from(file), hold());
                            FileRegion { file: Rc::new(file), offset, len }
                        })
                    }
                    Err(Dropped) => {
                        handler::held::relieve();
                        call.reply.on_end(Err(Failure::busy(net::descriptors::shortage())));
                    }
                }
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
                call.reply.on_event(match app_stream(fd) {
                    Ok(fd) => ReplyEvent::Hijacked(fd),
                    Err(failure) => ReplyEvent::Failed(failure),
                });
            }
            Kind::End => {
                let times = Times::decode(frame.payload).map_err(bad)?;
                let end = match flags & flag::FAILED {
                    0 => Ok(()),
                    _ => Err(Failure::app(502, "the app failed inside the response body")),
                };
                self.end(&call, times, end, ended);
            }
            _ => return Err(bad(Malformed("a kind that only the front may send"))),
        }
        Ok(())
    }

    fn end(&self, call: &Call, times: Times, end: Result<(), Failure>, ended: &mut Ended) {
        call.took(ended.now, times);
        if !call.reply.headed() {
            let failure = Failure::app(502, "the worker ended without a response");
            call.reply.on_event(ReplyEvent::Failed(failure));
        }
        call.reply.on_end(end);
        call.finished();
        ended.apps.push(Duration::from_micros(times.app_us.into()));
        if let Some(gvl_us) = times.gvl_us {
            let (count, app, gvl) = ended.measured;
            ended.measured = (count + 1, app + u64::from(times.app_us), gvl + u64::from(gvl_us));
        }
    }

    /// Writes as many of the appended bytes as the socket accepts.
    fn write(&self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut out = self.out.borrow_mut();
        while let Some(batch) = out.front_mut() {
            if let (Descriptors::Beside(beside), Some(fd)) = (&self.descriptors, &batch.fd) {
                // The worker has at most as many descriptors pending as it can serve requests, which is far
                // less than a socket holds.
                os::send(beside, [&[0], &[]], &[fd.as_fd()])?;
                batch.fd = None;
            }
            let fds: Vec<_> = batch.fd.iter().map(AsFd::as_fd).collect();
            let first = &batch.bytes[batch.sent.min(batch.bytes.len())..];
            let second = &batch.behind[batch.sent.saturating_sub(batch.bytes.len())..];
            match self.socket.try_io(Interest::WRITABLE, || os::send(&self.socket, [first, second], &fds)) {
                Ok(n) => {
                    batch.sent += n;
                    batch.fd = None;
                    if batch.sent == batch.bytes.len() + batch.behind.len() && !batch.go_on()? {
                        out.pop_front();
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match self.socket.poll_write_ready(cx) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(ready) => ready?,
                },
                // The worker is dead. Its last frames are still being read, and the reading side reports the
                // end of the link.
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

/// The effects of one batch of frames on seats, applied together after the batch.
struct Ended {
    apps: Vec<Duration>,
    /// Requests whose waits for the GVL were measured: their number, microseconds in the app, and
    /// microseconds of waiting.
    measured: (u32, u64, u64),
    /// Responses with a status of 500 or more.
    failed: u64,
    /// The requests of each RETURNED frame.
    returned: Vec<Vec<Rc<Call>>>,
    /// The number of RESUMED frames.
    resumed: usize,
    now: Instant,
}

impl Ended {
    fn new() -> Ended {
        Ended {
            apps: Vec::new(),
            measured: (0, 0, 0),
            failed: 0,
            returned: Vec::new(),
            resumed: 0,
            now: Instant::now(),
        }
    }

    fn settle(mut self, end: End, owner: &Rc<impl Owner>) {
        for calls in std::mem::take(&mut self.returned) {
            owner.returned(end, calls, self.now);
        }
        if self.failed > 0 {
            owner.failed(end, self.failed);
        }
        if self.measured.0 > 0 {
            let (count, app_us, gvl_us) = self.measured;
            owner.measured(end.kind, count, app_us, gvl_us);
        }
        if self.apps.is_empty() && self.resumed == 0 {
            return;
        }
        owner.finished(end, &self.apps, self.resumed, self.now);
    }
}

/// Returns the resources that a file of a response holds.
fn amount(len: u64, flags: u8, limits: &settings::Limits) -> Amount {
    match flags & flag::MADE != 0 {
        false => Amount::FILE,
        true if len <= limits.response_memory as u64 => Amount { memory: len, ..Amount::FILE },
        true => Amount { disk: len, ..Amount::FILE },
    }
}

/// Returns the app's end of a stream, unless it would use up the last descriptors. In that case the app's end
/// is closed.
fn app_stream(passed: Passed) -> Result<OwnedFd, Failure> {
    match passed {
        Ok(fd) if net::descriptors::admit_stream(&fd) => Ok(fd),
        _ => Err(Failure::busy(net::descriptors::shortage())),
    }
}

/// Returns whether the worker may send this frame while it waits for LEND or has the client's socket: only
/// the frame that ends this state.
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
