//! A finding of the [advice](crate::advice), as `GET /routes?advice` shows it.

use serde::{Deserialize, Serialize};

/// A piece of advice, and its reason.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// `repeated_query`, `connections`, `gvl`, `garbage`, `cache`, `pool`.
    pub rule: String,
    /// The route; null if it is about all.
    pub route: Option<String>,
    /// A sentence with the figure and what to do.
    pub text: String,
    /// The part of the time of all requests, in the queue and in the app, that it would save at most, from 0 to 1.
    pub saves: f64,
    /// The part of the time in the app, by which capacity and money are divided, that it would save at most.
    pub frees: f64,
}
