//! The shape of the default pool, which follows an objective of response times: the number of workers, the
//! requests that each of them holds at a time (its seats in use), and how long requests may wait under overload.
//! Pure: takes samples and the time, and returns steps with their reasons. [`crate::supervisor`] measures and
//! carries them out.
//!
//! Why the seats are a limit of the queue, and not a number of threads: a worker may start as many
//! threads as the bounds allow, and does when a request needs one. So the queue alone decides how many are used. A
//! step takes effect with the next request, no worker is started for it, and going back costs nothing. A thread
//! that is not needed any more sleeps. Fibers work alike.
//!
//! Why trials: whether more seats or workers help depends on the app (what it waits for, what it locks), and no
//! model knows that. Figures only choose what is tried first: seats where workers wait, workers where they
//! compute.
//!
//! Contract:
//! 1. The shape stays within its bounds. The seats of a worker never exceed the connections of its database
//!    pool. A worker is added only where memory has room and CPU is idle, like by the rule of
//!    [`growth`](crate::reconciler::growth). Seats are not added while memory is short.
//! 2. One step is a trial: at most one runs, it changes one of both numbers, seats to at most four times as
//!    many, workers to at most twice as many, and it is taken back unless it has helped ([`trial`]). A step that did not
//!    help is tried again from the same number after [`AGAIN`] at the earliest, and each time after twice as long.
//! 3. More is tried only while requests wait or the objective is broken. Fewer seats are tried while it is broken, nothing
//!    else helps, and requests take longer in the app than with few of them (the gradient of the two times).
//! 4. The shape shrinks towards that of the start if no request has waited for [`CALM`] and at most half of
//!    what would be left was in use. Growing soon after shrinking doubles that time.
//! 5. If the objective is broken and no trial is left, the wait of requests is limited to what the objective
//!    leaves; those that would wait longer are refused. The limit ends when none is refused any more.
//! 6. A shape that was learnt before ([`KeptShape`]) is only another beginning, within the bounds: it shrinks and is tried
//!    further by the same rules.
//! 7. Samples in which workers are started or replaced are not judged.

mod guards;
mod kept;
mod measured;
mod overload;
mod shaper;
mod trial;

pub use kept::{KeptShape, LearntShape, ShapeTerms};
pub use measured::{ShapeMeasured, ShapeSample};
pub use shaper::Shaper;

use std::fmt;
use std::time::Duration;

/// The interval between two samples.
pub const SAMPLE: Duration = Duration::from_millis(500);
/// The time after which something that did not help is tried again; doubles up to [`AGAIN_MOST`].
pub const AGAIN: Duration = Duration::from_secs(30);
pub const AGAIN_MOST: Duration = Duration::from_secs(900);
/// The time for which no request may have waited before the shape shrinks; doubles up to [`AGAIN_MOST`].
pub const CALM: Duration = Duration::from_secs(60);

/// The number of workers, and of the requests that each holds at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServingShape {
    pub workers: u32,
    pub seats: u32,
}

/// Writes `2x8`.
impl fmt::Display for ServingShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.workers, self.seats)
    }
}

/// The objective, and what the shape may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ShapeBounds {
    /// The time within which responses are to begin.
    pub objective: Duration,
    /// The percentage of responses that are to.
    pub percentile: u8,
    /// The smallest and the largest number; the same for what must not change.
    pub workers: (u32, u32),
    pub seats: (u32, u32),
    /// Within these bounds.
    pub start: ServingShape,
}

impl ShapeBounds {
    /// Returns the share of requests that may miss the objective.
    pub(crate) fn allowed(&self) -> f64 {
        1.0 - f64::from(self.percentile) / 100.0
    }

    /// Returns the wait in the queue that calls for more.
    pub(crate) fn long_wait(&self) -> Duration {
        (self.objective / 10).max(Duration::from_micros(1_500))
    }
}

/// The outcome of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShapeVerdict {
    /// The trial has begun.
    Trying,
    /// The trial has helped.
    Kept,
    /// The trial has not helped; the shape is the one before.
    Reverted,
    /// The load ended, or workers were replaced, before the trial could be judged.
    Undecided,
    /// The load needs less.
    Shrunk,
    /// A limit forbids what might help.
    Refused,
    /// Requests that would miss the objective are refused from now on.
    Overload,
    /// They are no longer refused.
    Relieved,
}

impl ShapeVerdict {
    /// Returns the word for figures and logs.
    pub fn word(self) -> &'static str {
        match self {
            ShapeVerdict::Trying => "trying",
            ShapeVerdict::Kept => "kept",
            ShapeVerdict::Reverted => "reverted",
            ShapeVerdict::Undecided => "undecided",
            ShapeVerdict::Shrunk => "shrunk",
            ShapeVerdict::Refused => "refused",
            ShapeVerdict::Overload => "overload",
            ShapeVerdict::Relieved => "relieved",
        }
    }
}

/// A step, with its reason in words.
#[derive(Debug, Clone, PartialEq)]
pub struct ShapeStep {
    pub verdict: ShapeVerdict,
    pub from: ServingShape,
    /// The shape that was tried, or that is in force now.
    pub to: ServingShape,
    pub why: String,
    /// The figures before the trial.
    pub before: Option<ShapeMeasured>,
    /// The figures of the trial.
    pub after: Option<ShapeMeasured>,
}

fn milliseconds(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    if ms < 10.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod simulation;
