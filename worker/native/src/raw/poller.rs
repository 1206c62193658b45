//! Waits for many descriptors at once, with or without the GVL.
//!
//! Linux only, as are fibers: other systems have no poller, and start no threads that serve with fibers.

use std::io;
use std::os::fd::RawFd;

/// Events of poll(2), which are those of Ruby's `IO::READABLE`, `PRIORITY` and `WRITABLE`.
pub(crate) const READABLE: u32 = libc::POLLIN as u32;
pub(crate) const PRIORITY: u32 = libc::POLLPRI as u32;
pub(crate) const WRITABLE: u32 = libc::POLLOUT as u32;

/// The state of a descriptor: events, or an error that its user gets when using it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) fd: RawFd,
    /// After an error or a hang-up, all events are set.
    pub(crate) events: u32,
}

#[cfg(target_os = "linux")]
mod system {
    use super::{Event, PRIORITY, READABLE, WRITABLE};
    use std::io;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

    /// The number of events taken at a time.
    const BATCH: usize = 256;

    /// The descriptors with waiters. Each reports once, and must then be armed again.
    pub(crate) struct Poller {
        epoll: OwnedFd,
        events: Vec<libc::epoll_event>,
    }

    impl Poller {
        /// # Errors
        /// As epoll_create1(2).
        pub(crate) fn new() -> io::Result<Poller> {
            // SAFETY: no pointers; the descriptor is new and ours.
            let epoll = unsafe {
                let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
                if fd < 0 {
                    return Err(io::Error::last_os_error());
                }
                OwnedFd::from_raw_fd(fd)
            };
            Ok(Poller { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; BATCH] })
        }

        /// Returns a descriptor that is readable when one of these is ready.
        pub(crate) fn fd(&self) -> RawFd {
            self.epoll.as_raw_fd()
        }

        /// Reports the next of `events` of `fd`, once. `known`: it has been armed before.
        ///
        /// # Errors
        /// As epoll_ctl(2): `PermissionDenied` for a file, which is always ready.
        pub(crate) fn arm(&self, fd: RawFd, events: u32, known: bool) -> io::Result<()> {
            // The bits are those of poll(2).
            let hang_up = if events & READABLE == 0 { 0 } else { libc::EPOLLRDHUP as u32 };
            let mut event =
                libc::epoll_event { events: events | libc::EPOLLONESHOT as u32 | hang_up, u64: fd as u64 };
            // A number that was closed and reused is not registered; one that its former user armed is.
            let orders = if known {
                [libc::EPOLL_CTL_MOD, libc::EPOLL_CTL_ADD]
            } else {
                [libc::EPOLL_CTL_ADD, libc::EPOLL_CTL_MOD]
            };
            for order in orders {
                // SAFETY: `event` is readable.
                if unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), order, fd, &raw mut event) } == 0 {
                    return Ok(());
                }
                let error = io::Error::last_os_error();
                if !matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EEXIST)) {
                    return Err(error);
                }
            }
            Err(io::Error::last_os_error())
        }

        /// Stops reports for `fd`.
        pub(crate) fn disarm(&self, fd: RawFd) {
            let mut event = libc::epoll_event { events: libc::EPOLLONESHOT as u32, u64: fd as u64 };
            // SAFETY: `event` is readable. A descriptor that has been closed needs no disarming.
            unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), libc::EPOLL_CTL_MOD, fd, &raw mut event) };
        }

        /// Takes reported events, without waiting. Returns true when there may be more.
        pub(crate) fn take(&mut self, into: &mut Vec<Event>) -> bool {
            // SAFETY: room for so many events.
            let count = unsafe {
                libc::epoll_wait(self.epoll.as_raw_fd(), self.events.as_mut_ptr(), BATCH as i32, 0)
            };
            let count = usize::try_from(count).unwrap_or(0);
            for event in &self.events[..count] {
                let (bits, fd) = (event.events, event.u64 as RawFd);
                let ended = bits & (libc::EPOLLERR | libc::EPOLLHUP | libc::EPOLLRDHUP) as u32 != 0;
                let all = READABLE | PRIORITY | WRITABLE;
                into.push(Event { fd, events: if ended { all } else { bits & all } });
            }
            count == BATCH
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::Event;
    use std::io;
    use std::os::fd::RawFd;

    pub(crate) enum Poller {}

    impl Poller {
        pub(crate) fn new() -> io::Result<Poller> {
            Err(io::Error::new(io::ErrorKind::Unsupported, "fibers need epoll(7), which this system has not"))
        }

        pub(crate) fn fd(&self) -> RawFd {
            match *self {}
        }

        pub(crate) fn arm(&self, _fd: RawFd, _events: u32, _known: bool) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn disarm(&self, _fd: RawFd) {
            match *self {}
        }

        pub(crate) fn take(&mut self, _into: &mut Vec<Event>) -> bool {
            match *self {}
        }
    }
}

pub(crate) use system::Poller;

/// Waits for one descriptor, as poll(2) does. Returns the events; 0 after the time-out.
pub(crate) fn wait_for(fd: RawFd, events: u32, timeout_ms: i32) -> io::Result<u32> {
    let mut entry = libc::pollfd { fd, events: events as i16, revents: 0 };
    // SAFETY: one entry, which is writable.
    match unsafe { libc::poll(&raw mut entry, 1, timeout_ms) } {
        count if count < 0 => Err(io::Error::last_os_error()),
        0 => Ok(0),
        _ => Ok(events),
    }
}
