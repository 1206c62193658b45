//! Statistics of interruptions that an operator orders: pauses and maintenance.

use crate::figures::{Label, Metric, Page, Value, figures};
use crate::when;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::SystemTime;

/// The phase of a pause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PauseState {
    #[default]
    Off,
    /// Requests for the app wait.
    On,
    /// The pause is over, and the requests that have waited go to the app.
    Releasing,
    /// The server is shutting down while the app is paused.
    Refusing,
}

impl fmt::Display for PauseState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PauseState::Off => "off",
            PauseState::On => "on",
            PauseState::Releasing => "releasing",
            PauseState::Refusing => "refusing",
        })
    }
}

/// 1 while requests wait for the end of the pause.
impl Value for PauseState {
    fn sample(&self, metric: &'static Metric, labels: &[Label<'_>], page: &mut dyn Page) {
        (*self == PauseState::On).sample(metric, labels, page);
    }
}

figures! {
    /// The pause of the app's requests ([maintenance](maintenance.md#pause)).
    #[derive(Default)]
    #[serde(default)]
    pub struct PauseSnapshot {
        /// `off`, `on`, `releasing` while the waiting requests go to the app, `refusing` when the server
        /// shuts down while the app is paused.
        state: PauseState = gauge("firebrick_paused"; "Whether requests for the app are held (firebrick pause)"),
        /// Requests that wait for the end of the pause.
        waiting: u64 = gauge("firebrick_pause_waiting"; "Requests that wait for the end of the pause"),
        /// Requests in the queue or in a worker. During a pause these end, and no new ones are added.
        in_flight: u64,
        /// The most requests that may wait.
        max: u64,
        /// The time until the pause ends by itself; 0 if it is not on.
        remaining_ms: f64,
        /// The paths whose requests wait; empty: all paths.
        paths: Vec<String>,
        /// Requests that had to wait for the end of a pause, since the start of the server.
        held: u64 = counter("firebrick_pause_requests", result = "held"; "Requests that arrived while the app was paused, by result"),
        /// Requests that got 503 because `max` were waiting, or because the server was shutting down.
        refused: u64 = counter("firebrick_pause_requests", result = "refused"),
        /// Requests whose client disconnected while they waited; `held` includes them.
        left: u64,
        /// During an upgrade: the process id of the old program, which still finishes its requests; otherwise null.
        old_program: Option<u32>,
        /// How the last pause ended; empty without one.
        last_end: String,
        /// When the last pause ended.
        #[serde(with = "when::maybe")]
        last_end_at: Option<SystemTime>,
    }

    /// The [maintenance](maintenance.md) of the server.
    #[derive(Default, Eq)]
    #[serde(default)]
    pub struct MaintenanceSnapshot {
        /// Whether requests get the maintenance page (503).
        on: bool = gauge("firebrick_maintenance"; "Whether requests get the maintenance page (503)"),
        /// When it was switched on; null if it is off.
        #[serde(with = "when::maybe")]
        since: Option<SystemTime>,
        /// The origin of the switch: `the control socket`, or the path of `maintenance.file`; empty if it is off.
        by: String,
        /// The value of `Retry-After` in seconds.
        retry_after_s: u64,
        /// The text in the page; empty without one.
        message: String,
        /// Whether the page is the server's own and not a file.
        own_page: bool,
        /// Addresses and networks whose requests are served.
        allow: Vec<String>,
        /// Paths whose requests are served.
        allow_paths: Vec<String>,
        /// Whether the server counts as ready (`maintenance.ready`).
        ready: bool,
        /// Responses with the page, since the start of the server.
        responses: u64 = counter("firebrick_maintenance_responses"; "Requests that got the maintenance page (503)"),
    }
}

impl PauseSnapshot {
    /// Returns a line for people: `paused: 0 requests in flight, 12 waiting`.
    pub fn summary(&self) -> String {
        let flight = match self.in_flight {
            1 => "1 request in flight".to_owned(),
            count => format!("{count} requests in flight"),
        };
        match self.state {
            PauseState::Off => "not paused".to_owned(),
            PauseState::On => format!("paused: {flight}, {} waiting", self.waiting),
            PauseState::Releasing => format!("resumed: {flight}, {} still waiting", self.waiting),
            PauseState::Refusing => "paused, and shutting down: requests are refused".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_described_in_a_line() {
        let paused = PauseSnapshot { state: PauseState::On, waiting: 12, ..PauseSnapshot::default() };
        assert_eq!(paused.summary(), "paused: 0 requests in flight, 12 waiting");
        let one = PauseSnapshot { in_flight: 1, ..paused };
        assert_eq!(one.summary(), "paused: 1 request in flight, 12 waiting");
        assert_eq!(PauseSnapshot::default().summary(), "not paused");
    }

    #[test]
    fn a_server_that_knows_neither_has_neither() {
        let paused: PauseSnapshot = serde_json::from_str("{}").unwrap();
        let closed: MaintenanceSnapshot = serde_json::from_str("{}").unwrap();
        assert_eq!((paused, closed), (PauseSnapshot::default(), MaintenanceSnapshot::default()));
    }
}
