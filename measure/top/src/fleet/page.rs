//! `--serve`: serves the fleet and its last hour as a page for browsers.

use super::model::Fleet;
use super::once::{apply, to_json};
use super::poll::{self, Pace};
use super::target::List;
use crate::Failure;
use control::{ControlAddress, Server};
use serde_json::json;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The longest time between two checks of the clock.
const TICK: Duration = Duration::from_secs(1);

pub(crate) fn run(
    list: List,
    token: Option<String>,
    interval: Duration,
    address: &str,
) -> Result<(), Failure> {
    let place: ControlAddress =
        address.parse().ok().filter(|place| matches!(place, ControlAddress::Tcp { .. })).ok_or_else(
            || {
                Failure::Usage(format!(
                    "--serve {address}: expected tcp://HOST:PORT, such as tcp://127.0.0.1:9294"
                ))
            },
        )?;
    if !place.is_local() && token.as_ref().is_none_or(|token| token.len() < 16) {
        return Err(Failure::Usage(format!(
            "--serve {address}: other machines can reach it, so FIREBRICK_CONTROL_TOKEN has to have 16 characters or more"
        )));
    }
    let mut server = Server::new(token.clone());
    server.listen(&place).map_err(|why| Failure::Run(why.to_string()))?;
    let fleet = Arc::new(Mutex::new(Fleet::new(interval, Instant::now())));
    let links: String = server.dashboards().map(|link| format!("* Fleet: {link}\n")).collect();
    output::print(format!("{links}Use Ctrl-C to stop\n"));
    let shown = fleet.clone();
    let figures = move || {
        let fleet = shown.lock().unwrap_or_else(PoisonError::into_inner);
        let mut json = to_json(&fleet.view(Instant::now()), fleet.interval());
        if let Some(object) = json.as_object_mut() {
            object.insert("points".to_owned(), json!(fleet.points()));
        }
        json.to_string()
    };
    let reports = poll::start(list, token, Pace::new(interval));
    std::thread::spawn(move || {
        loop {
            let report = match reports.recv_timeout(TICK) {
                Ok(report) => Some(report),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut fleet = fleet.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(report) = report {
                apply(&mut fleet, report);
            }
            fleet.tick(Instant::now(), SystemTime::now());
        }
    });
    server.run_fleet(figures).map_err(|why| Failure::Run(why.to_string()))
}
