//! A stretch: the time from entering a fiber to the return to its loop, as the thread and the watchdog see it
//! ([`crate::fibers::blocking`]).

use crate::raw::os::{self, ThreadView};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The current stretch of a thread. The thread writes it; the watchdog reads it without the GVL.
pub(crate) struct Stretch {
    /// The start of the stretch, in microseconds; 0: the thread is in its loop.
    pub(crate) since_us: AtomicU64,
    /// The time that the thread had waited for the GVL before the stretch, where Ruby reports it.
    pub(crate) waited_us: AtomicU64,
    /// The time of the last backtrace, in microseconds.
    pub(crate) sampled_us: AtomicU64,
    /// The stretch ends because a slice is over.
    pub(crate) sliced: AtomicBool,
    watched: Mutex<Watched>,
}

/// The watchdog's observations of a thread.
struct Watched {
    /// Access to the thread's times, while it runs a loop.
    view: Option<ThreadView>,
    /// The start of the stretch that the watchdog has noticed.
    noticed_us: u64,
    /// The last observation before that.
    before: Look,
}

/// The times of a thread and of the others in its process at one moment, in microseconds.
#[derive(Clone, Copy, Default)]
struct Look {
    at_us: u64,
    own_us: u64,
    /// Processor time of the other threads.
    others_us: u64,
    /// The time that the thread was ready to run but had no processor.
    starved_us: u64,
}

pub(crate) struct StretchTimes {
    /// The time without a processor.
    pub(crate) starved_us: u64,
    pub(crate) own_us: u64,
    /// Other threads computed for some of the time, so they had the GVL.
    pub(crate) crowded: bool,
}

impl Watched {
    fn look(&self, now_us: u64) -> Look {
        let Some(view) = &self.view else { return Look::default() };
        let own_us = view.used_us();
        let others_us = os::process_us().saturating_sub(own_us);
        Look { at_us: now_us, own_us, others_us, starved_us: view.starved_us() }
    }
}

impl Stretch {
    pub(crate) const fn new() -> Stretch {
        let before = Look { at_us: 0, own_us: 0, others_us: 0, starved_us: 0 };
        Stretch {
            since_us: AtomicU64::new(0),
            waited_us: AtomicU64::new(0),
            sampled_us: AtomicU64::new(0),
            sliced: AtomicBool::new(false),
            watched: Mutex::new(Watched { view: None, noticed_us: 0, before }),
        }
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the watchdog access to the calling thread's times, or takes it away.
    pub(crate) fn show(&self, view: Option<ThreadView>) {
        self.watched().view = view;
    }

    /// Returns whether the stretch has lasted for `half_us`. The watchdog calls it repeatedly.
    pub(crate) fn notice(&self, half_us: u64, now_us: u64) -> bool {
        let since_us = self.since_us.load(Relaxed);
        let is_long = since_us != 0 && now_us.saturating_sub(since_us) >= half_us;
        let mut watched = self.watched();
        if !is_long {
            watched.before = watched.look(now_us);
        } else if watched.noticed_us != since_us {
            watched.noticed_us = since_us;
        }
        is_long
    }

    /// Returns the observations of the stretch that began at `since_us`. `None`: the watchdog had no
    /// processor itself and did not notice it.
    pub(crate) fn seen(&self, since_us: u64, now_us: u64) -> Option<StretchTimes> {
        let watched = self.watched();
        if watched.noticed_us != since_us {
            return None;
        }
        let (before, after) = (watched.before, watched.look(now_us));
        let others_us = after.others_us.saturating_sub(before.others_us);
        Some(StretchTimes {
            starved_us: after.starved_us.saturating_sub(before.starved_us),
            own_us: after.own_us.saturating_sub(before.own_us),
            crowded: others_us * 8 > after.at_us.saturating_sub(before.at_us),
        })
    }
}
