//! A thread that closes files, because close(2) may wait for a disk.

use std::fs::File;
use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};

static CLOSER: OnceLock<Option<Closer>> = OnceLock::new();
static PENDING: AtomicU64 = AtomicU64::new(0);

/// The thread, which begins with the first file.
#[derive(Debug)]
pub(crate) struct Closer {
    files: Sender<File>,
    /// The process that has the thread; a forked one has not.
    process: u32,
}

impl Closer {
    /// Closes the file soon, or at once if there is no such thread.
    pub(crate) fn close(file: File) {
        let closer = CLOSER.get_or_init(Closer::begin).as_ref();
        if let Some(closer) = closer.filter(|closer| closer.process == process::id()) {
            PENDING.fetch_add(1, Ordering::Relaxed);
            if closer.files.send(file).is_err() {
                PENDING.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of files that are not closed yet.
    pub(crate) fn pending() -> u64 {
        PENDING.load(Ordering::Relaxed)
    }

    fn begin() -> Option<Closer> {
        let (files, received) = mpsc::channel::<File>();
        let close_all = move || {
            for file in received {
                drop(file);
                PENDING.fetch_sub(1, Ordering::Relaxed);
            }
        };
        let thread = std::thread::Builder::new().name("closer".to_owned()).spawn(close_all);
        thread.is_ok().then(|| Closer { files, process: process::id() })
    }
}
