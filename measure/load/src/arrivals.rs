//! One thread's share of the send times in an open model or a replay.

use crate::clock::{Moment, nanoseconds};
use crate::job::Job;
use crate::scenario::{Stage, Traffic};
use crate::schedule::{Schedule, stages};
use crate::shared::Shared;
use crate::{scenario::Arrivals as Distribution, scenario::Scenario};
use std::time::Duration;

/// First the warm-up, then the counted part: of the arrivals of this process every `threads`-th, starting
/// with number `thread`. Times are relative to the run.
pub(crate) struct Arrivals {
    warm: std::iter::Peekable<std::iter::Enumerate<Schedule>>,
    counted: Source,
    thread: usize,
    threads: usize,
}

enum Source {
    Scheduled(std::iter::Enumerate<Schedule>),
    Replayed(usize),
}

impl Arrivals {
    pub(crate) fn new(scenario: &Scenario, thread: usize, threads: usize) -> Arrivals {
        let warm =
            Stage { from: warm_rate(scenario), to: warm_rate(scenario), duration: Some(scenario.warm_up) };
        let counted = match &scenario.traffic {
            Traffic::Open { arrivals, .. } => {
                Source::Scheduled(Schedule::new(&stages(scenario).0, *arrivals).enumerate())
            }
            _ => Source::Replayed(0),
        };
        let warm = Schedule::new(&[warm], Distribution::Even).enumerate().peekable();
        Arrivals { warm, counted, thread, threads: threads.max(1) }
    }

    /// Returns the next request. `began` is the start of the counted part.
    pub(crate) fn next(&mut self, run: &Shared, began: Moment) -> Option<Job> {
        let warm_up = began.saturating_sub(nanoseconds(run.scenario.warm_up));
        let (thread, threads) = (self.thread, self.threads);
        let part = run.scenario.part;
        let mine = move |number: usize| part.own(number).is_some_and(|own| own % threads == thread);
        if let Some((number, due)) = self.warm.find(|(number, _)| mine(*number)) {
            return Some(Job { kind: run.sequence.kind(number as u64), due: warm_up + due, counted: false });
        }
        let limit = run.scenario.stop.requests.unwrap_or(u64::MAX);
        let (number, due, kind) = match &mut self.counted {
            Source::Scheduled(schedule) => {
                let (number, due) = schedule.find(|(number, _)| mine(*number))?;
                (number, due, run.sequence.kind(number as u64))
            }
            Source::Replayed(next) => {
                let Traffic::Replay { arrivals, .. } = &run.scenario.traffic else { return None };
                let number = part.arrival(*next + thread);
                *next += threads;
                let (due, kind) = arrivals.get(number)?;
                (number, nanoseconds(*due), *kind)
            }
        };
        ((number as u64) < limit).then_some(Job { kind, due: began.saturating_add(due), counted: true })
    }
}

/// Returns the requests per second during the warm-up: the first rate, or half the rate at the end of the
/// first ramp if that starts at 0.
fn warm_rate(scenario: &Scenario) -> f64 {
    match &scenario.traffic {
        Traffic::Closed { .. } => 0.0,
        Traffic::Open { stages, .. } => {
            let first = stages
                .first()
                .map_or(0.0, |stage| if stage.from > 0.0 { stage.from } else { stage.to / 2.0 });
            first.max(0.0)
        }
        #[allow(clippy::cast_precision_loss)]
        Traffic::Replay { arrivals, .. } => {
            let duration = arrivals.last().map_or(Duration::ZERO, |(last, _)| *last);
            arrivals.len() as f64 / duration.max(Duration::from_secs(1)).as_secs_f64()
        }
    }
}
