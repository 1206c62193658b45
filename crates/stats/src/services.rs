//! Services: processes beside the workers, which get no requests.

use crate::when;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// What a service is at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServiceState {
    /// It runs.
    Running,
    /// It has ended, and starts again after a while.
    #[default]
    Waiting,
    /// It was asked to stop.
    Stopping,
    /// It has ended and is not started again.
    Ended,
}

impl ServiceState {
    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            ServiceState::Running => "running",
            ServiceState::Waiting => "waiting",
            ServiceState::Stopping => "stopping",
            ServiceState::Ended => "ended",
        }
    }
}

/// One service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ServiceSnapshot {
    /// Its name in the settings.
    pub name: String,
    /// Process id; 0 while it does not run.
    pub pid: u32,
    /// What it is at.
    pub state: ServiceState,
    /// When its state began.
    #[serde(with = "when")]
    pub since: SystemTime,
    /// How often it was started again because it had ended.
    pub restarts: u64,
    /// How it ended the last time; empty when it has not.
    pub last_end: String,
}

impl ServiceSnapshot {
    /// Seconds since its state began.
    pub fn seconds(&self, now: SystemTime) -> f64 {
        when::between(self.since, now)
    }
}
