//! Ctrl-C: once ends the run and keeps what was seen, twice leaves at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

/// As shells have it for a program that was interrupted.
const INTERRUPTED: i32 = 130;

/// Whether the user wants the run to end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on. Where signals cannot be had the system's own way stays: the program ends.
    pub fn listen() -> Interrupt {
        let interrupt = Interrupt::default();
        let flag = interrupt.clone();
        // A thread of its own: it has to answer while the engine is busy, and dies with the process.
        let _ = std::thread::Builder::new().name("interrupt".to_owned()).spawn(move || flag.wait());
        interrupt
    }

    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn wait(&self) {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
            return;
        };
        runtime.block_on(async {
            let (Ok(mut int), Ok(mut term)) =
                (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
            else {
                return;
            };
            loop {
                tokio::select! { _ = int.recv() => {}, _ = term.recv() => {} }
                if self.0.swap(true, Ordering::Relaxed) {
                    std::process::exit(INTERRUPTED);
                }
            }
        });
    }
}
