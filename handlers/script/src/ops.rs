//! Operations that Ruby can request from the server: calls, which return at once, and waits, which suspend their task.
//!
//! Each area of the crate (`stdlib`, `redis`, …) is an [`Area`]: a table of calls, a table of waits, and the
//! Ruby on top of them. [`Ops`] joins them. In Ruby a call is the number `Rt::<NAME>` and a wait is
//! `Rt::WAIT_<NAME>`.
//!
//! Calls and waits take values and return a tape; neither touches the VM. This module depends on no area.

use crate::context::TaskContext;
use crate::waiting::{OperationFuture, fault};
use mruby::{Tape, TapeValue};
use std::fmt::Write;
use std::rc::Rc;

/// A call with the state of its area.
pub(crate) type Call<S> = fn(&S, &[TapeValue<'_>], &mut Tape);

/// A wait with the state of its area, for a task.
pub(crate) type Wait<S> = fn(&Rc<S>, &TaskContext, &[TapeValue<'_>]) -> OperationFuture;

pub(crate) struct Area<S: 'static> {
    pub(crate) calls: &'static [(&'static str, Call<S>)],
    pub(crate) waits: &'static [(&'static str, Wait<S>)],
    /// Ruby files that use the operations: name and code, in the order of evaluation.
    pub(crate) preludes: &'static [(&'static str, &'static str)],
}

type AnyCall = Box<dyn Fn(&[TapeValue<'_>], &mut Tape)>;
type AnyWait = Box<dyn Fn(&TaskContext, &[TapeValue<'_>]) -> OperationFuture>;

/// All calls, by number.
#[derive(Default)]
pub(crate) struct Calls(Vec<AnyCall>);

impl Calls {
    pub(crate) fn run(&self, number: u32, args: &[TapeValue<'_>], tape: &mut Tape) {
        match self.0.get(number as usize) {
            Some(call) => call(args, tape),
            None => drop(tape.fault("NotImplementedError", format!("there is no call number {number}"))),
        }
    }
}

/// All waits, by number.
#[derive(Default)]
pub(crate) struct Waits(Vec<AnyWait>);

impl Waits {
    /// Begins the wait that a task has yielded: `[number, arguments …]`.
    pub(crate) fn begin(&self, task: &TaskContext, wait: &TapeValue<'_>) -> OperationFuture {
        let Some([TapeValue::Int(number), args @ ..]) = wait.array() else {
            return fault("ArgumentError", "a wait starts with its number");
        };
        match usize::try_from(*number).ok().and_then(|number| self.0.get(number)) {
            Some(wait) => wait(task, args),
            None => fault("NotImplementedError", format!("there is no wait number {number}")),
        }
    }
}

#[derive(Default)]
pub(crate) struct Ops {
    pub(crate) calls: Calls,
    pub(crate) waits: Waits,
    /// Name and code of the preludes, in order.
    pub(crate) preludes: Vec<(&'static str, &'static str)>,
    names: String,
}

impl Ops {
    /// Adds an area whose operations use `state`.
    pub(crate) fn add<S: 'static>(&mut self, area: &Area<S>, state: &Rc<S>) {
        for (name, call) in area.calls {
            // Writing to a String cannot fail.
            let _ = writeln!(self.names, "{name} = {}", self.calls.0.len());
            let (call, state) = (*call, state.clone());
            self.calls.0.push(Box::new(move |args, tape| call(&state, args, tape)));
        }
        for (name, wait) in area.waits {
            let _ = writeln!(self.names, "WAIT_{name} = {}", self.waits.0.len());
            let (wait, state) = (*wait, state.clone());
            self.waits.0.push(Box::new(move |task, args| wait(&state, task, args)));
        }
        self.preludes.extend(area.preludes);
    }

    /// Returns the Ruby code that defines the constants of all calls and waits.
    pub(crate) fn constants(&self) -> String {
        format!("module Rt\n{}end\n", self.names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiting::ready;

    const AREA: Area<i64> = Area {
        calls: &[
            ("ADD", |state, args, tape| tape.int(state + args[0].int().unwrap_or_default()).done()),
            ("STATE", |state, _, tape| tape.int(*state).done()),
        ],
        waits: &[("STATE", |state, _, _| {
            let state = **state;
            ready(|tape| tape.int(state).done())
        })],
        preludes: &[("area.rb", "nil")],
    };

    fn call(ops: &Ops, number: u32, args: &[TapeValue<'_>]) -> Tape {
        let mut tape = Tape::new();
        ops.calls.run(number, args, &mut tape);
        tape
    }

    fn wait(ops: &Ops, wait: &TapeValue<'_>) -> Tape {
        let mut waiting = ops.waits.begin(&TaskContext::default(), wait);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match waiting.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(tape) => tape,
            std::task::Poll::Pending => panic!("it is ready"),
        }
    }

    #[test]
    fn numbers_are_unique_across_areas_and_name_their_operation() {
        let mut ops = Ops::default();
        ops.add(&AREA, &Rc::new(1));
        ops.add(&AREA, &Rc::new(5));
        let names = "ADD = 0\nSTATE = 1\nWAIT_STATE = 0\nADD = 2\nSTATE = 3\nWAIT_STATE = 1\n";
        assert_eq!(ops.constants(), format!("module Rt\n{names}end\n"));
        assert_eq!(TapeValue::read(call(&ops, 2, &[TapeValue::Int(2)]).as_bytes()), Some(TapeValue::Int(7)));
        assert_eq!(
            TapeValue::read(wait(&ops, &TapeValue::Array(vec![TapeValue::Int(1)])).as_bytes()),
            Some(TapeValue::Int(5))
        );
        assert_eq!(ops.preludes.len(), 2);
    }

    #[test]
    fn unknown_operations_raise() {
        let ops = Ops::default();
        let raises = |tape: Tape| tape.as_bytes().first() == Some(&b'!');
        assert!(raises(call(&ops, 0, &[])));
        for wrong in [
            TapeValue::Nil,
            TapeValue::Array(vec![TapeValue::Sym(b"sleep")]),
            TapeValue::Array(vec![TapeValue::Int(-1)]),
        ] {
            assert!(raises(wait(&ops, &wrong)));
        }
    }
}
