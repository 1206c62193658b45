//! Ends steps that compute for too long without waiting.
//!
//! One thread for the process looks at all VMs some times a second, and at the processor time of their threads: on a machine that
//! has much to do a step takes long without computing. It asks a VM that is over its time to raise: a library
//! with the debug hook does so at its next instruction, one without when it next allocates. Code that does neither (`while true;
//! end` on such a library), or that rescues and goes on, is stopped after twice its time at the cost of its VM: the thread gets
//! a new one, and the requests that waited in the old one fail. Only what computes without end outside of Ruby code is left: the
//! log says so.

use crate::observed::Alarm;
use crate::plan::Plan;
use crate::subject::{Asked, Spot, Subject};
use mruby::Interrupt;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How often VMs are looked at: a step may be so much longer than its limit.
const EVERY: Duration = Duration::from_millis(20);
/// A step that has not ended after so many times its limit does not listen: it is stopped.
const DEAF: u32 = 2;
/// One that has not even then ended is beyond help.
const HOPELESS: u32 = 5;

/// A VM that is watched, from the thread that runs it.
pub(crate) struct Watched {
    watch: Arc<Watch>,
    /// How many steps there have been.
    steps: Cell<u64>,
}

struct Watch {
    interrupt: Interrupt,
    alarm: Alarm,
    /// What the step that runs is about.
    subject: Subject,
    /// What the system says about its thread.
    schedstat: String,
    /// The number of the step that runs, 0 between steps; and how many milliseconds it may take.
    running: AtomicU64,
    span: AtomicU64,
    fired: AtomicBool,
    /// Whether it was to be stopped when it was looked at last, not asked to raise.
    stopped: AtomicBool,
    /// What the watchdog alone uses: the step that it found running, and its own clock then. Steps do not look at the clock:
    /// there are a hundred thousand of them in a second, and each look costs as much as a call of Ruby's.
    seen: Mutex<Option<Seen>>,
    told: AtomicBool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Seen {
    step: u64,
    /// The VM's own number of it.
    serial: u32,
    /// What its thread's clock said then.
    since: Duration,
}

impl Watched {
    /// Watches a VM with the handlers of `plan` until dropped.
    pub(crate) fn new(interrupt: Interrupt, plan: Arc<Plan>, alarm: Alarm) -> Watched {
        let [running, span] = [AtomicU64::new(0), AtomicU64::new(0)];
        let [fired, stopped, told] = [false; 3].map(AtomicBool::new);
        let seen = Mutex::default();
        let schedstat = format!("/proc/self/task/{}/schedstat", rustix::thread::gettid().as_raw_nonzero());
        let subject = Subject::new(plan);
        start(&alarm);
        let watch = Arc::new(Watch {
            interrupt,
            alarm,
            subject,
            schedstat,
            running,
            span,
            fired,
            stopped,
            seen,
            told,
        });
        LIST.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&watch));
        Watched { watch, steps: Cell::new(0) }
    }

    /// Runs a step that may take so long; whether it was ended for taking longer. `asked` is its request.
    pub(crate) fn step<T>(
        &self,
        span: Option<Duration>,
        spot: Spot,
        asked: Asked<'_>,
        run: impl FnOnce() -> T,
    ) -> (T, bool) {
        let Some(span) = span else { return (run(), false) };
        self.steps.set(self.steps.get() + 1);
        let watch = &*self.watch;
        // Who sees what is told from here on sees that the step before is over, too.
        fence(Ordering::Release);
        watch.subject.tell(spot, asked);
        watch.span.store(span.as_millis().clamp(1, u128::from(u32::MAX)) as u64, Ordering::Relaxed);
        watch.fired.store(false, Ordering::Relaxed);
        watch.running.store(self.steps.get(), Ordering::Release);
        let given = run();
        watch.running.store(0, Ordering::Release);
        (given, watch.fired.load(Ordering::Acquire))
    }
}

/// All VMs.
static LIST: Mutex<Vec<Weak<Watch>>> = Mutex::new(Vec::new());

/// Starts the thread that looks at them, with the first.
fn start(alarm: &Alarm) {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        let started = std::thread::Builder::new().name("mruby-watchdog".to_owned()).spawn(look);
        if let Err(error) = started {
            alarm(&format!("warning: mruby.step_time has no effect: no thread for it ({error})"));
        }
    });
}

fn look() {
    let begun = Instant::now();
    loop {
        std::thread::sleep(EVERY);
        let mut watches = LIST.lock().unwrap_or_else(PoisonError::into_inner);
        watches.retain(|watch| watch.upgrade().is_some_and(|watch| watch.look(begun)));
    }
}

impl Watch {
    /// Processor time of the thread; where the system does not tell, time since `begun`.
    fn clock(&self, begun: Instant) -> Duration {
        let told = std::fs::read_to_string(&self.schedstat).ok();
        // proc(5): nanoseconds on a processor, nanoseconds that it waited for one, and how often.
        let computed = told.and_then(|told| told.split(' ').next()?.parse().ok());
        computed.map_or_else(|| begun.elapsed(), Duration::from_nanos)
    }

    /// Does what a step that is over its time needs; always true.
    fn look(&self, begun: Instant) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let step = self.running.load(Ordering::Acquire);
        let Some(known) = seen.filter(|seen| seen.step == step) else {
            let serial = self.interrupt.serial();
            // The VM's number belongs to this step only when it still runs.
            let found = step != 0 && self.running.load(Ordering::Acquire) == step;
            *seen = found.then(|| Seen { step, serial, since: self.clock(begun) });
            self.told.store(false, Ordering::Relaxed);
            return true;
        };
        let span = Duration::from_millis(self.span.load(Ordering::Relaxed).max(1));
        let taken = self.clock(begun).saturating_sub(known.since);
        if taken < span {
            return true;
        }
        self.fired.store(true, Ordering::Release);
        // What is asked to raise collects garbage first, and can be stopped at no time while it does: so the two take turns.
        if taken >= span * DEAF && !self.stopped.fetch_not(Ordering::Relaxed) {
            self.interrupt.stop(known.serial);
        } else {
            self.interrupt.now();
        }
        if taken >= span * HOPELESS
            && !self.told.load(Ordering::Relaxed)
            && let Some(name) = self.name(step)
        {
            self.told.store(true, Ordering::Relaxed);
            (self.alarm)(&format!(
                "{name}: it has been computing for {:.1} s and cannot be stopped: its front thread answers nobody",
                taken.as_secs_f64()
            ));
        }
        true
    }

    /// What a step is about; `None` when it is over.
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

    /// A VM whose task 0 ran this method, watched; what the step gave.
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
        let spot = Spot { source: Some(0), route: None };
        let mut args = Tape::new();
        args.array(0);
        let span = Some(Duration::from_millis(limit_ms));
        let (step, late) = watched.step(span, spot, [b"GET", b"/long"], || vm.start(0, job, &args));
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
        // With a heap that takes a while to be collected, which each refused allocation begins with.
        let code = "keep = (1..50_000).map { |i| 'x' * 30 }\nwhile true; begin; 'x' * 100; rescue Exception; end; end";
        match run(code) {
            None => {}
            // Raised between two of its rescues.
            Some(Step::Raised(_)) if Vm::has_hook() => {}
            Some(Step::Broken(why)) => assert_eq!(why.class, STOPPED),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn tells_which_handler_it_cannot_stop_and_for_whom() {
        // A search that takes seconds inside of one function in C, where nobody looks for an interruption.
        let code = "('a' * 300_000).index('a' * 150_000 + 'b')";
        let (tell, told) = std::sync::mpsc::channel();
        let tell = Mutex::new(tell);
        let alarm = move |what: &str| drop(tell.lock().map(|tell| tell.send(what.to_owned())));
        if run_for(20, code, Arc::new(alarm)).is_none() {
            return;
        }
        let lines: Vec<String> = told.try_iter().collect();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("GET /long: busy.rb: it has been computing for "), "{lines:?}");
    }
}
