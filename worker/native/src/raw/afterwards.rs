//! Raises an exception after a postponed job has returned.
//!
//! Why: Ruby drops exceptions that are raised in a postponed job. A pre-empted fiber is inside such a job
//! until it goes on, and may be the target of `Thread#raise`, or of a `Timeout.timeout` that has expired
//! meanwhile. Ruby records an exception that another thread raises, and raises it at the next safe point,
//! which is the end of the job. An exception that a thread raises on itself comes at once. So another thread
//! raises it. It costs a Ruby thread for each such exception, and nothing for others.
//!
//! Relies on this in CRuby: postponed jobs drop exceptions, and pending interrupts are kept until the job
//! ends. Checked with Ruby 3.1 (`preempt_test.rb`, `fibers_interrupts_test.rb`). If no thread can be started,
//! or exceptions keep coming, the exception is lost and the fiber goes on: a `Timeout` then ends at the
//! block's own end. Off with slices (`rack.fiber_slice = "off"`).

use super::gvl::{self, Guarded, Gvl};
use super::ruby::{self, NIL, Value};
use super::slots::RootSlot;
use std::cell::Cell;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The longest wait for the other thread.
const LONGEST: Duration = Duration::from_secs(1);

/// The number of attempts, when other exceptions are raised at the same time.
const ROUNDS: usize = 8;

/// An exception to be raised, and the thread to raise it on.
struct PendingRaise {
    thread: &'static RootSlot,
    error: &'static RootSlot,
    /// Dropped when the exception has been raised.
    done: Cell<Option<Sender<()>>>,
}

// SAFETY: touched with the GVL only.
unsafe impl Sync for PendingRaise {}

/// Completed orders, for reuse.
static SPARE: Guarded<Vec<&'static PendingRaise>> = Guarded::new(Vec::new());

fn carry_out(gvl: &mut Gvl, order: &'static PendingRaise) {
    let raise = ruby::id(gvl, "raise");
    // The thread may have ended.
    let _ = ruby::protect(gvl, |gvl| {
        ruby::call(gvl, order.thread.get(), raise, &[order.error.get()]);
    });
    give_back(gvl, order);
}

fn give_back(gvl: &Gvl, order: &'static PendingRaise) {
    order.done.set(None);
    order.thread.set(NIL);
    order.error.set(NIL);
    SPARE.with(gvl, |spare| spare.push(order));
}

/// Raises `error` on the calling thread when the postponed job that calls this has returned. Never raises
/// itself. Returns true when the thread is being killed, and nothing more is raised.
pub(crate) fn raise(gvl: &mut Gvl, mut error: Value) -> bool {
    for _ in 0..ROUNDS {
        let Some(done) = send(gvl, error) else { return false };
        // Being woken by another thread leaves an interrupt without an exception, which must be cleared
        // before the wait can begin. An exception raised meanwhile is either this one, because the other
        // thread was fast, or the next one to raise.
        let raised = ruby::protect(gvl, ruby::check_interrupts);
        let Err((jump, other)) = raised else {
            let _ = gvl::release(gvl, move || done.recv_timeout(LONGEST));
            return false;
        };
        if jump.is_kill() {
            return true;
        }
        if other != error {
            let _ = gvl::release(gvl, move || done.recv_timeout(LONGEST));
        }
        error = other;
    }
    false
}

/// Makes another thread raise `error` on this one. `None`: no other thread can be started.
fn send(gvl: &mut Gvl, error: Value) -> Option<Receiver<()>> {
    let order = SPARE.with(gvl, Vec::pop).unwrap_or_else(|| {
        let (thread, error) = (RootSlot::leak(gvl, NIL), RootSlot::leak(gvl, NIL));
        Box::leak(Box::new(PendingRaise { thread, error, done: Cell::new(None) }))
    });
    order.thread.set(Value::current_thread(gvl));
    order.error.set(error);
    let (sender, receiver) = channel();
    order.done.set(Some(sender));
    let start = |gvl: &mut Gvl| ruby::spawn(gvl, Box::new(move |gvl: &mut Gvl| carry_out(gvl, order))).keep();
    if ruby::protect(gvl, start).is_err() {
        give_back(gvl, order);
        return None;
    }
    Some(receiver)
}
