//! A connection of HTTP/1.1: requests go out, answers come in, as many under way as the plan allows.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::reader::Reader;
use crate::clock::{Moment, NEVER, nanoseconds};
use crate::connect::CUT_OFF;
use crate::exchange::{Incoming, Receiving};
use crate::feed::Feed;
use crate::job::{Failure, Job};
use crate::lane::Lane;
use crate::plan::Protocol;
use crate::prepare::Kind;
use crate::stream::Stream;
use crate::target::describe;

/// Requests that go out in one write at most.
const MOST_SLICES: usize = 64;

/// A request that was begun on this connection.
#[derive(Debug)]
struct Sent {
    job: Job,
    at: Moment,
    /// What is sent instead of the prepared message: it has cookies.
    own: Option<Box<[u8]>>,
}

impl Sent {
    fn message<'a>(&'a self, kinds: &'a [Kind]) -> &'a [u8] {
        self.own.as_deref().unwrap_or(&kinds[self.job.kind].message)
    }
}

/// How a conversation ended.
#[derive(Debug)]
pub(crate) enum Exit {
    /// The user has nothing more to ask.
    Done,
    /// The next request is for somebody else; this connection can be used again.
    Elsewhere(Job),
    /// The connection is gone; `failed` when that was not in order.
    Gone {
        /// A request was lost.
        failed: bool,
        /// There was at least one whole answer.
        useful: bool,
    },
}

pub(crate) struct Connection {
    stream: Stream,
    origin: usize,
    depth: usize,
    reader: Reader,
    incoming: Incoming,
    sent: VecDeque<Sent>,
    /// So many at the end of `sent` are not, or not wholly, written; of the first of them so many bytes are.
    unwritten: usize,
    offset: usize,
    unflushed: bool,
    useful: bool,
}

impl Connection {
    pub(crate) fn new(stream: Stream, origin: usize, lane: &Lane) -> Connection {
        let depth = match lane.run.plan.transport.protocol {
            Protocol::Http1 { pipeline, keep_alive: true } => pipeline.max(1),
            _ => 1,
        };
        lane.note_tls(&stream);
        Connection {
            stream,
            origin,
            depth,
            reader: Reader::new(),
            incoming: Incoming::default(),
            sent: VecDeque::with_capacity(depth),
            unwritten: 0,
            offset: 0,
            unflushed: false,
            useful: false,
        }
    }

    /// Takes this request as the next one; there must be room.
    pub(crate) fn push(&mut self, job: Job, now: Moment, lane: &Lane, feed: &Feed) {
        let kind = &lane.run.prepared.kinds[job.kind];
        let own = feed.cookie(kind).map(|line| {
            let (fields, rest) = kind.message.split_at(kind.fields_end);
            [fields, b"Cookie: ", line.as_bytes(), b"\r\n", rest].concat().into_boxed_slice()
        });
        self.sent.push_back(Sent { job, at: now, own });
        self.unwritten += 1;
    }

    /// Neither closed by the server nor talked on while at rest.
    pub(crate) fn is_quiet(&mut self, cx: &mut Context<'_>, lane: &Lane) -> bool {
        let mut buffer = lane.buffer.borrow_mut();
        Pin::new(&mut self.stream).poll_read(cx, &mut ReadBuf::new(&mut buffer)).is_pending()
    }

    /// Talks until there is a reason to stop.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, lane: &Lane, feed: &mut Feed) -> Poll<Exit> {
        if lane.cut.get() {
            self.fail(lane, Failure::CutOff, CUT_OFF, feed);
            return Poll::Ready(Exit::Done);
        }
        if feed.slot.expired.take() {
            self.fail(lane, Failure::Timeout, "no whole answer in time", feed);
            return Poll::Ready(Exit::Gone { failed: true, useful: self.useful });
        }
        let mut now = None;
        loop {
            if let Some(exit) = self.fill(cx, lane, feed, &mut now) {
                return Poll::Ready(exit);
            }
            if let Poll::Ready(Err(error)) = self.poll_flush(cx, lane) {
                let text = format!("while sending: {}", describe(&error));
                return Poll::Ready(self.broken(lane, Failure::Write, &text, feed));
            }
            if let Some(exit) = ready!(self.poll_receive(cx, lane, feed, &mut now)) {
                return Poll::Ready(exit);
            }
        }
    }

    /// Begins as many requests as there are and may be.
    fn fill(
        &mut self,
        cx: &mut Context<'_>,
        lane: &Lane,
        feed: &mut Feed,
        now: &mut Option<Moment>,
    ) -> Option<Exit> {
        while self.sent.len() < self.depth {
            let moment = *now.get_or_insert_with(|| lane.now());
            match feed.poll(cx, moment) {
                Poll::Ready(Some(job)) => {
                    if lane.run.prepared.kinds[job.kind].origin == self.origin {
                        self.push(job, moment, lane, feed);
                    } else if self.sent.is_empty() {
                        return Some(Exit::Elsewhere(job));
                    } else {
                        feed.again(job);
                        break;
                    }
                }
                Poll::Ready(None) if self.sent.is_empty() => return Some(Exit::Done),
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        self.set_deadline(lane, feed);
        None
    }

    fn set_deadline(&self, lane: &Lane, feed: &Feed) {
        let patience = nanoseconds(lane.run.plan.timeouts.request);
        feed.slot.deadline.set(self.sent.front().map_or(NEVER, |oldest| oldest.at.saturating_add(patience)));
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>, lane: &Lane) -> Poll<io::Result<()>> {
        while self.unwritten > 0 {
            let written = ready!(self.poll_write(cx, lane))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            lane.recorder.borrow_mut().bytes.sent += written as u64;
            self.wrote(written, lane);
            self.unflushed = true;
        }
        if self.unflushed {
            // TLS may have kept some of it.
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, lane: &Lane) -> Poll<io::Result<usize>> {
        let kinds = &lane.run.prepared.kinds;
        let first = self.sent.len() - self.unwritten;
        if self.unwritten == 1 {
            let message = self.sent[first].message(kinds);
            return Pin::new(&mut self.stream).poll_write(cx, &message[self.offset..]);
        }
        let mut slices = [IoSlice::new(&[]); MOST_SLICES];
        let mut used = 0;
        for (slice, sent) in slices.iter_mut().zip(self.sent.range(first..)) {
            let message = sent.message(kinds);
            *slice = IoSlice::new(if used == 0 { &message[self.offset..] } else { message });
            used += 1;
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, &slices[..used])
    }

    fn wrote(&mut self, mut written: usize, lane: &Lane) {
        while self.unwritten > 0 {
            let sent = &self.sent[self.sent.len() - self.unwritten];
            let left = sent.message(&lane.run.prepared.kinds).len() - self.offset;
            if written < left {
                self.offset += written;
                return;
            }
            written -= left;
            self.offset = 0;
            self.unwritten -= 1;
        }
    }

    /// Reads once and takes what has come.
    fn poll_receive(
        &mut self,
        cx: &mut Context<'_>,
        lane: &Lane,
        feed: &mut Feed,
        now: &mut Option<Moment>,
    ) -> Poll<Option<Exit>> {
        let mut buffer = lane.buffer.borrow_mut();
        let mut buffer = ReadBuf::new(&mut buffer);
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
        let moment = lane.now();
        *now = Some(moment);
        Poll::Ready(match read {
            Err(error) => {
                let text = format!("while waiting for the answer: {}", describe(&error));
                Some(self.broken(lane, Failure::Read, &text, feed))
            }
            Ok(()) if buffer.filled().is_empty() => Some(self.ended(lane, feed, moment)),
            Ok(()) => self.receive(buffer.filled(), lane, feed, moment),
        })
    }

    fn receive(&mut self, mut bytes: &[u8], lane: &Lane, feed: &mut Feed, now: Moment) -> Option<Exit> {
        lane.recorder.borrow_mut().bytes.received += bytes.len() as u64;
        while !bytes.is_empty() {
            let Some(front) = self.sent.front() else {
                lane.recorder
                    .borrow_mut()
                    .text("bytes that belong to no answer; the connection was dropped", 1);
                return Some(Exit::Gone { failed: true, useful: self.useful });
            };
            if self.reader.is_fresh() {
                self.incoming.reset();
                self.incoming.answer.first_byte = now;
            }
            let plan = &lane.run.plan;
            let mut receiving = Receiving {
                incoming: &mut self.incoming,
                checks: &plan.checks,
                to_head: lane.run.prepared.kinds[front.job.kind].to_head,
                wants_fields: plan.stages || plan.cookies || lane.recorder.borrow().seen.is_none(),
            };
            match self.reader.take(bytes, &mut lane.last_head.borrow_mut(), &mut receiving) {
                Err(why) => return Some(self.broken(lane, Failure::Read, &why, feed)),
                Ok(read) => {
                    bytes = &bytes[read.used..];
                    if let Some(keep_alive) = read.whole
                        && let Some(exit) = self.answered(keep_alive, lane, feed, now)
                    {
                        return Some(exit);
                    }
                }
            }
        }
        None
    }

    /// The oldest request has its whole answer.
    fn answered(&mut self, keep_alive: bool, lane: &Lane, feed: &mut Feed, now: Moment) -> Option<Exit> {
        // An answer before the question was out: no telling what the server makes of the rest.
        let early = self.unwritten == self.sent.len();
        let sent = self.sent.pop_front()?;
        self.useful = true;
        feed.keep_cookies(&lane.run.prepared.kinds[sent.job.kind], &self.incoming);
        self.incoming.finish(lane, &sent.job, sent.at, now, "HTTP/1.1");
        feed.answered();
        if keep_alive && !early {
            return None;
        }
        // The server said that it would answer no more, so what is behind was not refused: it is sent again.
        for sent in self.sent.drain(..) {
            feed.again(sent.job);
        }
        feed.slot.deadline.set(NEVER);
        Some(Exit::Gone { failed: false, useful: true })
    }

    /// The server has closed the connection.
    fn ended(&mut self, lane: &Lane, feed: &mut Feed, now: Moment) -> Exit {
        if self.sent.is_empty() {
            feed.slot.deadline.set(NEVER);
            return Exit::Gone { failed: false, useful: self.useful };
        }
        if self.reader.end() {
            return self
                .answered(false, lane, feed, now)
                .unwrap_or(Exit::Gone { failed: false, useful: true });
        }
        let text = match self.reader.is_fresh() {
            true => "the server closed the connection instead of answering",
            false => "the server closed the connection in the middle of an answer",
        };
        self.broken(lane, Failure::Read, text, feed)
    }

    fn broken(&mut self, lane: &Lane, failure: Failure, text: &str, feed: &mut Feed) -> Exit {
        let failed = !self.sent.is_empty();
        self.fail(lane, failure, text, feed);
        Exit::Gone { failed, useful: self.useful }
    }

    /// Gives up whatever is under way.
    fn fail(&mut self, lane: &Lane, failure: Failure, text: &str, feed: &mut Feed) {
        feed.slot.deadline.set(NEVER);
        let now = lane.now();
        for sent in self.sent.drain(..) {
            lane.recorder.borrow_mut().failed(&sent.job, failure, text, now);
            feed.answered();
        }
    }
}
