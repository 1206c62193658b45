//! Driving a task from its first step to its end.

use crate::fetch::Owned;
use crate::next::Origin;
use crate::ops::{self, Waiting};
use crate::runtime::{Runtime, Seat, in_log};
use crate::stream::Outlet;
use crate::subject::Spot;
use mruby::{Exception, Step, Tape, Value};
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

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
    /// Ready when the client has gone before the response that is being sent was whole.
    pub(crate) fn lost(&self) -> impl Future<Output = ()> + use<> {
        let lost = self.outlet.as_ref().map(|outlet| outlet.borrow().lost());
        async move {
            match lost {
                Some(lost) => lost.await,
                None => std::future::pending().await,
            }
        }
    }

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
/// that is until the caller waits. When the VM breaks meanwhile, it ends at once.
pub(crate) async fn drive(
    runtime: &Rc<Runtime>,
    seat: &Seat,
    asker: &Rc<Asker>,
    first: Step,
) -> Result<(), Exception> {
    tokio::select! {
        biased;
        ended = steps(runtime, seat, asker, first) => ended,
        lost = runtime.lost() => Err(lost),
    }
}

async fn steps(runtime: &Rc<Runtime>, seat: &Seat, asker: &Rc<Asker>, first: Step) -> Result<(), Exception> {
    let mut step = first;
    loop {
        start_spawned(runtime);
        match step {
            Step::Done => return Ok(()),
            Step::Raised(error) | Step::Broken(error) => return Err(error),
            Step::Wait => {
                let answer: Tape = begin(runtime, asker).await;
                step = seat.resume(&answer);
            }
        }
    }
}

/// Begins what the last step asked for.
fn begin(runtime: &Rc<Runtime>, asker: &Rc<Asker>) -> Waiting {
    runtime.out(|out| match out.array() {
        Some([Value::Sym(op), args @ ..]) => ops::begin(runtime, asker, op, args),
        _ => ops::fault("ArgumentError", "a wait begins with a Symbol"),
    })
}

/// How long a task that was given up may take for what it does in its `ensure`.
const LAST_TIME: Duration = Duration::from_secs(2);

/// Gives a task up: what it waits for ends by an exception. What its `ensure` waits for then (a counter in Redis to be taken back,
/// a lock to be let go of) is still done, within [`LAST_TIME`].
pub(crate) fn see_off(runtime: &Rc<Runtime>, seat: Seat) {
    let step = seat.give_up();
    start_spawned(runtime);
    if !matches!(step, Step::Wait) {
        return;
    }
    let (runtime, asker) = (runtime.clone(), Rc::default());
    // At once: the next step of another task writes over what it asked for.
    let waiting = begin(&runtime, &asker);
    tokio::task::spawn_local(async move {
        let rest = async {
            let step = seat.resume(&waiting.await);
            // Whom could it tell that it failed?
            let _ = drive(&runtime, &seat, &asker, step).await;
        };
        tokio::select! {
            biased;
            _ = tokio::time::timeout(LAST_TIME, rest) => {}
            _ = runtime.lost() => {}
        }
    });
}

/// Starts what was given to `task` during the last step.
pub(crate) fn start_spawned(runtime: &Rc<Runtime>) {
    let blocks = std::mem::take(&mut *runtime.state.spawned.borrow_mut());
    // It belongs to the handler, but to no request.
    let spot = Spot { route: None, ..runtime.last_spot() };
    for block in blocks {
        let runtime = runtime.clone();
        tokio::task::spawn_local(async move {
            let Some(seat) = runtime.seat(&runtime.loosest, spot) else {
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
