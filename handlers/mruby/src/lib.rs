//! mruby with a safe interface, for one thread of an event loop.
//!
//! Why: a handler in straight-line Ruby that waits (for time, Redis or another server) must suspend only
//! itself. Every wait passes its arguments to Rust and yields the fiber. Rust does the work and resumes the
//! fiber with the result.
//!
//! No `mrb_value` exists in Rust; values cross as a [`Tape`].

mod tape;
mod vm;

pub use tape::{Reader, Tape, TapeValue};
pub use vm::{Exception, Host, Interned, Interrupt, STOPPED, StepResult, Text, Vm, VmLimits};
