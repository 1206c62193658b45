//! The bytes of a body that do not travel in RESPONSE: as BODY frames, or in a file.
//!
//! Contract: BODY frames keep within the window; where it is used up, the caller waits.

use crate::raw::gvl::Gvl;
use crate::raw::os;
use crate::raw::ruby::{self, Value};
use crate::ticket::Writer;
use crate::worker::task::Task;
use crate::worker::worker;
use crate::{emit, waiting};
use std::io::Write;
use std::os::fd::{IntoRawFd, RawFd};

/// The largest payload of a BODY frame.
pub(crate) const PIECE: usize = 64 << 10;

pub(crate) fn must_be_string(gvl: &mut Gvl, part: Value) {
    if !part.is_string(gvl) {
        let class = ruby::type_error(gvl);
        ruby::raise(gvl, class, "the body yielded something that is not a String");
    }
}

/// Writes the pieces to a nameless file; `len` is their total size. `None` when there is no room for it.
pub(crate) fn spool<'a>(gvl: &Gvl, len: u64, mut pieces: impl Iterator<Item = &'a [u8]>) -> Option<RawFd> {
    let options = worker(gvl, |w| w.options);
    let file = if len <= options.response_memory {
        os::memory_file()
    } else if len <= options.response_spool {
        os::unnamed_file(options.temp_dir)
    } else {
        return None;
    };
    // A full disk counts as no room.
    let mut file = file.ok()?;
    pieces.try_for_each(|piece| file.write_all(piece)).ok()?;
    Some(file.into_raw_fd())
}

/// Sends the Strings of an Array. The Array is read again after each wait, because the app may change it.
pub(crate) fn push_parts(gvl: &mut Gvl, task: &'static Task, parts: Value) {
    let writer = Writer::open(task, None);
    let mut at = 0;
    while at < parts.array_len(gvl) {
        let part = parts.at(gvl, at);
        must_be_string(gvl, part);
        push_large(gvl, writer, part);
        at += 1;
    }
    parts.keep();
}

/// Sends bytes that stay in place during the call.
pub(crate) fn push_bytes(gvl: &mut Gvl, task: &'static Task, mut bytes: &[u8]) {
    let writer = Writer::open(task, None);
    while !bytes.is_empty() {
        let (piece, rest) = bytes.split_at(bytes.len().min(room(gvl, writer)));
        emit::body(gvl, task, piece);
        bytes = rest;
        waiting::flush(gvl, task);
    }
}

/// Sends a large String without copying it first. It is read again after each wait, because the app may change it.
pub(crate) fn push_large(gvl: &mut Gvl, writer: Writer, part: Value) {
    let task = writer.task;
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
        waiting::flush(gvl, task);
    }
    part.keep();
}

/// Returns the number of bytes that the next BODY frame may have; waits until there are some. May raise, also
/// when the body has ended.
pub(crate) fn room(gvl: &mut Gvl, writer: Writer) -> usize {
    waiting::must_be_open(gvl, writer);
    if writer.task.window.get() <= 0 {
        waiting::wait_for_window(gvl, writer);
    }
    PIECE.min(writer.task.window.get() as usize)
}
