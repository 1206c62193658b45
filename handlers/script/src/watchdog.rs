//! Ends steps that compute for too long without waiting.
//!
//! One thread per process checks all VMs 50 times a second while any computes, and sleeps otherwise. It
//! compares the CPU time of their threads, because on a busy machine a step can take long without computing.
//! A VM that exceeds its limit must raise. A library with the debug hook raises at its next instruction, one
//! without it at the next allocation. A step that goes on nevertheless is stopped after twice the limit: with
//! the hook each further instruction raises. Without it the VM is given up: the thread gets a new one, and
//! the requests that waited in the old one fail. Endless code outside of Ruby cannot be stopped; it is
//! logged.

use crate::observed::Alarm;
use crate::plan::HandlerPlan;
use crate::subject::{Location, RequestLine, Subject};
use mruby::Interrupt;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::Thread;
use std::time::Duration;
use sys::process::ThreadClock;

/// The interval between checks; a step may exceed its limit by this time.
const INTERVAL: Duration = Duration::from_millis(20);
/// The number of checks in a row that find no step running, after which the watchdog sleeps.
const QUIET: u32 = 50;
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
    /// Used by the watchdog only: the step that it found running, and the thread's CPU time then. Steps do
    /// not read the clock: there are a hundred thousand per second, and reading it costs as much as a method
    /// call in Ruby.
    seen: Mutex<Option<RunningStep>>,
    logged: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct RunningStep {
    step: u64,
    /// The CPU time of the thread when the step was first seen.
    since: Duration,
}

impl Watched {
    /// Watches a VM with the handlers of `plan` until dropped.
    pub(crate) fn new(interrupt: Interrupt, plan: Arc<HandlerPlan>, alarm: Alarm) -> Watched {
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
        wake();
        let result = run();
        watch.running.store(0, Ordering::Release);
        (result, watch.fired.load(Ordering::Acquire))
    }
}

static LIST: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());

/// The watchdog's thread; `None` if it could not be started.
static THREAD: OnceLock<Option<Thread>> = OnceLock::new();

/// Whether the watchdog sleeps until a step begins.
static SLEEPS: AtomicBool = AtomicBool::new(false);

/// Starts the watchdog thread with the first VM.
fn start(alarm: &Alarm) {
    THREAD.get_or_init(|| {
        let started = std::thread::Builder::new().name("mruby-watchdog".to_owned()).spawn(watch_all);
        if !mruby::Vm::has_hook() && !mruby::Vm::can_stop() {
            alarm("warning: mruby.step_time ends only code that allocates memory: this mruby has no debug hook, and its interpreter was not found");
        }
        match started {
            Ok(handle) => Some(handle.thread().clone()),
            Err(error) => {
                alarm(&format!("warning: mruby.step_time has no effect: no thread for it ({error})"));
                None
            }
        }
    });
}

/// Wakes the watchdog if it sleeps. A step has begun.
fn wake() {
    // Together with the fence in `watch_all`: either the watchdog sees the step, or this sees that it sleeps.
    fence(Ordering::SeqCst);
    if SLEEPS.load(Ordering::Relaxed)
        && SLEEPS.swap(false, Ordering::Relaxed)
        && let Some(Some(thread)) = THREAD.get()
    {
        thread.unpark();
    }
}

fn watch_all() {
    let mut quiet = 0;
    loop {
        std::thread::sleep(INTERVAL);
        quiet = if check_all() { 0 } else { quiet + 1 };
        if quiet < QUIET {
            continue;
        }
        SLEEPS.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while !check_all() && SLEEPS.load(Ordering::Relaxed) {
            std::thread::park();
        }
        SLEEPS.store(false, Ordering::Relaxed);
        quiet = 0;
    }
}

/// Checks all VMs. Returns whether any runs a step.
fn check_all() -> bool {
    let mut watches = LIST.lock().unwrap_or_else(PoisonError::into_inner);
    let mut computes = false;
    watches.retain(|watch| {
        let watch = watch.upgrade();
        computes |= watch.as_ref().is_some_and(|watch| watch.check());
        watch.is_some()
    });
    computes
}

impl Watch {
    /// Interrupts or stops a step that exceeds its limit. Returns whether a step runs.
    fn check(&self) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let step = self.running.load(Ordering::Acquire);
        if step == 0 {
            *seen = None;
            return false;
        }
        let Some(known) = seen.filter(|seen| seen.step == step) else {
            *seen = Some(RunningStep { step, since: self.clock.read() });
            self.logged.store(false, Ordering::Relaxed);
            return true;
        };
        let limit = Duration::from_millis(self.limit.load(Ordering::Relaxed).max(1));
        let taken = self.clock.read().saturating_sub(known.since);
        if taken < limit {
            return true;
        }
        self.fired.store(true, Ordering::Release);
        // Without the hook, a step that must raise collects garbage first and cannot be stopped during that
        // time: the two attempts alternate.
        if taken >= limit * STOP_AFTER && !self.stopped.fetch_not(Ordering::Relaxed) {
            // The VM's own number of the step. Not read earlier: a step that has just begun may not have its
            // number yet.
            let serial = self.interrupt.serial();
            if self.running.load(Ordering::Acquire) == step {
                self.interrupt.stop(serial);
            }
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
    use mruby::{STOPPED, StepResult, Tape, Vm, VmLimits};

    fn plan() -> Arc<HandlerPlan> {
        let source = crate::HandlerSource { file: "busy.rb".into(), code: String::new() };
        Arc::new(HandlerPlan {
            sources: vec![source],
            routes: Vec::new(),
            heap: 0,
            temp_dir: std::env::temp_dir(),
        })
    }

    /// Runs this code as task 0 of a watched VM; returns the step's result.
    fn run(code: &str) -> Option<StepResult> {
        run_for(100, code, Arc::new(|_| {}))
    }

    /// One at a time, so that the watchdog can sleep between two steps.
    static ALONE: Mutex<()> = Mutex::new(());

    fn run_for(limit_ms: u64, code: &str, alarm: Alarm) -> Option<StepResult> {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        run_after(Duration::ZERO, limit_ms, code, alarm)
    }

    fn run_after(pause: Duration, limit_ms: u64, code: &str, alarm: Alarm) -> Option<StepResult> {
        let limits = VmLimits { heap: 64 << 20, step: 64 << 20 };
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
        std::thread::sleep(pause);
        let (step, late) = watched.step(limit, location, [b"GET", b"/long"], || vm.start(0, job, &args));
        assert!(late, "it did not exceed its limit");
        if !matches!(step, StepResult::Broken(_)) {
            vm.eval("module Rt\ndef self.next_job\n7\nend\nend", "job.rb").expect("Ruby");
            let next = vm.intern(b"next_job").expect("memory");
            assert!(
                matches!(vm.start(0, next, &args), StepResult::Done),
                "{code}: the VM does not work any more"
            );
        }
        Some(step)
    }

    #[test]
    fn code_that_allocates_is_ended_by_an_exception() {
        match run("while true; 'x' * 100; end") {
            None | Some(StepResult::Raised(_)) => {}
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn code_that_neither_waits_nor_allocates_is_stopped() {
        for code in ["while true; end", "i = 0\nwhile true; i += 1; i = 0 if i > 9; end", "loop { }"] {
            match run(code) {
                None => {}
                Some(StepResult::Raised(_)) if Vm::has_hook() => {}
                Some(StepResult::Broken(why)) => assert_eq!(why.class, STOPPED, "{code}"),
                other => panic!("{code}: {other:?}"),
            }
        }
    }

    #[test]
    fn code_that_goes_on_after_an_exception_is_stopped() {
        let codes = [
            // A heap that takes a while to collect: each refused allocation collects it first.
            "keep = (1..50_000).map { |i| 'x' * 30 }\nwhile true; begin; 'x' * 100; rescue Exception; end; end",
            "while true; begin; i = 0; i += 1 while i < 1000; rescue Exception; i = 0; i += 1 while i < 1000; end; end",
            "while true; begin; begin; while true; end; ensure; i = 0; end; rescue Exception; end; end",
            "def self.deep(n)\nbegin; n == 0 ? (while true; end) : deep(n - 1)\nensure; while true; end\nend\nend\ndeep(50)",
            "while true; begin; Fiber.new { begin; while true; end; rescue Exception; end }.resume; rescue Exception; end; end",
            "while true; begin; [3, 1, 2].sort { |a, b| while true; end }; rescue Exception; end; end",
        ];
        for code in codes {
            match run(code) {
                None => {}
                Some(StepResult::Raised(why)) if Vm::has_hook() => {
                    assert_eq!(why.class, "Rt::Interrupted", "{code}")
                }
                Some(StepResult::Broken(why)) if !Vm::has_hook() => assert_eq!(why.class, STOPPED, "{code}"),
                other => panic!("{code}: {other:?}"),
            }
        }
    }

    /// The watchdog wakes when the step begins, and may see it before the VM does.
    #[test]
    fn a_step_after_a_pause_is_stopped() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let code = "while true; begin; i = 0; i += 1 while i < 1000; rescue Exception; end; end";
        for _ in 0..5 {
            match run_after(INTERVAL * (QUIET + 5), 20, code, Arc::new(|_| {})) {
                None => {}
                Some(StepResult::Raised(why)) if Vm::has_hook() => assert_eq!(why.class, "Rt::Interrupted"),
                Some(StepResult::Broken(why)) if !Vm::has_hook() => assert_eq!(why.class, STOPPED),
                other => panic!("{other:?}"),
            }
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
