//! One request that a worker has served during a trial.

use std::sync::Arc;

/// The figures of a request, as far as they are known.
#[derive(Debug, Clone)]
pub struct TrialSample {
    /// The app's name for the route, or the method and the folded path.
    pub route: Arc<str>,
    /// A status of 500 or more, or a response that the app has broken off.
    pub failed: bool,
    /// The time in the app, in microseconds.
    pub app_us: u32,
    /// Its processor time, in microseconds.
    pub cpu_us: Option<u32>,
    /// The objects that Ruby has allocated.
    pub allocations: Option<u32>,
    /// The queries of the database.
    pub queries: Option<u32>,
}
