//! A worker: runs its part when the coordinator orders it, and reports.

use std::cell::RefCell;
use std::io::{self, BufReader, Read, Write};
use std::process::{ExitCode, exit};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use load::scenario::Part;
use load::{Flow, Progress, Scenario};
use rustix::time::{ClockId, clock_gettime};

use super::frame::{self, CoordinatorMessage, WorkerMessage};
use super::join::join;
use crate::description::Description;

/// Returns nanoseconds of the monotonic clock, which all processes of a machine share.
pub(super) fn now() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Runs this process's part of `scenario` for the coordinator that started it.
pub(crate) fn serve(scenario: Scenario, part: Part) -> ExitCode {
    take_part(scenario.in_part(part), io::stdin(), io::stdout());
    ExitCode::SUCCESS
}

/// Joins the coordinator at `address`, and runs a part of `scenario` for it.
///
/// # Errors
/// The coordinator cannot be found or refuses, or the part cannot be run.
pub(crate) fn serve_coordinator(
    address: &str,
    token: String,
    scenario: Scenario,
    description: &Description,
) -> Result<(), String> {
    let (stream, part) = join(address, token, &scenario, description)?;
    let orders = stream.try_clone().map_err(|why| format!("--join {address}: {why}"))?;
    match take_part(scenario.in_part(part), orders, stream) {
        Some(why) => Err(why),
        None => Ok(()),
    }
}

/// Runs a part as ordered, and reports. Returns the reason if it could not be run.
fn take_part(scenario: Scenario, from: impl Read + Send + 'static, mut to: impl Write) -> Option<String> {
    let (stopped, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (sender, starts) = channel();
    let (stop, over) = (stopped.clone(), ended.clone());
    let listening = std::thread::Builder::new()
        .name("orders".to_owned())
        .spawn(move || orders(from, &sender, &stop, &over));
    let outcome = listening.map_err(|why| format!("cannot start a thread: {why}")).and_then(|_| {
        let to = RefCell::new(&mut to);
        let mut watch = |progress: &Progress| {
            report(&mut **to.borrow_mut(), &WorkerMessage::Progress(progress.clone()));
            if stopped.load(Ordering::Relaxed) { Flow::Stop } else { Flow::Continue }
        };
        load::run_together(&scenario, &mut watch, &mut || {
            report(&mut **to.borrow_mut(), &WorkerMessage::Ready);
            let at: u64 = starts.recv().map_err(|_| "the coordinator is gone".to_owned())?;
            Ok(Duration::from_nanos(at.saturating_sub(now())))
        })
    });
    let (last, why) = match outcome {
        Ok(outcome) => (WorkerMessage::Done(Box::new(outcome)), None),
        Err(why) => (WorkerMessage::Failed(why.clone()), Some(why)),
    };
    ended.store(true, Ordering::SeqCst);
    report(&mut to, &last);
    why
}

/// Reads orders until the coordinator is gone. The coordinator ends when it has all reports; a worker that
/// has `ended` by then has done its part.
fn orders(from: impl Read, starts: &Sender<u64>, stopped: &AtomicBool, ended: &AtomicBool) {
    let mut from = BufReader::new(from);
    while let Ok(Some(order)) = frame::read(&mut from) {
        match order {
            // The receiver lives as long as the run.
            CoordinatorMessage::Start(at) => drop(starts.send(at)),
            CoordinatorMessage::StartIn(wait) => drop(starts.send(now().saturating_add(wait))),
            CoordinatorMessage::Stop => stopped.store(true, Ordering::Relaxed),
        }
    }
    if !ended.load(Ordering::SeqCst) {
        exit(1);
    }
}

/// Sends a report. Without a coordinator there is nothing left to do.
fn report(to: impl Write, frame: &WorkerMessage) {
    if frame::write(to, frame).is_err() {
        exit(1);
    }
}
