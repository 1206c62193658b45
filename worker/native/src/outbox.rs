//! Unsent frames of one link.
//!
//! Contract:
//! 1. Serving threads append and send with the GVL; the watchdog sends without it. The lock is held for an append or for one
//!    sendmsg(2) that does not wait, never while Ruby runs.
//! 2. Frames are sent in the order in which they were appended, a descriptor with the first byte of its frame.
//! 3. The last frame can still be changed, as long as none of it has been sent ([`FramePosition`]).

use crate::raw::os;
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Larger buffers are not kept, in bytes.
const KEEP: usize = 256 << 10;

#[derive(PartialEq, Eq)]
pub(crate) enum Sent {
    All,
    /// The socket is full.
    Part,
}

pub(crate) struct Outbox {
    fd: RawFd,
    /// The number of unsent bytes. Changed under the lock.
    unsent: AtomicUsize,
    /// When the oldest of them were appended, in microseconds. Changed under the lock.
    oldest_us: AtomicU64,
    frames: Mutex<Frames>,
    /// The routes whose names have been appended, one bit each.
    routes: [AtomicU64; ROUTE_WORDS],
}

/// Words of 64 bits for the numbers of all routes.
const ROUTE_WORDS: usize = wire::route::MOST as usize / 64 + 1;

struct Frames {
    bytes: Vec<u8>,
    sent: usize,
    fds: VecDeque<(usize, RawFd)>,
    /// How often everything has been sent. Positions of earlier rounds are invalid.
    round: u64,
}

/// The position of the last frame, which has no descriptor and is unsent.
#[derive(Clone, Copy)]
pub(crate) struct FramePosition {
    round: u64,
    start: usize,
    end: usize,
}

/// A guard that removes an appended frame unless it is complete: half a frame would break the link.
struct Whole<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
    done: bool,
}

impl Drop for Whole<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.bytes.truncate(self.start);
        }
    }
}

impl Outbox {
    pub(crate) fn new(fd: RawFd) -> Outbox {
        let frames = Frames { bytes: Vec::new(), sent: 0, fds: VecDeque::new(), round: 0 };
        let routes = [const { AtomicU64::new(0) }; ROUTE_WORDS];
        Outbox {
            fd,
            unsent: AtomicUsize::new(0),
            oldest_us: AtomicU64::new(0),
            frames: Mutex::new(frames),
            routes,
        }
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Frames> {
        // A panic leaves only whole frames: see `append_frame`.
        self.frames.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the name of a route is still to be appended, before the first frame with its number. The caller must append it.
    #[inline]
    pub(crate) fn is_new(&self, route: u16) -> bool {
        let (word, bit) = (usize::from(route) / 64, 1 << (route % 64));
        // Only threads with the GVL append.
        let known = self.routes[word].load(Relaxed);
        self.routes[word].store(known | bit, Relaxed);
        known & bit == 0
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    /// Lets `f` append whole frames. The outbox takes `fd` over and sends it with the first frame.
    #[inline]
    pub(crate) fn append(&self, now_us: u64, fd: Option<RawFd>, f: impl FnOnce(&mut Vec<u8>)) {
        self.append_frame(now_us, fd, f);
    }

    /// Lets `f` append one frame that can be changed until it is sent.
    #[inline]
    pub(crate) fn append_open(&self, now_us: u64, f: impl FnOnce(&mut Vec<u8>)) -> FramePosition {
        self.append_frame(now_us, None, f)
    }

    /// The position is made under the same lock as the append, because the watchdog may send at any time.
    #[inline]
    fn append_frame(&self, now_us: u64, fd: Option<RawFd>, f: impl FnOnce(&mut Vec<u8>)) -> FramePosition {
        let mut frames = self.lock();
        let start = frames.bytes.len();
        if start == 0 {
            self.oldest_us.store(now_us, Relaxed);
        }
        let mut whole = Whole { bytes: &mut frames.bytes, start, done: false };
        f(whole.bytes);
        whole.done = true;
        drop(whole);
        if let Some(fd) = fd {
            frames.fds.push_back((start, fd));
        }
        self.unsent.store(frames.bytes.len() - frames.sent, Relaxed);
        FramePosition { round: frames.round, start, end: frames.bytes.len() }
    }

    /// Lets `f` change the frame at that position; `f` gets the outbox's bytes and where the frame starts. Returns the new position; `None` when some of the frame
    /// has been sent, or another frame follows it.
    #[inline]
    pub(crate) fn amend(
        &self,
        position: FramePosition,
        f: impl FnOnce(&mut Vec<u8>, usize),
    ) -> Option<FramePosition> {
        let mut frames = self.lock();
        if frames.round != position.round
            || frames.sent > position.start
            || frames.bytes.len() != position.end
        {
            return None;
        }
        f(&mut frames.bytes, position.start);
        self.unsent.store(frames.bytes.len() - frames.sent, Relaxed);
        Some(FramePosition { end: frames.bytes.len(), ..position })
    }

    /// Drops unsent frames, and the buffer.
    pub(crate) fn clear(&self) {
        let mut frames = self.lock();
        frames.fds.drain(..).for_each(|(_, fd)| os::close(fd));
        (frames.bytes, frames.sent) = (Vec::new(), 0);
        frames.round += 1;
        self.unsent.store(0, Relaxed);
    }

    /// Closes the descriptors of unsent frames, in a child that the app has forked. A thread that the child does not have may hold the lock.
    pub(crate) fn abandon(&self) {
        if let Ok(mut frames) = self.frames.try_lock() {
            frames.fds.drain(..).for_each(|(_, fd)| os::close(fd));
        }
    }

    /// Returns the number of unsent bytes.
    #[inline]
    pub(crate) fn unsent(&self) -> usize {
        self.unsent.load(Relaxed)
    }

    /// Returns the age of the oldest unsent bytes, in microseconds; 0 when everything is sent.
    #[inline]
    pub(crate) fn age_us(&self, now_us: u64) -> u64 {
        if self.unsent() == 0 { 0 } else { now_us.saturating_sub(self.oldest_us.load(Relaxed)) }
    }

    /// Sends as much as the socket takes.
    ///
    /// # Errors
    /// As sendmsg(2), except for a full socket: the front is gone.
    pub(crate) fn send(&self) -> io::Result<Sent> {
        let mut frames = self.lock();
        let sent = frames.send(self.fd);
        self.unsent.store(frames.bytes.len() - frames.sent, Relaxed);
        sent
    }
}

impl Frames {
    fn send(&mut self, socket: RawFd) -> io::Result<Sent> {
        while self.sent < self.bytes.len() {
            let (passed, end) = match (self.fds.front(), self.fds.get(1)) {
                (Some(&(at, fd)), next) if at == self.sent => (Some(fd), next.map(|next| next.0)),
                (Some(&(at, _)), _) => (None, Some(at)),
                (None, _) => (None, None),
            };
            let end = end.unwrap_or(self.bytes.len());
            match os::send(socket, &self.bytes[self.sent..end], passed) {
                Ok(count) => {
                    self.sent += count;
                    if let Some(fd) = passed {
                        os::close(fd);
                        self.fds.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Part),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sent = 0;
        self.round += 1;
        self.bytes.clear();
        if self.bytes.capacity() > KEEP {
            self.bytes = Vec::new();
        }
        Ok(Sent::All)
    }
}
