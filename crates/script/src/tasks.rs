//! Driving a task from its first step to its end.

use crate::fetch::Owned;
use crate::next::Origin;
use crate::ops::{self, Waiting};
use crate::runtime::{Runtime, Seat, in_log};
use crate::stream::Outlet;
use mruby::{Exception, Step, Tape, Value};
use std::cell::RefCell;
use std::rc::Rc;

/// On whose behalf a task runs: what waits that concern a request need.
#[derive(Default)]
pub(crate) struct Asker {
    /// Where a streamed response goes; `None` outside of requests.
    pub(crate) outlet: Option<RefCell<Outlet>>,
    /// The request itself; `None` outside of requests.
    pub(crate) origin: Option<Origin>,
    /// The responses that it has asked for.
    pub(crate) held: Owned,
}

impl Asker {
    /// `head` and `chunk`: the parts of a response that is sent while it is made.
    pub(crate) fn stream(&self, op: &[u8], args: &[Value<'_>]) -> Waiting {
        match &self.outlet {
            Some(outlet) if op == b"head" => outlet.borrow_mut().head(args),
            Some(outlet) => outlet.borrow_mut().chunk(args),
            None => ops::fault("RuntimeError", "there is no request to respond to"),
        }
    }
}

/// Does what the task waits for until it is over. What it gave is the runtime's `out` until the next step of any task,
/// that is until the caller waits.
pub(crate) async fn drive(
    runtime: &Rc<Runtime>,
    seat: &Seat,
    asker: &Rc<Asker>,
    first: Step,
) -> Result<(), Exception> {
    let mut step = first;
    loop {
        start_spawned(runtime);
        match step {
            Step::Done => return Ok(()),
            Step::Raised(error) | Step::Broken(error) => return Err(error),
            Step::Wait => {
                let waiting = runtime.out(|out| match out.array() {
                    Some([Value::Sym(op), args @ ..]) => ops::begin(runtime, asker, op, args),
                    _ => ops::fault("ArgumentError", "a wait begins with a Symbol"),
                });
                let answer: Tape = waiting.await;
                step = seat.resume(&answer);
            }
        }
    }
}

/// Starts what was given to `task` during the last step.
pub(crate) fn start_spawned(runtime: &Rc<Runtime>) {
    let blocks = std::mem::take(&mut *runtime.state.spawned.borrow_mut());
    for block in blocks {
        let runtime = runtime.clone();
        tokio::task::spawn_local(async move {
            let Some(seat) = runtime.seat(&runtime.loosest) else {
                (runtime.state.complain)("a task could not be started: mruby.max_tasks are under way");
                return;
            };
            let mut args = Tape::new();
            args.array(1).int(block);
            let first = seat.start(runtime.run_block, &args);
            if let Err(error) = drive(&runtime, &seat, &Rc::default(), first).await {
                (runtime.state.complain)(&format!("in a task: {}", in_log(&error)));
            }
        });
    }
}
