//! A thread's connections to origins, and those of them that wait for their next request.
//!
//! Contract:
//! 1. The one that was used last is used first, so that the others grow old and go.
//! 2. More than `max_idle` are kept for [`SURPLUS`] only. Closing them at once would mean to connect anew all the time when
//!    more requests than that are under way: measured with 64 clients and 32 kept, two thirds more CPU for each request.
//! 3. One that has anything to say while nobody has asked it is never used again.

use crate::stream::Stream;
use http::Timer;
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// How long a connection waits for its next request: less than common servers keep it.
const IDLE: Duration = Duration::from_secs(15);

/// How long one waits that is one too many.
const SURPLUS: Duration = Duration::from_secs(1);

/// A connection to an origin.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    pub(crate) timer: Timer,
    /// How long it may be idle.
    pub(crate) patience: Duration,
}

impl Connection {
    pub(crate) fn new(stream: Stream, timer: Timer) -> Connection {
        Connection { stream, timer, patience: IDLE }
    }

    /// The upstream says that it keeps idle connections for so many seconds.
    pub(crate) fn limit_idle(&mut self, seconds: Option<u64>) {
        if let Some(seconds) = seconds {
            self.patience = Duration::from_secs(seconds.saturating_sub(1)).min(IDLE);
        }
    }
}

struct Idle {
    connection: Connection,
    since: Instant,
    until: Instant,
}

/// Idle connections by origin.
pub(crate) struct Pool {
    idle: Vec<RefCell<Vec<Idle>>>,
    max: usize,
}

impl Pool {
    pub(crate) fn new(origins: usize, max: usize) -> Pool {
        Pool { idle: (0..origins).map(|_| RefCell::default()).collect(), max }
    }

    /// A connection that has been used before.
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
        if self.max > 0 && !connection.patience.is_zero() {
            idle.push(Idle { since: now, until: now + connection.patience, connection });
        }
    }

    /// Closes what has waited for too long or has ended; whether any is left.
    pub(crate) fn reap(&self, now: Instant) -> bool {
        let mut left = false;
        for idle in &self.idle {
            let mut idle = idle.borrow_mut();
            idle.retain(|one| one.until > now && one.connection.stream.is_quiet());
            let many = idle.len().saturating_sub(self.max);
            let surplus = idle.iter().take(many).take_while(|one| now >= one.since + SURPLUS).count();
            idle.drain(..surplus);
            if idle.is_empty() {
                // Memory goes with the last of a burst.
                *idle = Vec::new();
            }
            left |= !idle.is_empty();
        }
        left
    }
}
