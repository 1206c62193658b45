//! Whether somebody wants us to end: Ctrl-C, TERM, or a terminal that was closed.
//!
//! The first signal is a wish, looked at between steps; what was measured so far is kept and shown. The second one ends
//! the process at once; the guard sees to the servers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Exit status after the second signal: what shells give for SIGINT.
const IMPATIENT: i32 = 130;

/// A wish to end that can be looked at.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Begins to listen to signals.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn on_signals() -> io::Result<Stop> {
        let wish = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first signal finds the flag unset and sets it, the second finds it set.
            flag::register_conditional_shutdown(signal, IMPATIENT, Arc::clone(&wish))?;
            flag::register(signal, Arc::clone(&wish))?;
        }
        Ok(Stop(wish))
    }

    /// Somebody does.
    pub(crate) fn wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
