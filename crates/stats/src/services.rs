//! Statistics of services: processes beside the workers, which get no requests.

use crate::when;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// The state of a service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceState {
    Running,
    /// It has ended, and starts again after a delay.
    #[default]
    Waiting,
    /// It was told to stop.
    Stopping,
    /// It has ended and is not started again.
    Ended,
}

impl ServiceState {
    /// Returns the name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            ServiceState::Running => "running",
            ServiceState::Waiting => "waiting",
            ServiceState::Stopping => "stopping",
            ServiceState::Ended => "ended",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceSnapshot {
    /// The name in the settings.
    pub name: String,
    /// The process id; 0 while it does not run.
    pub pid: u32,
    pub state: ServiceState,
    /// When the state began.
    #[serde(with = "when")]
    pub since: SystemTime,
    /// How often it was started again because it had ended.
    pub restarts: u64,
    /// How it ended the last time; empty if it never has.
    pub last_end: String,
}

impl ServiceSnapshot {
    /// Returns the seconds since the state began.
    pub fn seconds(&self, now: SystemTime) -> f64 {
        when::between(self.since, now)
    }
}
