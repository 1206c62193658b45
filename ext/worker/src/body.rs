//! The body of a response, in all the shapes that Rack knows.
//!
//! Contract:
//! 1. A body that is known at once and small travels in the RESPONSE frame; a large one straight from the
//!    app's memory if the front agrees ([`loan`]), otherwise as a nameless file.
//! 2. What `each` yields is sent when it is yielded, for nobody knows how long the next chunk will take; but a
//!    response that says its length, or could be an array, ends soon and is gathered.
//! 3. BODY frames keep within the window.

use crate::names::names;
use crate::raw::os;
use crate::raw::ruby::{self, Value};
use crate::task::{Stage, Task};
use crate::{emit, head, loan, serve};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use wire::flag;
use wire::response::Suspended;

/// Bodies up to this size travel in the RESPONSE frame, in bytes. Larger ones are offered: the way to the front and back is
/// made up for from here on.
const INLINE: usize = 128 << 10;
/// BODY frames carry at most this much.
const PIECE: usize = 64 << 10;
/// Gathered chunks wait no longer than this, in microseconds.
const GATHER_US: u64 = 1000;

/// Sends head and body. May raise.
#[inline]
pub(crate) fn respond(task: &'static Task, head: Suspended, status: u16, body: Value) {
    let ids = names();
    if task.head_only.get() || matches!(status, 204 | 304) {
        return emit::response(task, head, flag::END, None, |_| {});
    }
    if !task.take_over.get().is_nil() {
        return stream(task, head, status, task.take_over.get());
    }
    if body.is_plain_array() {
        return whole(task, head, body);
    }
    if body.is_string() {
        return whole(task, head, ruby::array(&[body]));
    }
    if ruby::responds(body, ids.to_path)
        && let Some((fd, len)) = open(ruby::call(body, ids.to_path, &[]))
    {
        return file(task, head, fd, len);
    }
    if ruby::responds(body, ids.each) {
        return each(task, head, body);
    }
    if ruby::responds(body, ids.call) {
        return stream(task, head, status, body);
    }
    ruby::raise(ids.bad_response.get(), "the body responds to neither each nor call")
}

fn must_be_string(part: Value) {
    if !part.is_string() {
        ruby::raise(ruby::type_error(), "the body yielded something that is not a String");
    }
}

/// An Array of Strings.
#[inline]
fn whole(task: &'static Task, head: Suspended, parts: Value) {
    let mut total = 0;
    for at in 0..parts.array_len() {
        must_be_string(parts.at(at));
        total += parts.at(at).bytes().len();
    }
    if total <= INLINE {
        return emit::response(task, head, flag::END, None, |out| {
            (0..parts.array_len()).for_each(|at| out.extend_from_slice(parts.at(at).bytes()));
        });
    }
    if task.coded.get() {
        emit::response(task, head, 0, None, |_| {});
        (0..parts.array_len()).for_each(|at| push_large(task, parts.at(at)));
        parts.keep();
        return emit::end(task, false);
    }
    if parts.array_len() <= loan::PARTS {
        return loan::respond(task, with_length(task, head, total as u64), parts);
    }
    let fd = spool((0..parts.array_len()).map(|at| parts.at(at).bytes()));
    file(task, head, fd, total as u64);
    parts.keep();
}

/// A nameless file with these bytes. May raise.
pub(crate) fn spool<'a>(mut pieces: impl Iterator<Item = &'a [u8]>) -> RawFd {
    match written(&mut pieces) {
        Ok(fd) => fd,
        Err(text) => ruby::raise(names().bad_response.get(), text),
    }
}

fn written<'a>(pieces: &mut impl Iterator<Item = &'a [u8]>) -> Result<RawFd, String> {
    let mut write = || {
        let mut file = os::nameless_file()?;
        pieces.try_for_each(|piece| file.write_all(piece))?;
        std::io::Result::Ok(file.into_raw_fd())
    };
    write().map_err(|error| format!("a body of more than {INLINE} bytes needs a file in memory: {error}"))
}

/// The head, with a length if the app gave none.
fn with_length(task: &'static Task, head: Suspended, len: u64) -> Suspended {
    if task.finite.get() { head } else { head::with_length(task, head, len) }
}

/// RESPONSE, FILE, END.
fn file(task: &'static Task, head: Suspended, fd: RawFd, len: u64) {
    let head = with_length(task, head, len);
    emit::response(task, head, 0, None, |_| {});
    if len == 0 {
        os::close(fd);
    } else {
        emit::file(task, fd, len);
    }
    emit::end(task, false);
}

/// Opens the file that `to_path` names; `None` when it is not a regular file. May raise.
fn open(path: Value) -> Option<(RawFd, u64)> {
    let path = if path.is_string() { path } else { ruby::to_s(path) };
    // Opening a pipe would wait for somebody to write to it.
    let opened =
        OpenOptions::new().read(true).custom_flags(os::NONBLOCK).open(OsStr::from_bytes(path.bytes()));
    let opened = opened.and_then(|file| {
        let len = os::regular_len(file.as_raw_fd())?;
        Ok(len.map(|len| (file.into_raw_fd(), len)))
    });
    match opened.map_err(|error| error.to_string()) {
        Ok(opened) => opened,
        Err(error) => ruby::raise(names().bad_response.get(), unopened(path, error)),
    }
}

fn unopened(path: Value, error: String) -> String {
    format!("cannot open the body's file {:?}: {error}", String::from_utf8_lossy(path.bytes()))
}

/// Whatever `each` yields.
fn each(task: &'static Task, head: Suspended, body: Value) {
    if !task.finite.get() && ruby::responds(body, names().to_ary) {
        task.finite.set(true);
    }
    task.chunk.with(Vec::clear);
    ruby::each(body, names().each, &mut |arguments| match arguments.first() {
        Some(&part) => chunk(task, head, part),
        None => must_be_string(ruby::NIL),
    });
    if task.stage.get() == Stage::Unsent {
        let whole = task.chunk.with(std::mem::take);
        emit::response(task, head, flag::END, None, |out| out.extend_from_slice(&whole));
        task.chunk.with(|chunk| *chunk = whole);
        return;
    }
    push(task, head);
    emit::end(task, false);
}

fn chunk(task: &'static Task, head: Suspended, part: Value) {
    must_be_string(part);
    let size = part.bytes().len();
    if size == 0 {
        return;
    }
    if size >= PIECE {
        push(task, head);
        push_large(task, part);
    } else {
        let gathered = task.chunk.with(|chunk| {
            chunk.extend_from_slice(part.bytes());
            chunk.len()
        });
        let waited_us = os::now_us().saturating_sub(task.flushed_us.get());
        if task.finite.get() && gathered <= INLINE && waited_us < GATHER_US {
            return;
        }
        push(task, head);
    }
    serve::send(task, task.link.get() as usize);
    task.flushed_us.set(os::now_us());
    serve::glance(task);
}

/// Sends what has been gathered, and the head if it has not been sent yet.
fn push(task: &'static Task, head: Suspended) {
    if task.stage.get() == Stage::Unsent {
        let size = task.chunk.with(|chunk| chunk.len());
        debug_assert!(size <= INLINE + PIECE);
        emit::response(task, head, 0, None, |out| task.chunk.with(|chunk| out.append(chunk)));
        return;
    }
    let mut at = 0;
    while at < task.chunk.with(|chunk| chunk.len()) {
        let room = room(task);
        task.chunk.with(|chunk| {
            let end = chunk.len().min(at + room);
            emit::body(task, &chunk[at..end]);
            at = end;
        });
    }
    task.chunk.with(Vec::clear);
}

/// Sends a large String straight from where it is. It is looked at anew after each wait: the app may change it.
fn push_large(task: &'static Task, part: Value) {
    let mut at = 0;
    while at < part.bytes().len() {
        let room = room(task);
        let bytes = part.bytes();
        let end = bytes.len().min(at + room);
        if at >= end {
            break;
        }
        emit::body(task, &bytes[at..end]);
        at = end;
        serve::send(task, task.link.get() as usize);
    }
    part.keep();
}

/// Bytes that the next BODY frame may have; waits until there are some. May raise.
fn room(task: &'static Task) -> usize {
    if task.window.get() <= 0 {
        serve::wait_for_window(task);
    }
    PIECE.min(task.window.get() as usize)
}

/// A socket pair: RESPONSE with STREAM, and our end for `callable`. May raise.
fn stream(task: &'static Task, head: Suspended, status: u16, callable: Value) {
    let ours = match pair() {
        Ok((ours, theirs)) => {
            if status != 101 {
                // Only an upgrade takes bytes from the client: for all else the app reads the end of the stream.
                os::stop_writing(theirs);
            }
            emit::response(task, head, flag::STREAM, Some(theirs), |_| {});
            ours
        }
        Err(text) => ruby::raise(names().bad_response.get(), text),
    };
    serve::send(task, task.link.get() as usize);
    let arguments = [callable, ruby::integer(i64::from(ours)), task.env.get()];
    ruby::call(names().exchange.get(), names().stream, &arguments);
    emit::end(task, false);
}

/// Both ends of a socket pair: ours and the front's.
pub(crate) fn pair() -> Result<(RawFd, RawFd), String> {
    os::socket_pair()
        .map(|(ours, theirs): (OwnedFd, OwnedFd)| (ours.into_raw_fd(), theirs.into_raw_fd()))
        .map_err(|error| format!("no socket pair: {error}"))
}
