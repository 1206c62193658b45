//! A worker: runs its part when the coordinator says so, and reports.

use std::io::{self, BufReader};
use std::process::{ExitCode, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use load::scenario::Part;
use load::{Flow, Scenario};
use rustix::time::{ClockId, clock_gettime};

use super::frame::{self, Order, Report};

/// Nanoseconds of the monotonic clock, which all processes of a machine share.
pub(super) fn now() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Runs this process' part of `scenario`.
pub(crate) fn serve(scenario: Scenario, part: Part) -> ExitCode {
    let stopped = Arc::new(AtomicBool::new(false));
    let (sender, starts) = channel();
    let flag = stopped.clone();
    let listening =
        std::thread::Builder::new().name("orders".to_owned()).spawn(move || orders(&sender, &flag));
    let scenario = scenario.in_part(part);
    let outcome = listening.map_err(|why| format!("cannot start a thread: {why}")).and_then(|_| {
        let mut watch = |progress: &_| {
            report(&Report::Progress(Clone::clone(progress)));
            if stopped.load(Ordering::Relaxed) { Flow::Stop } else { Flow::Continue }
        };
        load::run_together(&scenario, &mut watch, &mut || wait(&starts))
    });
    report(&match outcome {
        Ok(outcome) => Report::Done(Box::new(outcome)),
        Err(why) => Report::Failed(why),
    });
    ExitCode::SUCCESS
}

/// Reads orders until the coordinator is gone.
fn orders(starts: &Sender<u64>, stopped: &AtomicBool) {
    let mut from = BufReader::new(io::stdin());
    while let Ok(Some(order)) = frame::read(&mut from) {
        match order {
            // The receiver lives as long as the run.
            Order::Start(at) => drop(starts.send(at)),
            Order::Stop => stopped.store(true, Ordering::Relaxed),
        }
    }
    exit(1);
}

/// Says that this process is ready, and waits for the word. Returns how long until the start.
fn wait(starts: &Receiver<u64>) -> Result<Duration, String> {
    report(&Report::Ready);
    let at = starts.recv().map_err(|_| "the coordinator is gone".to_owned())?;
    Ok(Duration::from_nanos(at.saturating_sub(now())))
}

/// Without a coordinator there is nothing left to do.
fn report(frame: &Report) {
    if frame::write(io::stdout().lock(), frame).is_err() {
        exit(1);
    }
}
