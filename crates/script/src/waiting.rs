//! The result of a wait: [`Waiting`].

use mruby::Tape;
use std::future::Future;
use std::pin::Pin;

/// The future of the value that a wait returns to Ruby.
pub(crate) type Waiting = Pin<Box<dyn Future<Output = Tape>>>;

/// A wait that ends at once.
pub(crate) fn ready(write: impl FnOnce(&mut Tape)) -> Waiting {
    Box::pin(std::future::ready(tape(write)))
}

/// A wait that raises an exception at once.
pub(crate) fn fault(class: &str, message: impl AsRef<[u8]>) -> Waiting {
    ready(|tape| tape.fault(class, message).done())
}

/// A tape with what `write` writes.
pub(crate) fn tape(write: impl FnOnce(&mut Tape)) -> Tape {
    let mut tape = Tape::new();
    write(&mut tape);
    tape
}
