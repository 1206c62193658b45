//! What responses and uploads make the server hold on behalf of clients: descriptors, memory, room on the disk.
//!
//! Why: a client that does not read costs the server what waits for it. Each response has a ceiling; a client may ask for many responses on
//! one connection, and have many connections. A server without descriptors answers no client at all.
//!
//! Contract:
//! 1. What a response holds is counted by a [`Hold`] for as long as it is held: for its connection ([`Account`]), for its thread, and for the
//!    process ([`total`]).
//! 2. A connection whose responses hold their share does not begin another one: its requests wait for a [`Turn`]. The share is at most a
//!    sixteenth of the thread's descriptors and [`CONNECTION_MEMORY`], and not more than what is still free in the thread, so that many
//!    connections leave room for others; a little it always has.
//! 3. When a thread has no room at all, responses are displaced ([`Holding::is_displaced`]): those that have paused before those that move; of
//!    the connections that take least for what they hold, the response that has stalled longest. The newest eighth stays: it has not shown
//!    whether its clients take it. For memory this is done only to those that hardly move.
//! 4. An upload in a file has a place of its own ([`Upload`]). A connection may have as many as are still free in the thread.
//! 5. Nothing is counted, and nothing is allocated, for a response that holds nothing.
//! 6. Everything here belongs to one thread, but the totals of the process. The thread's ceilings come from the limit of descriptors and
//!    from [`share`].

mod account;
mod file;
mod holding;
mod ledger;
mod pace;
mod upload;

pub use account::{Account, Turn, Waiting};
pub use file::OpenFile;
pub use holding::{Hold, Holding};
pub use ledger::{CONNECTION_MEMORY, memory_is_short, relieve, share, total};
pub use upload::Upload;

use std::ops::{Add, Sub};

/// How much is held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Amount {
    /// Open files.
    pub descriptors: u32,
    /// Bytes in memory, those of files in memory included.
    pub memory: u64,
    /// Bytes in files that exist for this response only.
    pub disk: u64,
}

impl Amount {
    /// An open file that exists anyway.
    pub const FILE: Amount = Amount { descriptors: 1, memory: 0, disk: 0 };

    /// Bytes in memory.
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
