//! The limits that forbid a step, and the figures that choose what is tried first.

use super::{ServingShape, ShapeBounds, ShapeMeasured, ShapeSample, percent};
use crate::deaths::mebibytes;
use crate::reconciler::growth::{CONTENDED, IDLE, MEMORY, OWN};
use std::time::Duration;

/// The share of a CPU from which a worker counts as computing: another thread would only wait for the GVL.
const COMPUTES: f64 = 0.8;
/// The share of their time for which requests compute, from which more at a time need idle CPU.
const NEEDS_CPU: f64 = 0.2;
/// Requests shorter than this are handed over several at a time, which helps whatever they do.
const SHORT: Duration = Duration::from_millis(1);

/// A limit that may forbid a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShapeGuard {
    /// The bounds of the settings.
    Bound,
    /// The threads with which the workers were started.
    Built,
    Database,
    Memory,
    Cpu,
    /// An operator has set the number.
    Pinned,
}

/// The number of guards.
pub(super) const GUARDS: usize = 6;

/// A step that is forbidden, with the reason in words.
pub(super) type ForbiddenStep = (ShapeGuard, String);

/// Returns whether more threads of a worker would only wait for each other.
pub(super) fn computes(sample: &ShapeSample, shape: ServingShape) -> Option<String> {
    let each = sample.worker_cpus.map(|cpus| cpus / f64::from(shape.workers.max(1)));
    if let Some(share) = each.filter(|share| *share >= COMPUTES) {
        return Some(format!("each worker computes for {} of the time", percent(share)));
    }
    let share = sample.gvl.filter(|share| *share >= CONTENDED)?;
    Some(format!("threads wait for the GVL for {} of the time in the app", percent(share)))
}

/// Returns the number of seats to try.
pub(super) fn more_seats(
    sample: &ShapeSample,
    now: ShapeMeasured,
    shape: ServingShape,
    bounds: &ShapeBounds,
) -> Result<u32, ForbiddenStep> {
    let most = bounds.seats.1;
    if shape.seats >= most {
        return Err((
            ShapeGuard::Bound,
            format!("{} seats in each worker are the most that the settings allow", most),
        ));
    }
    let built = sample.built.unwrap_or(u32::MAX);
    if shape.seats >= built {
        return Err((
            ShapeGuard::Built,
            format!("{}: `firebrick reload` starts them with up to {most}", started_with(built)),
        ));
    }
    let connections = connections(sample);
    if shape.seats >= connections {
        return Err((
            ShapeGuard::Database,
            format!(
                "a worker has {connections} connections to the database, so more requests at a time would wait for them"
            ),
        ));
    }
    let is_short = now.app < SHORT;
    if let Some(why) = computes(sample, shape).filter(|_| !is_short) {
        return Err((ShapeGuard::Cpu, format!("{why}, so more threads would not help")));
    }
    // Requests that compute only now and then get along with the rest of the CPU.
    let share = sample.computed().filter(|share| *share >= NEEDS_CPU);
    if let Some((why, share)) = scarce(sample).zip(share).filter(|_| !is_short) {
        return Err((
            ShapeGuard::Cpu,
            format!("{why}, and requests compute for {} of their time", percent(share)),
        ));
    }
    if let Some(limit) =
        sample.memory.limit.filter(|limit| sample.memory.taken as f64 > *limit as f64 * MEMORY)
    {
        return Err((
            ShapeGuard::Memory,
            format!("all processes take {} of {}", mebibytes(sample.memory.taken), mebibytes(limit)),
        ));
    }
    let all = shape.workers.saturating_mul(shape.seats);
    let factor = if sample.waiting >= all.saturating_mul(4) { 4 } else { 2 };
    Ok(shape.seats.saturating_mul(factor).min(most).min(built).min(connections))
}

/// Returns the most seats that workers can use whatever the load, with the reason in words.
pub(super) fn most_seats(sample: &ShapeSample, bounds: &ShapeBounds) -> (u32, String) {
    let (built, connections) =
        (sample.built.unwrap_or(u32::MAX), connections(sample).max(bounds.start.seats));
    match built <= connections {
        true => (built.max(1), started_with(built)),
        false => (connections, format!("a worker has {connections} connections to the database")),
    }
}

fn started_with(built: u32) -> String {
    format!("the workers were started with {built} {} each", if built == 1 { "thread" } else { "threads" })
}

/// Returns the connections to the database that a worker may have.
fn connections(sample: &ShapeSample) -> u32 {
    sample.connections.filter(|connections| *connections > 0).unwrap_or(u32::MAX)
}

/// Returns the number of workers to try.
pub(super) fn more_workers(
    sample: &ShapeSample,
    shape: ServingShape,
    bounds: &ShapeBounds,
) -> Result<u32, ForbiddenStep> {
    let most = bounds.workers.1;
    if sample.pinned {
        return Err((ShapeGuard::Pinned, "a signal has set the number of workers".to_owned()));
    }
    if shape.workers >= most {
        let text = if most == 1 { "1 worker is".to_owned() } else { format!("{most} workers are") };
        return Err((ShapeGuard::Bound, format!("{text} the most that the settings allow")));
    }
    if let Some(why) = busy_cpu(sample) {
        return Err((ShapeGuard::Cpu, why));
    }
    let idle = sample.idle_cpu.map_or(1.0, |idle| idle * sample.cpus);
    let wanted = (idle.floor() as u32).clamp(1, shape.workers.max(1)).min(most - shape.workers);
    let fits = (1..=wanted).rev().find(|&count| sample.memory.has_room_for(count.into()) == Some(true));
    match fits {
        Some(count) => Ok(shape.workers + count),
        None => Err((ShapeGuard::Memory, sample.memory.no_room())),
    }
}

/// Returns why the CPU forbids another worker.
fn busy_cpu(sample: &ShapeSample) -> Option<String> {
    scarce(sample).filter(|_| sample.worker_share.is_none_or(|share| share >= OWN))
}

fn scarce(sample: &ShapeSample) -> Option<String> {
    let idle = sample.idle_cpu.filter(|idle| *idle < IDLE)?;
    Some(format!("only {} of the CPU is idle", percent(idle)))
}
