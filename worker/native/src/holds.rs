//! Records that a function in C has kept the GVL for long during a request, and where ([`crate::raw::hold`]).
//!
//! Contract: only where other threads of the worker wait for the GVL meanwhile, and from [`LEAST_US`] on. A worker has at most [`PLACES`]
//! such places.

use crate::names::names;
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::hold::Hold;
use crate::raw::ruby::{self, NIL, Value};
use crate::raw::sampling::{self, Frame};
use crate::routes;
use crate::worker::place::place;
use crate::worker::task::{CURRENT, ServingThread};
use crate::worker::{is_abandoned, is_set_up, worker};

/// The shortest time that is recorded, in microseconds. Some milliseconds before it are not seen.
const LEAST_US: u64 = 20_000;
/// The names of places that are given.
const PLACES: usize = 100;

/// The frames of the last stack, and the numbers of the names that have been given.
static STATE: Guarded<(Vec<Frame>, Vec<u16>)> = Guarded::new((Vec::new(), Vec::new()));

/// Watches the calling thread, which serves requests.
pub(crate) fn attach(gvl: &Gvl, thread: &'static ServingThread) {
    // With fibers the job would run among those that end a fiber's slice: a time-out of the app was lost there.
    let alone = worker(gvl, |w| w.options.fibers > 0 || w.options.threads_max < 2);
    if !alone && thread.hold.attach(gvl, noticed) {
        place().watchdog.watch_hold(&thread.hold);
    }
}

/// Reverses [`attach`]. A child that the app has forked has no timers, and maybe a lock that another thread held.
pub(crate) fn detach(gvl: &Gvl, thread: &'static ServingThread) {
    if is_abandoned(gvl) {
        return;
    }
    place().watchdog.leave_hold(&thread.hold);
    thread.hold.detach();
}

/// Runs in a postponed job on the thread that was seen.
fn noticed(gvl: &mut Gvl) {
    let Some(us) = Hold::held_us().filter(|us| *us >= LEAST_US) else { return };
    if !is_set_up(gvl) {
        return;
    }
    let Some(task) = CURRENT.get().filter(|task| task.active.get() && task.in_app.get()) else { return };
    let (longest_us, _) = task.held.get();
    let us = u32::try_from(us).unwrap_or(u32::MAX);
    if us > longest_us {
        let number = at(gvl);
        task.held.set((us, number));
    }
}

/// Returns the number of the name of the place where the calling thread is; 0: it is not known.
fn at(gvl: &mut Gvl) -> u16 {
    let first = STATE.with(gvl, |(frames, _)| {
        sampling::frames(gvl, frames);
        frames.first().map(|(frame, _)| *frame)
    });
    let (mut function, mut name) = (NIL, NIL);
    // An error here must not reach the app.
    let _ = ruby::protect(gvl, |gvl| {
        let names_of = |gvl: &mut Gvl, frame: Value| sampling::names(gvl, frame);
        if let Some(frame) = first {
            let found = names_of(gvl, frame);
            // Only a function in C has no path.
            function = if found.path.is_nil() { found.full } else { NIL };
        }
        name = ruby::call(gvl, names().routes.get(), names().place_held, &[function]);
    });
    if !name.is_string(gvl) {
        return 0;
    }
    let full = STATE.with(gvl, |(_, given)| given.len() >= PLACES);
    let number = if full { 0 } else { routes::numbered(gvl, name.bytes(gvl)) };
    STATE.with(gvl, |(_, given)| {
        if number != 0 && !given.contains(&number) {
            given.push(number);
        }
    });
    name.keep();
    number
}
