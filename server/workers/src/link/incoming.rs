//! Receives frames: reads them, carries out each, and settles their effects on seats.

use super::Link;
use crate::call::Call;
use crate::disk::Disk;
use crate::messages::{Descriptors, End, SupervisorMessage};
use crate::os::{self, Dropped, Passed};
use crate::reply::{ReplyEvent, ReplyHead};
use crate::spool::Room;
use crate::trial::TrialSample;
use bytes::Bytes;
use handler::held::{Amount, OpenFile, SharedFile, memory_is_short};
use handler::{Failure, Fields, FileRegion};
use net::memory::{self, Level};
use queue::{Serial, Turn};
use settings::{Limits, Settings};
use std::cell::RefMut;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use sys::file::UnnamedFile;
use tokio::io::Interest;
use wire::{
    Frame, FrameKind, Malformed, flag, frame,
    frame::Ready,
    response::Response,
    times::Times,
    used::{Remarks, Used},
};

/// The services of the front thread that a link uses.
pub(crate) trait Owner {
    fn report(&self, report: SupervisorMessage);

    fn log(&self, line: &str);

    fn settings(&self) -> Rc<Settings>;

    /// Returns the copies of responses to the disk.
    fn disk(&self) -> &Rc<Disk>;

    /// Writes the unwritten bytes of a response to the disk.
    fn write_backlog(self: &Rc<Self>, call: Rc<Call>);

    /// Returns how much of a response may wait for its client.
    fn room(&self) -> Room;

    /// Returns a buffer for one read, which must not be kept across another call of a link.
    fn scratch(&self) -> RefMut<'_, Vec<u8>>;

    /// Gives a request of the worker time until `until_us`, in microseconds of the monotonic clock.
    fn extended(&self, serial: Serial, id: u32, until_us: u64);

    /// Returns whether a release is on trial, which wants to know each request.
    fn is_on_trial(&self) -> bool;

    /// Returns whether response times are compared with an objective.
    fn has_objective(&self) -> bool;

    /// Carries out the effects of a batch of frames on seats.
    fn settle(self: &Rc<Self>, end: End, settlement: Settlement);
}

/// The effects of one batch of frames on seats, applied together after the batch.
pub(crate) struct Settlement {
    /// The requests that have ended: their times in the app, and the turns that they have used.
    pub(crate) apps: Vec<(Duration, Option<Turn>)>,
    /// The times until responses of clients began; `None` without an objective.
    pub(crate) responded: Option<Vec<Duration>>,
    /// Requests whose waits for the GVL were measured: their number, microseconds in the app, and
    /// microseconds of waiting.
    pub(crate) measured: (u32, u64, u64),
    /// Responses with a status of 500 or more.
    pub(crate) failed: u64,
    /// The requests that the worker has sent back unstarted, by RETURNED frame.
    pub(crate) returned: Vec<Vec<Rc<Call>>>,
    /// The number of RESUMED frames.
    pub(crate) resumed: usize,
    /// The requests that have ended during a trial; `None` without one.
    pub(crate) tried: Option<Vec<TrialSample>>,
    pub(crate) now: Instant,
}

impl Settlement {
    fn new(on_trial: bool, objective: bool) -> Settlement {
        Settlement {
            apps: Vec::new(),
            responded: objective.then(Vec::new),
            measured: (0, 0, 0),
            failed: 0,
            returned: Vec::new(),
            resumed: 0,
            tried: on_trial.then(Vec::new),
            now: Instant::now(),
        }
    }

    fn is_empty(&self) -> bool {
        self.apps.is_empty()
            && self.responded.as_ref().is_none_or(Vec::is_empty)
            && self.returned.is_empty()
            && self.resumed == 0
            && self.failed == 0
    }

    /// Adds a request that has ended.
    fn add(&mut self, times: Times, sampled: bool, turn: Option<Turn>) {
        self.apps.push((Duration::from_micros(times.app_us.into()), turn));
        // The slow ones that a worker measures by itself would bias the sums.
        if let Some(gvl_us) = times.gvl_us.filter(|_| sampled) {
            let (count, app, gvl) = self.measured;
            self.measured = (count + 1, app + u64::from(times.app_us), gvl + u64::from(gvl_us));
        }
    }
}

impl Link {
    /// Reads the remaining frames of a dead worker.
    pub(crate) fn read_rest(&self, owner: &Rc<impl Owner>) {
        while self.receive(owner, true).is_ok_and(|n| n > 0) {}
    }

    /// Reads once. A short read does not mean that no more bytes are available, because a read also ends
    /// before bytes that carry a descriptor. If `asks` is set, the socket is read even if the event loop has
    /// not reported it as readable.
    pub(super) fn receive(&self, owner: &Rc<impl Owner>, asks: bool) -> io::Result<usize> {
        let mut buffer = owner.scratch();
        let mut fds = self.fds.borrow_mut();
        let mut read = || os::receive(&self.socket, &mut buffer, &mut fds);
        let n = if asks { read() } else { self.socket.try_io(Interest::READABLE, read) }?;
        drop(fds);
        let mut partial = self.partial.borrow_mut();
        let mut settlement = Settlement::new(owner.is_on_trial(), owner.has_objective());
        let bad = |e: Malformed| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
        if partial.is_empty() {
            let used = self.frames(&buffer[..n], owner, &mut settlement).map_err(bad)?;
            partial.extend_from_slice(&buffer[used..n]);
        } else {
            partial.extend_from_slice(&buffer[..n]);
            let used = self.frames(&partial, owner, &mut settlement).map_err(bad)?;
            partial.drain(..used);
        }
        drop((partial, buffer));
        if !settlement.is_empty() {
            owner.settle(self.end, settlement);
        }
        Ok(n)
    }

    /// Handles all complete frames and returns their total length.
    fn frames(
        &self,
        bytes: &[u8],
        owner: &Rc<impl Owner>,
        settled: &mut Settlement,
    ) -> Result<usize, Malformed> {
        let mut used = 0;
        while let Some((frame, len)) = Frame::cut(&bytes[used..])? {
            self.frame(&frame, owner, settled)?;
            used += len;
        }
        Ok(used)
    }

    /// Carries out a frame: first the kinds that concern the worker, then those that concern a request, in
    /// their order of arrival.
    fn frame(
        &self,
        frame: &Frame<'_>,
        owner: &Rc<impl Owner>,
        settled: &mut Settlement,
    ) -> Result<(), Malformed> {
        let fd = self.descriptor(frame)?;
        let (id, payload, serial) = (frame.header.id, frame.payload, self.end.serial);
        match frame.header.kind {
            FrameKind::Ready => {
                let Ready { seats, .. } = Ready::decode(payload)?;
                owner.report(SupervisorMessage::Ready { serial, seats });
            }
            FrameKind::Stopping => owner.report(SupervisorMessage::Stopping(serial)),
            FrameKind::Due => owner.report(SupervisorMessage::Due(serial)),
            FrameKind::Collected => {
                let took = Duration::from_micros(frame::u64_payload(payload)?);
                owner.report(SupervisorMessage::Collected { serial, took });
            }
            FrameKind::Traces => {
                let traces = wire::traces::decode(payload)?;
                owner.report(SupervisorMessage::Traces { serial, traces });
            }
            FrameKind::Profile => {
                let last = frame.header.flags & flag::LAST != 0;
                owner.report(SupervisorMessage::Profile {
                    serial,
                    order: id,
                    records: payload.to_vec(),
                    last,
                });
            }
            FrameKind::Returned => self.returned(frame::u64_payload(payload)?, settled)?,
            FrameKind::Resumed => settled.resumed += 1,
            FrameKind::Route => self.named(frame)?,
            FrameKind::Used => {
                let (call, remarks) = (self.call(frame)?, Remarks::decode(payload)?);
                call.used(Used::decode(payload)?);
                if remarks.is_any() {
                    call.remarked(remarks.try_name(|place| self.name(place))?);
                }
            }
            FrameKind::Interim => {
                let (call, response) = (self.call(frame)?, Response::decode_interim(payload)?);
                call.reply.on_event(ReplyEvent::Interim(response.status, fields(&response)));
            }
            FrameKind::Extend => {
                let (call, ms) = (self.call(frame)?, frame::u64_payload(payload)?);
                let until_us = os::monotonic_us().saturating_add(ms.saturating_mul(1_000));
                owner.extended(serial, id, call.extend(until_us));
            }
            FrameKind::Response => {
                let (call, response) = (self.call(frame)?, Response::decode(payload)?);
                // If the client has gone, the status says nothing about the app.
                let failed = response.status >= 500 && !call.reply.is_unwanted();
                settled.failed += u64::from(failed && !call.is_own());
                call.set_failed(failed);
                call.reply.on_event(match fd.map(app_stream).transpose() {
                    Ok(stream) => ReplyEvent::Head(head(&response, stream)),
                    Err(failure) => ReplyEvent::Failed(failure),
                });
                self.route(&call, frame.header.route)?;
                if let Some(responded) = &mut settled.responded {
                    responded.extend(call.response_time(settled.now));
                }
                if is_last(frame) {
                    end(&call, response.times, Ok(()), settled);
                } else {
                    call.took(settled.now, response.times);
                }
            }
            FrameKind::Hijack => {
                let (call, fd) = (self.call(frame)?, fd.ok_or(Malformed("HIJACK without a descriptor"))?);
                call.reply.on_event(match app_stream(fd) {
                    Ok(fd) => ReplyEvent::Hijacked(fd),
                    Err(failure) => ReplyEvent::Failed(failure),
                });
            }
            FrameKind::Body => self.body(self.call(frame)?, frame, owner),
            FrameKind::File => {
                let (call, fd) = (self.call(frame)?, fd.ok_or(Malformed("FILE without a descriptor"))?);
                file(&call, fd, frame, owner)?;
            }
            FrameKind::Offer => {
                let (call, len) = (self.call(frame)?, frame::u64_payload(payload)?);
                if len == 0 || !call.reply.headed() {
                    return Err(Malformed("OFFER of nothing, or before RESPONSE"));
                }
                // While memory is scarce, a handler may not look at it before its client reads.
                if memory::level() >= Level::Waiting || !call.reply.on_offer(len) {
                    self.lend(id, None);
                }
            }
            FrameKind::Taken => {
                let (call, count) = (self.call(frame)?, frame::u64_payload(payload)?);
                if !call.reply.on_taken(count) {
                    return Err(Malformed("TAKEN without a loan, or of more than was offered"));
                }
            }
            FrameKind::End => {
                let (call, times) = (self.call(frame)?, Times::decode(payload)?);
                self.route(&call, frame.header.route)?;
                let result = match frame.header.flags & flag::FAILED {
                    0 => Ok(()),
                    _ => Err(Failure::app(502, "the app failed inside the response body")),
                };
                end(&call, times, result, settled);
            }
            _ => return Err(Malformed("a kind that only the front may send")),
        }
        Ok(())
    }

    /// Returns the descriptor that a frame refers to.
    fn descriptor(&self, frame: &Frame<'_>) -> Result<Option<Passed>, Malformed> {
        if !frame.header.has_fd() {
            return Ok(None);
        }
        let mut fds = self.fds.borrow_mut();
        match &self.descriptors {
            // The descriptor was sent before the frame. A missing one is reported below.
            Descriptors::Beside(beside) if fds.is_empty() => {
                drop(os::receive(beside, &mut [0], &mut fds));
            }
            // The same for connections.
            Descriptors::Connections(come) => {
                let mut come = come.lock().unwrap_or_else(PoisonError::into_inner);
                fds.extend(come.pop_front().map(Ok));
            }
            Descriptors::Beside(_) | Descriptors::WithFrames => {}
        }
        fds.pop_front().map(Some).ok_or(Malformed("a frame came without its descriptor"))
    }

    /// Returns the request of a frame, and removes it if the frame is its last.
    fn call(&self, frame: &Frame<'_>) -> Result<Rc<Call>, Malformed> {
        let (id, last) = (frame.header.id, is_last(frame));
        if let Some(scores) = self.scores.as_ref().filter(|_| last) {
            scores.finished(id, has_failed(frame));
        }
        let call = if last { self.land(id) } else { self.flight(id) };
        let call = call.ok_or(Malformed("a frame for a request that is not in flight"))?;
        // Only the frame that ends a loan may come while the worker waits for LEND or has the client's socket.
        let ends_loan = frame.header.kind == FrameKind::Taken || has_failed(frame);
        if call.reply.is_lending() && !call.reply.is_unwanted() && !ends_loan {
            return Err(Malformed("a frame other than TAKEN while an offer is open"));
        }
        Ok(call)
    }

    /// Records the name of a route.
    fn named(&self, frame: &Frame<'_>) -> Result<(), Malformed> {
        let name = wire::route::name(frame)?;
        let (mut routes, at) = (self.routes.borrow_mut(), usize::from(frame.header.route) - 1);
        if routes.len() <= at {
            routes.resize(at + 1, None);
        }
        routes[at] = Some(name.into());
        Ok(())
    }

    /// Tells a request its route.
    #[inline]
    fn route(&self, call: &Call, number: u16) -> Result<(), Malformed> {
        if number > 0 {
            call.trace.route.replace(self.name(number.into())?);
        }
        Ok(())
    }

    /// Returns the name of this number; `None` for 0.
    fn name(&self, number: u32) -> Result<Option<Arc<str>>, Malformed> {
        let Some(at) = (number as usize).checked_sub(1) else { return Ok(None) };
        let names = self.routes.borrow();
        names.get(at).cloned().flatten().map(Some).ok_or(Malformed("a number without a name"))
    }

    /// Takes back the requests from number `from` on. The front may have withdrawn some of them already.
    fn returned(&self, from: u64, settled: &mut Settlement) -> Result<(), Malformed> {
        let calls = self.take_from(from);
        if calls.iter().any(|call| call.reply.headed()) {
            return Err(Malformed("RETURNED takes back a request whose response has begun"));
        }
        self.send_frame(FrameKind::Resume, 0, &[]);
        settled.returned.push(calls);
        Ok(())
    }

    fn body(&self, call: Rc<Call>, frame: &Frame<'_>, owner: &Rc<impl Owner>) {
        let (room, holding) = (call.room(owner.room()), || call.holding());
        let (grant, begins) = call.reply.on_body(frame.payload, &room, &holding);
        if grant > 0 {
            self.send_frame(FrameKind::Window, frame.header.id, &grant.to_le_bytes());
        }
        if begins {
            owner.write_backlog(call);
        }
    }
}

/// Returns whether a frame is the last of its request.
fn is_last(frame: &Frame<'_>) -> bool {
    match frame.header.kind {
        FrameKind::End => true,
        FrameKind::Response => frame.header.flags & flag::END != 0,
        _ => false,
    }
}

/// Returns whether the app has broken off the response.
fn has_failed(frame: &Frame<'_>) -> bool {
    frame.header.kind == FrameKind::End && frame.header.flags & flag::FAILED != 0
}

fn end(call: &Call, times: Times, result: Result<(), Failure>, settled: &mut Settlement) {
    call.took(settled.now, times);
    if let Some(tried) = &mut settled.tried {
        tried.extend(call.sample(times, result.is_err()));
    }
    if !call.reply.headed() {
        let failure = Failure::app(502, "the worker ended without a response");
        call.reply.on_event(ReplyEvent::Failed(failure));
    }
    call.reply.on_end(result);
    call.finished();
    // A request of the server's own holds no seat of the queue.
    if !call.is_own() {
        settled.add(times, call.trace.measure.get(), call.take_turn());
    }
}

fn file(call: &Call, fd: Passed, frame: &Frame<'_>, owner: &Rc<impl Owner>) -> Result<(), Malformed> {
    let (offset, len) = frame::file_payload(frame.payload)?;
    match fd {
        Ok(file) => {
            let settings = owner.settings();
            let amount = amount(len, frame.header.flags, &settings.limits);
            let file = File::from(file);
            let file: SharedFile = if amount.disk > 0 { UnnamedFile::from(file).into() } else { file.into() };
            let hold = || call.holding().map(|holding| holding.hold(amount));
            call.reply.on_file(|| {
                let made = frame.header.flags & flag::MADE != 0;
                let file = Rc::new(OpenFile::of_response(file, hold()).made(made));
                // A file in memory would not help.
                if amount.memory > 0 && memory_is_short() && !memory::are_files_in_memory() {
                    let temp_dir = settings.process.temp_dir.clone();
                    owner.disk().move_file(&file, offset..offset.saturating_add(len), temp_dir);
                }
                FileRegion { file, offset, len }
            });
        }
        Err(Dropped) => {
            handler::held::relieve();
            call.reply.on_end(Err(Failure::busy(net::descriptors::shortage())));
        }
    }
    Ok(())
}

/// Returns the resources that a file of a response holds.
fn amount(len: u64, flags: u8, limits: &Limits) -> Amount {
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

fn head(response: &Response<'_>, stream: Option<OwnedFd>) -> ReplyHead {
    ReplyHead {
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
