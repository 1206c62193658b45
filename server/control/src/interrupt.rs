//! `firebrick pause`, `firebrick resume` and `firebrick maintenance`: send an order and print the new state.
//!
//! Contract:
//! 1. The exit code is 0 if the server carried the order out, else 1.
//! 2. A command that ends early, by a signal for example, changes nothing: the server has the order, and a pause ends by itself.

use crate::client::{Client, Error, reason};
use crate::described::maintenance;
use crate::orders::{MaintenanceOrder, PauseOrder};
use serde::Serialize;
use serde::de::DeserializeOwned;
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
pub fn pause_command(dir: &Path, client: &Client, order: &PauseOrder, wait: bool) -> ExitCode {
    end(pause(dir, client, order, wait))
}

fn pause(dir: &Path, client: &Client, order: &PauseOrder, wait: bool) -> Result<String, String> {
    let mut paused: PauseSnapshot = send(dir, client, "/pause", order)?;
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
        paused = ask(dir, client, "/pause")?;
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
fn ended(paused: &PauseSnapshot, client: &Client) -> String {
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
pub fn resume_command(dir: &Path, client: &Client) -> ExitCode {
    end(send::<PauseSnapshot>(dir, client, "/resume", &()).map(|paused| match paused.waiting {
        0 => "resumed: no request was waiting".to_owned(),
        1 => "resumed: 1 request goes to the app".to_owned(),
        count => format!("resumed: {count} requests go to the app"),
    }))
}

/// Runs `firebrick maintenance` for the server in `dir`.
pub fn maintenance_command(dir: &Path, client: &Client, action: &MaintenanceAction, json: bool) -> ExitCode {
    let state: Result<MaintenanceSnapshot, String> = match action {
        MaintenanceAction::On(order) => send(dir, client, "/maintenance/on", order),
        MaintenanceAction::Off => send(dir, client, "/maintenance/off", &()),
        MaintenanceAction::Status => ask(dir, client, "/maintenance"),
    };
    end(state.map(|state| match json {
        true => serde_json::to_string_pretty(&state).unwrap_or_default(),
        false => maintenance(&state, SystemTime::now()),
    }))
}

fn end(result: Result<String, String>) -> ExitCode {
    match result {
        Ok(text) => {
            output::print(format!("{text}\n"));
            ExitCode::SUCCESS
        }
        Err(why) => {
            output::complain(format_args!("firebrick: {why}"));
            ExitCode::FAILURE
        }
    }
}

fn send<T: DeserializeOwned>(
    dir: &Path,
    client: &Client,
    target: &str,
    order: &impl Serialize,
) -> Result<T, String> {
    let order = serde_json::to_string(order).unwrap_or_default();
    // An order without content is an empty body.
    let order = if order == "null" { "" } else { order.as_str() };
    read(client, client.order(target, order.as_bytes()).map_err(|error| reason(&error, dir))?)
}

fn ask<T: DeserializeOwned>(dir: &Path, client: &Client, target: &str) -> Result<T, String> {
    read(client, client.get(target).map_err(|error| reason(&error, dir))?)
}

fn read<T: DeserializeOwned>(client: &Client, text: String) -> Result<T, String> {
    let read = serde_json::from_str(&text);
    read.map_err(|error| Error::NotControl(client.address().clone(), error.to_string()).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_reason_is_told() {
        let refused =
            |status, text: &str| reason(&Error::Refused(status, text.to_owned()), Path::new("/srv"));
        assert_eq!(refused(409, r#"{ "error": "the app is not paused" }"#), "the app is not paused");
        assert_eq!(refused(500, "oops"), "the server responded with 500: oops");
        assert!(refused(404, r#"{ "error": "no such endpoint" }"#).contains("another version"));
    }
}
