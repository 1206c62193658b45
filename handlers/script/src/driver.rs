//! Runs tasks from their first step to their end.

use crate::context::TaskContext;
use crate::runtime::{Runtime, describe};
use crate::subject::Location;
use crate::task::Task;
use crate::waiting::Waiting;
use mruby::{Exception, Step, Tape};
use std::rc::Rc;
use std::time::Duration;

/// Runs a task to its end. Its result stays in the runtime's `out` until the next step of any task, that is until the caller awaits. If the VM
/// breaks, the task ends at once.
pub(crate) async fn drive(
    runtime: &Rc<Runtime>,
    task: &Task,
    context: &TaskContext,
    first: Step,
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
    first: Step,
) -> Result<(), Exception> {
    let mut step = first;
    loop {
        start_spawned(runtime);
        match step {
            Step::Done => return Ok(()),
            Step::Raised(error) | Step::Broken(error) => return Err(error),
            Step::Wait => {
                let result = begin(runtime, context).await;
                step = task.resume(&result);
            }
        }
    }
}

/// Begins the wait that the last step yielded.
fn begin(runtime: &Rc<Runtime>, context: &TaskContext) -> Waiting {
    runtime.out(|wait| runtime.waits.begin(context, &wait))
}

/// The time limit for the `ensure` clauses of a cancelled task.
const MAX_ENSURE: Duration = Duration::from_secs(2);

/// Cancels a task: its wait raises. Its `ensure` clauses may still wait (to decrement a counter in Redis, to release a lock), for at most
/// [`MAX_ENSURE`].
pub(crate) fn finish_cancelled(runtime: &Rc<Runtime>, task: Task) {
    let step = task.cancel();
    start_spawned(runtime);
    if !matches!(step, Step::Wait) {
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
            let Some(task) = runtime.new_task(&runtime.loosest_limits, location) else {
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
