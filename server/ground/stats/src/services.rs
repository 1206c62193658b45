//! Statistics of services: processes beside the workers, which get no requests.

use crate::figures::{Label, Metric, Page, Value, figures};
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
    /// It was ordered to stop.
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

figures! {
    pub struct ServiceSnapshot [service = |it| it.name.clone()] {
        /// The name in the settings.
        name: String,
        /// The process id; 0 while it does not run.
        pid: u32,
        /// `running`, `waiting` for its next start, `stopping`, `ended`.
        state: ServiceState = gauge("firebrick_service_up"; "Whether a service runs"),
        /// When the state began.
        #[serde(with = "when")]
        since: SystemTime,
        /// How often it was started again because it had ended.
        restarts: u64 = counter(
            "firebrick_service_restarts"; "How often a service was started again because it had ended"
        ),
        /// Its last exit; empty if there was none.
        last_end: String,
    }
}

/// 1 while it runs.
impl Value for ServiceState {
    fn sample(&self, metric: &'static Metric, labels: &[Label<'_>], page: &mut dyn Page) {
        (*self == ServiceState::Running).sample(metric, labels, page);
    }
}

impl ServiceSnapshot {
    /// Returns the seconds since the state began.
    pub fn seconds(&self, now: SystemTime) -> f64 {
        when::between(self.since, now)
    }
}
