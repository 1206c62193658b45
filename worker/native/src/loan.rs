//! Writes a large body straight from the app's memory to the client, on a socket that the front lends.
//!
//! Why: sending it through a file costs two copies and allocating and freeing its pages, several times the
//! cost of the write itself.
//!
//! Contract:
//! 1. The write never waits for the client. Bytes that the socket does not take at once go to the front in a
//!    file, if there is room for one.
//! 2. The bytes cannot change between the offer and the end of the write, whatever other threads of the app do.
//! 3. The socket is closed before the front gets the number of written bytes, and also after an exception in
//!    between.

use crate::raw::gvl::{self, Gvl};
use crate::raw::os;
use crate::raw::ruby::{Pinned, Value};
use crate::worker::task::Task;
use crate::{chunks, emit, links, waiting};
use std::os::fd::RawFd;
use wire::response::Suspended;

/// Bodies with more parts than this are not offered.
pub(crate) const PARTS: usize = 16;

/// Sends RESPONSE, OFFER, after the front's answer TAKEN, FILE or BODY as needed, then END. `head` must have
/// a length. May raise.
pub(crate) fn respond(gvl: &mut Gvl, task: &'static Task, head: Suspended, parts: Value) {
    let mut pinned = [Pinned::NONE; PARTS];
    let count = parts.array_len(gvl).min(PARTS);
    for (at, pin) in pinned[..count].iter_mut().enumerate() {
        let part = parts.at(gvl, at);
        *pin = Pinned::new(gvl, part);
    }
    let pinned = std::hint::black_box(&pinned[..count]);
    let total: usize = pinned.iter().map(|part| part.bytes().len()).sum();
    emit::response(gvl, task, head, 0, None, |_| {});
    emit::offer(gvl, task, total as u64);
    let mut sent = 0;
    if let Some(fd) = waiting::wait_for_loan(gvl, task) {
        sent = write(gvl, task, fd, pinned);
        task.return_loan();
        emit::taken(gvl, task, sent as u64);
    }
    if sent < total {
        let left = (total - sent) as u64;
        match chunks::spool(gvl, left, rest(pinned, sent)) {
            Some(fd) => emit::file(gvl, task, fd, 0, left, true),
            None => rest(pinned, sent).for_each(|bytes| chunks::push_bytes(gvl, task, bytes)),
        }
    }
    emit::end(gvl, task, false);
    pinned.iter().for_each(Pinned::keep);
}

/// Returns the parts without their first `skip` bytes.
fn rest(parts: &[Pinned], mut skip: usize) -> impl Iterator<Item = &[u8]> {
    parts.iter().map(move |part| {
        let bytes = part.bytes();
        let skipped = skip.min(bytes.len());
        skip -= skipped;
        &bytes[skipped..]
    })
}

/// Writes as much as the socket takes at once, without the GVL. Returns the number of bytes. May raise (an interrupt).
fn write(gvl: &mut Gvl, task: &'static Task, fd: RawFd, parts: &[Pinned]) -> usize {
    let mut pieces = [&b""[..]; PARTS];
    pieces.iter_mut().zip(rest(parts, 0)).for_each(|(piece, bytes)| *piece = bytes);
    loop {
        if let Some(sent) = gvl::release(gvl, || os::send_some(fd, &pieces)) {
            return sent;
        }
        links::interrupts(gvl, task);
    }
}
