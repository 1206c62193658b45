//! Which connections of a thread wait for a request, and in which order they began to.
//!
//! Why: when the server is full, the connection that has been idle for the longest time makes room for a new one. That is
//! rare, and requests are frequent: becoming idle or busy is one store, finding the longest idle connection reads eight
//! bytes per connection.
//!
//! Contract:
//! 1. Connections with a request in progress, or with a part of one, are not idle. Those that have never sent a byte are.
//! 2. A connection is chosen at most once while it is idle.

use std::cell::{Cell, RefCell};

/// A request is in progress, or there is no such connection.
const BUSY: u64 = u64::MAX;
/// Chosen to be closed.
const CLOSING: u64 = u64::MAX - 1;

/// Idle connections by the key of their timer.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    /// [`BUSY`], [`CLOSING`], or a number that grows with each connection that becomes idle.
    states: RefCell<Vec<u64>>,
    next: Cell<u64>,
}

impl Idle {
    /// The connection is idle until the guard is dropped.
    pub(crate) fn enter(&self, key: usize) -> Waiting<'_> {
        self.begin(key);
        Waiting { idle: self, key }
    }

    /// The connection is idle until [`Idle::end`].
    pub(crate) fn begin(&self, key: usize) {
        let mut states = self.states.borrow_mut();
        if states.len() <= key {
            states.resize(key + 1, BUSY);
        }
        states[key] = self.next.get();
        self.next.update(|next| next + 1);
    }

    /// The connection is not idle any more.
    pub(crate) fn end(&self, key: usize) {
        if let Some(state) = self.states.borrow_mut().get_mut(key) {
            *state = BUSY;
        }
    }

    /// Whether the connection was chosen to be closed.
    pub(crate) fn is_chosen(&self, key: usize) -> bool {
        self.states.borrow().get(key) == Some(&CLOSING)
    }

    /// Chooses the connection that has been idle for the longest time; its key.
    pub(crate) fn choose(&self) -> Option<usize> {
        let mut states = self.states.borrow_mut();
        let (key, state) = states.iter_mut().enumerate().min_by_key(|(_, state)| **state)?;
        if *state >= CLOSING {
            return None;
        }
        *state = CLOSING;
        Some(key)
    }
}

/// A connection that is idle.
pub(crate) struct Waiting<'a> {
    idle: &'a Idle,
    key: usize,
}

impl Waiting<'_> {
    /// Whether it was chosen to be closed.
    pub(crate) fn is_chosen(&self) -> bool {
        self.idle.is_chosen(self.key)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.idle.end(self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_connection_is_chosen_once() {
        let idle = Idle::default();
        assert_eq!(idle.choose(), None);
        let (first, second) = (idle.enter(5), idle.enter(2));
        let third = idle.enter(7);
        drop(first);
        let first = idle.enter(5);
        assert_eq!(idle.choose(), Some(2), "5 was busy in between");
        assert!(second.is_chosen() && !first.is_chosen() && !third.is_chosen());
        assert_eq!(idle.choose(), Some(7));
        assert_eq!(idle.choose(), Some(5));
        assert_eq!(idle.choose(), None);
        drop((first, second, third));
        assert_eq!(idle.choose(), None, "all are busy");
        let _again = idle.enter(2);
        assert_eq!(idle.choose(), Some(2));
    }
}
