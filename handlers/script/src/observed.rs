//! Counters and alarms that other threads use to watch a thread's handlers.

use stats::HandlerCounts;
use std::sync::Arc;

/// Logs a message about a thread that is too busy to log itself.
pub type Alarm = Arc<dyn Fn(&str) + Send + Sync>;

/// Counters and log of one front thread's handlers. They outlive a VM: its successor gets the same ones.
#[derive(Clone)]
pub struct Observed {
    pub counts: HandlerCounts,
    /// Called on the watchdog's thread.
    pub alarm: Alarm,
}

impl Default for Observed {
    /// Counters that are not read, and an alarm that writes to standard error.
    fn default() -> Observed {
        Observed {
            counts: HandlerCounts::default(),
            alarm: Arc::new(|what| output::complain(format_args!("{what}"))),
        }
    }
}
