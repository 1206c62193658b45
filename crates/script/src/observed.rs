//! What is seen of a thread's handlers from outside of it.

use stats::HandlerCounts;
use std::sync::Arc;

/// Is told of a thread that has no time to say anything itself.
pub type Alarm = Arc<dyn Fn(&str) + Send + Sync>;

/// Where others look at the handlers of one front thread. It outlives their VMs: who opens another in the place of one that broke
/// gives it the same.
#[derive(Clone)]
pub struct Observed {
    /// What they do.
    pub counts: HandlerCounts,
    /// Told from another thread.
    pub alarm: Alarm,
}

impl Default for Observed {
    /// For handlers that nobody looks at.
    fn default() -> Observed {
        Observed { counts: HandlerCounts::default(), alarm: Arc::new(|what| eprintln!("{what}")) }
    }
}
