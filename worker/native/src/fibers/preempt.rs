//! Pre-emption: a fiber that has computed for a slice goes to the end of the queue.
//!
//! Why: the figures of [`crate::raw::slice`].
//!
//! [`crate::raw::slice`] brings the thread to one of Ruby's safe points. There [`slice_is_over`] runs on the
//! fiber's own stack, inside a postponed job, and transfers to the loop, which returns when the other fibers
//! have had their turns. Ruby keeps the state that a job masks and restores (interrupts, `$!`) per fiber, so
//! the other fibers are not affected. For the app it is as if Ruby had switched threads there.
//!
//! Relies on two properties of CRuby: a postponed job may switch fibers, and its state belongs to the fiber.
//! Checked with Ruby 3.1 by `worker/native/tests/preempt_test.rb`. Another Ruby engine loads no native part,
//! and serves with threads. Off by `rack.fiber_slice = "off"`: a fiber keeps its thread until it waits, and
//! the log names calls that block the others ([`super::blocking`]).
//!
//! Contract: a fiber is not pre-empted
//! 1. while it loads a file: others must not see a half-loaded file, and some of the locks that guard loading
//!    belong to threads;
//! 2. inside [`unsliced`], on the app's request;
//! 3. inside Firebrick's own library, where a fiber may be between two states; in functions of IO, Zlib and
//!    threads, which may hold a lock; and in those of fibers and Enumerators, which may have to return a
//!    value from another fiber;
//! 4. where Ruby does not call the scheduler (`Fiber.blocking`; Enumerators of Ruby 3.1), or while the thread
//!    itself sleeps;
//! 5. on Ruby 3.1 inside `synchronize`: an Enumerator that wants the lock could not wait for the fiber that holds it.
//!
//! In these cases pre-emption is tried again with the next signal.

use super::hooks::missed_alarm;
use super::waits::RaisePolicy;
use super::{TurnEnd, blocking, directory, here, slot_for};
use crate::names::names;
use crate::raw::frames::{self, Frames};
use crate::raw::gvl::Gvl;
use crate::raw::ruby::{self, Value};
use crate::raw::slice::{Slices, Timer};
use crate::raw::{afterwards, fiber};
use crate::worker::task::strand;
use crate::worker::worker;
use std::io;
use std::sync::Once;

/// A loop's state for pre-emption.
pub(super) struct Preempt {
    timer: Option<Timer>,
    frames: Frames,
    /// The path prefix of Firebrick's library.
    own: Vec<u8>,
    /// Fibers are not pre-empted inside `synchronize`.
    keeps_locks: bool,
}

impl Preempt {
    /// Sets up pre-emption for the calling thread. `None` when it is off or impossible; the latter is logged
    /// once. May raise.
    pub(super) fn begin(gvl: &mut Gvl, slice_us: u64) -> Option<Preempt> {
        static SAID: Once = Once::new();
        if slice_us == 0 {
            return None;
        }
        let own = ruby::call(gvl, names().fibers.get(), names().own_paths, &[]);
        let own = own.bytes(gvl).to_vec();
        // With RUBY_MN_THREADS a Ruby thread may move to another native thread, which has no such timer.
        let moves = std::env::var_os("RUBY_MN_THREADS").is_some_and(|on| on == "1");
        let timer =
            if moves { Err(io::Error::other("RUBY_MN_THREADS=1")) } else { Slices::here().begin(slice_us) };
        match timer {
            Ok(timer) => Some(Preempt {
                timer: Some(timer),
                frames: Frames::new(),
                own,
                keeps_locks: frames::enumerators_stop_the_thread(),
            }),
            Err(error) => {
                SAID.call_once(|| {
                    crate::complain(format_args!(
                        "rack.fiber_slice has no effect ({error}): a fiber that computes keeps its thread"
                    ));
                });
                None
            }
        }
    }

    pub(super) fn end(&mut self) {
        self.timer.take().into_iter().for_each(Timer::end);
    }
}

/// Lets the other fibers run first, if the slice of the running fiber is over. Runs in a postponed job.
pub(super) fn slice_is_over(gvl: &mut Gvl) {
    if !blocking::has_loop() {
        return;
    }
    // Sample before the switch: a call that cannot be left is still on the stack here.
    if let Err(error) = blocking::sample(gvl) {
        return app_interrupted(gvl, error);
    }
    if !Slices::here().is_over() || !can_leave(gvl) {
        return;
    }
    let (fiber, strand) = (fiber::current(gvl), strand::current());
    let slot = slot_for(gvl, fiber);
    let put_back = here(gvl, |l| {
        l.turned = TurnEnd::now();
        if let Some(part) = strand {
            let ran_us = l.turned.at_us.saturating_sub(part.entered_us.get());
            part.computed_us.set(part.computed_us.get() + ran_us);
            part.goes_on.set(true);
        }
        let begins = (!std::mem::replace(&mut l.computes, true)).then_some(l.thread.index);
        (l.waits.put_back(slot, strand), l.root.get(), begins)
    });
    let Some((key, root, begins)) = put_back else { return };
    if let Some(index) = begins {
        worker(gvl, |w| w.scoreboard.computes(index, true));
    }
    blocking::slices(gvl);
    let status = ruby::last_status(gvl);
    let own = directory::leave(strand);
    let left = fiber::transfer(gvl, root);
    directory::enter(own);
    here(gvl, |l| l.waits.finish(key));
    let mut killed = false;
    if let Err(unwind) = left {
        let (dies, error) = fiber::caught(gvl, unwind);
        killed = dies || (!error.is_nil() && afterwards::raise(gvl, error));
    }
    let mut alarm = None;
    let asked = ruby::protect(gvl, |gvl| {
        ruby::restore_status(gvl, status);
        alarm = missed_alarm(gvl, fiber, strand, RaisePolicy::Immediate);
    });
    if let Err((_, error)) = asked {
        killed |= afterwards::raise(gvl, error);
    }
    if let Some(error) = alarm.and_then(|number| expired(gvl, number)) {
        killed |= afterwards::raise(gvl, error);
    }
    if killed {
        leave_for_good(gvl, root);
    }
}

/// Leaves the fiber for good, because the thread is being killed and the job cannot be unwound.
fn leave_for_good(gvl: &mut Gvl, root: Value) -> ! {
    here(gvl, |l| l.thread.killed.set(true));
    loop {
        let _ = fiber::transfer(gvl, root);
    }
}

/// Returns the exception of an expired `Timeout.timeout` of the calling fiber.
fn expired(gvl: &mut Gvl, number: u64) -> Option<Value> {
    let raised = ruby::protect(gvl, |gvl| {
        let number = ruby::integer(gvl, number as i64);
        ruby::call(gvl, names().fibers.get(), names().expired, &[number]);
    });
    raised.err().map(|(_, error)| error).filter(|error| !error.is_nil())
}

/// Returns whether the fiber can be left; see the contract above.
fn can_leave(gvl: &mut Gvl) -> bool {
    let fiber = fiber::current(gvl);
    if !here(gvl, |l| l.root.get()).is_some_and(|root| root != fiber) || !frames::asks_scheduler(gvl) {
        return false;
    }
    if strand::current().is_some_and(|strand| strand.unsliced.get() > 0) {
        return false;
    }
    // The loop's own state is taken out, so nothing else can borrow it: the calls below may allocate objects,
    // but run no Ruby code.
    let Some(mut preempt) = here(gvl, |l| l.preempt.take()).flatten() else { return false };
    let mut can = false;
    let asked = ruby::protect(gvl, |gvl| {
        let thread = Value::current_thread(gvl);
        can = !ruby::call(gvl, thread, names().is_stopped, &[]).truthy()
            && preempt.frames.can_be_left(gvl, &preempt.own, preempt.keeps_locks);
    });
    here(gvl, |l| l.preempt = Some(preempt));
    if let Err((_, error)) = asked {
        app_interrupted(gvl, error);
        return false;
    }
    can
}

/// Handles an interrupt for the app that came while the job called Ruby.
fn app_interrupted(gvl: &mut Gvl, error: Value) {
    if afterwards::raise(gvl, error)
        && let Some(root) = here(gvl, |l| l.root.get())
    {
        leave_for_good(gvl, root);
    }
}

/// Turns pre-emption of the calling fiber off, until the same call with `false`. Calls can be nested.
pub(crate) fn unsliced(begins: bool) {
    if let Some(part) = strand::current() {
        let depth = part.unsliced.get();
        part.unsliced.set(if begins { depth + 1 } else { depth.saturating_sub(1) });
    }
}
