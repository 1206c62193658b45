//! Whether the descriptors of the process are about to run out.
//!
//! Why: a server without a free descriptor cannot fork a worker, open a file, or take what a worker passes to it. Clients can open
//! connections, and connections that the app takes over, without end; so both leave some descriptors free.
//!
//! Contract:
//! 1. What there may be many of is counted ([`Held`]). What was open before the first client is known from the number of its socket: a
//!    new descriptor has the lowest one that is free (POSIX, "File Descriptor Allocation").
//! 2. What is not counted (origins, event loops) takes from what is left free. A number near the limit tells that, too.
//! 3. Files of responses and of uploads are counted as well. They have a share of their own ([`for_responses`], [`for_uploads`]), so that
//!    they leave room for connections.

use rustix::process::{Resource, getrlimit};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most descriptors that clients leave free.
const MOST_KEPT: u64 = 1_024;

/// Sockets of clients, and of what the app does with them; files of responses and uploads.
static HELD: AtomicU64 = AtomicU64::new(0);

/// Counts a descriptor until it is dropped.
#[derive(Debug)]
pub struct Held(());

impl Held {
    /// Counts one more.
    pub fn begin() -> Held {
        HELD.fetch_add(1, Ordering::Relaxed);
        Held(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether there are descriptors for a new connection, whose socket `descriptor` is.
pub fn admit_connection(descriptor: &impl AsRawFd) -> bool {
    let (open, limits) = open(descriptor);
    open < limits.connections
}

/// Whether there are descriptors for a socket that an open connection needs besides its own, which `descriptor` is. It may have half of what
/// connections leave free.
pub fn admit_stream(descriptor: &impl AsRawFd) -> bool {
    let (open, limits) = open(descriptor);
    open < limits.streams
}

/// Whether no more files should be opened for responses: what is left is for what is not counted.
pub fn are_short() -> bool {
    // Without a client nothing is known, and nothing is short.
    LIMITS.get().is_some_and(|limits| limits.before + HELD.load(Ordering::Relaxed) >= limits.streams)
}

/// How many files the responses of the process may hold: a quarter of all descriptors.
pub fn for_responses() -> u64 {
    process() / 4
}

/// How many files the uploads of the process may hold: an eighth of all descriptors.
pub fn for_uploads() -> u64 {
    process() / 8
}

/// How many descriptors are open at least when `newest` is.
fn open(newest: &impl AsRawFd) -> (u64, &'static Limits) {
    let number = u64::try_from(newest.as_raw_fd()).unwrap_or(0);
    let limits = limits(number);
    (number.max(limits.before + HELD.load(Ordering::Relaxed)), limits)
}

/// Why a client is refused when no descriptor is left for it.
pub fn shortage() -> String {
    format!("the server is out of descriptors; it may have {} (ulimit -n)", limits(0).process)
}

/// Descriptors that the process may have, how many it had before its first client, and how many of them may be in use when a connection
/// or a stream begins.
#[derive(Debug, PartialEq, Eq)]
struct Limits {
    process: u64,
    before: u64,
    connections: u64,
    streams: u64,
}

impl Limits {
    fn new(process: u64, before: u64) -> Limits {
        let kept = (process / 8).min(MOST_KEPT);
        Limits { process, before, connections: process - kept, streams: process - kept / 2 }
    }
}

/// See [`limits`].
static LIMITS: OnceLock<Limits> = OnceLock::new();

/// The limits in force at the first call, which comes with the first client: the server raises its own limit when it starts.
fn limits(first: u64) -> &'static Limits {
    LIMITS.get_or_init(|| Limits::new(process(), first))
}

/// How many descriptors the process may have.
fn process() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_an_eighth_and_no_more_than_is_needed() {
        assert_eq!(Limits::new(256, 9), Limits { process: 256, before: 9, connections: 224, streams: 240 });
        assert_eq!(Limits::new(1_048_576, 0).connections, 1_048_576 - 1_024);
        assert_eq!(Limits::new(u64::MAX, 0).streams, u64::MAX - 512);
    }

    #[test]
    fn what_is_held_counts() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(admit_connection(&file) && admit_stream(&file));
        let limits = limits(0);
        let mut held: Vec<Held> = (limits.before..limits.connections).map(|_| Held::begin()).collect();
        assert!(!admit_connection(&file) && admit_stream(&file));
        held.extend((limits.connections..limits.streams).map(|_| Held::begin()));
        assert!(!admit_stream(&file));
        drop(held);
        assert!(admit_connection(&file));
    }
}
