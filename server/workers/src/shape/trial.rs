//! One trial, and its verdict.
//!
//! Why throughput decides while requests wait: a queue that is not empty keeps all seats busy, so the rate is
//! what the shape can do. Response times say little then, because they contain the wait behind requests that
//! came before the step.

use super::measured::SampleSum;
use super::{ServingShape, ShapeBounds, ShapeMeasured, ShapeVerdict, milliseconds, percent};
use std::time::Duration;

/// The number that a trial changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShapeChange {
    MoreSeats,
    FewerSeats,
    MoreWorkers,
}

/// The number of kinds of trials.
pub(super) const CHANGES: usize = 3;

/// The responses that make figures meaningful, unless they take [`LONGEST`].
const ENOUGH: u64 = 20;
const LONGEST: Duration = Duration::from_secs(8);
/// The times of figures: a new worker begins with cold caches, and needs longer.
const SEATS: Duration = Duration::from_millis(900);
const WORKERS: Duration = Duration::from_millis(1_900);
/// The gain in throughput that keeps a step.
const GAIN: f64 = 1.05;
/// The throughput that fewer seats must keep.
const NO_LOSS: f64 = 0.97;

#[derive(Debug, Clone)]
pub(super) struct ShapeTrial {
    pub(super) change: ShapeChange,
    pub(super) from: ServingShape,
    pub(super) to: ServingShape,
    pub(super) before: ShapeMeasured,
    pub(super) after: SampleSum,
    /// Whether requests waited before.
    pub(super) waited: bool,
    /// The first samples with new workers, which are not judged.
    pub(super) skip: u32,
}

impl ShapeTrial {
    /// Returns the verdict with its reason; `None` while there are too few figures.
    pub(super) fn verdict(&self, bounds: &ShapeBounds) -> Option<(ShapeVerdict, String)> {
        let least = if self.change == ShapeChange::MoreWorkers { WORKERS } else { SEATS };
        let enough = self.after.time >= least && self.after.responses() >= ENOUGH;
        if !enough && self.after.time < LONGEST {
            return None;
        }
        let (before, after) = (self.before, self.after.measured(bounds));
        let waits = self.after.waits_long(bounds);
        let rates = format!("{:.0}/s before, {:.0}/s with it", before.rate, after.rate);
        if !enough && !waits {
            return Some((
                ShapeVerdict::Undecided,
                "the load ended before the trial could be judged".to_owned(),
            ));
        }
        let gain = after.rate / before.rate.max(1e-3);
        Some(match self.change {
            ShapeChange::FewerSeats if gain >= NO_LOSS && after.app < before.app => {
                let (app, was) = (milliseconds(after.app), milliseconds(before.app));
                (
                    ShapeVerdict::Kept,
                    format!(
                        "requests take {app} in the app instead of {was}, and the throughput stays: {rates}"
                    ),
                )
            }
            ShapeChange::FewerSeats => (ShapeVerdict::Reverted, format!("the throughput fell: {rates}")),
            _ if gain >= GAIN => (ShapeVerdict::Kept, format!("the throughput grew: {rates}")),
            _ if self.waited && !waits => (ShapeVerdict::Kept, "requests no longer wait".to_owned()),
            // Without waits the throughput is that of the clients.
            _ if !self.waited && after.missed <= before.missed / 2.0 => {
                let (now, was) = (percent(after.missed), percent(before.missed));
                (ShapeVerdict::Kept, format!("{now} of the requests miss the objective instead of {was}"))
            }
            _ => (ShapeVerdict::Reverted, format!("it did not help: {rates}")),
        })
    }
}
