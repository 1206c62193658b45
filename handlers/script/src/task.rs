//! A task with its slot in the VM, from its first step to its end.

use crate::context::TaskContext;
use crate::plan::RouteLimits;
use crate::runtime::{Runtime, describe};
use crate::subject::{Location, RequestLine, SavedLine};
use crate::waiting::OperationFuture;
use handler::Request;
use mruby::{Exception, Interned, StepResult, Tape, Text, Vm};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A running task. Dropping it while it waits cancels it.
pub(crate) struct Task {
    runtime: Rc<Runtime>,
    limits: Arc<RouteLimits>,
    location: Location,
    /// Method and target of the request, once the task has waited.
    line: RefCell<SavedLine>,
    slot: u32,
    waits: Cell<bool>,
    /// Bytes of heap that its steps have added so far, minus the bytes that were collected meanwhile.
    held: Cell<usize>,
    /// Whether the task has been cancelled and runs its `ensure` clauses.
    cancelled: bool,
}

/// How often a task that keeps waiting is cancelled before its fiber is dropped.
const CANCEL_ATTEMPTS: usize = 4;

impl Task {
    /// Makes a task of the handler at `location`; `None` if as many tasks as its limits allow are running.
    pub(crate) fn new(runtime: &Rc<Runtime>, limits: &Arc<RouteLimits>, location: Location) -> Option<Task> {
        let slot = runtime.take_slot(limits.max_tasks)?;
        Some(Task {
            runtime: runtime.clone(),
            limits: limits.clone(),
            location,
            line: RefCell::default(),
            slot,
            waits: Cell::new(false),
            held: Cell::new(0),
            cancelled: false,
        })
    }

    /// Starts `Rt.<job>(*args)`.
    pub(crate) fn start(&self, job: Interned, args: &Tape) -> StepResult {
        self.step([b"", b""], |vm| vm.start(self.slot, job, args))
    }

    /// Gives a request to handler number `app`.
    pub(crate) fn request<'a>(
        &self,
        app: u32,
        request: &Request,
        env: impl IntoIterator<Item = (Text<'a>, Text<'a>)>,
        more: bool,
    ) -> StepResult {
        let line = [request.method(), request.target()];
        let step = self.step(line, |vm| vm.request(self.slot, app, env, more));
        if matches!(step, StepResult::Wait) {
            *self.line.borrow_mut() = SavedLine::new(line);
        }
        step
    }

    /// Continues the task with the result of its wait.
    pub(crate) fn resume(&self, value: &Tape) -> StepResult {
        self.step(self.line.borrow().get(), |vm| vm.resume(self.slot, value))
    }

    fn step(&self, line: RequestLine<'_>, run: impl FnOnce(&mut Vm) -> StepResult) -> StepResult {
        self.set_waiting(false);
        let room = |heap: usize| self.room(heap);
        let (step, before, after) = self.runtime.step(self.limits.step_time, self.location, line, room, run);
        // Memory that a collection frees during the step is credited to this task, whichever task allocated
        // it, so no task is charged for old garbage.
        self.held.set((self.held.get() + after).saturating_sub(before));
        self.set_waiting(matches!(step, StepResult::Wait));
        step
    }

    /// Returns the bytes that a step may add to a heap of `heap` bytes. A task that holds much memory leaves
    /// the last quarter of the heap to others.
    fn room(&self, heap: usize) -> usize {
        let (held, limit) = (self.held.get(), self.runtime.heap_limit());
        let own = self.limits.request_heap.saturating_sub(held);
        if held > limit / 8 { own.min((limit / 4 * 3).saturating_sub(heap)) } else { own }
    }

    fn set_waiting(&self, waits: bool) {
        if self.waits.replace(waits) != waits {
            let counts = &self.runtime.counts;
            if waits { counts.suspended() } else { counts.resumed() }
        }
    }

    /// Raises an exception where the task waits, so that its `ensure` runs.
    pub(crate) fn cancel(&self) -> StepResult {
        // `ensure` clauses need memory, too.
        self.held.set(0);
        let mut cancelled = Tape::new();
        cancelled.fault("Rt::Cancelled", "the client disconnected, or the request's deadline has passed");
        self.resume(&cancelled)
    }

    /// Returns whether the task's `ensure` may wait: only once, only while fewer than `max_tasks` others do
    /// so, and only in a running event loop.
    fn may_finish(&self) -> bool {
        let others = self.runtime.cancelled_tasks();
        !self.cancelled && others < self.limits.max_tasks && tokio::runtime::Handle::try_current().is_ok()
    }

    /// Returns the same task as a cancelled one.
    fn to_cancelled(&self) -> Task {
        self.runtime.count_cancelled();
        Task {
            runtime: self.runtime.clone(),
            limits: self.limits.clone(),
            location: self.location,
            line: RefCell::new(self.line.take()),
            slot: self.slot,
            waits: Cell::new(true),
            held: Cell::new(0),
            cancelled: true,
        }
    }

    /// Frees the slot, or hands it to the cancelled form of the task.
    fn release(&self) {
        self.runtime.counts.ended();
        if self.runtime.is_vm_broken() {
            return;
        }
        if self.waits.get() && self.may_finish() {
            return finish_cancelled(&self.runtime, self.to_cancelled());
        }
        if self.waits.get() {
            self.abandon();
        }
        self.runtime.free_slot(self.slot);
    }

    /// Ends the task for good, even if it keeps waiting.
    fn abandon(&self) {
        for _ in 0..CANCEL_ATTEMPTS {
            let _ = self.cancel();
            if !self.waits.get() || self.runtime.is_vm_broken() {
                return;
            }
        }
        self.runtime.abandon(self.slot);
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if self.cancelled {
            self.runtime.uncount_cancelled();
        }
        self.release();
        self.set_waiting(false);
    }
}

/// Runs a task to its end. Its result stays in the runtime's `out` until the next step of any task, that is
/// until the caller awaits. If the VM breaks, the task ends at once.
pub(crate) async fn drive(
    runtime: &Rc<Runtime>,
    task: &Task,
    context: &TaskContext,
    first: StepResult,
) -> Result<(), Exception> {
    tokio::select! {
        biased;
        ended = run(runtime, task, context, first) => ended,
        lost = runtime.lost() => Err(lost),
    }
}

async fn run(
    runtime: &Rc<Runtime>,
    task: &Task,
    context: &TaskContext,
    first: StepResult,
) -> Result<(), Exception> {
    let mut step = first;
    loop {
        start_spawned(runtime);
        match step {
            StepResult::Done => return Ok(()),
            StepResult::Raised(error) | StepResult::Broken(error) => return Err(error),
            StepResult::Wait => {
                let result = begin(runtime, context).await;
                step = task.resume(&result);
            }
        }
    }
}

/// Begins the wait that the last step yielded.
fn begin(runtime: &Rc<Runtime>, context: &TaskContext) -> OperationFuture {
    runtime.out(|wait| runtime.waits.begin(context, &wait))
}

/// The time limit for the `ensure` clauses of a cancelled task.
const MAX_ENSURE: Duration = Duration::from_secs(2);

/// Cancels a task: its wait raises. Its `ensure` clauses may still wait (to decrement a counter in Redis, to
/// release a lock), for at most [`MAX_ENSURE`].
fn finish_cancelled(runtime: &Rc<Runtime>, task: Task) {
    let step = task.cancel();
    start_spawned(runtime);
    if !matches!(step, StepResult::Wait) {
        return;
    }
    let (runtime, context) = (runtime.clone(), TaskContext::default());
    // Begins at once, because the next step of another task overwrites `out`.
    let waiting = begin(&runtime, &context);
    net::task::spawn_local(async move {
        let rest = async {
            let step = task.resume(&waiting.await);
            // The client has disconnected, so an error cannot be reported to it.
            let _ = drive(&runtime, &task, &context, step).await;
        };
        tokio::select! {
            biased;
            _ = tokio::time::timeout(MAX_ENSURE, rest) => {}
            _ = runtime.lost() => {}
        }
    });
}

/// Starts the blocks given to `task` during the last step.
pub(crate) fn start_spawned(runtime: &Rc<Runtime>) {
    let blocks = std::mem::take(&mut *runtime.basic.spawned.borrow_mut());
    // The blocks belong to the same handler, but to no request.
    let location = Location { route: None, ..runtime.last_location() };
    for block in blocks {
        let runtime = runtime.clone();
        net::task::spawn_local(async move {
            let Some(task) = Task::new(&runtime, &runtime.loosest_limits, location) else {
                (runtime.basic.log)("a task could not be started: mruby.max_tasks are running");
                return;
            };
            let mut args = Tape::new();
            args.array(1).int(block);
            let first = task.start(runtime.run_block, &args);
            if let Err(error) = drive(&runtime, &task, &TaskContext::default(), first).await {
                (runtime.basic.log)(&format!("in a task: {}", describe(&error)));
            }
        });
    }
}
