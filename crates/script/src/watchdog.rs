//! Ends steps that compute for too long without waiting.
//!
//! One thread for the process looks at all VMs some times a second. It asks a VM that is over its time to raise: a library
//! with the debug hook does so at its next instruction, one without when it next allocates. Code that does neither (`while true;
//! end` on such a library), or that rescues and goes on, is stopped after twice its time at the cost of its VM: the thread gets
//! a new one, and the requests that waited in the old one fail. Only what computes without end outside of Ruby code is left: the
//! log says so.

use mruby::Interrupt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How often VMs are looked at: a step may be so much longer than its limit.
const EVERY: Duration = Duration::from_millis(20);
/// A step that has not ended after so many times its limit does not listen: it is stopped.
const DEAF: u64 = 2;
/// One that has not even then ended is beyond help.
const HOPELESS: u64 = 5;

/// A VM that is watched, from the thread that runs it.
pub(crate) struct Watched(Arc<Watch>);

struct Watch {
    interrupt: Interrupt,
    /// Milliseconds of [`now`] at which the step has to be over, 0 between steps; and how long it may take.
    due: AtomicU64,
    span: AtomicU64,
    fired: AtomicBool,
    /// What the watchdog alone uses: the step that it found over its time, as `due` and the VM's number of it.
    late: Mutex<Option<(u64, u32)>>,
    told: AtomicBool,
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
        let [fired, told] = [AtomicBool::new(false), AtomicBool::new(false)];
        let watch = Arc::new(Watch { interrupt, due, span, fired, late: Mutex::default(), told });
        list().lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&watch));
        Watched(watch)
    }

    /// Runs a step that may take so long; whether it was ended for taking longer.
    pub(crate) fn step<T>(&self, span: Option<Duration>, run: impl FnOnce() -> T) -> (T, bool) {
        let Some(span) = span else { return (run(), false) };
        let span = span.as_millis().clamp(1, u128::from(u32::MAX)) as u64;
        self.0.span.store(span, Ordering::Relaxed);
        self.0.fired.store(false, Ordering::Relaxed);
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
    /// Does what a step that is over its time needs; always true.
    fn look(&self, now: u64) -> bool {
        let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        let due = self.due.load(Ordering::Acquire);
        if due == 0 || now <= due {
            *late = None;
            return true;
        }
        let serial = self.interrupt.serial();
        if *late != Some((due, serial)) {
            // The number belongs to the step that is late only when that one still runs.
            *late = (self.due.load(Ordering::Acquire) == due).then_some((due, serial));
            self.told.store(false, Ordering::Relaxed);
        }
        self.fired.store(true, Ordering::Release);
        self.interrupt.now();
        let span = self.span.load(Ordering::Relaxed).max(1);
        let spans = 1 + (now - due) / span;
        if spans >= DEAF && late.is_some() {
            self.interrupt.stop(serial);
        }
        if spans >= HOPELESS && !self.told.swap(true, Ordering::Relaxed) {
            eprintln!(
                "a handler on mruby has been computing for {} s and cannot be stopped: its front thread answers nobody",
                spans * span / 1_000
            );
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mruby::{Limits, STOPPED, Step, Tape, Vm};

    /// A VM whose task 0 ran this method, watched; what the step gave.
    fn run(code: &str) -> Option<Step> {
        let limits = Limits { heap: 64 << 20, step: 64 << 20 };
        Vm::version()?;
        let mut vm = Vm::open(
            limits,
            Box::new(|_, _, tape| {
                tape.nil();
            }),
        )
        .expect("a VM");
        vm.eval(&format!("module Rt\ndef self.job\n{code}\nend\nend"), "job.rb").expect("Ruby");
        let job = vm.intern(b"job").expect("memory");
        let watched = Watched::new(vm.interrupt());
        let mut args = Tape::new();
        args.array(0);
        let (step, late) = watched.step(Some(Duration::from_millis(100)), || vm.start(0, job, &args));
        assert!(late, "it was not late");
        Some(step)
    }

    #[test]
    fn ends_what_allocates_by_an_exception() {
        match run("while true; 'x' * 100; end") {
            None | Some(Step::Raised(_)) => {}
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn ends_what_neither_waits_nor_allocates() {
        for code in ["while true; end", "i = 0\nwhile true; i += 1; i = 0 if i > 9; end", "loop { }"] {
            match run(code) {
                None => {}
                Some(Step::Raised(_)) if Vm::has_hook() => {}
                Some(Step::Broken(why)) => assert_eq!(why.class, STOPPED, "{code}"),
                other => panic!("{code}: {other:?}"),
            }
        }
    }

    #[test]
    fn ends_what_rescues_everything() {
        let code = "while true; begin; 'x' * 100; rescue Exception; end; end";
        match run(code) {
            None => {}
            Some(Step::Broken(why)) => assert_eq!(why.class, STOPPED),
            other => panic!("{other:?}"),
        }
    }
}
