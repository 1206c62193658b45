//! What Ruby may ask of the server: calls, which answer at once, and waits, which suspend their task.
//!
//! A call is a line in [`CALLS`]; Ruby knows its number as `Rt::<NAME>`. A wait is a Symbol and an arm of [`begin`]. Both
//! take values and give a tape; neither touches the VM.

use crate::fetch;
use crate::kit;
use crate::next;
use crate::redis;
use crate::runtime::{Runtime, State};
use crate::tasks::Asker;
use mruby::{Tape, Value};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// A call's work.
pub(crate) type Call = fn(&State, &[Value<'_>], &mut Tape);

/// All calls.
pub(crate) const CALLS: &[(&str, Call)] = &[
    ("TICKET", |state, _, tape| {
        tape.int(state.park.ticket());
    }),
    ("WAKE", |state, args, tape| {
        let ticket = args.first().and_then(Value::int).unwrap_or_default();
        tape.bool(state.park.wake(ticket));
    }),
    ("SPAWN", |state, args, tape| {
        state.spawned.borrow_mut().extend(args.first().and_then(Value::int));
        tape.nil();
    }),
    ("LOG", |state, args, tape| {
        if let Some(text) = args.first().and_then(Value::text) {
            (state.complain)(&format!("mruby: {}", String::from_utf8_lossy(text).trim_end()));
        }
        tape.nil();
    }),
];

/// What a wait becomes: its answer, some time.
pub(crate) type Waiting = Pin<Box<dyn Future<Output = Tape>>>;

/// Begins what a task waits for.
pub(crate) fn begin(runtime: &Rc<Runtime>, asker: &Rc<Asker>, op: &[u8], args: &[Value<'_>]) -> Waiting {
    match op {
        b"sleep" => sleep(args),
        b"park" => park(runtime, args),
        b"pass" => pass(runtime),
        b"password" => kit::password(&runtime.state, args),
        b"fetch" | b"held_head" | b"held_read" | b"held_join" => fetch::begin(runtime, asker, op, args),
        b"next" | b"reprocess" | b"hints" => next::begin(runtime, asker, op, args),
        b"head" | b"chunk" => asker.stream(op, args),
        _ if op.starts_with(b"redis") => redis::begin(&runtime.state, op, args),
        _ => fault("NotImplementedError", format!("the server knows no wait `{}'", op.escape_ascii())),
    }
}

/// A wait that fails at once.
pub(crate) fn fault(class: &str, message: impl AsRef<[u8]>) -> Waiting {
    let mut tape = Tape::new();
    tape.fault(class, message);
    Box::pin(std::future::ready(tape))
}

/// `sleep(seconds)`: whole seconds slept; without an argument for ever.
fn sleep(args: &[Value<'_>]) -> Waiting {
    let Some(seconds) = args.first() else { return Box::pin(std::future::pending()) };
    let span = seconds.float().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let Some(span) = span else { return fault("ArgumentError", "sleep takes seconds, 0 or more") };
    Box::pin(async move {
        let begun = tokio::time::Instant::now();
        tokio::time::sleep(span).await;
        let mut tape = Tape::new();
        tape.int(begun.elapsed().as_secs() as i64);
        tape
    })
}

/// `pass`: those who can go on do so first.
fn pass(runtime: &Rc<Runtime>) -> Waiting {
    let state = runtime.state.clone();
    Box::pin(async move {
        state.passing.wait().await;
        let mut tape = Tape::new();
        tape.nil();
        tape
    })
}

fn park(runtime: &Rc<Runtime>, args: &[Value<'_>]) -> Waiting {
    let Some(ticket) = args.first().and_then(Value::int) else {
        return fault("ArgumentError", "park takes a ticket");
    };
    let state = runtime.state.clone();
    Box::pin(async move {
        state.park.wait(ticket).await;
        let mut tape = Tape::new();
        tape.nil();
        tape
    })
}
