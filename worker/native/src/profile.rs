//! Profiles: where the requests of this worker spend their time, sampled while the front orders it. Costs nothing otherwise.
//!
//! How: a native thread ([`ticker`]) looks at the serving threads at each tick, without the GVL: which request each serves is in the scoreboard, and
//! the kernel says whether it computes or waits. It counts the tick for the thread ([`crate::seat`]), and asks Ruby for a call at the next safe point. There
//! [`take`] reads the stacks of all threads with new ticks, and records them ([`records`]). If no thread computes, the Ruby thread that answers
//! signals does it. So a C function that keeps the GVL gets all ticks of that time, because its frame is still on the stack when it returns.
//!
//! Contract:
//! 1. Only the thread that has the GVL reads stacks: its own by `rb_profile_frames`, others by `Thread#backtrace`. A thread that has used no
//!    processor time since its last sample is still at the same place, so it is not asked again.
//! 2. Memory is bounded: see the limits in [`records`].
//! 3. The records go to the front every second.

mod records;
mod ticker;

use crate::names::names;
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::os;
use crate::raw::ruby::{self, Id, Value};
use crate::raw::slots::RootSlot;
use crate::raw::{gvl_wait, sampling, signals};
use crate::routes;
use crate::seat::Seat;
use crate::worker::is_set_up;
use crate::worker::task::{ServingThread, Task};
use crate::worker::worker;
use records::Recorder;

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use ticker::TICKER;
use wire::frame::append;
use wire::profile::{Clock, Order, SampledState};
use wire::scoreboard::Serving;
use wire::{FrameKind, flag};

/// The time after which records are sent, in microseconds.
const SEND_AFTER_US: u64 = 1_000_000;
/// The number of bytes after which they are sent at once.
const SEND_AFTER_BYTES: usize = 256 << 10;

/// The waiting fibers that are looked at at a time: a backtrace of each of them would cost more than the profile may.
const MOST_WAITING: usize = 2;

/// A profile is being taken.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// The worker has finished: no profile begins.
static OVER: AtomicBool = AtomicBool::new(false);

static RUNNING: Guarded<Option<Running>> = Guarded::new(None);

thread_local! {
    /// The seat of the calling thread, if it serves requests.
    static OWN: Cell<Option<&'static Seat>> = const { Cell::new(None) };
}

struct Running {
    order: Order,
    recorder: Recorder,
    /// The requests that the worker had finished at the start.
    finished_before: u64,
    sent_us: u64,
    /// When the waits of fibers were recorded last, in microseconds; 0: not yet.
    looked_us: u64,
    /// `Thread#backtrace`, `Fiber#backtrace`.
    backtrace: Id,
}

/// Makes the calling thread, which serves requests, known to profiles.
pub(crate) fn attach(thread: &'static ServingThread) {
    thread.seat.sit(thread.index, &thread.gvl_wait);
    OWN.set(Some(&thread.seat));
    OVER.store(false, Relaxed);
    TICKER.adds(&thread.seat);
}

/// Reverses [`attach`].
pub(crate) fn detach(thread: &'static ServingThread) {
    OWN.set(None);
    TICKER.removes(&thread.seat);
}

/// Begins or ends a profile, as the front has ordered. May raise.
pub(crate) fn obey(gvl: &mut Gvl) {
    if !is_set_up(gvl) {
        return;
    }
    let order = Order::unpack(worker(gvl, |w| w.scoreboard.ordered_profile()));
    let current = RUNNING.with(gvl, |running| running.as_ref().map(|running| running.order));
    if current == order {
        return;
    }
    end(gvl);
    if let Some(order) = order.filter(|_| !OVER.load(Relaxed)) {
        begin(gvl, order);
    }
}

fn begin(gvl: &mut Gvl, order: Order) {
    let can = sampling::prepare(gvl, take);
    let backtrace = ruby::id(gvl, "backtrace");
    let board = worker(gvl, |w| w.scoreboard);
    let running = Running {
        order,
        recorder: Recorder::new(gvl),
        finished_before: board.finished(),
        sent_us: 0,
        looked_us: 0,
        backtrace,
    };
    RUNNING.with(gvl, |slot| *slot = Some(running));
    if !can {
        return refuse(gvl, b"this Ruby or system has no postponed jobs that another thread can ask for");
    }
    if let Err(error) = TICKER.start(board, order) {
        return refuse(gvl, format!("a thread cannot be started: {error}").as_bytes());
    }
    sampling::watch_collector(gvl, collects, true);
    gvl_wait::watch_all(true);
    ACTIVE.store(true, Relaxed);
    // The front learns that this worker takes part.
    send(gvl, 0);
}

/// Answers that this worker cannot take the profile.
fn refuse(gvl: &mut Gvl, what: &[u8]) {
    record(gvl, |recorder| recorder.lacks(what));
    send(gvl, flag::LAST);
    if let Some(running) = RUNNING.with(gvl, Option::take) {
        running.recorder.retire(gvl);
    }
}

/// Ends the profile, if there is one, and sends the rest of it.
fn end(gvl: &mut Gvl) {
    if !ACTIVE.swap(false, Relaxed) {
        return;
    }
    TICKER.stop();
    gvl_wait::watch_all(false);
    sampling::watch_collector(gvl, collects, false);
    send(gvl, flag::LAST);
    if let Some(running) = RUNNING.with(gvl, Option::take) {
        running.recorder.retire(gvl);
    }
}

/// Ends the profile, if there is one, because the worker has finished. None begins after that.
pub(crate) fn finish(gvl: &mut Gvl) {
    OVER.store(true, Relaxed);
    end(gvl);
}

/// Ends the profile in a child that the app has forked, which has no ticker.
pub(crate) fn abandon(gvl: &Gvl) {
    if ACTIVE.swap(false, Relaxed) {
        TICKER.lost();
        RUNNING.with(gvl, |running| *running = None);
    }
}

/// Records that the calling thread begins or ends a step of garbage collection.
fn collects(begins: bool) {
    if let Some(seat) = OWN.get() {
        seat.collects.store(begins, Relaxed);
    }
}

/// Takes the samples that are due. Runs in a postponed job, or on the Ruby thread that answers signals.
pub(crate) fn take(gvl: &mut Gvl) {
    if !ACTIVE.load(Relaxed) || !is_set_up(gvl) {
        return;
    }
    let due: Vec<&'static Task> =
        worker(gvl, |w| w.tasks.iter().copied().filter(|task| task.thread.seat.is_due()).collect());
    for task in due {
        sample(gvl, task);
    }
    let now_us = os::now_us();
    if worker(gvl, |w| w.options.fibers > 0) {
        sample_waiting(gvl, now_us);
    }
    let is_due = RUNNING.with(gvl, |running| {
        running.as_ref().is_some_and(|running| {
            now_us.saturating_sub(running.sent_us) >= SEND_AFTER_US
                || running.recorder.bytes() >= SEND_AFTER_BYTES
        })
    });
    if is_due {
        send(gvl, 0);
    }
}

/// Records the new ticks of a thread.
fn sample(gvl: &mut Gvl, own: &'static Task) {
    let (thread, seat) = (own.thread, &own.thread.seat);
    let (word, ticks) = seat.take();
    // With fibers the thread serves the request of the fiber that it runs.
    let serving = match worker(gvl, |w| w.options.fibers > 0) {
        true => thread.running.get().and_then(|strand| strand.task.get()),
        false => Some(own),
    };
    let is_it = |task: &&Task| {
        task.active.get() && Serving { link: task.link.get(), id: task.id.get() }.pack() == word
    };
    let (mut node, mut request) = (0, 0);
    // Otherwise the request has ended since the tick, so its stack is unknown.
    if let Some(task) = serving.filter(is_it) {
        request = request_of(gvl, task);
        node = match OWN.get() {
            Some(mine) if ptr::eq(mine, seat) => own_stack(gvl),
            _ => stack_of(gvl, thread, word),
        };
    }
    let known = thread.gvl_wait.waits().is_some();
    if !known
        && ticks[SampledState::WaitsForThread as usize] > 0
        && record(gvl, |recorder| recorder.is_ruby(node))
    {
        seat.waited_for_gvl();
    }
    record(gvl, |recorder| {
        for (seen, us) in SampledState::ALL.into_iter().zip(ticks).filter(|(_, us)| *us > 0) {
            let seen =
                if known && seen == SampledState::WaitsForThread { SampledState::WaitsInLock } else { seen };
            recorder.sample(node, request, seen, us);
        }
    });
}

/// Records the time since the last call for fibers that wait: what is seen now stands for all of it. Of many fibers some stand for all.
fn sample_waiting(gvl: &mut Gvl, now_us: u64) {
    let since = RUNNING.with(gvl, |running| {
        let running = running.as_mut().filter(|running| running.order.clock == Clock::Wall)?;
        let since_us = std::mem::replace(&mut running.looked_us, now_us);
        Some((running.order.serial, since_us)).filter(|_| since_us != 0)
    });
    let Some((serial, since_us)) = since else { return };
    let waits = |task: &&'static Task| {
        let strand = task.fiber.as_ref();
        strand
            .is_some_and(|strand| !task.thread.running.get().is_some_and(|running| ptr::eq(running, strand)))
    };
    let mut waiting: Vec<&'static Task> = worker(gvl, |w| w.serving().filter(|task| waits(task)).collect());
    let every = waiting.len().div_ceil(MOST_WAITING).max(1);
    if every > 1 {
        waiting.rotate_left(now_us as usize % every);
    }
    let us = now_us.saturating_sub(since_us).min(SEND_AFTER_US) as u32;
    let us = us.saturating_mul(u32::try_from(every).unwrap_or(u32::MAX));
    for task in waiting.into_iter().step_by(every) {
        let Some(strand) = &task.fiber else { continue };
        let request = request_of(gvl, task);
        let entered_us = strand.entered_us.get();
        let node = match strand.profiled.get() {
            (at_us, of, node) if (at_us, of) == (entered_us, serial) => node,
            _ => backtrace_of(gvl, strand.ruby.get()),
        };
        strand.profiled.set((entered_us, serial, node));
        // Without a wait, it has been pre-empted.
        let seen = if strand.wait.get().is_some() { SampledState::Waits } else { SampledState::WaitsForGvl };
        record(gvl, |recorder| recorder.sample(node, request, seen, us));
    }
}

fn record<R: Default>(gvl: &Gvl, f: impl FnOnce(&mut Recorder) -> R) -> R {
    RUNNING.with(gvl, |running| running.as_mut().map(|running| f(&mut running.recorder))).unwrap_or_default()
}

/// Returns the node of the calling thread's stack.
fn own_stack(gvl: &mut Gvl) -> u32 {
    record(gvl, |recorder| sampling::frames(gvl, &mut recorder.frames));
    // All are kept before the first is named, which makes objects: the collector may move those that are not.
    let mut kept = Vec::new();
    for frame in record(gvl, |recorder| recorder.unknown()) {
        let spare = record(gvl, Recorder::spare_slot);
        let slot = spare.unwrap_or_else(|| RootSlot::leak(gvl, frame));
        slot.set(frame);
        kept.push((frame, slot));
    }
    for (frame, slot) in kept {
        name_frame(gvl, frame, slot);
    }
    record(gvl, Recorder::stack)
}

/// Gives a frame a number. `slot` keeps its object alive and in its place, so that no other one gets its address.
fn name_frame(gvl: &mut Gvl, frame: Value, slot: &'static RootSlot) {
    let (mut path, mut label, mut full) = (ruby::NIL, ruby::NIL, ruby::NIL);
    let named = ruby::protect(gvl, |gvl| {
        let names = sampling::names(gvl, frame);
        (path, label, full) = (names.path, names.label, names.full);
    });
    let text = |value: Value| if named.is_ok() && value.is_string(gvl) { value.bytes(gvl) } else { b"" };
    let (path_text, label_text, full_text) = (text(path), text(label), text(full));
    // The name of an object has its address, which differs in each worker.
    let full_text = if full_text.starts_with(b"#<") { b"" } else { full_text };
    record(gvl, |recorder| recorder.named(frame, slot, path_text, label_text, full_text));
    full.keep();
}

/// Returns the node of another thread's stack.
fn stack_of(gvl: &mut Gvl, thread: &'static ServingThread, word: u64) -> u32 {
    let used_us = thread.seat.used_us();
    if let Some(node) = thread.seat.last(gvl, word, used_us) {
        return node;
    }
    let node = backtrace_of(gvl, thread.ruby.get());
    thread.seat.was_at(gvl, word, used_us, node);
    node
}

/// Returns the node of the stack of a thread or fiber that does not run; 0 if it has none.
fn backtrace_of(gvl: &mut Gvl, of: Value) -> u32 {
    let Some(method) = backtrace(gvl).filter(|_| !of.is_nil()) else { return 0 };
    let mut lines = ruby::NIL;
    let asked = ruby::protect(gvl, |gvl| lines = ruby::call(gvl, of, method, &[]));
    if asked.is_err() || !lines.is_array(gvl) {
        return 0;
    }
    let texts: Vec<&[u8]> = (0..lines.array_len(gvl)).map(|at| lines.at(gvl, at).bytes(gvl)).collect();
    let node = record(gvl, |recorder| recorder.backtrace(&texts));
    lines.keep();
    node
}

fn backtrace(gvl: &Gvl) -> Option<Id> {
    RUNNING.with(gvl, |running| running.as_ref().map(|running| running.backtrace))
}

/// Returns the number of a request in the profile; 0: it has none.
fn request_of(gvl: &mut Gvl, task: &'static Task) -> u32 {
    let (serial, number) = task.profiled.get();
    if serial == task.request.get() {
        return number;
    }
    let env = task.env.get();
    if !env.is_hash(gvl) {
        return 0;
    }
    let (mut method, mut path) = (ruby::NIL, ruby::NIL);
    let read = ruby::protect(gvl, |gvl| {
        method = ruby::hash_get(gvl, env, names().request_method.get());
        path = ruby::hash_get(gvl, env, names().request_path.get());
    });
    let text = |value: Value| if read.is_ok() && value.is_string(gvl) { value.bytes(gvl) } else { b"" };
    let (method, path) = (text(method), text(path));
    let number = record(gvl, |recorder| recorder.request(task.link.get(), task.id.get(), method, path));
    task.profiled.set((task.request.get(), number));
    number
}

/// Records that a request has ended, if a sample belongs to it.
#[inline]
pub(crate) fn ended(gvl: &Gvl, task: &'static Task, us: u64) {
    if ACTIVE.load(Relaxed) {
        let (serial, number) = task.profiled.replace((0, 0));
        if number != 0 && serial == task.request.get() {
            let route = routes::name(gvl, task.route.get());
            record(gvl, |recorder| recorder.ended(number, us, route.as_bytes()));
        }
    }
}

/// Sends what has been recorded.
fn send(gvl: &Gvl, flags: u8) {
    let now_us = os::now_us();
    let Some((outbox, finished)) =
        worker(gvl, |w| w.links.first().map(|link| (link.outbox(), w.scoreboard.finished())))
    else {
        return;
    };
    let (ticks, late) = TICKER.counts();
    let cut = RUNNING.with(gvl, |running| {
        let running = running.as_mut()?;
        running.sent_us = now_us;
        let records = running.recorder.cut(finished.saturating_sub(running.finished_before), ticks, late);
        Some((running.order.serial, records))
    });
    if let Some((serial, records)) = cut {
        outbox.append(now_us, None, |out| append(out, FrameKind::Profile, flags, serial, &records));
        // A link that has ended is found by its reader.
        let _ = outbox.send();
    }
}

/// Wakes the Ruby thread that answers signals, for [`take`].
fn wake_ruby() {
    signals::ask(signals::PendingWork::Sample);
}

/// Returns whether ticks count processor time.
fn counts_cpu(order: Order) -> bool {
    order.clock == Clock::Cpu
}
