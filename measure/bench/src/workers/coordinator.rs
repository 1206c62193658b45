//! The coordinator: starts the processes at one moment, watches them, and adds up their outcomes.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use load::Outcome;

use super::fleet::{Event, Fleet};
use super::frame::{CoordinatorMessage, WorkerMessage};
use super::join::accept;
use crate::description::Description;
use crate::interrupt::Interrupt;
use crate::live::Live;

/// The time from the order to the start; all processes must have read the order by then.
const AHEAD: Duration = Duration::from_millis(100);
const REDRAW: Duration = Duration::from_millis(100);
/// A process reports ten times a second. A process silent for this long is stopped or stuck.
const SILENCE: Duration = Duration::from_secs(10);

/// The place of the processes.
pub(crate) enum Where {
    Here,
    /// On other machines, from which they join.
    Elsewhere {
        /// The listener on which they are awaited.
        listener: TcpListener,
        /// The secret that they must know.
        token: String,
    },
}

/// The outcome of all processes.
pub(crate) struct Loaded {
    pub outcome: Outcome,
    /// A sentence for each process whose results are lost.
    pub incomplete: Vec<String>,
    /// Threads of workers that joined, which only they know.
    pub threads: Option<usize>,
}

/// Runs the load.
///
/// # Errors
/// A process cannot begin, or none has results.
pub(crate) fn load(
    count: usize,
    place: &Where,
    description: &Description,
    progress: bool,
) -> Result<Loaded, String> {
    let interrupt = Interrupt::listen();
    let live = Live::new(progress);
    let (fleet, threads) = match place {
        Where::Here => (Fleet::start(count)?, None),
        Where::Elsewhere { listener, token } => {
            let joined = accept(listener, count, token, description, &interrupt)?;
            let threads = joined.iter().map(|one| one.threads).fold(0, usize::saturating_add);
            (Fleet::welcome(joined)?, Some(threads))
        }
    };
    let states = (0..count).map(|_| State::Running).collect();
    let mut run = Run { fleet, states, interrupt, live };
    run.until_ready()?;
    run.fleet.begin(AHEAD);
    run.until_over();
    let (outcome, incomplete) = sum(run.states.into_iter())?;
    Ok(Loaded { outcome, incomplete, threads })
}

enum State {
    Running,
    Done(Box<Outcome>),
    Lost(String),
}

struct Run {
    fleet: Fleet,
    states: Vec<State>,
    interrupt: Interrupt,
    live: Live,
}

impl Run {
    /// Waits until all processes can begin.
    fn until_ready(&mut self) -> Result<(), String> {
        let mut waiting = self.states.len();
        while waiting > 0 {
            if self.interrupt.requested() {
                return Err("ended before the load began".to_owned());
            }
            let Some((number, event)) = self.fleet.next(REDRAW) else { continue };
            match event {
                Event::Report(WorkerMessage::Ready) => waiting -= 1,
                Event::Report(WorkerMessage::Progress(_)) => {}
                Event::Report(WorkerMessage::Failed(why)) => {
                    return Err(format!("{}: {why}", self.fleet.members[number].name));
                }
                Event::Report(WorkerMessage::Done(_)) => {
                    let name = &self.fleet.members[number].name;
                    return Err(format!("{name} ended before the load began"));
                }
                Event::Ended(why) => {
                    return Err(format!("{} before the load began", self.ended(number, why)));
                }
            }
        }
        Ok(())
    }

    /// Waits until each process has its results or is lost.
    fn until_over(&mut self) {
        let (mut drawn, mut stopped) = (Instant::now(), false);
        for member in &mut self.fleet.members {
            member.heard = drawn;
        }
        while self.states.iter().any(|state| matches!(state, State::Running)) {
            if let Some((number, event)) = self.fleet.next(REDRAW) {
                self.note(number, event);
            }
            if self.interrupt.requested() && !stopped {
                stopped = true;
                self.fleet.order(CoordinatorMessage::Stop);
            }
            if drawn.elapsed() >= REDRAW {
                drawn = Instant::now();
                self.live.draw(&self.fleet.progress());
                self.end_silent();
            }
        }
        self.live.clear();
    }

    fn note(&mut self, number: usize, event: Event) {
        if !matches!(self.states[number], State::Running) {
            return;
        }
        let member = &mut self.fleet.members[number];
        member.heard = Instant::now();
        let state = match event {
            Event::Report(WorkerMessage::Ready) => return,
            Event::Report(WorkerMessage::Progress(progress)) => {
                member.progress = progress;
                return;
            }
            Event::Report(WorkerMessage::Done(outcome)) => State::Done(outcome),
            Event::Report(WorkerMessage::Failed(why)) => State::Lost(format!("{}: {why}", member.name)),
            Event::Ended(why) => State::Lost(self.ended(number, why)),
        };
        self.over(number, state);
    }

    /// Returns how a process ended whose output has ended or cannot be read.
    fn ended(&mut self, number: usize, why: Option<std::io::Error>) -> String {
        let member = &mut self.fleet.members[number];
        match why.filter(|why| why.kind() == ErrorKind::InvalidData) {
            Some(why) => {
                let _ = member.end();
                format!("{} was ended, because its output is no report: {why}", member.name)
            }
            None => {
                let how = member.ending();
                format!("{} {how}", member.name)
            }
        }
    }

    fn end_silent(&mut self) {
        for number in 0..self.states.len() {
            let member = &mut self.fleet.members[number];
            if matches!(self.states[number], State::Running) && member.heard.elapsed() >= SILENCE {
                let _ = member.end();
                let why = format!("{} did not report for {} s", member.name, SILENCE.as_secs());
                self.over(number, State::Lost(why));
            }
        }
    }

    fn over(&mut self, number: usize, state: State) {
        self.states[number] = state;
        let progress = &mut self.fleet.members[number].progress;
        (progress.done, progress.rate, progress.in_flight) = (1.0, 0.0, 0);
        progress.spread.clear();
    }
}

/// Adds up the outcomes. All began at the same moment, but their clocks were read a moment apart.
fn sum(states: impl Iterator<Item = State>) -> Result<(Outcome, Vec<String>), String> {
    let (mut all, mut lost): (Option<Outcome>, Vec<String>) = (None, Vec::new());
    for state in states {
        match (state, &mut all) {
            (State::Done(mut outcome), Some(all)) => {
                outcome.started_at.clone_from(&all.started_at);
                all.merge(*outcome);
            }
            (State::Done(outcome), None) => all = Some(*outcome),
            (State::Lost(why), _) => lost.push(why),
            (State::Running, _) => {}
        }
    }
    match all {
        Some(all) => Ok((all, lost)),
        None => Err(lost.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{histogram, outcome};

    #[test]
    fn outcomes_are_added_up_and_losses_named() {
        let late = Outcome {
            started_at: "2026-01-31T12:00:01Z".to_owned(),
            latency: histogram([5_000; 10]),
            busy: 0.9,
            ..outcome()
        };
        let states = [
            State::Done(Box::new(outcome())),
            State::Lost("worker 2 of 3 was killed".to_owned()),
            State::Done(Box::new(late)),
        ];
        let (all, lost) = sum(states.into_iter()).unwrap();
        assert_eq!(lost, ["worker 2 of 3 was killed"]);
        assert_eq!((all.sent, all.latency.len(), all.busy), (2 * outcome().sent, 1_010, 0.9));
        assert_eq!(all.course.len(), outcome().course.len(), "seconds are not shifted");
        let none = sum([State::Lost("a".to_owned()), State::Lost("b".to_owned())].into_iter());
        assert_eq!(none.unwrap_err(), "a; b");
    }
}
