//! The result of a wait: [`OperationFuture`].

use mruby::Tape;
use std::future::Future;
use std::pin::Pin;

/// The future of the value that a wait returns to Ruby.
pub(crate) type OperationFuture = Pin<Box<dyn Future<Output = Tape>>>;

/// Returns a wait that ends at once.
pub(crate) fn ready(write: impl FnOnce(&mut Tape)) -> OperationFuture {
    Box::pin(std::future::ready(tape(write)))
}

/// Returns a wait that raises an exception at once.
pub(crate) fn fault(class: &str, message: impl AsRef<[u8]>) -> OperationFuture {
    ready(|tape| tape.fault(class, message).done())
}

/// Returns a tape that `write` fills.
pub(crate) fn tape(write: impl FnOnce(&mut Tape)) -> Tape {
    let mut tape = Tape::new();
    write(&mut tape);
    tape
}
