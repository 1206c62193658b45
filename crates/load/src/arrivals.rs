//! What is due when in an open model or a replay: one thread's share of it.

use crate::clock::{Moment, nanoseconds};
use crate::job::Job;
use crate::plan::{Stage, Traffic};
use crate::schedule::{Schedule, stages};
use crate::shared::Shared;
use crate::{plan::Arrivals as Distances, plan::Plan};
use std::time::Duration;

/// Warm-up, then the counted part; every `threads`-th arrival, beginning with number `thread`. Moments are of the run.
pub(crate) struct Arrivals {
    warm: std::iter::Peekable<std::iter::Enumerate<Schedule>>,
    counted: Counted,
    thread: usize,
    threads: usize,
}

enum Counted {
    Scheduled(std::iter::Enumerate<Schedule>),
    Replayed(usize),
}

impl Arrivals {
    pub(crate) fn new(plan: &Plan, thread: usize, threads: usize) -> Arrivals {
        let warm = Stage { from: warm_rate(plan), to: warm_rate(plan), lasting: Some(plan.warm_up) };
        let counted = match &plan.traffic {
            Traffic::Open { arrivals, .. } => {
                Counted::Scheduled(Schedule::new(&stages(plan).0, *arrivals).enumerate())
            }
            _ => Counted::Replayed(0),
        };
        let warm = Schedule::new(&[warm], Distances::Even).enumerate().peekable();
        Arrivals { warm, counted, thread, threads: threads.max(1) }
    }

    /// The next one. `began` is when the counted part begins.
    pub(crate) fn next(&mut self, run: &Shared, began: Moment) -> Option<Job> {
        let warm_up = began.saturating_sub(nanoseconds(run.plan.warm_up));
        let (thread, threads) = (self.thread, self.threads);
        let mine = move |number: usize| number % threads == thread;
        if let Some((number, due)) = self.warm.find(|(number, _)| mine(*number)) {
            return Some(Job { kind: run.sequence.kind(number as u64), due: warm_up + due, counted: false });
        }
        let limit = run.plan.stop.requests.unwrap_or(u64::MAX);
        let (number, due, kind) = match &mut self.counted {
            Counted::Scheduled(schedule) => {
                let (number, due) = schedule.find(|(number, _)| mine(*number))?;
                (number, due, run.sequence.kind(number as u64))
            }
            Counted::Replayed(next) => {
                let Traffic::Replay { arrivals, .. } = &run.plan.traffic else { return None };
                let number = *next + thread;
                *next += threads;
                let (due, kind) = arrivals.get(number)?;
                (number, nanoseconds(*due), *kind)
            }
        };
        ((number as u64) < limit).then_some(Job { kind, due: began.saturating_add(due), counted: true })
    }
}

/// Requests per second during the warm-up: the first rate, or the mean one where the first is none.
fn warm_rate(plan: &Plan) -> f64 {
    match &plan.traffic {
        Traffic::Closed { .. } => 0.0,
        Traffic::Open { stages, .. } => {
            let first = stages
                .first()
                .map_or(0.0, |stage| if stage.from > 0.0 { stage.from } else { stage.to / 2.0 });
            first.max(0.0)
        }
        #[allow(clippy::cast_precision_loss)]
        Traffic::Replay { arrivals, .. } => {
            let lasting = arrivals.last().map_or(Duration::ZERO, |(last, _)| *last);
            arrivals.len() as f64 / lasting.max(Duration::from_secs(1)).as_secs_f64()
        }
    }
}
