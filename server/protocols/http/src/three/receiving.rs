//! Receives a request stream: bytes from QUIC, events from the codec.

use super::hub::{Hub, number};
use bytes::Bytes;
use fieldcode::{Flood, RequestHead};
use http3::{Code, Costs, Error, Event, RequestStream};
use quic::quinn::{ReadError, RecvStream};
use std::collections::VecDeque;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// The most bytes per read.
const CHUNK: usize = 64 << 10;

/// Why no more data comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The client reset the stream, or the connection is gone.
    Gone,
    /// The message is malformed or incomplete: both sides of the stream are reset.
    Broken(Code),
    /// The request is refused with a response.
    Refused(Box<handler::Failure>),
}

/// The received part of a request.
pub(super) struct Receiving {
    hub: Rc<Hub>,
    stream: RecvStream,
    codec: RequestStream,
    /// More data may come; a task waits for it; and the held bytes of an incomplete field section.
    open: bool,
    waiting: bool,
    held: usize,
    head: Option<Box<RequestHead>>,
    pub(super) data: VecDeque<Bytes>,
    pub(super) ended: bool,
    pub(super) stopped: Option<Stopped>,
}

impl Receiving {
    pub(super) fn new(hub: Rc<Hub>, stream: RecvStream) -> Receiving {
        hub.windows.open();
        Receiving {
            open: true,
            hub,
            stream,
            codec: RequestStream::default(),
            waiting: false,
            held: 0,
            head: None,
            data: VecDeque::new(),
            ended: false,
            stopped: None,
        }
    }

    /// Returns the head. Ready with `None` if there will be no head: see `stopped`.
    pub(super) fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Option<Box<RequestHead>>> {
        loop {
            if let Some(head) = self.head.take() {
                return Poll::Ready(Some(head));
            }
            if self.stopped.is_some() || self.ended {
                return Poll::Ready(None);
            }
            if self.poll_more(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Takes the data that has already arrived, up to a chunk.
    pub(super) fn look(&mut self, cx: &mut Context<'_>) {
        while !self.ended && self.stopped.is_none() && self.data.is_empty() && self.poll_more(cx).is_ready() {
        }
        // The end of a short body is right behind its data.
        if !self.ended && self.stopped.is_none() {
            let _ = self.poll_more(cx);
        }
    }

    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let read = pin!(self.stream.read_chunk(CHUNK, true)).poll(cx);
        let Poll::Ready(read) = read else {
            self.wait(true);
            return Poll::Pending;
        };
        self.wait(false);
        let hub = self.hub.clone();
        let (bytes, end) = match read {
            Ok(Some(chunk)) => (chunk.bytes, false),
            Ok(None) => (Bytes::new(), true),
            Err(ReadError::Reset(_) | ReadError::ConnectionLost(_) | ReadError::ClosedStream) => {
                self.stopped = Some(Stopped::Gone);
                self.close();
                return Poll::Ready(());
            }
            Err(_) => {
                self.stopped = Some(Stopped::Gone);
                self.close();
                return Poll::Ready(());
            }
        };
        self.ended = end;
        hub.windows.count_read(bytes.len() + usize::from(end));
        let (head, data) = (&mut self.head, &mut self.data);
        let limits = hub.shared.head_limits();
        let taken = self.codec.receive(bytes, end, &limits, &mut |event| match event {
            Event::Request(request) => *head = Some(request),
            Event::Data(bytes) => data.push_back(bytes),
        });
        self.count();
        match taken {
            Ok(()) => {}
            Err(Error::Connection(code, why)) => {
                hub.fail(code, why);
                self.stopped = Some(Stopped::Gone);
            }
            Err(Error::Stream(code, _)) => {
                hub.spend(Flood::StreamErrors, 1);
                self.stop(code);
                self.stopped = Some(Stopped::Broken(code));
            }
            Err(Error::Refused(failure)) => {
                hub.spend(Flood::StreamErrors, 1);
                self.stopped = Some(Stopped::Refused(failure));
            }
        }
        if self.ended || self.stopped.is_some() {
            self.close();
        }
        Poll::Ready(())
    }

    /// Charges the costs of the new data.
    fn count(&mut self) {
        let (hub, costs, held) = (&self.hub, self.codec.take_costs(), self.codec.held());
        if costs != Costs::default() {
            hub.count(costs);
        }
        hub.sections.update(|all| all + held - self.held);
        self.held = held;
        if hub.sections.get() > hub.most_heads() {
            hub.flood(Flood::Continuations);
        }
    }

    fn wait(&mut self, waits: bool) {
        if self.waiting != waits {
            self.waiting = waits;
            if self.hub.windows.wait(waits) {
                self.hub.waited.notify_one();
            }
        }
    }

    /// Ends reading.
    fn close(&mut self) {
        self.wait(false);
        if std::mem::take(&mut self.open) {
            self.hub.windows.close();
        }
    }

    /// Records that no task waits for more at present.
    pub(super) fn pause(&mut self) {
        self.wait(false);
    }

    /// Drops the data: no task will read it.
    pub(super) fn end(&mut self) {
        self.wait(false);
        self.data.clear();
    }

    /// Takes and drops data. Returns the number of bytes, 0 at the end.
    pub(super) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        if self.ended {
            return Poll::Ready(0);
        }
        let read = pin!(self.stream.read_chunk(CHUNK, true)).poll(cx);
        read.map(|read| match read {
            Ok(Some(chunk)) => {
                self.hub.windows.count_read(chunk.bytes.len());
                chunk.bytes.len()
            }
            Ok(None) | Err(_) => {
                self.ended = true;
                self.close();
                0
            }
        })
    }

    /// Asks the client not to send the rest.
    pub(super) fn stop(&mut self, code: Code) {
        self.close();
        if !self.ended {
            // A failure means that the stream has ended meanwhile.
            let _ = self.stream.stop(number(code));
            self.ended = true;
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.close();
        self.hub.sections.update(|all| all - self.held);
    }
}
