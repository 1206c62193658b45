//! The objective of response times, and the bounds of the shape that follows it.

use super::ResolveContext;
use crate::origin::ValueSource;
use crate::table::taker::{CheckedValue, Taker};
use crate::table::workers::{SHAPE_KEEP, SHAPE_THREADS, SHAPE_WORKERS, SLO, THREADS, WORKERS};
use crate::value::slo::{ShapeRule, Slo};
use crate::value::threads::Threads;
use crate::value::workers::Workers;

/// Returns the objective; `None` if it is off. An attached Ruby process keeps its only worker and its threads.
pub(super) fn slo(taker: &Taker<'_>, facts: &ResolveContext) -> Option<Slo> {
    let CheckedValue { value, origin } = taker.take(&SLO);
    if facts.attached && value.is_some() {
        taker.warn(format!(
            "slo has no effect ({origin}): the threads of an attached server belong to your process"
        ));
        return None;
    }
    value
}

/// Returns the objective with its bounds, for a server that starts with `workers` and `threads`.
pub(super) fn rule(
    taker: &Taker<'_>,
    slo: Option<Slo>,
    facts: &ResolveContext,
    workers: Workers,
    threads: Threads,
    fibers: u32,
) -> Option<ShapeRule> {
    let (bound_threads, bound_workers) = (taker.take(&SHAPE_THREADS), taker.take(&SHAPE_WORKERS));
    let keep = taker.take(&SHAPE_KEEP);
    let written = [
        ("shape.threads", &bound_threads.origin, fibers > 0),
        ("shape.workers", &bound_workers.origin, false),
        ("shape.keep", &keep.origin, false),
    ];
    for (key, origin, of_fibers) in written.into_iter().filter(|one| *one.1 != ValueSource::Default) {
        if slo.is_none() {
            taker.warn(format!("{key} has no effect ({origin}), because slo is off"));
        } else if of_fibers {
            taker.warn(format!("{key} has no effect ({origin}), because fibers serve the requests"));
        }
    }
    let slo = slo?;
    let cores = facts.machine.cpu_time().ceil().max(1.0) as u32;
    let workers_bounds = bound_workers.value.unwrap_or_else(|| match workers.is_range() {
        true => workers,
        false => Workers { min: 1, max: workers.max.max(cores).min(Workers::MOST) },
    });
    let threads_origin = taker.origin(&THREADS);
    let is_range = threads.min < threads.max && threads_origin != ValueSource::Default;
    let threads_bounds = bound_threads.value.unwrap_or_else(|| match is_range {
        true => threads,
        false => Threads { min: 1, max: threads.max.max(ShapeRule::THREADS) },
    });
    let mut start = if is_range { threads.min } else { threads.max };
    if threads_origin == ValueSource::Default {
        start = start.clamp(threads_bounds.min, threads_bounds.max);
    }
    if taker.origin(&WORKERS) != ValueSource::Default {
        let bounds = (workers_bounds.min.into(), workers_bounds.max.into());
        outside(taker, &SHAPE_WORKERS.about, ("workers", workers.min.into()), bounds);
    }
    if fibers == 0 {
        let bounds = (threads_bounds.min.into(), threads_bounds.max.into());
        outside(taker, &SHAPE_THREADS.about, ("threads", start.into()), bounds);
    }
    Some(ShapeRule { slo, workers: workers_bounds, threads: threads_bounds, start, keep: keep.value })
}

/// Records a mistake if the server would start with a number outside of its bounds.
fn outside(
    taker: &Taker<'_>,
    about: &'static crate::table::About,
    (name, start): (&str, u64),
    (min, max): (u64, u64),
) {
    if !(min..=max).contains(&start) {
        taker.conflict(
            about,
            format!("the server starts with {start} {name}: set {name} to a number from {min} to {max}"),
        );
    }
}
