//! Appending a task's frames to its link.

use crate::link::Link;
use crate::raw::os;
use crate::task::{Stage, Task};
use crate::worker::worker;
use std::os::fd::RawFd;
use wire::frame::{append, finish};
use wire::response::Suspended;
use wire::{Kind, flag};

#[inline]
fn link<R>(task: &Task, f: impl FnOnce(&mut Link) -> R) -> R {
    worker(|w| f(&mut w.links[task.link.get() as usize]))
}

/// RESPONSE: the head that waits in `task.head`, and the body bytes that `body` appends.
#[inline]
pub(crate) fn response(
    task: &Task,
    head: Suspended,
    flags: u8,
    fd: Option<RawFd>,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let now_us = os::now_us();
    let all_flags = flags | if fd.is_some() { flag::FD } else { 0 };
    task.head.with(|bytes| {
        head.resume(bytes).finish(all_flags, task.times(now_us), b"");
        link(task, |link| {
            fd.into_iter().for_each(|fd| link.pass(fd));
            link.append(now_us, |out| {
                let start = out.len();
                out.extend_from_slice(bytes);
                body(out);
                finish(&mut out[start..], 0, 0);
            });
        });
    });
    task.stage.set(if flags & flag::END != 0 { Stage::Ended } else { Stage::Begun });
}

/// BODY. The caller has seen to the window.
pub(crate) fn body(task: &Task, bytes: &[u8]) {
    let now_us = os::now_us();
    link(task, |link| link.append(now_us, |out| append(out, Kind::Body, 0, task.id.get(), bytes)));
    task.window.set(task.window.get() - bytes.len() as i64);
}

/// FILE, all of it from its start. The descriptor is given away.
pub(crate) fn file(task: &Task, fd: RawFd, len: u64) {
    let mut payload = [0; 16];
    payload[8..].copy_from_slice(&len.to_le_bytes());
    with_fd(task, Kind::File, fd, &payload);
}

/// OFFER.
pub(crate) fn offer(task: &Task, len: u64) {
    plain(task, Kind::Offer, len);
}

/// TAKEN.
pub(crate) fn taken(task: &Task, count: u64) {
    plain(task, Kind::Taken, count);
}

fn plain(task: &Task, kind: Kind, number: u64) {
    let payload = number.to_le_bytes();
    link(task, |link| link.append(os::now_us(), |out| append(out, kind, 0, task.id.get(), &payload)));
}

/// HIJACK. The descriptor is given away.
pub(crate) fn hijack(task: &Task, fd: RawFd) {
    with_fd(task, Kind::Hijack, fd, b"");
    task.stage.set(Stage::Hijacked);
}

fn with_fd(task: &Task, kind: Kind, fd: RawFd, payload: &[u8]) {
    let now_us = os::now_us();
    link(task, |link| {
        link.pass(fd);
        link.append(now_us, |out| append(out, kind, flag::FD, task.id.get(), payload));
    });
}

/// INTERIM, ready made.
pub(crate) fn interim(task: &Task, frame: &[u8]) {
    link(task, |link| link.append(os::now_us(), |out| out.extend_from_slice(frame)));
}

/// END.
pub(crate) fn end(task: &Task, failed: bool) {
    let now_us = os::now_us();
    let flags = if failed { flag::FAILED } else { 0 };
    let times = task.times(now_us).to_bytes();
    link(task, |link| link.append(now_us, |out| append(out, Kind::End, flags, task.id.get(), &times)));
    task.stage.set(Stage::Ended);
}

/// A response of the worker's own, for when nothing else can be said.
pub(crate) fn last_resort(task: &Task) {
    let head = task.head.with(|out| {
        out.clear();
        let mut encoder = wire::response::Encoder::response(out, task.id.get(), 500);
        encoder.field(b"content-type", b"text/plain");
        encoder.suspend()
    });
    let text = if task.head_only.get() { &b""[..] } else { b"Internal Server Error\n" };
    response(task, head, flag::END, None, |out| out.extend_from_slice(text));
}
