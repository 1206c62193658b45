//! `firebrick pause`, `firebrick resume` and `firebrick maintenance`: send an order and print the new state.
//!
//! Contract:
//! 1. The exit code is 0 if the server carried the order out, else 1.
//! 2. A command that ends early, by a signal for example, changes nothing: the server has the order, and a
//!    pause ends by itself.

use crate::client::{ControlClient, order, show, value};
use crate::described::maintenance;
use crate::orders::{MaintenanceOrder, PauseOrder};
use stats::{MaintenanceSnapshot, PauseSnapshot, PauseState};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// The interval of the questions of `pause --wait`.
const LOOK: Duration = Duration::from_millis(100);

/// A command of `firebrick maintenance`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MaintenanceAction {
    On(MaintenanceOrder),
    Off,
    Status,
}

/// Runs `firebrick pause` for the server in `dir`. `wait`: until the app has no request any more.
pub fn pause_command(dir: &Path, client: &ControlClient, order: &PauseOrder, wait: bool) -> ExitCode {
    end(pause(dir, client, order, wait))
}

fn pause(dir: &Path, client: &ControlClient, terms: &PauseOrder, wait: bool) -> Result<String, String> {
    let mut paused: PauseSnapshot = order(dir, client, "/pause", terms)?;
    let seconds = (paused.remaining_ms / 1000.0).round();
    output::print(format!("for {seconds} s: firebrick resume ends the pause earlier\n"));
    if !wait {
        return Ok(paused.summary());
    }
    let mut last = None;
    loop {
        match paused.state {
            PauseState::On if paused.in_flight == 0 && paused.old_program.is_none() => {
                return Ok(paused.summary());
            }
            PauseState::On => {}
            _ => return Err(ended(&paused, client)),
        }
        let now = progress(&paused);
        if last.as_ref() != Some(&now) {
            output::print(format!("waiting: {now}\n"));
            last = Some(now);
        }
        std::thread::sleep(LOOK);
        paused = value(dir, client, "/pause")?;
    }
}

/// Describes what `--wait` waits for.
fn progress(paused: &PauseSnapshot) -> String {
    match paused.old_program {
        Some(pid) if paused.in_flight == 0 => {
            format!("process {pid} from before the upgrade finishes its requests")
        }
        _ => paused.summary(),
    }
}

/// Says that the pause has ended before the app had finished its requests, and which of them is the oldest.
fn ended(paused: &PauseSnapshot, client: &ControlClient) -> String {
    let oldest = client.requests(1, false).ok().and_then(|mut requests| requests.pop());
    let oldest = oldest.map(|one| {
        format!("; the oldest, {} {}, has taken {:.1} s so far", one.method, one.path, one.age_ms / 1000.0)
    });
    let flight = paused.in_flight;
    format!(
        "the pause has ended while {flight} of the requests were in flight{}: pause for longer (--for)",
        oldest.unwrap_or_default()
    )
}

/// Runs `firebrick resume` for the server in `dir`.
pub fn resume_command(dir: &Path, client: &ControlClient) -> ExitCode {
    end(order::<PauseSnapshot>(dir, client, "/resume", &()).map(|paused| match paused.waiting {
        0 => "resumed: no request was waiting".to_owned(),
        1 => "resumed: 1 request goes to the app".to_owned(),
        count => format!("resumed: {count} requests go to the app"),
    }))
}

/// Runs `firebrick maintenance` for the server in `dir`.
pub fn maintenance_command(
    dir: &Path,
    client: &ControlClient,
    action: &MaintenanceAction,
    json: bool,
) -> ExitCode {
    let state: Result<MaintenanceSnapshot, String> = match action {
        MaintenanceAction::On(terms) => order(dir, client, "/maintenance/on", terms),
        MaintenanceAction::Off => order(dir, client, "/maintenance/off", &()),
        MaintenanceAction::Status => value(dir, client, "/maintenance"),
    };
    end(state.map(|state| match json {
        true => serde_json::to_string_pretty(&state).unwrap_or_default(),
        false => maintenance(&state, SystemTime::now()),
    }))
}

fn end(result: Result<String, String>) -> ExitCode {
    show(result.map(|text| format!("{text}\n")))
}
