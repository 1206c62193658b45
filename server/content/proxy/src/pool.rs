//! Keeps a thread's idle connections to origins for the next request.
//!
//! Contract:
//! 1. The most recently used connection is used first, so that the others can expire.
//! 2. Connections beyond `max_idle` are kept for [`SURPLUS`] only. Closing them at once would cause constant
//!    reconnects when more requests than that are in progress: measured with 64 clients and 32 kept, two
//!    thirds more CPU per request.
//! 3. A connection that received anything without a request is never used again.

use net::descriptors::CountedDescriptor;
use net::{Stream, Timer};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// How long an idle connection is kept: shorter than common servers keep it.
const IDLE: Duration = Duration::from_secs(15);

/// How long a surplus connection is kept.
const SURPLUS: Duration = Duration::from_secs(1);

pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) timer: Timer,
    /// How long the connection may be idle.
    pub(crate) idle_timeout: Duration,
    /// Counts the descriptor against those that clients leave free.
    pub(crate) descriptor: CountedDescriptor,
}

impl Connection {
    pub(crate) fn new(stream: Stream, timer: Timer) -> Connection {
        Connection { stream, timer, idle_timeout: IDLE, descriptor: CountedDescriptor::begin() }
    }

    /// Applies the origin's `Keep-Alive: timeout`, in seconds.
    pub(crate) fn limit_idle(&mut self, seconds: Option<u64>) {
        if let Some(seconds) = seconds {
            self.idle_timeout = Duration::from_secs(seconds.saturating_sub(1)).min(IDLE);
        }
    }
}

struct Idle {
    connection: Connection,
    since: Instant,
    until: Instant,
}

pub(crate) struct Pool {
    idle: Vec<RefCell<Vec<Idle>>>,
    max: usize,
}

impl Pool {
    pub(crate) fn new(origins: usize, max: usize) -> Pool {
        Pool { idle: (0..origins).map(|_| RefCell::default()).collect(), max }
    }

    /// Returns a kept connection, if there is a usable one.
    pub(crate) fn take(&self, origin: usize, now: Instant) -> Option<Connection> {
        let mut idle = self.idle[origin].borrow_mut();
        while let Some(one) = idle.pop() {
            if one.until > now && one.connection.stream.is_quiet() {
                return Some(one.connection);
            }
        }
        None
    }

    /// Keeps a connection for the next request.
    pub(crate) fn put(&self, origin: usize, connection: Connection, now: Instant) {
        let mut idle = self.idle[origin].borrow_mut();
        if self.max > 0 && !connection.idle_timeout.is_zero() {
            idle.push(Idle { since: now, until: now + connection.idle_timeout, connection });
        }
    }

    /// Closes connections that have expired or ended. Returns whether any is left.
    pub(crate) fn reap(&self, now: Instant) -> bool {
        let mut left = false;
        for idle in &self.idle {
            let mut idle = idle.borrow_mut();
            idle.retain(|one| one.until > now && one.connection.stream.is_quiet());
            let many = idle.len().saturating_sub(self.max);
            let surplus = idle.iter().take(many).take_while(|one| now >= one.since + SURPLUS).count();
            idle.drain(..surplus);
            if idle.is_empty() {
                // Free the memory after a burst.
                *idle = Vec::new();
            }
            left |= !idle.is_empty();
        }
        left
    }
}
