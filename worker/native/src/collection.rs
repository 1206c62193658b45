//! Full garbage collections between requests. When a collection is due, the worker reports it to the front,
//! and collects on the front's order; the front sends no requests during that time (docs/internals/wire.md).
//!
//! Ruby code decides when a collection is due (`worker/lib/firebrick/worker/out_of_band_gc.rb`). The decision
//! depends on the state after the last collection, so that code is called only when there has been one since.

use crate::links::{end, report};
use crate::names::names;
use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::os;
use crate::raw::ruby::{self, Value};
use crate::raw::slots::RootSlot;
use crate::worker::worker;
use wire::FrameKind;

struct State {
    /// The Ruby object that decides; `None` if Ruby itself runs its collections.
    collector: Option<&'static RootSlot>,
    /// Ruby's number of collections at the last call of the collector.
    seen: usize,
    /// Whether the worker has reported that a collection is due.
    told: bool,
}

static STATE: Guarded<State> = Guarded::new(State { collector: None, seen: 0, told: false });

/// Sets the collector; nil: collections are left to Ruby.
pub(crate) fn leave_to(gvl: &mut Gvl, collector: Value) {
    let collector = collector.truthy().then(|| RootSlot::leak(gvl, collector));
    STATE.with(gvl, |state| *state = State { collector, seen: 0, told: false });
}

/// Reports to the front, once, after a request, that a full collection is due.
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
fn ask(gvl: &mut Gvl, collector: &'static RootSlot) {
    let mut due = false;
    match ruby::protect(gvl, |gvl| due = ruby::call(gvl, collector.get(), names().is_due, &[]).truthy()) {
        Ok(()) if due => {
            if !STATE.with(gvl, |state| std::mem::replace(&mut state.told, true)) {
                send(gvl, FrameKind::Due, b"");
            }
        }
        Ok(()) => {}
        Err((_, error)) => report(gvl, error),
    }
}

/// Runs a full collection. No request may be active.
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
    send(gvl, FrameKind::Collected, &took_us.to_le_bytes());
}

/// Appends a frame. It is sent with the next responses, or at once when there are none.
fn send(gvl: &Gvl, kind: FrameKind, payload: &[u8]) {
    let outbox = worker(gvl, |w| w.links[0].outbox());
    outbox.append(os::now_us(), None, |out| wire::frame::append(out, kind, 0, 0, payload));
    if outbox.send().is_err() {
        end(gvl, 0);
    }
}
