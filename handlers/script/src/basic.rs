//! The operations that tasks consist of: sleep, park and wake, spawn, the log, and the parts of a streamed response.

use crate::context::TaskContext;
use crate::ops::Area;
use crate::park::{Park, Passing};
use crate::waiting::{OperationFuture, fault, tape};
use mruby::TapeValue;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Writes a line to the error log.
pub type Log = Rc<dyn Fn(&str)>;

/// The state of the operations.
pub(crate) struct BasicState {
    pub(crate) park: Park,
    pub(crate) passing: Passing,
    /// Numbers of the blocks given to `task`, which start when the VM is free.
    pub(crate) spawned: RefCell<Vec<i64>>,
    pub(crate) log: Log,
}

impl BasicState {
    pub(crate) fn new(log: Log) -> BasicState {
        BasicState { park: Park::default(), passing: Passing::default(), spawned: RefCell::default(), log }
    }
}

pub(crate) const AREA: Area<BasicState> = Area {
    calls: &[
        ("TICKET", |state, _, tape| tape.int(state.park.ticket()).done()),
        ("WAKE", |state, args, tape| {
            let ticket = args.first().and_then(TapeValue::int).unwrap_or_default();
            tape.bool(state.park.wake(ticket));
        }),
        ("SPAWN", |state, args, tape| {
            state.spawned.borrow_mut().extend(args.first().and_then(TapeValue::int));
            tape.nil();
        }),
        ("LOG", |state, args, tape| {
            if let Some(text) = args.first().and_then(TapeValue::text) {
                (state.log)(&format!("mruby: {}", String::from_utf8_lossy(text).trim_end()));
            }
            tape.nil();
        }),
    ],
    waits: &[
        ("SLEEP", |_, _, args| sleep(args)),
        ("PARK", park),
        ("PASS", pass),
        ("HEAD", |_, task, args| match &task.outlet {
            Some(outlet) => outlet.borrow_mut().head(args),
            None => no_request(),
        }),
        ("CHUNK", |_, task, args| match &task.outlet {
            Some(outlet) => outlet.borrow_mut().chunk(args),
            None => no_request(),
        }),
    ],
    preludes: &[
        ("server.rb", include_str!("ruby/server.rb")),
        ("respond.rb", include_str!("ruby/respond.rb")),
    ],
};

fn no_request() -> OperationFuture {
    fault("RuntimeError", "there is no request to respond to")
}

/// `[seconds]`: returns the whole seconds slept. Without an argument the wait never ends.
fn sleep(args: &[TapeValue<'_>]) -> OperationFuture {
    let Some(seconds) = args.first() else { return Box::pin(std::future::pending()) };
    let duration = seconds.float().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let Some(duration) = duration else { return fault("ArgumentError", "sleep takes seconds, 0 or more") };
    Box::pin(async move {
        let start = tokio::time::Instant::now();
        tokio::time::sleep(duration).await;
        tape(|tape| tape.int(start.elapsed().as_secs() as i64).done())
    })
}

/// Lets the tasks that are ready run first.
fn pass(state: &Rc<BasicState>, _: &TaskContext, _: &[TapeValue<'_>]) -> OperationFuture {
    let state = state.clone();
    Box::pin(async move {
        state.passing.wait().await;
        tape(|tape| tape.nil().done())
    })
}

/// `[ticket]`: waits until the ticket is woken.
fn park(state: &Rc<BasicState>, _: &TaskContext, args: &[TapeValue<'_>]) -> OperationFuture {
    let Some(ticket) = args.first().and_then(TapeValue::int) else {
        return fault("ArgumentError", "park takes a ticket");
    };
    let state = state.clone();
    Box::pin(async move {
        state.park.wait(ticket).await;
        tape(|tape| tape.nil().done())
    })
}
