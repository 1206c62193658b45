//! Writing a large body straight from the app's memory to the client, on a socket that the front lends.
//!
//! Why: the way by a file costs two copies and the making and freeing of its pages, several times what the writing costs.
//!
//! Contract:
//! 1. The client is never waited for: what its socket does not take at once goes to the front in a file.
//! 2. The bytes cannot change between the offer and the end of the writing, whatever other threads of the app do.
//! 3. The socket is closed before the front hears what was written, and also if an exception comes in between.

use crate::raw::gvl;
use crate::raw::os;
use crate::raw::ruby::{self, Value};
use crate::task::Task;
use crate::{body, emit, serve};
use std::os::fd::RawFd;
use wire::response::Suspended;

/// Bodies in more parts than this are not offered.
pub(crate) const PARTS: usize = 16;

/// RESPONSE, OFFER, and once the front has answered TAKEN, FILE as needed, END. `head` has a length. May raise.
pub(crate) fn respond(task: &'static Task, head: Suspended, parts: Value) {
    let mut pinned = [ruby::NIL; PARTS];
    let count = parts.array_len().min(PARTS);
    (0..count).for_each(|at| pinned[at] = ruby::pinned(parts.at(at)));
    let pinned = std::hint::black_box(&pinned[..count]);
    let total: usize = pinned.iter().map(|part| part.bytes().len()).sum();
    emit::response(task, head, 0, None, |_| {});
    emit::offer(task, total as u64);
    let mut sent = 0;
    if let Some(fd) = serve::wait_for_loan(task) {
        sent = write(task, fd, pinned);
        task.return_loan();
        emit::taken(task, sent as u64);
    }
    if sent < total {
        emit::file(task, body::spool(rest(pinned, sent)), (total - sent) as u64);
    }
    emit::end(task, false);
    pinned.iter().for_each(|part| part.keep());
}

/// The parts without their first `skip` bytes.
fn rest(parts: &[Value], mut skip: usize) -> impl Iterator<Item = &'static [u8]> {
    parts.iter().map(move |part| {
        let bytes: &'static [u8] = part.bytes();
        let skipped = skip.min(bytes.len());
        skip -= skipped;
        &bytes[skipped..]
    })
}

/// Writes what the socket takes at once, without the GVL; the number of bytes. May raise, an interrupt.
fn write(task: &'static Task, fd: RawFd, parts: &[Value]) -> usize {
    let mut pieces = [&b""[..]; PARTS];
    pieces.iter_mut().zip(rest(parts, 0)).for_each(|(piece, bytes)| *piece = bytes);
    loop {
        if let Some(sent) = gvl::release(|| os::send_some(fd, &pieces)) {
            return sent;
        }
        serve::interrupts(task);
    }
}
