//! Full garbage collections between requests: when one is due the worker says so, and does it when the front has told it to, which
//! sends it no requests meanwhile (docs/wire.md).
//!
//! When a collection is due is decided in Ruby (`lib/firebrick/worker/out_of_band_gc.rb`). It depends on what the last collection has
//! left, so it is asked only when there has been one since.

use crate::names::names;
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::os;
use crate::raw::ruby::{self, Value};
use crate::raw::slots::Slot;
use crate::serve::{end, report};
use crate::worker::worker;
use wire::Kind;

struct State {
    /// The Ruby object that decides; none when collections are left to Ruby.
    collector: Option<&'static Slot>,
    /// Ruby's number of collections when it was last asked.
    seen: usize,
    /// The front has been told.
    told: bool,
}

static STATE: Guarded<State> = Guarded::new(State { collector: None, seen: 0, told: false });

/// From now on `collector` decides; nil: collections are left to Ruby.
pub(crate) fn leave_to(gvl: &mut Gvl, collector: Value) {
    let collector = collector.truthy().then(|| Slot::leak(gvl, collector));
    STATE.with(gvl, |state| *state = State { collector, seen: 0, told: false });
}

/// After a request: tells the front, once, when a full collection is due.
#[inline]
pub(crate) fn check(gvl: &mut Gvl) {
    let collections = ruby::gc_count(gvl);
    let collector = STATE.with(gvl, |state| {
        let collector = state.collector.filter(|_| state.seen != collections);
        state.seen = collections;
        collector
    });
    if let Some(collector) = collector {
        ask(gvl, collector);
    }
}

#[cold]
fn ask(gvl: &mut Gvl, collector: &'static Slot) {
    let mut due = false;
    match ruby::protect(gvl, |gvl| due = ruby::call(gvl, collector.get(), names().is_due, &[]).truthy()) {
        Ok(()) if due => {
            if !STATE.with(gvl, |state| std::mem::replace(&mut state.told, true)) {
                send(gvl, Kind::Due, b"");
            }
        }
        Ok(()) => {}
        Err((_, error)) => report(gvl, error),
    }
}

/// Collects. No request is served meanwhile.
pub(crate) fn run(gvl: &mut Gvl) {
    let started_us = os::now_us();
    let collector = STATE.with(gvl, |state| {
        state.told = false;
        state.collector
    });
    let mut collected = false;
    let collect = |gvl: &mut Gvl| {
        if let Some(slot) = collector {
            collected = ruby::call(gvl, slot.get(), names().collect, &[]).truthy();
        }
    };
    if let Err((_, error)) = ruby::protect(gvl, collect) {
        report(gvl, error);
    }
    let took_us = if collected { os::now_us().saturating_sub(started_us).max(1) } else { 0 };
    send(gvl, Kind::Collected, &took_us.to_le_bytes());
}

/// It goes out with the next responses, at once when there are none.
fn send(gvl: &Gvl, kind: Kind, payload: &[u8]) {
    let outbox = worker(gvl, |w| w.links[0].outbox());
    outbox.append(os::now_us(), None, |out| wire::frame::append(out, kind, 0, 0, payload));
    if outbox.send().is_err() {
        end(gvl, 0);
    }
}
