//! The reuse of strands.
//!
//! Contract: a strand of `Fiber.schedule` is free when the loop has come back from it, and it neither waits
//! nor has been pre-empted.

use super::{directory, here};
use crate::links;
use crate::names::names;
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::ruby::{self, NIL, Value};
use crate::worker::task::strand::Strand;

/// Free strands of `Fiber.schedule`.
static SPARE: Guarded<Vec<&'static Strand>> = Guarded::new(Vec::new());

/// Returns a strand for a fiber of `Fiber.schedule` that has not run yet.
pub(crate) fn for_app(gvl: &mut Gvl, fiber: Value) -> &'static Strand {
    let strand = match SPARE.with(gvl, Vec::pop) {
        Some(strand) => strand,
        None => Box::leak(Box::new(Strand::new(gvl))),
    };
    strand.ruby.set(fiber);
    strand
}

/// Frees a strand of `Fiber.schedule` after the loop has come back from it, unless it goes on.
#[inline]
pub(crate) fn come_back(gvl: &mut Gvl, strand: &'static Strand) {
    if strand.task.get().is_none() && !strand.goes_on.get() {
        drop_alarms(gvl, strand);
        directory::go_home(strand);
        begin(strand);
        strand.ruby.set(NIL);
        SPARE.with(gvl, |spare| spare.push(strand));
    }
}

/// Resets the state of the previous request or fiber.
pub(crate) fn begin(strand: &Strand) {
    strand.used_us.set(0);
    strand.computed_us.set(0);
    strand.interruptible.set(false);
    strand.interrupts.set(NIL);
    strand.held.set(false);
    directory::forget(strand);
    strand.unsliced.set(0);
}

/// Drops the remaining alarms of a finished strand. They were set by fibers that have not gone on.
#[inline]
pub(crate) fn drop_alarms(gvl: &mut Gvl, strand: &Strand) {
    let alarms = strand.take_alarms();
    if !alarms.is_empty() {
        drop_all(gvl, alarms);
    }
}

#[cold]
fn drop_all(gvl: &mut Gvl, alarms: Vec<u64>) {
    for number in alarms {
        here(gvl, |l| l.waits.cancel_alarm(number));
        let forgotten = ruby::protect(gvl, |gvl| {
            let number = ruby::integer(gvl, number as i64);
            ruby::call(gvl, names().fibers.get(), names().forget, &[number]);
        });
        if let Err((_, error)) = forgotten {
            links::report(gvl, error);
        }
    }
}
