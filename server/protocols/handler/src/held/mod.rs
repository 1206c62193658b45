//! Limits the resources that responses and uploads make the server hold for clients: descriptors, memory,
//! disk space.
//!
//! Why: a client that does not read makes the server keep the waiting bytes. Each response has a limit, but a
//! client may request many responses on one connection and open many connections. A server without
//! descriptors cannot answer any client.
//!
//! Contract:
//! 1. A [`Hold`] counts a resource of a response as long as it is held: for the connection ([`Account`]), for
//!    the thread, and for the process ([`total`]).
//! 2. A connection whose responses hold their share begins no further response: its requests wait for a
//!    [`ResponseTurn`]. The share is at most a sixteenth of the thread's descriptors and [`CONNECTION_MEMORY`], and
//!    at most the part that is still free in the thread, so that many connections leave room for others. A
//!    small amount is always allowed.
//! 3. The bytes count for the memory of the whole process (`net::memory`) too. When that becomes scarce, a
//!    thread has no room left.
//! 4. When a thread has no room left, responses are displaced ([`Holding::is_displaced`]): paused responses
//!    before moving ones; then those of connections with the lowest rate for the amount they hold, and of
//!    those the response that has stalled longest. The newest eighth stays, because it has not shown whether
//!    its clients take it. For memory, only responses that hardly move are displaced.
//! 5. An upload in a file is counted separately ([`Upload`]). A connection may have as many as are still free
//!    in the thread.
//! 6. A response that holds nothing is not counted and causes no allocation.
//! 7. Everything here belongs to one thread, except the totals of the process. The thread's limits come from
//!    the descriptor limit and from [`share`].

mod account;
mod file;
mod holding;
mod ledger;
mod pace;
mod upload;

pub use account::{Account, ResponseTurn, TurnFuture};
pub use file::{OpenFile, SharedFile};
pub use holding::{Hold, Holding, relieve, relieve_memory};
pub use ledger::{CONNECTION_MEMORY, memory_is_short, share, total};
pub use upload::Upload;

use std::ops::{Add, Sub};

/// An amount of resources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Open files.
    pub descriptors: u32,
    /// Bytes in memory, including those of files in memory.
    pub memory: u64,
    /// Bytes in files that exist only for this response.
    pub disk: u64,
}

impl Amount {
    /// An open file that exists anyway.
    pub const FILE: Amount = Amount { descriptors: 1, memory: 0, disk: 0 };

    pub fn of_memory(bytes: u64) -> Amount {
        Amount { memory: bytes, ..Amount::default() }
    }
}

impl Add for Amount {
    type Output = Amount;

    fn add(self, other: Amount) -> Amount {
        Amount {
            descriptors: self.descriptors + other.descriptors,
            memory: self.memory + other.memory,
            disk: self.disk + other.disk,
        }
    }
}

impl Sub for Amount {
    type Output = Amount;

    fn sub(self, other: Amount) -> Amount {
        Amount {
            descriptors: self.descriptors.saturating_sub(other.descriptors),
            memory: self.memory.saturating_sub(other.memory),
            disk: self.disk.saturating_sub(other.disk),
        }
    }
}
