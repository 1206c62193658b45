//! A VM with its surroundings: preludes, operations, the slots of its tasks.

use crate::areas::Areas;
use crate::basic::{self, Log};
use crate::env;
use crate::fetch;
use crate::observed::Observed;
use crate::ops::Waits;
use crate::plan::{HandlerPlan, RouteLimits};
use crate::stdlib;
use crate::subject::{Location, RequestLine};
use crate::watchdog::Watched;
use mruby::{Exception, Interned, StepResult, Tape, TapeValue, Vm};
use net::memory::{self, MemoryClass};
use stats::HandlerCounts;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// One VM with its tasks.
pub(crate) struct Runtime {
    vm: RefCell<Vm>,
    pub(crate) waits: Waits,
    pub(crate) basic: Rc<basic::BasicState>,
    pub(crate) fetch: Rc<fetch::FetchState>,
    pub(crate) stdlib: Rc<stdlib::StdlibState>,
    idle_slots: RefCell<Vec<u32>>,
    slots: Cell<u32>,
    /// The number of cancelled tasks that still run their `ensure` clauses.
    cancelled: Cell<usize>,
    broken: Cell<bool>,
    /// Notified when the VM breaks.
    lost: Notify,
    /// Whether the heap mostly holds objects that are never collected (symbols). Running tasks finish; new
    /// ones get a fresh VM.
    full: Cell<bool>,
    heap_limit: usize,
    watched: Watched,
    pub(crate) counts: HandlerCounts,
    /// Bytes of its heap that `counts` includes.
    counted_heap: Cell<usize>,
    /// The size of the heap in bytes after the last requested collection.
    collected_heap: Cell<usize>,
    /// The location of the last step. Blocks that the step has spawned belong to the same handler.
    last_location: Cell<Location>,
    /// Limits of tasks without a route: tasks that load handlers, and blocks given to `task`.
    pub(crate) loosest_limits: Arc<RouteLimits>,
    pub(crate) load_app: Interned,
    pub(crate) run_block: Interned,
}

/// After a failure for lack of memory the heap is collected if it has grown by this fraction of its limit.
const PARTS_BETWEEN_COLLECTIONS: usize = 32;

impl Runtime {
    /// Opens a VM for the handlers of `plan`.
    ///
    /// # Errors
    /// There is no mruby, not enough memory, or a prelude fails.
    pub(crate) fn open(plan: &Arc<HandlerPlan>, log: Log, observed: Observed) -> Result<Rc<Runtime>, String> {
        let heap_limit = plan.heap;
        let loosest_limits = RouteLimits::loosest(plan.routes.iter().map(|route| &*route.limits));
        let Observed { counts, alarm } = observed;
        counts.limits(heap_limit as u64, loosest_limits.max_tasks as u64);
        let Areas { ops, basic, fetch, stdlib } = Areas::new(log, loosest_limits.request_heap);
        let (constants, template) = (ops.constants(), env::template());
        let calls = ops.calls;
        let host =
            Box::new(move |op: u32, args: &[TapeValue<'_>], tape: &mut Tape| calls.run(op, args, tape));
        let mut vm = Vm::open(mruby::VmLimits { heap: heap_limit, step: heap_limit }, host)?;
        let preludes = [("ops.rb", constants.as_str()), ("env.rb", template.as_str())];
        for (file, code) in preludes.into_iter().chain(ops.preludes) {
            vm.eval(code, &format!("firebrick/{file}"))
                .map_err(|error| format!("firebrick/{file}: {error}"))?;
        }
        let mut intern = |name: &str| vm.intern(name.as_bytes()).ok_or("no memory for a Ruby VM".to_owned());
        let (load_app, run_block) = (intern("load_app")?, intern("run_block")?);
        let heap = vm.heap();
        counts.heap(0, heap);
        memory::change(MemoryClass::Handlers, 0, heap as u64);
        Ok(Rc::new(Runtime {
            watched: Watched::new(vm.interrupt(), plan.clone(), alarm),
            counts,
            counted_heap: Cell::new(heap),
            collected_heap: Cell::new(heap),
            last_location: Cell::default(),
            loosest_limits: Arc::new(loosest_limits),
            vm: RefCell::new(vm),
            waits: ops.waits,
            basic,
            fetch,
            stdlib,
            idle_slots: RefCell::default(),
            slots: Cell::new(0),
            cancelled: Cell::new(0),
            broken: Cell::new(false),
            lost: Notify::new(),
            full: Cell::new(false),
            heap_limit,
            load_app,
            run_block,
        }))
    }

    /// Takes a slot for a task; `None` if `max_tasks` are running.
    pub(crate) fn take_slot(&self, max_tasks: usize) -> Option<u32> {
        // Cancelled tasks do not count.
        if self.running_tasks() - self.cancelled.get() >= max_tasks {
            return None;
        }
        let slot = self.idle_slots.borrow_mut().pop().unwrap_or_else(|| {
            self.slots.set(self.slots.get() + 1);
            self.slots.get() - 1
        });
        self.counts.began();
        Some(slot)
    }

    /// Makes a slot available for another task.
    pub(crate) fn free_slot(&self, slot: u32) {
        self.idle_slots.borrow_mut().push(slot);
    }

    /// Drops the fiber of a waiting slot; its `ensure` clauses never run.
    pub(crate) fn abandon(&self, slot: u32) {
        self.vm.borrow_mut().abandon(slot);
    }

    /// Runs a step. `room` returns the bytes that the step may add to a heap of the given size. Returns the
    /// step, and the size of the heap in bytes before and after it.
    pub(crate) fn step(
        &self,
        step_time: Option<Duration>,
        location: Location,
        line: RequestLine<'_>,
        room: impl FnOnce(usize) -> usize,
        run: impl FnOnce(&mut Vm) -> StepResult,
    ) -> (StepResult, usize, usize) {
        let mut vm = self.vm.borrow_mut();
        self.last_location.set(location);
        let before = vm.heap();
        vm.limit_step(room(before));
        let (step, timed_out) = self.watched.step(step_time, location, line, || run(&mut vm));
        let after = vm.heap();
        if matches!(&step, StepResult::Raised(error) if error.class == "NoMemoryError")
            && self.collect(&mut vm)
        {
            self.full.set(vm.heap() > self.heap_limit / 4 * 3);
        }
        self.count_heap(vm.heap());
        if matches!(step, StepResult::Broken(_)) {
            self.broken.set(true);
            self.lost.notify_waiters();
        }
        let step = if timed_out { describe_timeout(step) } else { step };
        (step, before, after)
    }

    /// Collects the heap unless little has been added: a collection takes longer the more objects waiting tasks hold, so one collection must
    /// serve for all that has been added since the last one. Returns whether it did.
    fn collect(&self, vm: &mut Vm) -> bool {
        let since = vm.heap().saturating_sub(self.collected_heap.get());
        let due = since > self.heap_limit / PARTS_BETWEEN_COLLECTIONS;
        if due {
            vm.collect();
            self.collected_heap.set(vm.heap());
        }
        due
    }

    /// Collects the heap because the process has little memory.
    pub(crate) fn give_back(&self) {
        let mut vm = self.vm.borrow_mut();
        if !self.broken.get() && self.collect(&mut vm) {
            self.count_heap(vm.heap());
        }
    }

    /// Returns the location of the last step.
    pub(crate) fn last_location(&self) -> Location {
        self.last_location.get()
    }

    /// Returns the largest heap in bytes.
    pub(crate) fn heap_limit(&self) -> usize {
        self.heap_limit
    }

    /// Returns the number of cancelled tasks that are still running.
    pub(crate) fn cancelled_tasks(&self) -> usize {
        self.cancelled.get()
    }

    /// Counts a cancelled task that waits again.
    pub(crate) fn count_cancelled(&self) {
        self.cancelled.update(|count| count + 1);
        self.counts.began();
        self.counts.suspended();
    }

    /// Counts the end of a cancelled task.
    pub(crate) fn uncount_cancelled(&self) {
        self.cancelled.update(|count| count - 1);
    }

    fn count_heap(&self, now: usize) {
        let before = self.counted_heap.replace(now);
        self.counts.heap(before, now);
        memory::change(MemoryClass::Handlers, before as u64, now as u64);
    }

    /// Interns a text in the VM; `None` if memory is short.
    pub(crate) fn intern(&self, text: &[u8]) -> Option<Interned> {
        self.vm.borrow_mut().intern(text)
    }

    /// Returns whether new requests need another VM.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.get() || self.full.get()
    }

    /// Returns whether the VM can run no more steps.
    pub(crate) fn is_vm_broken(&self) -> bool {
        self.broken.get()
    }

    /// Returns the number of running tasks.
    pub(crate) fn running_tasks(&self) -> usize {
        self.slots.get() as usize - self.idle_slots.borrow().len()
    }

    /// Completes when the VM has broken; tasks waiting in it never continue.
    pub(crate) async fn lost(&self) -> Exception {
        let notified = self.lost.notified();
        if !self.broken.get() {
            notified.await;
        }
        Exception {
            class: mruby::STOPPED.to_owned(),
            message: "another request broke this thread's VM, in which this one waited".to_owned(),
            backtrace: Vec::new(),
            place: None,
        }
    }

    /// Passes the result of the last step to `read`.
    pub(crate) fn out<T>(&self, read: impl FnOnce(TapeValue<'_>) -> T) -> T {
        read(self.vm.borrow().out())
    }

    /// Passes the result of the last step to `read` as a tape.
    pub(crate) fn tape<T>(&self, read: impl FnOnce(&[u8]) -> T) -> T {
        read(self.vm.borrow().tape())
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.count_heap(0);
    }
}

/// The class of the exception in a step that was interrupted for taking too long.
const INTERRUPTED: &str = "Rt::Interrupted";

/// Names the limit in the exception of a step that exceeded it.
fn describe_timeout(step: StepResult) -> StepResult {
    match step {
        // Without the debug hook mruby raises NoMemoryError.
        StepResult::Raised(error) => StepResult::Raised(Exception {
            class: INTERRUPTED.to_owned(),
            message: "it computed for longer than mruby.step_time without waiting".to_owned(),
            ..error
        }),
        StepResult::Broken(error) if error.class == mruby::STOPPED => StepResult::Broken(Exception {
            message: "it computed for longer than mruby.step_time and could not be interrupted: this thread's VM is \
                      replaced, and what waited in it is lost"
                .to_owned(),
            ..error
        }),
        step => step,
    }
}

/// Describes an exception for the log: message, class, and the frames of handlers.
pub(crate) fn describe(error: &Exception) -> String {
    let frames: Vec<&str> = error
        .backtrace
        .iter()
        .map(String::as_str)
        .filter(|frame| !frame.starts_with("firebrick/"))
        // A handler's file runs in `eval`, and so do all its blocks.
        .map(|frame| frame.strip_suffix(":in eval").unwrap_or(frame))
        .take(8)
        .collect();
    let trace = if frames.is_empty() { String::new() } else { format!(" at {}", frames.join(", ")) };
    format!("mruby raised: {} ({}){trace}", error.message, error.class)
}
