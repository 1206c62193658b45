//! Serves with fibers: thousands of requests wait on one thread, in code written as if each had a thread of its own.
//!
//! A serving thread runs a *loop* on its first fiber. Requests, and the app's `Fiber.schedule` blocks, run on other fibers of the thread. When the
//! app waits (for a socket, a time, a lock, another fiber), Ruby calls the thread's scheduler (`worker/lib/firebrick/fibers/scheduler.rb`), which parks the
//! fiber here. The loop then runs another fiber, or waits for all of them at once when none can run.
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
mod reuse;
mod timers;
mod waits;

pub(crate) use directory::changes_directory;
pub(crate) use hooks::*;
pub(crate) use preempt::unsliced;

use crate::link::Job;
use crate::names::names;
use crate::raw::fiber;
use crate::raw::gvl::{self, Guarded, Gvl};
use crate::raw::os::{self, Wait};
use crate::raw::panics;
use crate::raw::ruby::{self, NIL, Value};
use crate::raw::slice::{self, Slices};
use crate::raw::slots::Slot;
use crate::serve;
use crate::worker::place::place;
use crate::worker::task::strand::{self, Key, Strand};
use crate::worker::task::{CURRENT, ServingThread, Task};
use crate::worker::{Step, worker};
use crate::{collection, job};
use preempt::Preempt;
use std::cell::Cell;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::atomic::Ordering::Acquire;
use waits::{Outcome, Waits};

/// The time that the loop may spend entering fibers before it checks links, descriptors and timers, in microseconds.
const LOOK_EVERY_US: u64 = 200;
/// Payloads up to this size, in bytes, are copied out of the read buffer, so that a waiting request does not keep the buffer.
const COPY: usize = 16 << 10;

struct Loop {
    waits: Waits,
    /// The thread's first fiber, which runs the loop.
    root: &'static Slot,
    thread: &'static ServingThread,
    /// Fibers without a request.
    idle: Vec<&'static Task>,
    /// All fibers that have been made and have not ended.
    all: Vec<&'static Task>,
    most: usize,
    /// The task of the fiber that is being given a request. A fiber that runs for the first time finds its task here.
    starting: Option<&'static Task>,
    /// `None` while fibers are not pre-empted.
    preempt: Option<Preempt>,
    /// The time that a fiber may block the loop before it is logged, in microseconds; unlimited when it never is logged.
    blocking_us: u64,
    /// The end of the last turn of a pre-empted fiber.
    turned: Turned,
    /// Pre-empted fibers go on computing; the front prefers other workers.
    computes: bool,
}

/// The end of a turn, microseconds.
#[derive(Clone, Copy)]
struct Turned {
    at_us: u64,
    /// Processor time of the thread.
    cpu_us: u64,
}

impl Turned {
    fn now() -> Turned {
        Turned { at_us: os::now_us(), cpu_us: os::thread_us() }
    }
}

// Indexed by thread.
static LOOPS: Guarded<Vec<Option<Box<Loop>>>> = Guarded::new(Vec::new());

/// Tasks of fibers that have ended, for reuse.
static SPARE: Guarded<Vec<&'static Task>> = Guarded::new(Vec::new());

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
    let thread = with(gvl, number, |l| l.waits.wake(key, Outcome::Woken).then_some(l.thread)).flatten();
    if HERE.get() != Some(number) {
        thread.into_iter().for_each(|thread| thread.wakeup.wake());
    }
}

/// Borrows the loop of the calling thread.
fn here<R>(gvl: &Gvl, f: impl FnOnce(&mut Loop) -> R) -> Option<R> {
    with(gvl, HERE.get()?, f)
}

/// Returns a slot of the calling thread's loop, holding the fiber while it waits.
fn slot_for(gvl: &mut Gvl, fiber: Value) -> &'static Slot {
    let slot = match here(gvl, |l| l.waits.take_slot()).flatten() {
        Some(slot) => slot,
        None => Slot::leak(gvl, NIL),
    };
    slot.set(fiber);
    slot
}

/// Serves like [`serve::serve`], with fibers. `own` is the thread's task, which serves nothing.
pub(crate) fn serve(gvl: &mut Gvl, own: &'static Task) {
    let index = own.thread.index;
    if let Err(error) = open(gvl, own.thread) {
        return serve::report(gvl, error);
    }
    CURRENT.set(None);
    blocking::begin(gvl, own.thread);
    panics::persist(|| run(gvl, own));
    close(gvl);
    blocking::end(own.thread);
    HERE.set(None);
    LOOPS.with(gvl, |loops| loops[index] = None);
}

/// Makes the loop, and the thread's scheduler.
fn open(gvl: &mut Gvl, thread: &'static ServingThread) -> Result<(), Value> {
    let root = Slot::leak(gvl, fiber::current(gvl));
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
            turned: Turned::now(),
            computes: false,
        }));
    });
    HERE.set(Some(thread.index));
    Ok(())
}

fn run(gvl: &mut Gvl, own: &'static Task) {
    let mut looked_us = 0;
    let slice_us = worker(gvl, |w| w.options.slice_us);
    loop {
        let ready = here(gvl, |l| l.waits.ready()).unwrap_or(0);
        if ready > 0 {
            let help = worker(gvl, |w| w.fiber_works(own.thread.index, os::now_us()));
            serve::provide(gvl, help);
        }
        for _ in 0..ready {
            let Some((fiber, strand)) = here(gvl, |l| l.waits.next()).flatten() else { break };
            strand.iter().for_each(|strand| strand.computed_us.set(0));
            enter(gvl, own, fiber, strand);
        }
        let mut now_us = os::now_us();
        if worker(gvl, |w| w.must_send(now_us)) {
            serve::send_all(gvl, own);
            now_us = os::now_us();
        }
        let can_take = has_idle(gvl, own);
        match worker(gvl, |w| w.step(own.thread.index, now_us, can_take)) {
            Step::Run(job, help) => {
                serve::provide(gvl, help);
                begin(gvl, own, job);
            }
            Step::Send => serve::send_all(gvl, own),
            Step::Collect => collection::run(gvl),
            Step::Stop => return,
            step if here(gvl, |l| l.waits.ready()).unwrap_or(0) == 0 => {
                match here(gvl, Loop::turned).flatten() {
                    None => {
                        wait(gvl, own, matches!(step, Step::Read));
                        looked_us = os::now_us();
                    }
                    Some(turned) if turned.at_us < looked_us => go_on(gvl, own),
                    // Other fibers may have become ready while it computed. The code below checks that first.
                    Some(_) => looked_us = 0,
                }
            }
            Step::Read | Step::Sleep => {}
        }
        // Computing fibers together get as much time as all other fibers together.
        if let Some(turned) = here(gvl, Loop::turned).flatten()
            && os::thread_us().saturating_sub(turned.cpu_us) > slice_us
        {
            go_on(gvl, own);
        }
        // While fibers are ready, links, descriptors and timers are checked now and then.
        now_us = os::now_us();
        if now_us.saturating_sub(looked_us) > LOOK_EVERY_US {
            look_around(gvl, own);
            looked_us = os::now_us();
        }
        if own.thread.killed.get() {
            return;
        }
    }
}

/// Lets the fiber that was pre-empted first go on.
fn go_on(gvl: &mut Gvl, own: &'static Task) {
    let help = worker(gvl, |w| w.fiber_works(own.thread.index, os::now_us()));
    serve::provide(gvl, help);
    if let Some((fiber, strand)) = here(gvl, |l| l.waits.next_preempted()).flatten() {
        enter(gvl, own, fiber, strand);
    }
    let ended = here(gvl, |l| {
        l.turned = Turned::now();
        l.waits.preempted() == 0 && std::mem::take(&mut l.computes)
    });
    if ended == Some(true) {
        worker(gvl, |w| w.scoreboard.computes(own.thread.index, false));
    }
}

/// Reads the links, if no other thread does, and updates which fibers are ready. Never waits.
fn look_around(gvl: &mut Gvl, own: &'static Task) {
    let (links, reads) =
        worker(gvl, |w| (w.links.len(), w.leader.is_none_or(|leader| leader == own.thread.index)));
    for at in (0..links).filter(|_| reads) {
        serve::receive_now(gvl, at);
    }
    look(gvl, own);
}

/// Processes descriptors, timers and messages of the links. Never waits.
fn look(gvl: &mut Gvl, own: &'static Task) {
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
            serve::report(gvl, error);
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
    /// Returns when a pre-empted fiber last had its turn; `None` when no fiber is pre-empted.
    fn turned(&mut self) -> Option<Turned> {
        (self.waits.preempted() > 0).then_some(self.turned)
    }

    /// Adds the task to the idle ones, once: the app may have entered its fiber meanwhile, by a `Fiber.current` that it kept. If it were
    /// listed twice, its fiber would get two requests, and one would get the other's response.
    fn rests(&mut self, task: &'static Task) {
        if task.fiber.as_ref().is_some_and(|part| !part.idle.replace(true)) {
            self.idle.push(task);
        }
    }

    /// Ends the task's wait because a message from the front has arrived for its request.
    fn news(&mut self, task: &'static Task) {
        let Some(fiber) = &task.fiber else { return };
        let Some(key) = fiber.wait.get() else { return };
        let outcome = match task.gone.get() {
            true if fiber.native.get() => Outcome::Woken,
            true if task.ends_waits() => Outcome::Gone,
            false if fiber.native.get() => Outcome::Woken,
            _ => return,
        };
        // The wait is over for another reason and keeps that outcome. The next wait ends because the client has disconnected.
        if self.waits.wake(key, outcome) && outcome == Outcome::Gone {
            fiber.interruptible.set(false);
        }
    }
}

/// Waits for links, descriptors and timers. The leader reads the links.
fn wait(gvl: &mut Gvl, own: &'static Task, leads: bool) {
    let (links, alone) = worker(gvl, |w| (w.links.len(), w.options.threads_max == 1));
    let (polls, until_us, poller) =
        here(gvl, |l| (l.waits.polls(), l.waits.next_us(), l.waits.poller_fd())).unwrap_or((false, None, -1));
    if leads && alone && links == 1 && !polls && until_us.is_none() {
        // Nothing else can happen, except that another thread unblocks a fiber.
        if here(gvl, |l| l.waits.is_empty()).unwrap_or(true) {
            serve::receive(gvl, own, 0, true);
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
            serve::receive_now(gvl, at);
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
    serve::interrupts(gvl, own);
}

/// Lets a fiber run until it waits or has nothing to do.
fn enter(gvl: &mut Gvl, own: &'static Task, fiber: Value, strand: Option<&'static Strand>) {
    let (index, now_us) = (own.thread.index, os::now_us());
    let task = strand.and_then(|strand| strand.task.get());
    if let (Some(strand), Some(task)) = (strand, task.filter(|task| task.active.get())) {
        task.enter();
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
        task.leave();
    }
    worker(gvl, |w| w.scoreboard.rests(index));
    if let Err(unwind) = left {
        let (killed, error) = fiber::caught(gvl, unwind);
        own.thread.killed.set(own.thread.killed.get() || killed);
        serve::report(gvl, error);
    }
}

/// Gives a request to an idle fiber, and lets it run.
fn begin(gvl: &mut Gvl, own: &'static Task, job: Job) {
    let task = here(gvl, |l| {
        let task = l.idle.pop();
        task.iter().filter_map(|task| task.fiber.as_ref()).for_each(|part| part.idle.set(false));
        l.starting = task;
        task
    });
    let task = task.flatten().expect("a request is taken up when a fiber is idle");
    let Some(part) = &task.fiber else { return };
    part.next.set(Some(job));
    enter(gvl, own, part.ruby.get(), Some(part));
    here(gvl, |l| l.starting = None);
}

/// Returns whether a fiber is available for another request; makes one if needed.
fn has_idle(gvl: &mut Gvl, own: &'static Task) -> bool {
    let (idle, more) = here(gvl, |l| (!l.idle.is_empty(), l.all.len() < l.most)).unwrap_or((false, false));
    if idle || !more || worker(gvl, |w| w.inbox.is_empty()) {
        return idle;
    }
    let made = make(gvl, own);
    let left = here(gvl, |l| {
        match made {
            Some(task) => l.rests(task),
            // The system allows no more fibers: the existing ones must do.
            None => l.most = l.all.len(),
        }
        l.most
    });
    if left == Some(0) {
        let pid = std::process::id();
        crate::complain(format_args!("worker {pid}: not one fiber could be made; ending the process"));
        serve::end(gvl, 70);
    }
    made.is_some()
}

/// Makes a fiber that has not run yet.
fn make(gvl: &mut Gvl, own: &'static Task) -> Option<&'static Task> {
    let spare = |spare: &mut Vec<&'static Task>| {
        let at = spare.iter().rposition(|task| std::ptr::eq(task.thread, own.thread))?;
        Some(spare.swap_remove(at))
    };
    let task = match SPARE.with(gvl, spare) {
        Some(task) => task,
        None => {
            let part = Strand::new(gvl);
            Task::leak(gvl, own.thread, Some(part))
        }
    };
    let part = task.fiber.as_ref()?;
    let made = ruby::protect(gvl, |gvl| {
        let fiber = ruby::call(gvl, names().fibers.get(), names().make, &[]);
        part.ruby.set(fiber);
    });
    if let Err((_, error)) = made {
        serve::report(gvl, error);
        SPARE.with(gvl, |spare| spare.push(task));
        return None;
    }
    here(gvl, |l| l.all.push(task));
    Some(task)
}

/// The body of each fiber: serves requests until the fiber is told to end.
pub(crate) fn body(gvl: &mut Gvl) {
    let Some(task) = here(gvl, |l| l.starting.take()).flatten() else { return };
    let Some(part) = &task.fiber else { return };
    loop {
        while let Some(job) = part.next.take() {
            serve_one(gvl, task, job);
            if !task.thread.killed.get() {
                part.next.set(another(gvl, task));
            }
        }
        if part.ends.get() {
            return;
        }
        let Some(root) = here(gvl, |l| {
            l.rests(task);
            l.root.get()
        }) else {
            return;
        };
        if let Err(unwind) = fiber::transfer(gvl, root) {
            let (killed, error) = fiber::caught(gvl, unwind);
            task.thread.killed.set(task.thread.killed.get() || killed);
            serve::report(gvl, error);
        }
    }
}

fn serve_one(gvl: &mut Gvl, task: &'static Task, mut job: Job) {
    let started_us = os::now_us();
    let link = job.link as usize;
    if job.payload.len() <= COPY {
        let payload = Rc::new(job.bytes[job.payload.clone()].to_vec());
        let buffer = std::mem::replace(&mut job.bytes, payload);
        job.payload = 0..job.bytes.len();
        if let Ok(buffer) = Rc::try_unwrap(buffer) {
            worker(gvl, |w| w.links[link].reuse(buffer));
        }
    }
    if let Some(part) = &task.fiber {
        part.entered_us.set(started_us);
        reuse::begin(part);
    }
    Slices::turn_here();
    blocking::enters(task.thread, started_us);
    job::run(gvl, task, job, started_us);
    task.fiber.iter().for_each(|part| reuse::drop_alarms(gvl, part));
    collection::check(gvl);
    if let Err((_, error)) = ruby::protect(gvl, |gvl| {
        ruby::call(gvl, names().fibers.get(), names().clean, &[]);
    }) {
        serve::report(gvl, error);
    }
}

/// Takes another request for a fiber that has finished one, if no other fiber is ready.
fn another(gvl: &mut Gvl, task: &'static Task) -> Option<Job> {
    let now_us = os::now_us();
    if here(gvl, |l| l.waits.ready() + l.waits.preempted() > 0).unwrap_or(true)
        || worker(gvl, |w| w.must_send(now_us))
    {
        return None;
    }
    let (job, help) = worker(gvl, |w| w.take(task.thread.index, now_us))?;
    serve::provide(gvl, help);
    Some(job)
}

/// Ends all fibers. The waiting ones have nothing to serve.
fn close(gvl: &mut Gvl) {
    here(gvl, |l| l.preempt.iter_mut().for_each(Preempt::end));
    let all = here(gvl, |l| std::mem::take(&mut l.all)).unwrap_or_default();
    for task in all {
        let Some(part) = &task.fiber else { continue };
        if task.active.get() {
            // The thread was killed while it served requests.
            job::give_up(gvl, task);
            // Code of the app may still run in its fiber, which therefore keeps the task.
            continue;
        }
        part.ends.set(true);
        let _ = fiber::transfer(gvl, part.ruby.get());
        part.ends.set(false);
        part.ruby.set(NIL);
        part.idle.set(false);
        task.retire(gvl);
        SPARE.with(gvl, |spare| spare.push(task));
    }
    if let Err((_, error)) = ruby::protect(gvl, |gvl| {
        ruby::call(gvl, names().fibers.get(), names().uninstall, &[]);
    }) {
        serve::report(gvl, error);
    }
}

/// Drops the loops in a child that the app has forked. They belong to the parent.
pub(crate) fn abandon(gvl: &Gvl) {
    LOOPS.with(gvl, Vec::clear);
}
