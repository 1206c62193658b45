//! Handles requests to stop: Ctrl-C, TERM, or a closed terminal.
//!
//! The first signal sets a flag, which is checked between steps; the results so far are kept and shown. The
//! second signal exits at once, and the guard stops the servers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// The exit status after the second signal, as shells use for SIGINT.
const INTERRUPTED: i32 = 130;

/// A flag that the first signal sets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Starts handling signals.
    ///
    /// # Errors
    /// The handlers cannot be installed.
    pub(crate) fn on_signals() -> io::Result<Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first signal finds the flag unset and sets it, the second one finds it set.
            flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&flag))?;
            flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Stop(flag))
    }

    /// Returns whether a stop was requested.
    pub(crate) fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
