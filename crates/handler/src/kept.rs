//! A body that is sent often, with the message that it was sent in.
//!
//! Why: the same file is asked for thousands of times a second, and all that differs from one response to the next is the
//! `Date`. The protocol side may keep what it has written for a second, and need not put it together again.

use bytes::Bytes;
use std::cell::RefCell;

/// A body in memory that always comes with the same status and the same frozen fields (see [`crate::Fields::freeze`]).
#[derive(Debug)]
pub struct Kept {
    body: Bytes,
    written: RefCell<Option<(u64, Bytes)>>,
}

impl Kept {
    /// Keeps a body.
    pub fn new(body: Bytes) -> Kept {
        Kept { body, written: RefCell::default() }
    }

    /// The body.
    pub fn body(&self) -> &Bytes {
        &self.body
    }

    /// The message that was written in that second, counted from 1970. For the protocol side.
    pub fn written(&self, second: u64) -> Option<Bytes> {
        let written = self.written.borrow();
        written.as_ref().filter(|(then, _)| *then == second).map(|(_, message)| message.clone())
    }

    /// Keeps the message that is written in that second. For the protocol side.
    pub fn keep(&self, second: u64, message: Bytes) {
        self.written.replace(Some((second, message)));
    }
}
