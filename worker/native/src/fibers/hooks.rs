//! The waits of fibers: the hooks of Ruby's scheduler, and the waits of the worker itself.
//!
//! Contract: a wait raises in its fiber when a `Timeout.timeout` around it has expired, or when its client
//! has disconnected (once, and only in requests that change nothing). It does not raise while
//! `Thread.handle_interrupt` of its request defers that. The value of `$?` is restored when the wait is over.
//! In a process without the loop (the app has forked), a wait blocks the thread.

use super::waits::{RaisePolicy, WaitEnd, Waits};
use super::{HERE, calls, directory, here, reuse, slot_for, wake, with};
use crate::names::names;
use crate::raw::fiber;
use crate::raw::gvl::{self, Gvl};
use crate::raw::os::{self, Wait};
use crate::raw::poller;
use crate::raw::ruby::{self, FALSE, NIL, TRUE, Value};
use crate::raw::switches;
use crate::worker::task::strand::{self, Key, Strand};
use crate::worker::task::{Task, Watcher};
use std::os::fd::RawFd;

/// The interval at which a wait without a loop checks whether its fiber has been unblocked, in microseconds.
const LOOK_AGAIN_US: u64 = 5_000;

/// Converts a number of microseconds. nil means no limit.
fn micros(value: Value) -> Option<u64> {
    value.fixnum().map(|us| us.max(0) as u64)
}

/// Parks the calling fiber until the wait that `watch` sets up is over; the loop goes on. May raise.
fn park(
    gvl: &mut Gvl,
    us: Option<u64>,
    native: bool,
    watch: &mut dyn FnMut(&mut Waits, Key),
) -> (Key, WaitEnd) {
    let (fiber, strand) = (fiber::current(gvl), strand::current());
    let missed = missed_alarm(gvl, fiber, strand, RaisePolicy::OnBlocking);
    let status = ruby::last_status(gvl);
    let slot = slot_for(gvl, fiber);
    let until_us = us.map(|us| os::now_us().saturating_add(us));
    let begun = here(gvl, |l| {
        let key = l.waits.begin(slot, strand, until_us);
        watch(&mut l.waits, key);
        if let Some(number) = missed
            && !l.waits.wake(key, WaitEnd::Alarm(number))
        {
            l.waits.miss_first(number);
        }
        // The client may have disconnected while the request computed.
        let task = strand.and_then(|strand| strand.task.get());
        if task.is_some_and(|task| !native && task.ends_waits()) && l.waits.wake(key, WaitEnd::Gone) {
            strand.into_iter().for_each(|strand| strand.interruptible.set(false));
        }
        (key, l.root.get())
    });
    let (key, root) = begun.expect("the thread has a loop");
    if let Some(strand) = strand {
        strand.wait.set(Some(key));
        strand.native.set(native);
        strand.goes_on.set(true);
    }
    let own = directory::leave(strand);
    let left = fiber::transfer(gvl, root);
    directory::enter(own);
    // If the app has entered this fiber by itself, a strand of `Fiber.schedule` may belong to another fiber by now.
    if let Some(strand) = strand.filter(|strand| strand.wait.get() == Some(key)) {
        strand.wait.set(None);
    }
    let outcome = here(gvl, |l| l.waits.finish(key)).flatten();
    if let Err(unwind) = left {
        fiber::go_on(gvl, unwind);
    }
    ruby::restore_status(gvl, status);
    match outcome {
        Some(WaitEnd::Alarm(number)) => {
            let number = ruby::integer(gvl, number as i64);
            ruby::call(gvl, names().fibers.get(), names().expired, &[number]);
            (key, WaitEnd::TimedOut)
        }
        Some(WaitEnd::Closed) => ruby::raise(gvl, names().io_error.get(), "stream closed in another fiber"),
        Some(WaitEnd::Gone) => ruby::raise(gvl, names().client_gone.get(), "the client has gone"),
        Some(outcome) => (key, outcome),
        // The app has entered the fiber itself.
        None => (key, WaitEnd::Woken),
    }
}

/// Takes the first missed alarm of the calling fiber's strand that may be raised here: where the fiber waits,
/// or anywhere. An alarm that another fiber set applies to this one if the other fiber has resumed it. May
/// raise.
pub(super) fn missed_alarm(
    gvl: &mut Gvl,
    fiber: Value,
    strand: Option<&'static Strand>,
    place: RaisePolicy,
) -> Option<u64> {
    if !here(gvl, |l| l.waits.has_missed(fiber, strand)).unwrap_or(false) {
        return None;
    }
    let mut at = 0;
    // They are read one by one: a list would leak when Ruby raises.
    while let Some((number, setter)) =
        here(gvl, |l| l.waits.missed(fiber, strand, Some(place)).get(at).copied()).flatten()
    {
        if setter == fiber || HERE.get().is_some_and(|index| calls(gvl, index, number)) {
            here(gvl, |l| l.waits.take_missed(number));
            return Some(number);
        }
        at += 1;
    }
    None
}

/// Returns whether the calling fiber can be parked: the thread has a loop, and this is not the loop's own fiber.
fn can_park(gvl: &Gvl) -> bool {
    here(gvl, |l| l.root.get()).is_some_and(|root| root != fiber::current(gvl))
}

/// Waits for an event of the request ([`Task::tell`]), which need not be the calling fiber's request. Returns
/// false when the calling fiber cannot be parked and the caller has to wait by itself. May raise.
pub(crate) fn wait_for_news(gvl: &mut Gvl, task: &'static Task) -> bool {
    let Some(number) = HERE.get().filter(|_| can_park(gvl)) else { return false };
    park(gvl, None, true, &mut |_, key| task.watch(Watcher::Fiber { number, key, wake }));
    true
}

/// Waits until the socket is writable. Returns false when the caller has to wait by itself. May raise.
pub(crate) fn wait_writable(gvl: &mut Gvl, fd: RawFd) -> bool {
    if !can_park(gvl) {
        return false;
    }
    park(gvl, None, true, &mut |waits, key| waits.watch(key, fd, poller::WRITABLE));
    true
}

/// `io_wait`: returns the events that have come; false after `us`.
pub(crate) fn io(gvl: &mut Gvl, fd: Value, events: Value, us: Value) -> Value {
    let (Some(fd), Some(events)) = (fd.fixnum(), events.fixnum()) else { return FALSE };
    let (fd, events) = (fd as RawFd, events as u32);
    if !can_park(gvl) {
        return io_alone(gvl, fd, events, micros(us));
    }
    let (key, outcome) = park(gvl, micros(us), false, &mut |waits, key| waits.watch(key, fd, events));
    if outcome == WaitEnd::TimedOut {
        return FALSE;
    }
    let fired =
        here(gvl, |l| l.waits.fired(key).iter().fold(0, |all, (_, events)| all | events)).unwrap_or(0);
    ruby::integer(gvl, i64::from(if fired == 0 { events } else { fired }))
}

fn io_alone(gvl: &mut Gvl, fd: RawFd, events: u32, us: Option<u64>) -> Value {
    let ms = us.map_or(-1, |us| i32::try_from(us.div_ceil(1000)).unwrap_or(i32::MAX));
    let waited = gvl::release(gvl, || poller::wait_for(fd, events, ms));
    ruby::check_interrupts(gvl);
    match waited {
        Some(Ok(0)) => FALSE,
        _ => ruby::integer(gvl, i64::from(events)),
    }
}

/// `io_read`: waits, when Ruby is about to read from `io`, until it is readable or at its end. Does not wait
/// for an `io` with its own timeout, because Ruby limits those waits itself. May raise.
///
/// Why: without this Ruby waits inside the read, where it keeps a list of all readers and walks it for each
/// `IO#close`. With thousands of waiting reads a close takes milliseconds (Ruby up to 3.4).
pub(crate) fn before_read(gvl: &mut Gvl, io: Value) {
    if !can_park(gvl)
        || ruby::responds(gvl, io, names().timeout) && ruby::call(gvl, io, names().timeout, &[]).truthy()
    {
        return;
    }
    let Some(fd) = ruby::call(gvl, io, names().fileno, &[]).fixnum().map(|fd| fd as RawFd) else { return };
    if matches!(poller::wait_for(fd, poller::READABLE, 0), Ok(0)) {
        park(gvl, None, false, &mut |waits, key| waits.watch(key, fd, poller::READABLE));
    }
}

/// Waits for several descriptors. `wanted` is a list of [number, events]. Returns the ready ones in the same
/// form; an empty list after `us`.
pub(crate) fn select(gvl: &mut Gvl, wanted: Value, us: Value) -> Value {
    if !can_park(gvl) {
        return NIL;
    }
    let count = wanted.array_len(gvl);
    let mut at = 0;
    // The pairs are read one by one: a copy of the list could leak when the wait raises.
    let mut next = |gvl: &Gvl| {
        let pair = wanted.at(gvl, at);
        at += 1;
        (pair.at(gvl, 0).fixnum().unwrap_or(-1) as RawFd, pair.at(gvl, 1).fixnum().unwrap_or(0) as u32)
    };
    let mut few = [(-1, 0); 16];
    if count <= few.len() {
        few.iter_mut().take(count).for_each(|pair| *pair = next(gvl));
    } else {
        return NIL;
    }
    let few = &few[..count];
    let (key, outcome) = park(gvl, micros(us), false, &mut |waits, key| {
        few.iter().for_each(|&(fd, events)| waits.watch(key, fd, events));
    });
    wanted.keep();
    let all = ruby::array(gvl, &[]);
    if outcome == WaitEnd::TimedOut {
        return all;
    }
    let mut fired = 0;
    while let Some((fd, events)) = here(gvl, |l| l.waits.fired(key).get(fired).copied()).flatten() {
        let (fd, events) = (ruby::integer(gvl, i64::from(fd)), ruby::integer(gvl, i64::from(events)));
        let pair = ruby::array(gvl, &[fd, events]);
        ruby::push(gvl, all, pair);
        fired += 1;
    }
    all
}

pub(crate) fn sleep(gvl: &mut Gvl, us: Value) -> Value {
    if can_park(gvl) {
        park(gvl, micros(us), false, &mut |_, _| {});
    } else {
        pause_alone(gvl, micros(us).unwrap_or(u64::MAX));
    }
    TRUE
}

fn pause_alone(gvl: &mut Gvl, us: u64) {
    let mut wait = Wait::readable(std::iter::empty());
    gvl::release(gvl, || wait.wait_for(us));
    drop(wait);
    ruby::check_interrupts(gvl);
}

/// `block`: returns whether the fiber was unblocked before the time was over.
pub(crate) fn block(gvl: &mut Gvl, us: Value) -> Value {
    let fiber = fiber::current(gvl);
    if here(gvl, |l| l.waits.was_woken_early(fiber)).unwrap_or(false) {
        return TRUE;
    }
    if can_park(gvl) {
        let (_, outcome) = park(gvl, micros(us), false, &mut |_, _| {});
        return if outcome == WaitEnd::TimedOut { FALSE } else { TRUE };
    }
    // Another thread unblocks it; the callers of `block` check again by themselves.
    pause_alone(gvl, micros(us).map_or(LOOK_AGAIN_US, |us| us.min(LOOK_AGAIN_US)));
    TRUE
}

/// `unblock`, callable from any thread. `number` is that of the fiber's loop.
pub(crate) fn unblock(gvl: &mut Gvl, number: Value, fiber: Value) -> Value {
    let Some(number) = number.fixnum().and_then(|number| usize::try_from(number).ok()) else { return NIL };
    let thread = with(gvl, number, |l| {
        l.waits.wake_fiber(fiber);
        l.thread
    });
    if HERE.get() != Some(number) {
        thread.into_iter().for_each(|thread| thread.wakeup.wake());
    }
    NIL
}

/// Lets the other ready fibers run first.
pub(crate) fn pause(gvl: &mut Gvl) -> Value {
    if can_park(gvl) {
        park(gvl, None, false, &mut |waits, key| {
            waits.wake(key, WaitEnd::Woken);
        });
    }
    NIL
}

/// `fiber`: runs a new fiber until it waits. The caller goes on when the loop enters it again.
pub(crate) fn start(gvl: &mut Gvl, new: Value) -> Value {
    if here(gvl, |_| ()).is_none() {
        ruby::raise(
            gvl,
            names().fibers_error.get(),
            "Fiber.schedule needs a thread that serves requests with fibers",
        );
    }
    let strand = reuse::for_app(gvl, new);
    let slot = slot_for(gvl, new);
    here(gvl, |l| l.waits.start(slot, strand));
    pause(gvl)
}

/// Decodes the numbers by which `Firebrick::Fibers::Interrupts` describes where exceptions may be raised.
fn hold(value: Value) -> RaisePolicy {
    match value.fixnum() {
        Some(1) => RaisePolicy::OnBlocking,
        Some(2) => RaisePolicy::Never,
        _ => RaisePolicy::Immediate,
    }
}

/// `timeout_after`: sets an alarm for the calling fiber that may be raised at `place`. Returns its number.
pub(crate) fn alarm(gvl: &mut Gvl, us: Value, place: Value) -> Value {
    let (fiber, strand) = (fiber::current(gvl), strand::current());
    let at_us = os::now_us().saturating_add(micros(us).unwrap_or(0));
    let set = here(gvl, |l| {
        let number = l.waits.set_alarm(fiber, strand, at_us, hold(place));
        (number, l.waits.has_inner_alarms())
    });
    let Some((number, may_move)) = set else { return NIL };
    if may_move {
        switches::watch(gvl, super::switched);
    }
    ruby::integer(gvl, number as i64)
}

/// Returns the alarm numbers of the calling fiber's strand.
pub(crate) fn alarms(gvl: &mut Gvl) -> Value {
    numbers(gvl, |_, at| strand::current().and_then(|strand| strand.alarms().get(at).copied()))
}

/// Collects the numbers that `get` returns for 0, 1 and so on. They are read one by one: a list would leak
/// when Ruby raises.
fn numbers(gvl: &mut Gvl, get: impl Fn(&Gvl, usize) -> Option<u64>) -> Value {
    let all = ruby::array(gvl, &[]);
    let mut at = 0;
    while let Some(number) = get(gvl, at) {
        let number = ruby::integer(gvl, number as i64);
        ruby::push(gvl, all, number);
        at += 1;
    }
    all
}

pub(crate) fn cancel(gvl: &mut Gvl, number: Value) -> Value {
    if let Some(number) = number.fixnum() {
        here(gvl, |l| l.waits.cancel_alarm(number as u64));
    }
    NIL
}

/// Returns the interrupts object of the calling fiber's strand, made at the first call; nil in the loop
/// itself. May raise.
pub(crate) fn interrupts(gvl: &mut Gvl) -> Value {
    let Some(part) = strand::current() else { return NIL };
    if part.interrupts.get().is_nil() {
        let made = ruby::call(gvl, names().fibers.get(), names().interrupts, &[]);
        part.interrupts.set(made);
    }
    part.interrupts.get()
}

/// Sets where an alarm may be raised from now on; without a number, where the disconnection of the client may be.
pub(crate) fn hold_off(gvl: &mut Gvl, number: Value, place: Value) -> Value {
    let place = hold(place);
    match number.fixnum() {
        Some(number) => {
            here(gvl, |l| l.waits.hold_alarm(number as u64, place));
        }
        None => {
            strand::current().into_iter().for_each(|part| part.held.set(place == RaisePolicy::Never));
        }
    }
    NIL
}

/// Raises in the calling fiber an interrupt that was deferred and no longer is.
pub(crate) fn deliver(gvl: &mut Gvl) -> Value {
    let (fiber, strand) = (fiber::current(gvl), strand::current());
    if let Some(number) = missed_alarm(gvl, fiber, strand, RaisePolicy::Immediate) {
        let number = ruby::integer(gvl, number as i64);
        ruby::call(gvl, names().fibers.get(), names().expired, &[number]);
    }
    NIL
}

/// Returns the pending interrupts of the calling fiber's strand: numbers of alarms, and whether its client
/// has disconnected.
pub(crate) fn pending(gvl: &mut Gvl) -> Value {
    let (fiber, strand) = (fiber::current(gvl), strand::current());
    let all = numbers(gvl, |gvl, at| {
        let missed = here(gvl, |l| l.waits.missed(fiber, strand, None).get(at).copied()).flatten();
        missed.map(|(number, _)| number)
    });
    let task = strand.and_then(|strand| strand.task.get());
    let gone = if task.is_some_and(Task::has_lost_client) { TRUE } else { FALSE };
    ruby::array(gvl, &[all, gone])
}

/// Raises in the fibers that wait for a descriptor of this process, which any thread is about to close.
/// Returns whether there were any.
pub(crate) fn closes(gvl: &mut Gvl, fd: Value) -> Value {
    let Some(fd) = fd.fixnum() else { return FALSE };
    let mut any = FALSE;
    for number in 0..super::LOOPS.with(gvl, |loops| loops.len()) {
        let woken = with(gvl, number, |l| l.waits.closes(fd as RawFd).then_some(l.thread)).flatten();
        let Some(thread) = woken else { continue };
        any = TRUE;
        if HERE.get() != Some(number) {
            thread.wakeup.wake();
        }
    }
    any
}
