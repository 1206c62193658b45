//! Serves with fibers: thousands of requests wait on one thread, in code written as if each had a thread of its own.
//!
//! A serving thread runs a *loop* on its first fiber (`serve/fiber_loop.rs`). Requests, and the app's `Fiber.schedule` blocks, run on other
//! fibers of the thread. When the app waits (for a socket, a time, a lock, another fiber), Ruby calls the thread's scheduler
//! (`worker/lib/firebrick/fibers/scheduler.rb`), which parks the fiber here. The loop then runs another fiber, or waits for all of them at once when none can run.
//!
//! Contract:
//! 1. Every switch goes through the loop, by transfer ([`crate::raw::fiber`]). So the loop knows which request runs, and since when.
//! 2. A fiber serves requests one after another, and is kept when there are none. While no other fiber is ready, it takes its next request from
//!    the inbox itself.
//! 3. The loop enters each ready fiber once before it checks links, descriptors and timers again. So a fiber can keep another from
//!    being entered only by computing.
//! 4. Of several threads one reads the links, as in [`crate::worker`]. Another takes over when it computes.
//! 5. A child that the app has forked has no loop: a wait blocks the whole process there, as in any process.

pub(crate) mod blocking;
mod directory;
mod hooks;
mod preempt;
pub(crate) mod reuse;
mod timers;
mod waits;

pub(crate) use directory::changes_directory;
pub(crate) use hooks::*;
pub(crate) use preempt::unsliced;

use crate::links;
use crate::names::names;
use crate::raw::fiber;
use crate::raw::gvl::{self, Guarded, Gvl};
use crate::raw::os::{self, Wait};
use crate::raw::ruby::{self, NIL, Value};
use crate::raw::slice::{self, Slices};
use crate::raw::slots::RootSlot;
use crate::worker::place::place;
use crate::worker::task::strand::{self, Key, Strand};
use crate::worker::task::{CURRENT, ServingThread, Task};
use crate::worker::worker;
use preempt::Preempt;
use std::cell::Cell;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering::Acquire;
use waits::{WaitEnd, Waits};

pub(crate) struct Loop {
    pub(crate) waits: Waits,
    /// The thread's first fiber, which runs the loop.
    pub(crate) root: &'static RootSlot,
    thread: &'static ServingThread,
    /// Fibers without a request.
    pub(crate) idle: Vec<&'static Task>,
    /// All fibers that have been made and have not ended.
    pub(crate) all: Vec<&'static Task>,
    pub(crate) most: usize,
    /// The task of the fiber that is being given a request. A fiber that runs for the first time finds its task here.
    pub(crate) starting: Option<&'static Task>,
    /// `None` while fibers are not pre-empted.
    preempt: Option<Preempt>,
    /// The time that a fiber may block the loop before it is logged, in microseconds; unlimited when it never is logged.
    blocking_us: u64,
    /// The end of the last turn of a pre-empted fiber.
    turned: TurnEnd,
    /// Pre-empted fibers go on computing; the front prefers other workers.
    computes: bool,
}

/// The end of a turn, microseconds.
#[derive(Clone, Copy)]
pub(crate) struct TurnEnd {
    pub(crate) at_us: u64,
    /// Processor time of the thread.
    pub(crate) cpu_us: u64,
}

impl TurnEnd {
    fn now() -> TurnEnd {
        TurnEnd { at_us: os::now_us(), cpu_us: os::thread_us() }
    }
}

// Indexed by thread.
static LOOPS: Guarded<Vec<Option<Box<Loop>>>> = Guarded::new(Vec::new());

thread_local! {
    /// The number of the thread's loop.
    static HERE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Borrows a loop. `None` when no loop has that number.
fn with<R>(gvl: &Gvl, number: usize, f: impl FnOnce(&mut Loop) -> R) -> Option<R> {
    LOOPS.with(gvl, |loops| loops.get_mut(number)?.as_deref_mut().map(f))
}

/// Ends a wait of any thread's loop, if it is not over.
fn wake(gvl: &Gvl, number: usize, key: Key) {
    let thread = with(gvl, number, |l| l.waits.wake(key, WaitEnd::Woken).then_some(l.thread)).flatten();
    if HERE.get() != Some(number) {
        thread.into_iter().for_each(|thread| thread.wakeup.wake());
    }
}

/// Borrows the loop of the calling thread.
pub(crate) fn here<R>(gvl: &Gvl, f: impl FnOnce(&mut Loop) -> R) -> Option<R> {
    with(gvl, HERE.get()?, f)
}

/// Returns a slot of the calling thread's loop, holding the fiber while it waits.
fn slot_for(gvl: &mut Gvl, fiber: Value) -> &'static RootSlot {
    let slot = match here(gvl, |l| l.waits.take_slot()).flatten() {
        Some(slot) => slot,
        None => RootSlot::leak(gvl, NIL),
    };
    slot.set(fiber);
    slot
}

/// Makes the calling thread's loop, and its scheduler. [`close`] drops it.
pub(crate) fn open(gvl: &mut Gvl, thread: &'static ServingThread) -> Result<(), Value> {
    let root = RootSlot::leak(gvl, fiber::current(gvl));
    let (most, slice_us, blocking_us) =
        worker(gvl, |w| (w.options.fibers, w.options.slice_us, w.options.blocking_us));
    slice::prepare(preempt::slice_is_over);
    let mut made = Waits::new();
    let mut preempt = None;
    let protected = ruby::protect(gvl, |gvl| {
        if let Err(error) = &made {
            ruby::raise(gvl, names().fibers.get(), format!("no fibers: {error}"));
        }
        let number = ruby::integer(gvl, thread.index as i64);
        ruby::call(gvl, names().fibers.get(), names().install, &[number]);
        preempt = Preempt::begin(gvl, slice_us);
    });
    protected.map_err(|(_, error)| error)?;
    let Ok(waits) = std::mem::replace(&mut made, Err(std::io::ErrorKind::Other.into())) else {
        return Err(NIL);
    };
    LOOPS.with(gvl, |loops| {
        loops.resize_with(loops.len().max(thread.index + 1), || None);
        let (idle, all) = (Vec::new(), Vec::new());
        loops[thread.index] = Some(Box::new(Loop {
            waits,
            root,
            thread,
            idle,
            all,
            most,
            starting: None,
            preempt,
            blocking_us: if blocking_us == 0 { u64::MAX } else { blocking_us },
            turned: TurnEnd::now(),
            computes: false,
        }));
    });
    HERE.set(Some(thread.index));
    blocking::begin(gvl, thread);
    Ok(())
}

/// Lets the fiber that was pre-empted first go on.
pub(crate) fn go_on(gvl: &mut Gvl, own: &'static Task) {
    let help = worker(gvl, |w| w.fiber_works(own.thread.index, os::now_us()));
    links::provide(gvl, help);
    if let Some((fiber, strand)) = here(gvl, |l| l.waits.next_preempted()).flatten() {
        enter(gvl, own, fiber, strand);
    }
    let ended = here(gvl, |l| {
        l.turned = TurnEnd::now();
        l.waits.preempted() == 0 && std::mem::take(&mut l.computes)
    });
    if ended == Some(true) {
        worker(gvl, |w| w.scoreboard.computes(own.thread.index, false));
    }
}

/// Reads the links, if no other thread does, and updates which fibers are ready. Never waits.
pub(crate) fn look_around(gvl: &mut Gvl, own: &'static Task) {
    let (links, reads) =
        worker(gvl, |w| (w.links.len(), w.leader.is_none_or(|leader| leader == own.thread.index)));
    for at in (0..links).filter(|_| reads) {
        links::receive_now(gvl, at);
    }
    look(gvl, own);
}

/// Processes descriptors, timers and messages of the links. Never waits.
pub(crate) fn look(gvl: &mut Gvl, own: &'static Task) {
    let now_us = os::now_us();
    let woken = worker(gvl, |w| w.take_woken(own.thread.index));
    here(gvl, |l| {
        if l.waits.polls() {
            l.waits.poll();
        }
        l.waits.expire(now_us);
        for task in woken {
            l.news(task);
        }
    });
    ring_inner(gvl);
}

/// Handles alarms of strands that wait in another fiber than the one that set the alarm. An alarm is raised there if that fiber was resumed from
/// the one that set it.
fn ring_inner(gvl: &mut Gvl) {
    let alarms = here(gvl, |l| l.waits.take_inner()).unwrap_or_default();
    for number in alarms {
        let mut inside = false;
        let asked = ruby::protect(gvl, |gvl| {
            inside = HERE.get().is_some_and(|index| calls(gvl, index, number));
        });
        if let Err((_, error)) = asked {
            links::report(gvl, error);
        }
        if inside {
            here(gvl, |l| l.waits.ring_inner(number));
        }
    }
}

/// Returns whether the fiber that set this alarm of loop `index` runs, or has resumed another fiber and waits for its return. May raise.
fn calls(gvl: &mut Gvl, index: usize, number: u64) -> bool {
    let (index, number) = (ruby::integer(gvl, index as i64), ruby::integer(gvl, number as i64));
    ruby::call(gvl, names().fibers.get(), names().calls, &[index, number]).truthy()
}

/// Records that a fiber of the calling thread runs again.
fn switched(gvl: &mut Gvl) {
    let Some(strand) = strand::current() else { return };
    let fiber = fiber::current(gvl);
    here(gvl, |l| l.waits.runs(fiber, strand));
}

impl Loop {
    /// Ends pre-emption.
    pub(crate) fn end_slices(&mut self) {
        self.preempt.iter_mut().for_each(Preempt::end);
    }

    /// Returns when a pre-empted fiber last had its turn; `None` when no fiber is pre-empted.
    pub(crate) fn turned(&mut self) -> Option<TurnEnd> {
        (self.waits.preempted() > 0).then_some(self.turned)
    }

    /// Adds the task to the idle ones, once: the app may have entered its fiber meanwhile, by a `Fiber.current` that it kept. If it were
    /// listed twice, its fiber would get two requests, and one would get the other's response.
    pub(crate) fn rests(&mut self, task: &'static Task) {
        if task.fiber.as_ref().is_some_and(|part| !part.idle.replace(true)) {
            self.idle.push(task);
        }
    }

    /// Ends the task's wait because a message from the front has arrived for its request.
    fn news(&mut self, task: &'static Task) {
        let Some(fiber) = &task.fiber else { return };
        let Some(key) = fiber.wait.get() else { return };
        let outcome = match task.gone.get() {
            true if fiber.native.get() => WaitEnd::Woken,
            true if task.ends_waits() => WaitEnd::Gone,
            false if fiber.native.get() => WaitEnd::Woken,
            _ => return,
        };
        // The wait is over for another reason and keeps that outcome. The next wait ends because the client has disconnected.
        if self.waits.wake(key, outcome) && outcome == WaitEnd::Gone {
            fiber.interruptible.set(false);
        }
    }
}

/// Waits for links, descriptors and timers. The leader reads the links.
pub(crate) fn wait(gvl: &mut Gvl, own: &'static Task, leads: bool) {
    let (links, alone) = worker(gvl, |w| (w.links.len(), w.options.threads_max == 1));
    let (polls, until_us, poller) =
        here(gvl, |l| (l.waits.polls(), l.waits.next_us(), l.waits.poller_fd())).unwrap_or((false, None, -1));
    if leads && alone && links == 1 && !polls && until_us.is_none() {
        // Nothing else can happen, except that another thread unblocks a fiber.
        if here(gvl, |l| l.waits.is_empty()).unwrap_or(true) {
            links::receive(gvl, own, 0, true);
            return look(gvl, own);
        }
    }
    let thread = own.thread;
    let mut fds: Vec<RawFd> =
        if leads { worker(gvl, |w| w.links.iter().map(|link| link.fd).collect()) } else { Vec::new() };
    let wakeup = fds.len();
    fds.push(thread.wakeup.fd());
    fds.extend(polls.then_some(poller));
    let timer = fds.len();
    let place = place();
    let watch = !leads && place.is_standby(thread.index);
    fds.extend(watch.then(|| place.timer().fd()));
    if !leads {
        worker(gvl, |w| w.sleeps(thread.index));
    }
    let mut wait = Wait::readable(fds.into_iter());
    let left_us = until_us.map(|at_us| at_us.saturating_sub(os::now_us()));
    gvl::release(gvl, || match left_us {
        None => wait.wait(),
        Some(us) => wait.wait_for(us),
    });
    let is_ready: [bool; 2] = [wait.ready(wakeup), watch && wait.ready(timer)];
    let readable: u64 = (0..wakeup.min(64)).filter(|&at| wait.ready(at)).fold(0, |all, at| all | 1 << at);
    drop(wait);
    if is_ready[0] {
        thread.wakeup.clear();
    }
    if leads {
        (0..wakeup.min(64)).filter(|&at| readable & (1 << at) != 0).for_each(|at| {
            links::receive_now(gvl, at);
        });
    } else {
        let takes_over = is_ready[1] && {
            place.timer().clear(thread.wakeup.fd());
            place.must_take_over(os::now_us())
        };
        let called = thread.called.swap(false, Acquire);
        worker(gvl, |w| w.awake(thread.index, !called && !takes_over));
    }
    look(gvl, own);
    links::interrupts(gvl, own);
}

/// Lets a fiber run until it waits or has nothing to do.
pub(crate) fn enter(gvl: &mut Gvl, own: &'static Task, fiber: Value, strand: Option<&'static Strand>) {
    let (index, now_us) = (own.thread.index, os::now_us());
    let task = strand.and_then(|strand| strand.task.get());
    if let (Some(strand), Some(task)) = (strand, task.filter(|task| task.active.get())) {
        task.enter(gvl);
        // For the scoreboard, it has run since its last wait, without the turns of other fibers.
        let since_us = now_us.saturating_sub(strand.computed_us.get());
        worker(gvl, |w| w.scoreboard.begin(index, task.link.get(), task.id.get(), since_us));
    }
    if let Some(strand) = strand {
        strand.entered_us.set(now_us);
        strand.goes_on.set(false);
    }
    CURRENT.set(task);
    strand::set_current(strand);
    own.thread.running.set(strand);
    Slices::turn_here();
    blocking::enters(own.thread, now_us);
    let left = fiber::transfer(gvl, fiber);
    CURRENT.set(None);
    strand::set_current(None);
    own.thread.running.set(None);
    blocking::check(gvl, own.thread, task, os::now_us());
    blocking::returns(own.thread);
    strand.into_iter().for_each(|strand| reuse::come_back(gvl, strand));
    if let Some(task) = task.filter(|task| task.active.get()) {
        task.leave(gvl);
    }
    worker(gvl, |w| w.scoreboard.rests(index));
    if let Err(unwind) = left {
        let (killed, error) = fiber::caught(gvl, unwind);
        own.thread.killed.set(own.thread.killed.get() || killed);
        links::report(gvl, error);
    }
}

/// Drops the calling thread's loop, which has ended.
pub(crate) fn close(gvl: &mut Gvl, thread: &'static ServingThread) {
    blocking::end(thread);
    HERE.set(None);
    LOOPS.with(gvl, |loops| loops[thread.index] = None);
}

/// Drops the loops in a child that the app has forked. They belong to the parent.
pub(crate) fn abandon(gvl: &Gvl) {
    LOOPS.with(gvl, Vec::clear);
}
