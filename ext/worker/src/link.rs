//! One socket to a front thread: cutting what comes into frames, gathering what goes out.
//!
//! Contract:
//! 1. Nothing here waits. Reading that may wait is done by the caller with the buffer taken out of the link.
//! 2. Frames are sent in the order in which they were appended, a descriptor with the first byte of its frame.

use crate::raw::os;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::rc::Rc;
use wire::{Header, Kind, Malformed, frame::HEADER};

/// Bytes asked of the socket at a time.
const READ: usize = 64 << 10;
/// A buffer that has grown beyond this is not kept.
const KEEP: usize = 256 << 10;

/// A request as it came: a part of a buffer that it may share with others.
pub(crate) struct Job {
    pub(crate) link: u32,
    pub(crate) id: u32,
    pub(crate) bytes: Rc<Vec<u8>>,
    pub(crate) payload: Range<usize>,
    /// The descriptor of the body.
    pub(crate) fd: Option<RawFd>,
    /// The client has gone before the request was started.
    pub(crate) gone: bool,
}

/// What else the front may say.
pub(crate) enum Word {
    Window {
        id: u32,
        bytes: u32,
    },
    Abort {
        id: u32,
    },
    /// The answer to an offer, with the client's socket or without.
    Lend {
        id: u32,
        fd: Option<RawFd>,
    },
    Drain,
}

/// What [`Link::send`] came to.
#[derive(PartialEq, Eq)]
pub(crate) enum Sent {
    All,
    Full,
}

pub(crate) struct Link {
    pub(crate) fd: RawFd,
    number: u32,
    input: Vec<u8>,
    input_fds: Vec<RawFd>,
    output: Vec<u8>,
    sent: usize,
    output_fds: VecDeque<(usize, RawFd)>,
    /// When the oldest answer that is still here was appended, microseconds.
    pub(crate) oldest_us: u64,
}

impl Link {
    pub(crate) fn new(number: u32, fd: RawFd) -> Link {
        #[rustfmt::skip]
        let link = Link {
            fd, number, input: Vec::new(), input_fds: Vec::new(),
            output: Vec::new(), sent: 0, output_fds: VecDeque::new(), oldest_us: 0,
        };
        link
    }

    /// Lends the input buffers to a reader; [`Link::give_back`] must follow before anyone else reads.
    pub(crate) fn take_input(&mut self) -> (Vec<u8>, Vec<RawFd>) {
        let mut input = std::mem::take(&mut self.input);
        let missing = match input.first_chunk::<HEADER>() {
            Some(&[a, b, c, d, ..]) => HEADER + u32::from_le_bytes([a, b, c, d]) as usize,
            None => 0,
        };
        input.reserve(READ.max(missing.min(wire::frame::MAX_PAYLOAD + HEADER).saturating_sub(input.len())));
        (input, std::mem::take(&mut self.input_fds))
    }

    pub(crate) fn give_back(&mut self, (input, fds): (Vec<u8>, Vec<RawFd>)) {
        (self.input, self.input_fds) = (input, fds);
    }

    /// Cuts the complete frames that have come. Requests go to `jobs`, all else to `word`.
    pub(crate) fn cut(
        &mut self,
        jobs: &mut VecDeque<Job>,
        word: &mut Vec<(u32, Word)>,
    ) -> Result<(), Malformed> {
        let mut ranges: [(u32, Option<RawFd>, usize, usize); 64] = [(0, None, 0, 0); 64];
        loop {
            let (mut used, mut found) = (0, 0);
            while found < ranges.len()
                && let Some((frame, len)) = wire::Frame::cut(&self.input[used..])?
            {
                let Header { kind, id, .. } = frame.header;
                let fd = match frame.header.has_fd() {
                    true if self.input_fds.is_empty() => {
                        return Err(Malformed("flag FD without a descriptor"));
                    }
                    true => Some(self.input_fds.remove(0)),
                    false => None,
                };
                match kind {
                    Kind::Request => {
                        ranges[found] = (id, fd, used + HEADER, used + len);
                        found += 1;
                    }
                    Kind::Window => {
                        let bytes = wire::frame::u32_payload(frame.payload)?;
                        word.push((self.number, Word::Window { id, bytes }));
                    }
                    Kind::Abort => word.push((self.number, Word::Abort { id })),
                    Kind::Lend => word.push((self.number, Word::Lend { id, fd })),
                    Kind::Drain => word.push((self.number, Word::Drain)),
                    _ => return Err(Malformed("a kind that only workers send")),
                }
                used += len;
            }
            if used == 0 {
                return Ok(());
            }
            let more = found == ranges.len();
            self.hand_over(&ranges[..found], used, jobs);
            if !more {
                return Ok(());
            }
        }
    }

    /// Turns the first `used` bytes into jobs; what is behind them stays.
    fn hand_over(
        &mut self,
        ranges: &[(u32, Option<RawFd>, usize, usize)],
        used: usize,
        jobs: &mut VecDeque<Job>,
    ) {
        if ranges.is_empty() {
            self.input.drain(..used);
            return;
        }
        let rest = self.input[used..].to_vec();
        let bytes = Rc::new(std::mem::replace(&mut self.input, rest));
        for &(id, fd, from, to) in ranges {
            jobs.push_back(Job {
                link: self.number,
                id,
                bytes: Rc::clone(&bytes),
                payload: from..to,
                fd,
                gone: false,
            });
        }
    }

    /// Takes a buffer back that no job needs any more.
    pub(crate) fn reuse(&mut self, mut buffer: Vec<u8>) {
        if self.input.is_empty() && self.input.capacity() < READ && buffer.capacity() <= KEEP {
            buffer.clear();
            self.input = buffer;
        }
    }

    /// Lets `f` append whole frames.
    #[inline]
    pub(crate) fn append<R>(&mut self, now_us: u64, f: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        if self.output.is_empty() {
            self.oldest_us = now_us;
        }
        f(&mut self.output)
    }

    /// Passes a descriptor, which the link now owns, with the next frame that is appended.
    pub(crate) fn pass(&mut self, fd: RawFd) {
        self.output_fds.push_back((self.output.len(), fd));
    }

    /// Bytes that wait to be sent.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Sends what the socket takes.
    ///
    /// # Errors
    /// As sendmsg(2), but for a full socket: the front is gone.
    pub(crate) fn send(&mut self) -> io::Result<Sent> {
        while self.sent < self.output.len() {
            let (passed, end) = match (self.output_fds.front(), self.output_fds.get(1)) {
                (Some(&(at, fd)), next) if at == self.sent => (Some(fd), next.map(|next| next.0)),
                (Some(&(at, _)), _) => (None, Some(at)),
                (None, _) => (None, None),
            };
            let end = end.unwrap_or(self.output.len());
            match os::send(self.fd, &self.output[self.sent..end], passed) {
                Ok(count) => {
                    self.sent += count;
                    if let Some(fd) = passed {
                        os::close(fd);
                        self.output_fds.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Full),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.sent = 0;
        self.output.clear();
        if self.output.capacity() > KEEP {
            self.output = Vec::new();
        }
        Ok(Sent::All)
    }
}
