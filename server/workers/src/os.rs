//! The system calls of the pool: socket pairs, descriptors in messages, the state of processes. Makes no decisions.

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::collections::VecDeque;
use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
pub(crate) use sys::socket::pair;
use sys::socket::{ARRIVES_CLOSED_ON_EXEC, NO_SIGNAL};

/// The largest number of descriptors in one message: the links of one worker (the kernel's limit is 253).
pub(crate) const MOST_FDS: usize = 64;

/// Flags for calls that never wait.
const SEND: SendFlags = NO_SIGNAL.union(SendFlags::DONTWAIT);
const RECEIVE: RecvFlags = ARRIVES_CLOSED_ON_EXEC.union(RecvFlags::DONTWAIT);

/// Sends two byte strings, one after the other, and passes descriptors with the first byte. Never blocks;
/// returns the number of bytes sent.
pub(crate) fn send(socket: impl AsFd, bytes: [&[u8]; 2], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for one message"));
    }
    let bytes = bytes.map(IoSlice::new);
    loop {
        match sendmsg(&socket, &bytes, &mut ancillary, SEND) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other?),
        }
    }
}

/// A descriptor that arrived with a message, or the report that the system dropped it because this process
/// has too many.
pub(crate) type Passed = Result<OwnedFd, Dropped>;

/// The system dropped a descriptor, because the process has too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dropped;

/// Receives the available bytes and queues descriptors in order. `Ok(0)` is the end.
pub(crate) fn receive(socket: impl AsFd, into: &mut [u8], fds: &mut VecDeque<Passed>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(into)], &mut ancillary, RECEIVE) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other?,
        }
    };
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(arrived) = message {
            fds.extend(arrived.map(sys::socket::close_on_exec).map(Ok));
        }
    }
    // A read ends after bytes that carry a descriptor, and workers send one at a time.
    if received.flags.contains(ReturnFlags::CTRUNC) {
        fds.push_back(Err(Dropped));
    }
    Ok(received.bytes)
}

/// Returns whether the other end of a Unix socket is closed, or closed for reading.
pub(crate) fn takes_no_more(socket: impl AsFd) -> bool {
    rustix::net::send(socket, &[], SEND) == Err(rustix::io::Errno::PIPE)
}

/// Returns whether a process is stopped by a signal (SIGSTOP, SIGTSTP).
pub(crate) fn is_stopped(pid: u32) -> bool {
    sys::process::state(pid) == Some(b'T')
}

/// Returns whether a process has exited and has not been reaped, or does not exist.
pub(crate) fn is_dead(pid: u32) -> bool {
    matches!(sys::process::state(pid), None | Some(b'Z'))
}

/// Returns the time of the monotonic clock in microseconds. Workers use the same clock for the scoreboard.
pub(crate) fn monotonic_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;

    #[test]
    fn descriptors_travel_with_bytes() {
        let (a, b) = pair().unwrap();
        let file = sys::file::unnamed(&std::env::temp_dir()).unwrap();
        io::Write::write_all(&mut &*file, b"inside").unwrap();
        assert_eq!(send(&a, [b"wi", b"th"], &[file.as_fd()]).unwrap(), 4);
        let (mut bytes, mut fds) = ([0; 16], VecDeque::new());
        assert_eq!(receive(&b, &mut bytes, &mut fds).unwrap(), 4);
        let mut passed = File::from(fds.pop_front().unwrap().unwrap());
        io::Seek::rewind(&mut passed).unwrap();
        let mut text = String::new();
        passed.read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
        drop(a);
        assert_eq!(receive(&b, &mut bytes, &mut fds).unwrap(), 0);
    }

    #[test]
    fn a_closed_end_takes_no_more() {
        let (ours, theirs) = pair().unwrap();
        assert!(!takes_no_more(&ours));
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(!takes_no_more(&ours), "it still reads");
        drop(theirs);
        assert!(takes_no_more(&ours));
    }

    #[test]
    fn this_process_is_not_stopped() {
        assert!(!is_stopped(std::process::id()) && !is_stopped(0));
    }

    #[test]
    fn a_stopped_process_is_seen() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
        let seen = (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            is_stopped(child.id())
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen);
    }
}
