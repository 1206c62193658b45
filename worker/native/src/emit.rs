//! Appends a task's frames to the link of its request, from any thread.

use crate::outbox::Outbox;
use crate::raw::gvl::Gvl;
use crate::raw::os;
use crate::routes;
use crate::worker::task::{Open, ResponseStage, Task};
use std::os::fd::RawFd;
use wire::frame::{HEADER, append, finish, set_route};
use wire::response::Suspended;
use wire::times::Times;
use wire::used::{self, Remarks, Used};
use wire::{FrameKind, Header, flag};

/// The size, in bytes, to which an unsent RESPONSE may grow. Beyond it, sending the body separately saves more than it costs.
const RESPONSE: usize = 128 << 10;
/// The size, in bytes, to which an unsent BODY may grow.
const BODY: usize = 64 << 10;

/// Appends what must come before a RESPONSE or END: the name of the route, if it is new on this link; and what the request has used, if `end` has its
/// final times.
#[inline]
fn before(gvl: &Gvl, task: &Task, end: Option<&Times>, now_us: u64) {
    let outbox = task.outbox();
    name(gvl, outbox, task.route.get(), now_us);
    if let Some((used, remarks)) = end.and_then(|times| task.used(gvl, times)) {
        for place in places(remarks.as_ref()) {
            name(gvl, outbox, place, now_us);
        }
        outbox.append(now_us, None, |out| {
            out.extend_from_slice(&used_frame(task, &used, remarks.is_some()));
            remarks.into_iter().for_each(|remarks| out.extend_from_slice(&remarks.to_bytes()));
        });
    }
}

/// Appends the name of this number (0: none), if it is new on the link.
#[inline]
fn name(gvl: &Gvl, outbox: &Outbox, number: u16, now_us: u64) {
    if number != 0 && outbox.is_new(number) {
        outbox.append(now_us, None, |out| wire::route::append(out, number, routes::name(gvl, number)));
    }
}

/// Returns the numbers of the names of the places in remarks.
fn places(remarks: Option<&Remarks>) -> impl Iterator<Item = u16> + use<> {
    let numbers = remarks.map(|remarks| [remarks.repeats_at, remarks.held_at]);
    numbers.into_iter().flatten().filter_map(|number| u16::try_from(number).ok())
}

/// The bytes of a USED frame without remarks.
const USED: usize = HEADER + used::LEN;

/// Returns the frame, which remarks follow or not.
fn used_frame(task: &Task, used: &Used, remarked: bool) -> [u8; USED] {
    let mut frame = [0; USED];
    let len = (used::LEN + if remarked { used::REMARKS_LEN } else { 0 }) as u32;
    let header = Header { len, kind: FrameKind::Used, flags: 0, route: 0, id: task.id.get() };
    frame[..HEADER].copy_from_slice(&header.to_bytes());
    frame[HEADER..].copy_from_slice(&used.to_bytes());
    frame
}

#[inline]
fn outbox(_gvl: &Gvl, task: &Task) -> &'static Outbox {
    task.outbox()
}

/// Appends RESPONSE: the head in `task.head`, and the bytes that `body` appends.
#[inline]
pub(crate) fn response(
    gvl: &Gvl,
    task: &Task,
    head: Suspended,
    flags: u8,
    fd: Option<RawFd>,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let now_us = os::now_us();
    let all_flags = flags | if fd.is_some() { flag::FD } else { 0 };
    let (ends, times) = (flags & flag::END != 0, task.times(now_us));
    before(gvl, task, ends.then_some(&times), now_us);
    task.head.with(gvl, |bytes| {
        head.resume(bytes).finish(all_flags, times, b"");
        outbox(gvl, task).append(now_us, fd, |out| {
            let start = out.len();
            out.extend_from_slice(bytes);
            body(out);
            finish(&mut out[start..], 0, 0);
            set_route(&mut out[start..], task.route.get());
        });
    });
    task.stage.set(if flags & flag::END != 0 { ResponseStage::Ended } else { ResponseStage::Begun });
}

/// Appends RESPONSE with the first bytes of a body whose end is not known yet. Until it is sent the frame can grow ([`grow`]), be completed
/// ([`end`]) or be removed ([`take_back`]).
pub(crate) fn open_response(gvl: &Gvl, task: &Task, head: Suspended, body: &[u8]) {
    let now_us = os::now_us();
    before(gvl, task, None, now_us);
    task.head.with(gvl, |bytes| {
        head.resume(bytes).finish(0, task.times(now_us), b"");
        let position = outbox(gvl, task).append_open(now_us, |out| {
            let start = out.len();
            out.extend_from_slice(bytes);
            out.extend_from_slice(body);
            finish(&mut out[start..], 0, 0);
            set_route(&mut out[start..], task.route.get());
        });
        task.open.set(Some(Open { position, is_response: true }));
    });
    task.stage.set(ResponseStage::Begun);
}

/// Adds bytes to the last frame of the body. Returns false if it has been sent, would grow too long, or the window does not allow it.
pub(crate) fn grow(gvl: &Gvl, task: &Task, more: &[u8]) -> bool {
    let Some(open) = task.open.take() else { return false };
    let most = if open.is_response { RESPONSE } else { BODY };
    // The window applies only to frames after the RESPONSE.
    let fits = open.is_response || more.len() as i64 <= task.window.get();
    let mut grown = false;
    let position = outbox(gvl, task).amend(open.position, |out, start| {
        grown = fits && out.len() - start + more.len() <= most;
        if grown {
            out.extend_from_slice(more);
            finish(&mut out[start..], 0, 0);
        }
    });
    if grown && !open.is_response {
        task.window.set(task.window.get() - more.len() as i64);
    }
    task.open.set(position.map(|position| Open { position, ..open }));
    grown
}

/// Removes an unsent RESPONSE, so that another response can be sent.
pub(crate) fn take_back(gvl: &Gvl, task: &Task) {
    let Some(open) = task.open.take().filter(|open| open.is_response) else { return };
    if outbox(gvl, task).amend(open.position, |out, start| out.truncate(start)).is_some() {
        task.stage.set(ResponseStage::Unsent);
    }
}

/// Appends BODY, which can grow until it is sent. The caller must have checked the window.
pub(crate) fn body(gvl: &Gvl, task: &Task, bytes: &[u8]) {
    let now_us = os::now_us();
    let position =
        outbox(gvl, task).append_open(now_us, |out| append(out, FrameKind::Body, 0, task.id.get(), bytes));
    task.open.set(Some(Open { position, is_response: false }));
    task.window.set(task.window.get() - bytes.len() as i64);
}

/// Appends FILE, starting at byte `from`. `made`: the file was made for this response. The link takes the descriptor over.
pub(crate) fn file(gvl: &Gvl, task: &Task, fd: RawFd, from: u64, len: u64, made: bool) {
    let mut payload = [0; 16];
    payload[..8].copy_from_slice(&from.to_le_bytes());
    payload[8..].copy_from_slice(&len.to_le_bytes());
    with_fd(gvl, task, FrameKind::File, if made { flag::MADE } else { 0 }, fd, &payload);
}

pub(crate) fn offer(gvl: &Gvl, task: &Task, len: u64) {
    plain(gvl, task, FrameKind::Offer, len);
}

pub(crate) fn taken(gvl: &Gvl, task: &Task, count: u64) {
    plain(gvl, task, FrameKind::Taken, count);
}

pub(crate) fn extend(gvl: &Gvl, task: &Task, milliseconds: u64) {
    plain(gvl, task, FrameKind::Extend, milliseconds);
}

fn plain(gvl: &Gvl, task: &Task, kind: FrameKind, number: u64) {
    let payload = number.to_le_bytes();
    outbox(gvl, task).append(os::now_us(), None, |out| append(out, kind, 0, task.id.get(), &payload));
}

/// Appends HIJACK. The link takes the descriptor over.
pub(crate) fn hijack(gvl: &Gvl, task: &Task, fd: RawFd) {
    with_fd(gvl, task, FrameKind::Hijack, 0, fd, b"");
    task.stage.set(ResponseStage::Hijacked);
}

fn with_fd(gvl: &Gvl, task: &Task, kind: FrameKind, flags: u8, fd: RawFd, payload: &[u8]) {
    outbox(gvl, task)
        .append(os::now_us(), Some(fd), |out| append(out, kind, flag::FD | flags, task.id.get(), payload));
}

/// Appends an encoded INTERIM frame.
pub(crate) fn interim(gvl: &Gvl, task: &Task, frame: &[u8]) {
    outbox(gvl, task).append(os::now_us(), None, |out| out.extend_from_slice(frame));
}

/// Appends END, or sets its flag in an unsent RESPONSE.
pub(crate) fn end(gvl: &Gvl, task: &Task, failed: bool) {
    let now_us = os::now_us();
    let times = task.times(now_us);
    let whole = |out: &mut Vec<u8>, start: usize| {
        wire::response::complete(&mut out[start..], times);
        let Some((used, remarks)) = task.used(gvl, &times) else { return };
        let frame = used_frame(task, &used, remarks.is_some());
        let Some(remarks) = remarks else { return drop(out.splice(start..start, frame)) };
        let mut frames = Vec::new();
        for place in places(Some(&remarks)).filter(|place| *place != 0 && task.outbox().is_new(*place)) {
            wire::route::append(&mut frames, place, routes::name(gvl, place));
        }
        frames.extend_from_slice(&frame);
        frames.extend_from_slice(&remarks.to_bytes());
        out.splice(start..start, frames);
    };
    if let Some(open) = task.open.take()
        && open.is_response
        && !failed
        && outbox(gvl, task).amend(open.position, whole).is_some()
    {
        task.stage.set(ResponseStage::Ended);
        return;
    }
    let flags = if failed { flag::FAILED } else { 0 };
    before(gvl, task, Some(&times), now_us);
    outbox(gvl, task).append(now_us, None, |out| {
        let start = out.len();
        append(out, FrameKind::End, flags, task.id.get(), &times.to_bytes());
        set_route(&mut out[start..], task.route.get());
    });
    task.stage.set(ResponseStage::Ended);
}

/// Sends the last-resort response, for when the error page has failed too.
pub(crate) fn fallback(gvl: &Gvl, task: &Task) {
    let head = task.head.with(gvl, |out| {
        out.clear();
        let mut encoder = wire::response::Encoder::response(out, task.id.get(), 500);
        encoder.field(b"content-type", b"text/plain");
        encoder.suspend()
    });
    let text = if task.head_only.get() { &b""[..] } else { b"Internal Server Error\n" };
    response(gvl, task, head, flag::END, None, |out| out.extend_from_slice(text));
}
