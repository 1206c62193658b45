//! An HTTP/1.1 client connection: sends requests and receives responses, with as many in flight as the scenario allows.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::clock::{Moment, NEVER, nanoseconds};
use crate::connect::CUT_OFF;
use crate::endpoint::describe;
use crate::exchange::{Incoming, ResponseSink};
use crate::feed::Feed;
use crate::job::{Failure, Job};
use crate::lane::Lane;
use crate::prepare::PreparedRequest;
use crate::response::reader::Reader;
use crate::scenario::Protocol;
use crate::spoken::Spoken;
use crate::stream::Stream;

/// The most requests written with one system call.
const MOST_SLICES: usize = 64;

/// A request in flight on this connection.
#[derive(Debug)]
struct Sent {
    job: Job,
    at: Moment,
    /// The message with cookies or values of a journey, which replaces the prepared one.
    own: Option<Box<[u8]>>,
}

impl Sent {
    fn message<'a>(&'a self, kinds: &'a [PreparedRequest]) -> &'a [u8] {
        self.own.as_deref().unwrap_or(&kinds[self.job.kind].message)
    }
}

/// The reason why [`Connection::poll`] returned.
#[derive(Debug)]
pub(crate) enum Exit {
    /// The user has no more requests.
    Done,
    /// The next request goes to another origin; this connection can be reused.
    OtherOrigin(Job),
    /// The connection was closed.
    Closed {
        /// Whether a request was lost.
        failed: bool,
        /// Whether at least one complete response was received.
        responded: bool,
    },
}

pub(crate) struct Connection {
    stream: Stream,
    origin: usize,
    depth: usize,
    reader: Reader,
    incoming: Incoming,
    sent: VecDeque<Sent>,
    /// The number of requests at the end of `sent` that are not completely written, and the bytes written of
    /// the first of them.
    unwritten: usize,
    offset: usize,
    unflushed: bool,
    responded: bool,
}

impl Connection {
    pub(crate) fn new(stream: Stream, origin: usize, lane: &Lane) -> Connection {
        let depth = match lane.run.scenario.transport.protocol {
            Protocol::Http1 { pipeline, keep_alive: true } => pipeline.max(1),
            _ => 1,
        };
        lane.note_tls(|| stream.tls());
        Connection {
            stream,
            origin,
            depth,
            reader: Reader::new(),
            incoming: Incoming::new(lane.run.scenario.journey.is_some()),
            sent: VecDeque::with_capacity(depth),
            unwritten: 0,
            offset: 0,
            unflushed: false,
            responded: false,
        }
    }

    /// Adds a request. The pipeline must have room.
    pub(crate) fn push(&mut self, job: Job, now: Moment, lane: &Lane, feed: &Feed) {
        let kind = &lane.run.prepared.kinds[job.kind];
        self.sent.push_back(Sent { job, at: now, own: feed.message(kind, &job) });
        self.unwritten += 1;
    }

    /// Returns whether the server has neither closed this idle connection nor sent anything on it.
    pub(crate) fn is_idle(&mut self, cx: &mut Context<'_>, lane: &Lane) -> bool {
        let mut buffer = lane.buffer.borrow_mut();
        Pin::new(&mut self.stream).poll_read(cx, &mut ReadBuf::new(&mut buffer)).is_pending()
    }

    /// Sends and receives until there is a reason to stop.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, lane: &Lane, feed: &mut Feed) -> Poll<Exit> {
        if lane.cut.get() {
            self.fail(lane, Failure::CutOff, CUT_OFF, feed);
            return Poll::Ready(Exit::Done);
        }
        if feed.slot.expired.take() {
            self.fail(lane, Failure::Timeout, "no complete response in time", feed);
            return Poll::Ready(Exit::Closed { failed: true, responded: self.responded });
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

    /// Starts requests until the pipeline is full or no request is due.
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
                        return Some(Exit::OtherOrigin(job));
                    } else {
                        feed.retry(job);
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
        let timeout = nanoseconds(lane.run.scenario.timeouts.request);
        feed.slot.deadline.set(self.sent.front().map_or(NEVER, |oldest| oldest.at.saturating_add(timeout)));
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
            // TLS may have buffered some bytes.
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

    /// Reads once and processes the received bytes.
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
                let text = format!("while waiting for the response: {}", describe(&error));
                Some(self.broken(lane, Failure::Read, &text, feed))
            }
            Ok(()) if buffer.filled().is_empty() => Some(self.closed_by_server(lane, feed, moment)),
            Ok(()) => self.receive(buffer.filled(), lane, feed, moment),
        })
    }

    fn receive(&mut self, mut bytes: &[u8], lane: &Lane, feed: &mut Feed, now: Moment) -> Option<Exit> {
        lane.recorder.borrow_mut().bytes.received += bytes.len() as u64;
        while !bytes.is_empty() {
            let Some(front) = self.sent.front() else {
                lane.recorder
                    .borrow_mut()
                    .text("bytes after the end of a response; the connection was closed", 1);
                return Some(Exit::Closed { failed: true, responded: self.responded });
            };
            if self.reader.is_fresh() {
                if let Some(why) = Spoken::of(bytes).in_place_of_http1() {
                    return Some(self.broken(lane, Failure::Read, why, feed));
                }
                self.incoming.reset(front.job.kind);
                self.incoming.response.first_byte = now;
            }
            let scenario = &lane.run.scenario;
            let mut receiving = ResponseSink {
                incoming: &mut self.incoming,
                checks: &scenario.checks,
                to_head: lane.run.prepared.kinds[front.job.kind].to_head,
                wants_fields: scenario.stages || scenario.cookies || lane.recorder.borrow().server.is_none(),
            };
            match self.reader.take(bytes, &mut lane.last_head.borrow_mut(), &mut receiving) {
                Err(why) => return Some(self.broken(lane, Failure::Read, &why, feed)),
                Ok(read) => {
                    bytes = &bytes[read.used..];
                    if let Some(keep_alive) = read.complete
                        && let Some(exit) = self.complete(keep_alive, lane, feed, now)
                    {
                        return Some(exit);
                    }
                }
            }
        }
        None
    }

    /// Completes the oldest request with its response.
    fn complete(&mut self, keep_alive: bool, lane: &Lane, feed: &mut Feed, now: Moment) -> Option<Exit> {
        // The response came before the request was completely sent, so the server's state is unknown.
        let early = self.unwritten == self.sent.len();
        let sent = self.sent.pop_front()?;
        self.responded = true;
        feed.keep_cookies(&lane.run.prepared.kinds[sent.job.kind], &self.incoming);
        let step = feed.judge(&sent.job, &self.incoming);
        let good = self.incoming.finish(lane, &sent.job, sent.at, now, "HTTP/1.1", step);
        feed.stepped(&sent.job, good, now);
        feed.finished();
        if keep_alive && !early {
            return None;
        }
        // The server announced that it closes the connection, so it did not process later requests. They are
        // sent again.
        for sent in self.sent.drain(..) {
            feed.retry(sent.job);
        }
        feed.slot.deadline.set(NEVER);
        Some(Exit::Closed { failed: false, responded: true })
    }

    /// Ends the connection after the server has closed it.
    fn closed_by_server(&mut self, lane: &Lane, feed: &mut Feed, now: Moment) -> Exit {
        if self.sent.is_empty() {
            feed.slot.deadline.set(NEVER);
            return Exit::Closed { failed: false, responded: self.responded };
        }
        if self.reader.end() {
            return self
                .complete(false, lane, feed, now)
                .unwrap_or(Exit::Closed { failed: false, responded: true });
        }
        let text = match self.reader.is_fresh() {
            true => "the server closed the connection without responding",
            false => "the server closed the connection in the middle of a response",
        };
        self.broken(lane, Failure::Read, text, feed)
    }

    fn broken(&mut self, lane: &Lane, failure: Failure, text: &str, feed: &mut Feed) -> Exit {
        let failed = !self.sent.is_empty();
        self.fail(lane, failure, text, feed);
        Exit::Closed { failed, responded: self.responded }
    }

    /// Fails every request in flight.
    fn fail(&mut self, lane: &Lane, failure: Failure, text: &str, feed: &mut Feed) {
        feed.slot.deadline.set(NEVER);
        let now = lane.now();
        for sent in self.sent.drain(..) {
            lane.recorder.borrow_mut().failed(&sent.job, failure, text, now);
            feed.stepped(&sent.job, false, now);
            feed.finished();
        }
    }
}
