//! Sends the body of a response, in all forms that Rack allows.
//!
//! Contract:
//! 1. A small body that is known at once travels in the RESPONSE frame; a large one goes straight from the
//!    app's memory to the client if the front agrees ([`loan`]). The part that the client does not take at
//!    once is buffered in memory up to `response_memory` or in a file up to `response_spool`; a larger body
//!    goes in BODY frames at the client's pace.
//! 2. A chunk that `each` yields is sent at once, because the next chunk may take long. But the chunks of a
//!    response with a known length, or of a body that responds to `to_ary`, are gathered, because it will
//!    probably end soon. Rails' streams respond to `to_ary`, too: the watchdog sends the gathered chunks when
//!    the next one does not come at once.
//! 3. `each` may yield on any thread or fiber. Its block writes to its own response, or raises an IOError
//!    when that has ended ([`Writer`]).

use crate::chunks::{PIECE, must_be_string, push_large, push_parts, room, spool};
use crate::names::names;
use crate::raw::gvl::Gvl;
use crate::raw::os;
use crate::raw::ruby::{self, Value};
use crate::ticket::Writer;
use crate::worker::task::{ResponseStage, Task};
use crate::{emit, head, loan, waiting};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use wire::flag;
use wire::response::Suspended;

/// Bodies up to this size, in bytes, travel in the RESPONSE frame. Larger ones are offered: from here on
/// the offer saves more than its round trip to the front costs.
const INLINE: usize = 128 << 10;
/// The bytes that remain in a stream's socket until it is closed properly.
const UNCLOSED: &[u8] = b"\0";
/// The longest time that gathered chunks wait, in microseconds.
const GATHER_US: u64 = 1000;

/// Sends head and body. May raise.
#[inline]
pub(crate) fn respond(gvl: &mut Gvl, task: &'static Task, head: Suspended, status: u16, body: Value) {
    let ids = names();
    if task.head_only.get() || matches!(status, 204 | 304) {
        return emit::response(gvl, task, head, flag::END, None, |_| {});
    }
    if !task.take_over.get().is_nil() {
        return stream(gvl, task, head, status, task.take_over.get());
    }
    if body.is_plain_array(gvl) {
        return whole(gvl, task, head, body);
    }
    if body.is_string(gvl) {
        let parts = ruby::array(gvl, &[body]);
        return whole(gvl, task, head, parts);
    }
    // A path that cannot be opened (a pipe has none, an unlinked file has lost it) is not an error: `each` is used.
    if ruby::responds(gvl, body, ids.to_path)
        && let path = ruby::call(gvl, body, ids.to_path, &[])
        && let Some((fd, size)) = open(gvl, path)
    {
        // A file that has been read or sought in is sent from its position, as its `each` would.
        let from = position(gvl, body).min(size);
        return file(gvl, task, head, fd, from, size - from);
    }
    if ruby::responds(gvl, body, ids.each) {
        return each(gvl, task, head, body);
    }
    if ruby::responds(gvl, body, ids.call) {
        return stream(gvl, task, head, status, body);
    }
    ruby::raise(gvl, ids.bad_response.get(), "the body responds to neither each nor call")
}

/// Sends a body that is an Array of Strings.
#[inline]
fn whole(gvl: &mut Gvl, task: &'static Task, head: Suspended, parts: Value) {
    let mut total = 0;
    for at in 0..parts.array_len(gvl) {
        let part = parts.at(gvl, at);
        must_be_string(gvl, part);
        total += part.bytes(gvl).len();
    }
    if total <= INLINE {
        return emit::response(gvl, task, head, flag::END, None, |out| {
            (0..parts.array_len(gvl)).for_each(|at| out.extend_from_slice(parts.at(gvl, at).bytes(gvl)));
        });
    }
    if task.coded.get() {
        emit::response(gvl, task, head, 0, None, |_| {});
        push_parts(gvl, task, parts);
        return emit::end(gvl, task, false);
    }
    if parts.array_len(gvl) <= loan::PARTS {
        let head = with_length(gvl, task, head, total as u64);
        return loan::respond(gvl, task, head, parts);
    }
    let head = with_length(gvl, task, head, total as u64);
    emit::response(gvl, task, head, 0, None, |_| {});
    match spool(gvl, total as u64, (0..parts.array_len(gvl)).map(|at| parts.at(gvl, at).bytes(gvl))) {
        Some(fd) => emit::file(gvl, task, fd, 0, total as u64, true),
        None => push_parts(gvl, task, parts),
    }
    emit::end(gvl, task, false);
    parts.keep();
}

/// Adds a Content-Length to the head, if the app has set none.
fn with_length(gvl: &Gvl, task: &'static Task, head: Suspended, len: u64) -> Suspended {
    if task.finite.get() { head } else { head::with_length(gvl, task, head, len) }
}

/// Returns the position of an open file or Tempfile; 0 for other objects and closed files.
fn position(gvl: &mut Gvl, body: Value) -> u64 {
    let mut position = 0;
    // A closed file raises.
    let asked = ruby::protect(gvl, |gvl| {
        if ruby::responds(gvl, body, names().pos) {
            let at = ruby::call(gvl, body, names().pos, &[]);
            position = at.fixnum().map_or(0, |at| at.max(0) as u64);
        }
    });
    if asked.is_err() { 0 } else { position }
}

/// Sends RESPONSE, FILE, END.
fn file(gvl: &mut Gvl, task: &'static Task, head: Suspended, fd: RawFd, from: u64, len: u64) {
    let head = with_length(gvl, task, head, len);
    emit::response(gvl, task, head, 0, None, |_| {});
    if len == 0 {
        os::close(fd);
    } else {
        emit::file(gvl, task, fd, from, len, false);
    }
    emit::end(gvl, task, false);
}

/// Opens the file that `to_path` names. `None` when it is not a regular file, or cannot be opened. May raise.
fn open(gvl: &mut Gvl, path: Value) -> Option<(RawFd, u64)> {
    if path.is_nil() {
        return None;
    }
    let path = if path.is_string(gvl) { path } else { ruby::to_s(gvl, path) };
    // Opening a pipe without O_NONBLOCK would wait for its writer.
    let options = OpenOptions::new().read(true).custom_flags(os::NONBLOCK).clone();
    let file = options.open(OsStr::from_bytes(path.bytes(gvl))).ok()?;
    let len = os::regular_len(file.as_raw_fd()).ok()??;
    Some((file.into_raw_fd(), len))
}

/// Sends the chunks that `each` yields.
fn each(gvl: &mut Gvl, task: &'static Task, head: Suspended, body: Value) {
    if !task.finite.get() && ruby::responds(gvl, body, names().to_ary) {
        task.finite.set(true);
    }
    let writer = Writer::open(task, Some(head));
    let data = writer.to_value(gvl);
    ruby::each::<Chunks>(gvl, body, names().each, data);
    writer.close(gvl);
    if task.stage.get() == ResponseStage::Unsent {
        return emit::response(gvl, task, head, flag::END, None, |_| {});
    }
    emit::end(gvl, task, false);
}

/// The block passed to `each`.
struct Chunks;

impl ruby::Block for Chunks {
    fn call(gvl: &mut Gvl, data: Value, arguments: &[Value]) {
        let Some(writer) = Writer::of_value(gvl, data) else { waiting::body_is_over(gvl) };
        match arguments.first() {
            Some(&part) => chunk(gvl, writer, part),
            None => must_be_string(gvl, ruby::NIL),
        }
    }
}

fn chunk(gvl: &mut Gvl, writer: Writer, part: Value) {
    let task = writer.task;
    must_be_string(gvl, part);
    let size = part.bytes(gvl).len();
    if size == 0 {
        return;
    }
    if size >= PIECE {
        if let Some(head) = unsent(task) {
            emit::response(gvl, task, head, 0, None, |_| {});
        }
        push_large(gvl, writer, part);
    } else if gather(gvl, writer, part) {
        task.place.get().watchdog.look();
        return;
    }
    part.keep();
    waiting::flush(gvl, task);
    if writer.is_open(gvl) {
        task.flushed_us.set(os::now_us());
    }
    waiting::check_client(gvl, writer);
}

/// Returns the head, if the response has not begun.
fn unsent(task: &Task) -> Option<Suspended> {
    task.suspended.get().filter(|_| task.stage.get() == ResponseStage::Unsent)
}

/// Appends a small chunk to the response. Returns whether it can wait to be sent.
fn gather(gvl: &mut Gvl, writer: Writer, part: Value) -> bool {
    let task = writer.task;
    if let Some(head) = unsent(task) {
        emit::open_response(gvl, task, head, part.bytes(gvl));
        return task.finite.get();
    }
    if emit::grow(gvl, task, part.bytes(gvl)) {
        return true;
    }
    let mut at = 0;
    while at < part.bytes(gvl).len() {
        let room = room(gvl, writer);
        let bytes = part.bytes(gvl);
        let end = bytes.len().min(at + room);
        if at >= end {
            break;
        }
        emit::body(gvl, task, &bytes[at..end]);
        at = end;
    }
    let waited_us = os::now_us().saturating_sub(task.flushed_us.get());
    task.finite.get() && task.outbox().unsent() <= INLINE && waited_us < GATHER_US
}

/// Makes a socket pair, sends RESPONSE with STREAM, and gives `callable` the worker's end. May raise.
///
/// An unread byte stays in the worker's end until `Firebrick::StreamSocket#close` takes it out. If that end
/// is closed in any other way (the callable has raised, the process has died, the app never closed it), the
/// system resets the connection to the front, and the front cuts the response off. An upgraded connection has
/// no such byte: its response has no end that could look complete, and its incoming bytes are the client's.
fn stream(gvl: &mut Gvl, task: &'static Task, head: Suspended, status: u16, callable: Value) {
    let ours = match pair() {
        Ok((ours, theirs)) => {
            if status != 101 {
                // Only an upgrade passes on bytes from the client; in other streams the app reads the end of
                // the stream.
                let marked = os::send(theirs, UNCLOSED, None);
                os::stop_writing(theirs);
                if let Err(error) = marked {
                    os::close(theirs);
                    os::close(ours);
                    ruby::raise(
                        gvl,
                        names().bad_response.get(),
                        format!("a new socket takes nothing: {error}"),
                    );
                }
            }
            emit::response(gvl, task, head, flag::STREAM, Some(theirs), |_| {});
            ours
        }
        Err(text) => ruby::raise(gvl, names().bad_response.get(), text),
    };
    waiting::flush(gvl, task);
    let ours = ruby::integer(gvl, i64::from(ours));
    let upgraded = if status == 101 { ruby::TRUE } else { ruby::FALSE };
    let arguments = [callable, ours, task.env.get(), upgraded];
    ruby::call(gvl, names().exchange.get(), names().stream, &arguments);
    emit::end(gvl, task, false);
}

/// Makes a socket pair: the worker's end and the front's.
pub(crate) fn pair() -> Result<(RawFd, RawFd), String> {
    os::socket_pair()
        .map(|(ours, theirs): (OwnedFd, OwnedFd)| (ours.into_raw_fd(), theirs.into_raw_fd()))
        .map_err(|error| format!("no socket pair: {error}"))
}
