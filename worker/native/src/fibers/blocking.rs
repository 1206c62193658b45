//! Detects calls that block a thread's loop of fibers, and finds their backtraces for the log.
//!
//! The time from entering a fiber to the return to the loop is a *stretch*. A stretch longer than
//! `rack.blocking_call` was a call that could not be left: it waited without the scheduler, or computed where
//! pre-emption is not possible.
//!
//! The backtrace must be taken during the stretch or at its end, because nothing of it remains afterwards.
//! When half of the limit is over, the watchdog
//!
//! 1. wakes a Ruby thread (`worker/lib/firebrick/fibers/blocking_calls.rb`), which reads the backtrace. It
//!    needs the GVL: most waiting calls have released it. Others release it when they end, and their frame
//!    still exists then;
//! 2. requests a postponed job, with Ruby 3.3 and later. The job runs on the thread itself when the call
//!    ends, while its frame still exists. With older Rubies only the timer of slices requests jobs, so only
//!    computing calls are found in this way.
//!
//! The Ruby thread also raises `Timeout.timeout`s that expired meanwhile, as they would be raised with
//! threads ([`raise_late`]).
//!
//! Signals are never used, because calls of extensions may fail with EINTR.
//!
//! Two kinds of waiting do not count: for the GVL while other threads compute (which Ruby reports since 3.2;
//! before, it is judged by their processor time), and for a processor on a machine that has too few.
//!
//! Contract: a stretch that ends in time costs one read of the clock and one store.

use super::{HERE, LOOPS, calls, here, with};
use crate::links;
use crate::names::names;
use crate::raw::gvl::{self, Guarded, Gvl};
use crate::raw::os::{self, ThreadView, Wait};
use crate::raw::ruby::{self, FALSE, NIL, TRUE, Value};
use crate::worker::place::{MAIN, Place, place};
use crate::worker::task::ServingThread;
use crate::worker::task::Task;
use crate::worker::worker;
use std::sync::atomic::Ordering::Relaxed;

/// The place of the threads that run loops. The thread that reads backtraces is one of the app's threads and
/// has no place of its own.
static WATCHED_AT: Guarded<&'static Place> = Guarded::new(&MAIN);

/// Starts watching the calling thread, which is about to run its loop.
pub(crate) fn begin(gvl: &mut Gvl, thread: &'static ServingThread) {
    let us = worker(gvl, |w| w.options.blocking_us);
    if us == 0 {
        return;
    }
    thread.stretch.show(Some(ThreadView::here()));
    thread.gvl_wait.begin();
    WATCHED_AT.with(gvl, |at| *at = place());
    if place().watchdog.watch_stretches(&thread.stretch, us) {
        let watch = |gvl: &mut Gvl| {
            ruby::call(gvl, names().fibers.get(), names().watch_calls, &[]);
        };
        if let Err((_, error)) = ruby::protect(gvl, watch) {
            links::report(gvl, error);
        }
    }
}

/// Stops watching the calling thread, whose loop has ended.
pub(crate) fn end(thread: &'static ServingThread) {
    returns(thread);
    thread.gvl_wait.end();
    thread.stretch.show(None);
    place().watchdog.leave_stretches(&thread.stretch);
}

/// Begins a stretch.
#[inline]
pub(crate) fn enters(thread: &ServingThread, now_us: u64) {
    thread.stretch.waited_us.store(thread.gvl_wait.so_far_us().unwrap_or(0), Relaxed);
    thread.stretch.sliced.store(false, Relaxed);
    thread.stretch.since_us.store(now_us, Relaxed);
}

/// Records that the fiber is left because its slice is over. Such a stretch computed where pre-emption works.
/// If it was long nevertheless, the machine stalled, unless the stretch was seen waiting or computed all the
/// time.
pub(crate) fn slices(gvl: &Gvl) {
    here(gvl, |l| l.thread.stretch.sliced.store(true, Relaxed));
}

/// Ends the stretch: the thread is in its loop again.
#[inline]
pub(crate) fn returns(thread: &ServingThread) {
    thread.stretch.since_us.store(0, Relaxed);
}

/// Checks whether the ending stretch, or a part of it if the fiber goes on, was too long.
#[inline]
pub(crate) fn check(gvl: &mut Gvl, thread: &'static ServingThread, task: Option<&'static Task>, now_us: u64) {
    let since_us = thread.stretch.since_us.load(Relaxed);
    let limit_us = here(gvl, |l| l.blocking_us).unwrap_or(u64::MAX);
    if since_us != 0 && now_us.saturating_sub(since_us) >= limit_us {
        too_long(gvl, thread, task, since_us, now_us);
    }
}

#[cold]
fn too_long(
    gvl: &mut Gvl,
    thread: &'static ServingThread,
    task: Option<&'static Task>,
    since_us: u64,
    now_us: u64,
) {
    let stretch = &thread.stretch;
    let waited_us = thread.gvl_wait.so_far_us();
    let seen = stretch.seen(since_us, now_us);
    let from_us = stretch.waited_us.load(Relaxed);
    enters(thread, now_us);
    let Some(seen) = seen else { return };
    let limit_us = here(gvl, |l| l.blocking_us).unwrap_or(u64::MAX);
    let sliced = stretch.sliced.load(Relaxed) && seen.own_us < limit_us;
    let doubtful = sliced || (seen.crowded && waited_us.is_none());
    let others_us = seen.starved_us + waited_us.map_or(0, |us| us.saturating_sub(from_us));
    let us = now_us.saturating_sub(since_us).saturating_sub(others_us);
    if us < limit_us {
        return;
    }
    let active = task.filter(|task| task.active.get());
    let env = active.map_or(NIL, |task| task.env.get());
    let fiber = active.and_then(|task| task.fiber.as_ref()).map_or(NIL, |part| part.ruby.get());
    let mut counts = false;
    let told = ruby::protect(gvl, |gvl| {
        let number = ruby::integer(gvl, thread.index as i64);
        let (since, us) = (ruby::integer(gvl, since_us as i64), ruby::integer(gvl, us as i64));
        let doubtful = if doubtful { TRUE } else { FALSE };
        let served = ruby::array(gvl, &[env, fiber]);
        let arguments = [number, since, us, doubtful, served];
        counts = ruby::call(gvl, names().fibers.get(), names().call_blocked, &arguments).truthy();
    });
    if let Err((_, error)) = told {
        links::report(gvl, error);
    }
    if counts {
        worker(gvl, |w| w.scoreboard.blocked(us));
    }
}

/// Makes Ruby note the backtrace if the stretch is long. Runs in a postponed job on the thread itself.
pub(crate) fn sample(gvl: &mut Gvl) -> Result<(), Value> {
    let Some((thread, limit_us)) = here(gvl, |l| (l.thread, l.blocking_us)) else { return Ok(()) };
    let (stretch, now_us) = (&thread.stretch, os::now_us());
    let (since_us, sampled_us) = (stretch.since_us.load(Relaxed), stretch.sampled_us.load(Relaxed));
    if since_us == 0 || now_us.saturating_sub(since_us.max(sampled_us)) < limit_us / 2 {
        return Ok(());
    }
    stretch.sampled_us.store(now_us, Relaxed);
    let env = thread.running.get().and_then(|strand| strand.task.get()).map_or(NIL, |task| task.env.get());
    let noted = ruby::protect(gvl, |gvl| {
        let number = ruby::integer(gvl, thread.index as i64);
        let since = ruby::integer(gvl, since_us as i64);
        ruby::call(gvl, names().fibers.get(), names().call_seen, &[number, since, env]);
    });
    noted.map_err(|(_, error)| error)
}

/// Waits until loops are blocked, for the thread that reads backtraces. Returns for each its number, the
/// start of its stretch, the thread, and the env of its request; nil when no loop is watched any more.
pub(crate) fn away(gvl: &mut Gvl) -> Value {
    let watchdog = &WATCHED_AT.with(gvl, |at| *at).watchdog;
    loop {
        if !watchdog.watches_stretches() {
            return NIL;
        }
        let wakeup = watchdog.sampler();
        let mut wait = Wait::readable([wakeup.fd()].into_iter());
        gvl::release(gvl, || wait.wait());
        drop(wait);
        wakeup.clear();
        ruby::check_interrupts(gvl);
        let now_us = os::now_us();
        let found: Vec<(i64, u64, Value, Value)> = LOOPS.with(gvl, |loops| {
            let all = loops.iter().flatten().map(|one| (one, one.thread.stretch.since_us.load(Relaxed)));
            all.filter(|(one, since_us)| {
                *since_us != 0 && now_us.saturating_sub(*since_us) >= one.blocking_us / 2
            })
            .map(|(one, since_us)| {
                one.thread.stretch.sampled_us.store(now_us, Relaxed);
                let task = one.thread.running.get().and_then(|strand| strand.task.get());
                let env = task.map_or(NIL, |task| task.env.get());
                (one.thread.index as i64, since_us, one.thread.ruby.get(), env)
            })
            .collect()
        });
        if found.is_empty() {
            continue;
        }
        let all = ruby::array(gvl, &[]);
        for (index, since_us, thread, env) in &found {
            let alarm = unheard(gvl, *index as usize, now_us);
            let alarm = alarm.map_or(NIL, |alarm| ruby::integer(gvl, alarm as i64));
            let (number, since) = (ruby::integer(gvl, *index), ruby::integer(gvl, *since_us as i64));
            let one = ruby::array(gvl, &[number, since, *thread, *env, alarm]);
            ruby::push(gvl, all, one);
        }
        return all;
    }
}

/// Finds an expired alarm of the strand that blocks loop `number`. It was set by the strand's first fiber,
/// which runs or has called the one that runs; by another fiber that runs; or by a fiber that waits for the
/// one that it has resumed.
fn unheard(gvl: &mut Gvl, number: usize, now_us: u64) -> Option<u64> {
    let strand = with(gvl, number, |l| l.thread.running.get()).flatten()?;
    let own = strand.ruby.get();
    let mut at = 0;
    while let Some((alarm, setter)) =
        with(gvl, number, |l| l.waits.unheard(strand, now_us).get(at).copied()).flatten()
    {
        let mut is_called = setter == own;
        if !is_called {
            let asked = ruby::protect(gvl, |gvl| is_called = calls(gvl, number, alarm));
            if let Err((_, error)) = asked {
                links::report(gvl, error);
            }
        }
        if is_called {
            return Some(alarm);
        }
        at += 1;
    }
    None
}

/// Raises `error` on the thread of loop `number`, blocked since `since` in a waiting call, because an alarm
/// has expired. No other Ruby code runs between the check and the raise, so it hits the right request: a
/// waiting call checks for interrupts when it is woken.
pub(crate) fn raise_late(
    gvl: &mut Gvl,
    number: Value,
    since: Value,
    alarm: Value,
    error: Value,
    message: Value,
) -> Value {
    let (Some(number), Some(since), Some(alarm)) = (number.fixnum(), since.fixnum(), alarm.fixnum()) else {
        return FALSE;
    };
    let (number, since_us, alarm) = (number as usize, since as u64, alarm as u64);
    let thread = with(gvl, number, |l| l.thread).map_or(NIL, |thread| {
        let same = thread.stretch.since_us.load(Relaxed) == since_us;
        if same { thread.ruby.get() } else { NIL }
    });
    if thread.is_nil()
        || !ruby::call(gvl, thread, names().is_stopped, &[]).truthy()
        || unheard(gvl, number, os::now_us()) != Some(alarm)
    {
        return FALSE;
    }
    with(gvl, number, |l| l.waits.heard(alarm));
    ruby::call(gvl, thread, names().raise, &[error, message]);
    TRUE
}

/// Returns whether the calling thread runs a loop.
pub(crate) fn has_loop() -> bool {
    HERE.get().is_some()
}
