//! What probes ask: does the server respond, and should it get requests?
//!
//! Why two answers: a server that is not live is to be replaced; one that is not ready (it boots, it leaves) is only to be spared. An app that
//! is slow or broken is no reason for either, because another server would have the same.

use crate::when;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::SystemTime;

/// What a server is at, from start to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    /// The app is being loaded, or the workers are being started; the ports are not open.
    #[default]
    Booting,
    /// The ports are open.
    Serving,
    /// A signal has told it to end. The ports are still open, for clients who have not heard (`timeouts.lame_duck`).
    Leaving,
    /// The ports are closed; requests are being finished.
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

/// What is known of a server's health at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// What the server is at.
    pub state: ServerState,
    /// Workers that take requests; `None` where there is no app.
    pub workers: Option<usize>,
    /// Front threads that have not answered for a long time, and for how many seconds.
    pub silent: Vec<(u16, u64)>,
}

impl Health {
    /// Whether the server itself responds.
    ///
    /// # Errors
    /// Why not, in a sentence.
    pub fn live(&self) -> Result<(), String> {
        match self.silent.first() {
            None => Ok(()),
            Some((thread, seconds)) => Err(format!("front thread {thread} has not answered for {seconds} s")),
        }
    }

    /// Whether the server should get requests.
    ///
    /// # Errors
    /// Why not, in a sentence.
    pub fn ready(&self) -> Result<(), String> {
        match self.state {
            ServerState::Booting => Err("the server is starting".to_owned()),
            ServerState::Leaving => Err("the server is leaving; it still accepts connections".to_owned()),
            ServerState::Draining => Err("the server is leaving; it accepts no more connections".to_owned()),
            ServerState::Serving if self.workers == Some(0) => Err("no worker is ready".to_owned()),
            ServerState::Serving => self.live(),
        }
    }
}

/// What a server says about itself at any time, also while it boots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Firebrick's version.
    pub version: String,
    /// Process id of the front.
    pub pid: u32,
    /// The app's folder.
    pub dir: String,
    /// When the server started.
    #[serde(with = "when")]
    pub started_at: SystemTime,
    /// When this was read.
    #[serde(with = "when")]
    pub taken_at: SystemTime,
    /// What the server is at.
    pub state: ServerState,
    /// Whether the server itself responds.
    pub live: bool,
    /// Whether the server should get requests.
    pub ready: bool,
    /// Why it is not live, or else why it is not ready.
    pub reason: Option<String>,
    /// Workers that are wanted; `None` where there is no app.
    pub workers: Option<u32>,
    /// Those that take requests; `None` where there is no app, or before it is loaded.
    pub workers_ready: Option<u32>,
    /// Requests for the app that wait or are being served.
    pub requests: u64,
    /// Where clients reach it; empty before the ports are open.
    pub addresses: Vec<String>,
}

impl Status {
    /// Seconds since the start.
    pub fn uptime(&self) -> f64 {
        when::between(self.started_at, self.taken_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_a_server_with_workers_that_stays() {
        let serving = Health { state: ServerState::Serving, workers: Some(1), silent: Vec::new() };
        assert_eq!((serving.live(), serving.ready()), (Ok(()), Ok(())));
        assert_eq!(Health { workers: None, ..serving.clone() }.ready(), Ok(()), "a static site");
        assert!(Health { workers: Some(0), ..serving.clone() }.ready().is_err());
        for state in [ServerState::Booting, ServerState::Leaving, ServerState::Draining] {
            let other = Health { state, ..serving.clone() };
            assert!(other.ready().is_err(), "{state}");
            assert_eq!(other.live(), Ok(()), "{state}");
        }
    }

    #[test]
    fn a_silent_thread_is_neither_live_nor_ready() {
        let stuck = Health { state: ServerState::Serving, workers: Some(4), silent: vec![(2, 7)] };
        assert_eq!(stuck.live(), Err("front thread 2 has not answered for 7 s".to_owned()));
        assert_eq!(stuck.ready(), stuck.live());
    }
}
