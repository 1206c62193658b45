//! Rate limits: what they have admitted and refused.

use serde::{Deserialize, Serialize};

/// All rate limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimitsSnapshot {
    /// In the order of the settings.
    pub limits: Vec<RateLimitSnapshot>,
    /// Whether the Redis in which servers count together answers; `None` without one.
    pub redis_up: Option<bool>,
    /// Servers that were there when Redis was asked last, this one included.
    pub servers: u32,
}

/// One rate limit. What it has counted is never reset.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimitSnapshot {
    /// Its name in the settings.
    pub name: String,
    /// As it is written: `100/s`.
    pub rate: String,
    /// Requests that are admitted at once.
    pub burst: u32,
    /// Whether all servers count together.
    pub shared: bool,
    /// Whether what it refuses is admitted all the same.
    pub dry_run: bool,
    /// Requests within the limit.
    pub admitted: u64,
    /// Requests beyond it.
    pub refused: u64,
    /// Of both: judged by this server alone, because Redis was away.
    pub alone: u64,
}
