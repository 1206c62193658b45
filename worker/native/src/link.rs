//! One socket to a front thread: cuts received bytes into frames.
//!
//! Contract: nothing here waits. A read that may wait is done by the caller, with the buffer taken out of the link.

use crate::outbox::Outbox;
use crate::raw::os;
use crate::scoreboard::Scoreboard;
use crate::watchdog::Port;
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::RawFd;
use std::rc::Rc;
use wire::heap::HeapOrder;
use wire::{FrameKind, Header, Malformed, frame::HEADER};

/// Bytes read from the socket at a time. It fits several requests with bodies, so that one read and one wait
/// serve them all.
const READ: usize = 256 << 10;
/// Larger buffers are not kept.
const KEEP: usize = 256 << 10;

/// A received request: a part of a buffer that other requests may share.
pub(crate) struct Job {
    pub(crate) link: u32,
    pub(crate) id: u32,
    pub(crate) bytes: Rc<Vec<u8>>,
    pub(crate) payload: Range<usize>,
    pub(crate) fd: Option<RawFd>,
    /// The client disconnected before the request was started.
    pub(crate) gone: bool,
}

impl Job {
    /// Drops a returned request, and closes its descriptor.
    pub(crate) fn discard(&self) {
        self.fd.into_iter().for_each(os::close);
    }
}

/// A frame other than REQUEST.
pub(crate) enum Message {
    Window {
        id: u32,
        bytes: u32,
    },
    Abort {
        id: u32,
    },
    /// The reply to an offer, with the client's socket or without.
    Lend {
        id: u32,
        fd: Option<RawFd>,
    },
    Drain,
    /// Run a full collection now.
    Collect,
    /// Describe the heap to the reader of the pipe `fd`.
    Heap {
        order: HeapOrder,
        fd: RawFd,
    },
    /// Leave a template behind when finished; `fd` is its socket.
    Promote {
        fd: RawFd,
    },
}

pub(crate) struct Link {
    pub(crate) fd: RawFd,
    number: u32,
    input: Vec<u8>,
    input_fds: Vec<RawFd>,
    port: &'static Port,
    scoreboard: Scoreboard,
}

impl Link {
    pub(crate) fn new(number: u32, port: &'static Port, scoreboard: Scoreboard) -> Link {
        Link { fd: port.fd, number, input: Vec::new(), input_fds: Vec::new(), port, scoreboard }
    }

    #[inline]
    pub(crate) fn outbox(&self) -> &'static Outbox {
        &self.port.outbox
    }

    /// Takes up the next request. Returns `false` when it has been returned or withdrawn and must be
    /// discarded. Requests must be passed in the order in which they were read.
    #[inline]
    pub(crate) fn take_up(&self) -> bool {
        let pass = self.port.intake.pass();
        let withdrawn = self.scoreboard.passed(self.number, pass.count);
        if withdrawn && !pass.returned {
            self.return_from(pass.count - 1);
        }
        !withdrawn && !pass.returned
    }

    /// Returns the withdrawn request number `from`: the front may have seen it taken up, and must learn that
    /// it was not served.
    #[cold]
    fn return_from(&self, from: u64) {
        if self.port.intake.close().is_some() {
            let frame =
                |out: &mut Vec<u8>| wire::frame::append(out, FrameKind::Returned, 0, 0, &from.to_le_bytes());
            self.outbox().append(os::now_us(), None, frame);
        }
    }

    /// Discards the returned requests, all of which have been read now, and accepts new ones.
    fn resume(&self, jobs: &mut VecDeque<Job>) {
        jobs.retain(|job| {
            let keep = job.link != self.number;
            if !keep {
                self.take_up();
                job.discard();
            }
            keep
        });
        self.port.intake.open();
        let frame = |out: &mut Vec<u8>| wire::frame::append(out, FrameKind::Resumed, 0, 0, b"");
        self.outbox().append(os::now_us(), None, frame);
    }

    /// Lends the input buffers to a reader. Call [`Link::give_back`] before another thread reads.
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

    /// Cuts complete frames out of the input. Requests go to `jobs`, all others to `messages`.
    pub(crate) fn cut(
        &mut self,
        jobs: &mut VecDeque<Job>,
        messages: &mut Vec<(u32, Message)>,
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
                    FrameKind::Request if self.port.intake.is_closed() => {
                        self.port.intake.has_read();
                        self.take_up();
                        fd.into_iter().for_each(os::close);
                    }
                    FrameKind::Request => {
                        self.port.intake.has_read();
                        ranges[found] = (id, fd, used + HEADER, used + len);
                        found += 1;
                    }
                    FrameKind::Window => {
                        let bytes = wire::frame::u32_payload(frame.payload)?;
                        messages.push((self.number, Message::Window { id, bytes }));
                    }
                    FrameKind::Abort => messages.push((self.number, Message::Abort { id })),
                    FrameKind::Lend => messages.push((self.number, Message::Lend { id, fd })),
                    FrameKind::Resume => self.resume(jobs),
                    FrameKind::Drain => messages.push((self.number, Message::Drain)),
                    FrameKind::Collect => messages.push((self.number, Message::Collect)),
                    FrameKind::Heap => {
                        let fd = fd.ok_or(Malformed("HEAP without a descriptor"))?;
                        let order = HeapOrder::decode(frame.payload)?;
                        messages.push((self.number, Message::Heap { order, fd }));
                    }
                    FrameKind::Promote => {
                        let fd = fd.ok_or(Malformed("PROMOTE without a descriptor"))?;
                        messages.push((self.number, Message::Promote { fd }));
                    }
                    _ => return Err(Malformed("a kind that only a worker may send")),
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

    /// Turns the first `used` bytes into jobs; the rest stays in the buffer.
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

    /// Takes back a buffer that no job needs any more.
    pub(crate) fn reuse(&mut self, mut buffer: Vec<u8>) {
        if self.input.is_empty() && self.input.capacity() < READ && buffer.capacity() <= KEEP {
            buffer.clear();
            self.input = buffer;
        }
    }
}
