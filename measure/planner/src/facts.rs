//! The input of sizing: request rate, response times, instance sizes and prices.

use serde::{Deserialize, Serialize};
use wire::Seats;

use crate::slo::Slo;

/// The app and its traffic. Times in milliseconds, rates per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrafficFacts {
    /// Rate in the busiest minute.
    pub rate_per_s: f64,
    /// Average rate, for costs; `None`: the busiest minute's rate all the time.
    pub average_rate_per_s: Option<f64>,
    /// Mean time in the app.
    pub response_ms: f64,
    /// Coefficient of variation of the time in the app: standard deviation divided by the mean.
    pub cv: f64,
    /// Coefficient of variation of the gaps between arrivals: 1 for independent visitors.
    pub arrival_cv: f64,
    /// CPU time of a request. If unknown, every thread counts as one that can always run.
    pub cpu_ms: Option<f64>,
    /// The response time objective.
    pub slo: Option<Slo>,
    /// Required reserve over `rate_per_s`, as a fraction: 0.3 for 30 %.
    pub headroom: f64,
    /// Simultaneous requests of a burst.
    pub burst: u64,
    /// Length of the accept backlog; further connections are refused.
    pub backlog: u64,
    /// Timeout of the router or proxy in front.
    pub router_timeout_ms: f64,
}

impl TrafficFacts {
    /// The required facts, with defaults for everything else.
    pub fn new(rate_per_s: f64, response_ms: f64) -> TrafficFacts {
        TrafficFacts {
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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Size {
    pub name: Option<String>,
    /// Worker processes of an instance.
    pub workers: u32,
    /// Threads per worker.
    pub threads: u32,
    /// Fibers per thread; 0 where threads serve requests.
    #[serde(default)]
    pub fibers: u32,
    /// The cores of the instance; `None`: as many as workers.
    pub cores: Option<f64>,
    pub price: Option<Price>,
}

impl Size {
    /// Returns the most requests that an instance has in service: one per thread, or per fiber.
    pub fn seats(&self) -> u32 {
        self.workers.saturating_mul(Seats { threads: self.threads, fibers: self.fibers }.count())
    }
}

/// The price of an instance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Per month of 730 hours.
    pub per_month: f64,
    /// Currency sign, such as `$`; may be empty.
    pub currency: String,
}

/// Hours per month, as cloud providers count: 365 x 24 / 12.
pub const MONTH_HOURS: f64 = 730.0;
