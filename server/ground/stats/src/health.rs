//! Answers health checks: does the server respond, and should it get requests?
//!
//! Why two answers: a server that is not live should be replaced; a server that is not ready (it is booting
//! or shutting down) should only get no requests. A slow or broken app is not a reason for either, because
//! another server would have the same app.

use crate::interruptions::{MaintenanceSnapshot, PauseSnapshot};
use crate::when;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::SystemTime;

/// The phase of a server, from start to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    /// The app is being loaded or the workers are being started. The ports are not open.
    #[default]
    Booting,
    Serving,
    /// A signal has told the server to stop. The ports are still open, for clients that have not noticed yet
    /// (`timeouts.lame_duck`).
    Leaving,
    /// The ports are closed, and the remaining requests are being finished.
    Draining,
}

impl fmt::Display for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServerState::Booting => "booting",
            ServerState::Serving => "serving",
            ServerState::Leaving => "leaving",
            ServerState::Draining => "draining",
        })
    }
}

/// The health of a server at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    pub state: ServerState,
    /// The number of workers that take requests; `None` if there is no app.
    pub workers: Option<usize>,
    /// Front threads that have not answered for a long time, with the time in seconds.
    pub silent: Vec<(u16, u64)>,
    /// Whether the server is in maintenance, and should get no requests meanwhile (`maintenance.ready`).
    pub withdrawn: bool,
}

impl Health {
    /// Returns whether the server itself responds.
    ///
    /// # Errors
    /// Returns a sentence with the reason if it does not.
    pub fn live(&self) -> Result<(), String> {
        match self.silent.first() {
            None => Ok(()),
            Some((thread, seconds)) => Err(format!("front thread {thread} has not answered for {seconds} s")),
        }
    }

    /// Returns whether the server should get requests.
    ///
    /// # Errors
    /// Returns a sentence with the reason if it should not.
    pub fn ready(&self) -> Result<(), String> {
        match self.state {
            ServerState::Booting => Err("the server is starting".to_owned()),
            ServerState::Leaving => {
                Err("the server is shutting down; it still accepts connections".to_owned())
            }
            ServerState::Draining => {
                Err("the server is shutting down and accepts no new connections".to_owned())
            }
            ServerState::Serving if self.withdrawn => Err("the server is in maintenance".to_owned()),
            ServerState::Serving if self.workers == Some(0) => Err("no worker is ready".to_owned()),
            ServerState::Serving => self.live(),
        }
    }
}

/// The status of a server, which is available at any time, even during boot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of Firebrick.
    pub version: String,
    /// The process id of the front.
    pub pid: u32,
    /// The folder of the app.
    pub dir: String,
    #[serde(with = "when")]
    pub started_at: SystemTime,
    /// When this status was read.
    #[serde(with = "when")]
    pub taken_at: SystemTime,
    pub state: ServerState,
    /// Whether the server itself responds.
    pub live: bool,
    /// Whether the server should get requests.
    pub ready: bool,
    /// The reason why it is not live, or otherwise why it is not ready.
    pub reason: Option<String>,
    /// The wanted number of workers; `None` if there is no app.
    pub workers: Option<u32>,
    /// The number of workers that take requests; `None` if there is no app, or before it is loaded.
    pub workers_ready: Option<u32>,
    /// The requests for the app that wait or are being served.
    pub requests: u64,
    /// The addresses on which clients reach the server; empty before the ports are open.
    pub addresses: Vec<String>,
    #[serde(default)]
    pub pause: PauseSnapshot,
    #[serde(default, rename = "maintenance_state")]
    pub maintenance: MaintenanceSnapshot,
}

impl Status {
    /// Returns the seconds since the start.
    pub fn uptime(&self) -> f64 {
        when::between(self.started_at, self.taken_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_a_server_with_workers_that_stays() {
        let serving = Health { state: ServerState::Serving, workers: Some(1), ..Health::default() };
        assert_eq!((serving.live(), serving.ready()), (Ok(()), Ok(())));
        assert_eq!(Health { workers: None, ..serving.clone() }.ready(), Ok(()), "a static site");
        assert!(Health { workers: Some(0), ..serving.clone() }.ready().is_err());
        let withdrawn = Health { withdrawn: true, ..serving.clone() };
        assert_eq!(withdrawn.ready(), Err("the server is in maintenance".to_owned()));
        assert_eq!(withdrawn.live(), Ok(()));
        for state in [ServerState::Booting, ServerState::Leaving, ServerState::Draining] {
            let other = Health { state, ..serving.clone() };
            assert!(other.ready().is_err(), "{state}");
            assert_eq!(other.live(), Ok(()), "{state}");
        }
    }

    #[test]
    fn a_silent_thread_is_neither_live_nor_ready() {
        let stuck =
            Health { state: ServerState::Serving, workers: Some(4), silent: vec![(2, 7)], withdrawn: false };
        assert_eq!(stuck.live(), Err("front thread 2 has not answered for 7 s".to_owned()));
        assert_eq!(stuck.ready(), stuck.live());
    }
}
