//! What sizing starts from: how many requests come, how long they take, what an instance is and costs.

use serde::{Deserialize, Serialize};

use crate::slo::Slo;

/// What is known of the app and its visitors. Times in milliseconds, rates per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// In the busiest minute.
    pub rate_per_s: f64,
    /// Over days and nights, for costs; `None`: the busiest minute's goes on for ever.
    pub average_rate_per_s: Option<f64>,
    /// Mean time in the app.
    pub response_ms: f64,
    /// Standard deviation of the time in the app over its mean.
    pub cv: f64,
    /// The same of the gaps between arrivals: 1 for visitors who do not know of each other.
    pub arrival_cv: f64,
    /// CPU time of a request: without it every thread counts as one that can always run.
    pub cpu_ms: Option<f64>,
    /// What is promised.
    pub slo: Option<Slo>,
    /// How much more than `rate_per_s` instances are to be able to take, as a share: 0.3 for 30 %.
    pub headroom: f64,
    /// Requests that come at once.
    pub burst: u64,
    /// Connections that wait in front of a server that does not accept them; more are refused.
    pub backlog: u64,
    /// After so long a router or a proxy gives up.
    pub router_timeout_ms: f64,
}

impl Facts {
    /// The facts that have to be known; everything else as it is usual.
    pub fn new(rate_per_s: f64, response_ms: f64) -> Facts {
        Facts {
            rate_per_s,
            average_rate_per_s: None,
            response_ms,
            cv: 1.0,
            arrival_cv: 1.0,
            cpu_ms: None,
            slo: None,
            headroom: 0.3,
            burst: 1_000,
            backlog: 1_024,
            router_timeout_ms: 30_000.0,
        }
    }
}

/// A kind of instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Size {
    /// As people call it.
    pub name: Option<String>,
    /// Worker processes of an instance.
    pub workers: u32,
    /// Threads of each.
    pub threads: u32,
    /// Its cores; `None`: as many as it has workers.
    pub cores: Option<f64>,
    /// What it costs.
    pub price: Option<Price>,
}

/// What an instance costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// In 730 hours, which are a month.
    pub per_month: f64,
    /// Such as `$`; may be empty.
    pub currency: String,
}

/// Hours of a month, as clouds count: 365 x 24 / 12.
pub const MONTH_HOURS: f64 = 730.0;
