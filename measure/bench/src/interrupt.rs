//! Handles Ctrl-C: the first one ends the run and keeps the results, the second one exits at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};

/// The exit status that shells use for an interrupted program.
const INTERRUPTED: i32 = 130;

/// Whether the user has asked to end the run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts listening. If signals cannot be handled, the default remains: the program is killed.
    pub fn listen() -> Interrupt {
        let interrupt = Interrupt::default();
        let flag = interrupt.clone();
        // Runs on its own thread, because it must react while the engine is busy. The thread ends with the process.
        let _ = std::thread::Builder::new().name("interrupt".to_owned()).spawn(move || flag.wait());
        interrupt
    }

    pub fn requested(&self) -> bool {
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
