//! Ends steps that compute for too long without waiting.
//!
//! One thread for the process looks at all VMs some times a second. It asks a VM that is over its time to raise: a library with the
//! debug hook does so at its next instruction, one without when it next allocates. Code that does neither (`while true; end`
//! on such a library) cannot be stopped from outside; the log says so, once a step.

use mruby::Interrupt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How often VMs are looked at: a step may be so much longer than its limit.
const EVERY: Duration = Duration::from_millis(20);
/// A step that has not ended after so many times its limit will not.
const HOPELESS: u64 = 3;

/// A VM that is watched, from the thread that runs it.
pub(crate) struct Watched(Arc<Watch>);

struct Watch {
    interrupt: Interrupt,
    /// Milliseconds of [`now`] at which the step has to be over, 0 between steps; and how long it may take.
    due: AtomicU64,
    span: AtomicU64,
    fired: AtomicBool,
}

/// Milliseconds since the first call, at least 1.
fn now() -> u64 {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    1 + BEGIN.get_or_init(Instant::now).elapsed().as_millis() as u64
}

impl Watched {
    /// Watches a VM until dropped.
    pub(crate) fn new(interrupt: Interrupt) -> Watched {
        let [due, span] = [AtomicU64::new(0), AtomicU64::new(0)];
        let watch = Arc::new(Watch { interrupt, due, span, fired: AtomicBool::new(false) });
        list().lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&watch));
        Watched(watch)
    }

    /// Runs a step that may take so long; whether it was ended for taking longer.
    pub(crate) fn step<T>(&self, span: Option<Duration>, run: impl FnOnce() -> T) -> (T, bool) {
        let Some(span) = span else { return (run(), false) };
        let span = span.as_millis().clamp(1, u128::from(u32::MAX)) as u64;
        self.0.span.store(span, Ordering::Relaxed);
        self.0.due.store(now() + span, Ordering::Release);
        let given = run();
        self.0.due.store(0, Ordering::Release);
        (given, self.0.fired.swap(false, Ordering::AcqRel))
    }
}

/// All VMs; the thread that looks at them is started with the first.
fn list() -> &'static Mutex<Vec<Weak<Watch>>> {
    static LIST: OnceLock<Mutex<Vec<Weak<Watch>>>> = OnceLock::new();
    LIST.get_or_init(|| {
        let started = std::thread::Builder::new().name("mruby-watchdog".to_owned()).spawn(look);
        if let Err(error) = started {
            eprintln!("warning: mruby.step_time has no effect: no thread for it ({error})");
        }
        Mutex::default()
    })
}

fn look() {
    loop {
        std::thread::sleep(EVERY);
        let mut watches = list().lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|watch| watch.upgrade().is_some_and(|watch| watch.look(now())));
    }
}

impl Watch {
    /// Interrupts a step that is over its time; always true.
    fn look(&self, now: u64) -> bool {
        let due = self.due.load(Ordering::Acquire);
        if due != 0 && now > due {
            let span = self.span.load(Ordering::Relaxed);
            let hopeless = now.saturating_sub(due) / span.max(1) + 1 == HOPELESS;
            if !self.fired.swap(true, Ordering::AcqRel) || !hopeless {
                self.interrupt.now();
            } else {
                eprintln!(
                    "a handler on mruby has been computing for {} s and cannot be stopped: its front thread answers \
                     nobody; a libmruby with MRB_USE_DEBUG_HOOK could stop it",
                    HOPELESS * span / 1_000
                );
                self.due.store(0, Ordering::Release);
            }
        }
        true
    }
}
