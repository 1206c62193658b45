//! Tells whether the process is about to run out of descriptors.
//!
//! Why: without free descriptors a server cannot fork a worker, open a file, or receive a descriptor from a
//! worker. Clients can open any number of connections, and so can the app by hijacking them; both must leave
//! some descriptors free.
//!
//! Contract:
//! 1. Descriptors that can be numerous are counted ([`CountedDescriptor`]). The number of descriptors before
//!    the first client follows from the number of its socket, because a new descriptor is the lowest free one
//!    (POSIX, "File Descriptor Allocation").
//! 2. Uncounted descriptors (origins, event loops) use the reserve. A descriptor number near the limit
//!    reveals them as well.
//! 3. Files of responses and uploads are counted as well. They have their own limits ([`for_responses`],
//!    [`for_uploads`]), so that they leave room for connections.

use rustix::process::{Resource, getrlimit};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest reserve.
const MOST_KEPT: u64 = 1_024;

/// Client sockets, sockets that the app uses with them, and files of responses and uploads.
static HELD: AtomicU64 = AtomicU64::new(0);

/// Counts a descriptor until dropped.
#[derive(Debug)]
pub struct CountedDescriptor(());

impl CountedDescriptor {
    pub fn begin() -> CountedDescriptor {
        HELD.fetch_add(1, Ordering::Relaxed);
        CountedDescriptor(())
    }
}

impl Drop for CountedDescriptor {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether there are enough descriptors for a new connection with the socket `descriptor`.
pub fn admit_connection(descriptor: &impl AsRawFd) -> bool {
    let (open, limits) = open(descriptor);
    open < limits.connections
}

/// Whether there are enough descriptors for an additional socket, `descriptor`, of an open connection. Such
/// sockets may use half of the reserve.
pub fn admit_stream(descriptor: &impl AsRawFd) -> bool {
    let (open, limits) = open(descriptor);
    open < limits.streams
}

/// Whether responses should open no more files, because the rest is for uncounted descriptors.
pub fn are_short() -> bool {
    // Before the first client, the limits are unknown and there is no shortage.
    LIMITS.get().is_some_and(|limits| limits.before + held() >= limits.streams)
}

/// Returns the limit of open files of responses: a quarter of all descriptors.
pub fn for_responses() -> u64 {
    process() / 4
}

/// Returns the limit of open files of uploads: an eighth of all descriptors.
pub fn for_uploads() -> u64 {
    process() / 8
}

/// Returns how many of `process` descriptors the front's own files and client connections can use, before the reserve begins.
pub fn usable(process: u64) -> u64 {
    Limits::new(process, 0).connections
}

/// Returns the minimum number of open descriptors, given the newest one.
fn open(newest: &impl AsRawFd) -> (u64, &'static Limits) {
    let number = u64::try_from(newest.as_raw_fd()).unwrap_or(0);
    let limits = limits(number);
    (number.max(limits.before + held()), limits)
}

fn held() -> u64 {
    HELD.load(Ordering::Relaxed) + sys::file::closing()
}

/// Explains why a client is refused without a free descriptor.
pub fn shortage() -> String {
    format!("the server is out of descriptors; it may have {} (ulimit -n)", limits(0).process)
}

/// The descriptors that the process may have, those that it had before its first client, and the numbers in
/// use up to which a connection or a stream can begin.
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

/// Returns the limits. They are read at the first call, with the first client, because the server raises its
/// own limit at the start.
fn limits(first: u64) -> &'static Limits {
    LIMITS.get_or_init(|| Limits::new(process(), first))
}

/// Returns the number of descriptors that the process may have.
fn process() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_an_eighth_and_no_more_than_is_needed() {
        assert_eq!(Limits::new(256, 9), Limits { process: 256, before: 9, connections: 224, streams: 240 });
        assert_eq!(usable(1_048_576), 1_048_576 - 1_024);
        assert_eq!(Limits::new(u64::MAX, 0).streams, u64::MAX - 512);
    }

    #[test]
    fn what_is_held_counts() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(admit_connection(&file) && admit_stream(&file));
        let limits = limits(0);
        let mut held: Vec<CountedDescriptor> =
            (limits.before..limits.connections).map(|_| CountedDescriptor::begin()).collect();
        assert!(!admit_connection(&file) && admit_stream(&file));
        held.extend((limits.connections..limits.streams).map(|_| CountedDescriptor::begin()));
        assert!(!admit_stream(&file));
        drop(held);
        assert!(admit_connection(&file));
    }
}
