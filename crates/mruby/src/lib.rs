//! Ruby inside the server: mruby, made safe to use from one thread of the event loop.
//!
//! Why: a handler in straight-line Ruby that waits (for time, Redis, another server) must suspend only itself. Every
//! wait hands a note to Rust and yields the fiber; Rust does what the note says and resumes it with the answer.
//!
//! No `mrb_value` exists in Rust: what crosses is a [`Tape`].

mod tape;
mod vm;

pub use tape::{Reader, Tape, Value};
pub use vm::{Exception, Host, Interned, Interrupt, Limits, STOPPED, Step, Text, Vm};
