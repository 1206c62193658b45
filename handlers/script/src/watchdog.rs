//! Ends steps that compute for too long without waiting.
//!
//! One thread per process checks all VMs 50 times a second. It compares the CPU time of their threads, because on a busy machine a step can take
//! long without computing. A VM that exceeds its limit is told to raise. A library with the debug hook raises at its next instruction, one without
//! it at the next allocation. Code that reaches neither (`while true; end` on such a library), or that rescues the exception and continues, is
//! stopped after twice the limit at the cost of its VM: the thread gets a new VM, and the requests that waited in the old one fail. Endless code
//! outside of Ruby cannot be stopped; it is logged.

use crate::observed::Alarm;
use crate::plan::Plan;
use crate::subject::{Location, RequestLine, Subject};
use mruby::Interrupt;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::time::Duration;
use sys::process::ThreadClock;

/// The interval between checks; a step may exceed its limit by this time.
const INTERVAL: Duration = Duration::from_millis(20);
/// A step that has not ended after this many times its limit is stopped.
const STOP_AFTER: u32 = 2;
/// A step that has not ended after this many times its limit cannot be stopped; it is logged.
const LOG_AFTER: u32 = 5;

/// A watched VM, seen from its own thread.
pub(crate) struct Watched {
    watch: Arc<Watch>,
    /// The number of steps so far.
    steps: Cell<u64>,
}

struct Watch {
    interrupt: Interrupt,
    alarm: Alarm,
    /// The subject of the current step.
    subject: Subject,
    /// The computing time of the VM's thread.
    clock: ThreadClock,
    /// The number of the current step; 0 between steps.
    running: AtomicU64,
    /// The time limit of the step in milliseconds.
    limit: AtomicU64,
    /// Whether the step has exceeded its limit.
    fired: AtomicBool,
    /// Whether the last attempt was to stop the step, rather than to make it raise.
    stopped: AtomicBool,
    /// Used by the watchdog only: the step that it found running, and the thread's CPU time then. Steps do not read the clock: there are a hundred
    /// thousand per second, and reading it costs as much as a method call in Ruby.
    seen: Mutex<Option<Seen>>,
    logged: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    step: u64,
    /// The VM's own number of the step.
    serial: u32,
    /// The CPU time of the thread when the step was first seen.
    since: Duration,
}

impl Watched {
    /// Watches a VM with the handlers of `plan` until dropped.
    pub(crate) fn new(interrupt: Interrupt, plan: Arc<Plan>, alarm: Alarm) -> Watched {
        let [running, limit] = [AtomicU64::new(0), AtomicU64::new(0)];
        let [fired, stopped, logged] = [false; 3].map(AtomicBool::new);
        let seen = Mutex::default();
        let clock = ThreadClock::of_this_thread();
        let subject = Subject::new(plan);
        start(&alarm);
        let watch = Arc::new(Watch {
            interrupt,
            alarm,
            subject,
            clock,
            running,
            limit,
            fired,
            stopped,
            seen,
            logged,
        });
        LIST.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&watch));
        Watched { watch, steps: Cell::new(0) }
    }

    /// Runs a step with a time limit; returns whether it exceeded the limit. `line` is its request.
    pub(crate) fn step<T>(
        &self,
        limit: Option<Duration>,
        location: Location,
        line: RequestLine<'_>,
        run: impl FnOnce() -> T,
    ) -> (T, bool) {
        let Some(limit) = limit else { return (run(), false) };
        self.steps.set(self.steps.get() + 1);
        let watch = &*self.watch;
        // A reader that sees the new subject also sees that the previous step has ended.
        fence(Ordering::Release);
        watch.subject.set(location, line);
        watch.limit.store(limit.as_millis().clamp(1, u128::from(u32::MAX)) as u64, Ordering::Relaxed);
        watch.fired.store(false, Ordering::Relaxed);
        watch.running.store(self.steps.get(), Ordering::Release);
        let result = run();
        watch.running.store(0, Ordering::Release);
        (result, watch.fired.load(Ordering::Acquire))
    }
}

static LIST: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());

/// Starts the watchdog thread with the first VM.
fn start(alarm: &Alarm) {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let started = std::thread::Builder::new().name("mruby-watchdog".to_owned()).spawn(watch_all);
        if let Err(error) = started {
            alarm(&format!("warning: mruby.step_time has no effect: no thread for it ({error})"));
        }
        if !mruby::Vm::has_hook() && !mruby::Vm::can_stop() {
            alarm("warning: mruby.step_time ends only code that allocates memory: this mruby has no debug hook, and its interpreter was not found");
        }
    });
}

fn watch_all() {
    loop {
        std::thread::sleep(INTERVAL);
        let mut watches = LIST.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|watch| watch.upgrade().is_some_and(|watch| watch.check()));
    }
}

impl Watch {
    /// Interrupts or stops a step that exceeds its limit. Always returns true.
    fn check(&self) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let step = self.running.load(Ordering::Acquire);
        let Some(known) = seen.filter(|seen| seen.step == step) else {
            let serial = self.interrupt.serial();
            // The VM's number belongs to this step only if the step is still running.
            let found = step != 0 && self.running.load(Ordering::Acquire) == step;
            *seen = found.then(|| Seen { step, serial, since: self.clock.read() });
            self.logged.store(false, Ordering::Relaxed);
            return true;
        };
        let limit = Duration::from_millis(self.limit.load(Ordering::Relaxed).max(1));
        let taken = self.clock.read().saturating_sub(known.since);
        if taken < limit {
            return true;
        }
        self.fired.store(true, Ordering::Release);
        // A step that is told to raise collects garbage first and cannot be stopped meanwhile, so the two attempts alternate.
        if taken >= limit * STOP_AFTER && !self.stopped.fetch_not(Ordering::Relaxed) {
            self.interrupt.stop(known.serial);
        } else {
            self.interrupt.now();
        }
        if taken >= limit * LOG_AFTER
            && !self.logged.load(Ordering::Relaxed)
            && let Some(name) = self.name(step)
        {
            self.logged.store(true, Ordering::Relaxed);
            (self.alarm)(&format!(
                "{name}: it has been computing for {:.1} s and cannot be stopped: its front thread serves no requests",
                taken.as_secs_f64()
            ));
        }
        true
    }

    /// Returns the subject of the current step; `None` if it has ended.
    fn name(&self, step: u64) -> Option<String> {
        let name = self.subject.name();
        fence(Ordering::Acquire);
        (self.running.load(Ordering::Relaxed) == step).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mruby::{Limits, STOPPED, Step, Tape, Vm};

    fn plan() -> Arc<Plan> {
        let source = crate::Source { file: "busy.rb".into(), code: String::new() };
        Arc::new(Plan { sources: vec![source], routes: Vec::new(), heap: 0, temp_dir: std::env::temp_dir() })
    }

    /// Runs this code as task 0 of a watched VM; returns the step's result.
    fn run(code: &str) -> Option<Step> {
        run_for(100, code, Arc::new(|_| {}))
    }

    fn run_for(limit_ms: u64, code: &str, alarm: Alarm) -> Option<Step> {
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
        let watched = Watched::new(vm.interrupt(), plan(), alarm);
        let location = Location { source: Some(0), route: None };
        let mut args = Tape::new();
        args.array(0);
        let limit = Some(Duration::from_millis(limit_ms));
        let (step, late) = watched.step(limit, location, [b"GET", b"/long"], || vm.start(0, job, &args));
        assert!(late, "it did not exceed its limit");
        Some(step)
    }

    #[test]
    fn code_that_allocates_is_ended_by_an_exception() {
        match run("while true; 'x' * 100; end") {
            None | Some(Step::Raised(_)) => {}
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn code_that_neither_waits_nor_allocates_is_stopped() {
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
    fn code_that_rescues_everything_is_stopped() {
        // A heap that takes a while to collect: each refused allocation collects it first.
        let code = "keep = (1..50_000).map { |i| 'x' * 30 }\nwhile true; begin; 'x' * 100; rescue Exception; end; end";
        match run(code) {
            None => {}
            // Raised outside of a rescue.
            Some(Step::Raised(_)) if Vm::has_hook() => {}
            Some(Step::Broken(why)) => assert_eq!(why.class, STOPPED),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn logs_the_handler_and_request_that_cannot_be_stopped() {
        // A search that takes seconds in one C function, which checks for no interruption.
        let code = "('a' * 800_000).index('a' * 400_000 + 'b')";
        let (sender, receiver) = std::sync::mpsc::channel();
        let sender = Mutex::new(sender);
        let alarm = move |what: &str| drop(sender.lock().map(|sender| sender.send(what.to_owned())));
        if run_for(20, code, Arc::new(alarm)).is_none() {
            return;
        }
        let lines: Vec<String> = receiver.try_iter().collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("GET /long: busy.rb: it has been computing for "), "{lines:?}");
    }
}
