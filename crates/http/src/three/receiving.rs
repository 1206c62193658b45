//! The client's side of a request stream: bytes from QUIC, events from the codec.

use super::hub::{Hub, number};
use bytes::Bytes;
use fieldcode::RequestHead;
use http3::{Code, Error, Event, RequestStream};
use quic::quinn::{ReadError, RecvStream};
use std::collections::VecDeque;
use std::pin::pin;
use std::task::{Context, Poll};

/// Most bytes taken from a stream at a time.
const CHUNK: usize = 64 << 10;

/// Why nothing more comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stopped {
    /// The stream was reset by the client, or the connection is gone.
    Gone,
    /// The message is malformed or incomplete: both sides of the stream are reset.
    Broken(Code),
    /// The request is refused with a response.
    Refused(Box<handler::Failure>),
}

/// What has arrived of a request.
pub(super) struct Receiving {
    stream: RecvStream,
    codec: RequestStream,
    head: Option<Box<RequestHead>>,
    pub(super) data: VecDeque<Bytes>,
    pub(super) ended: bool,
    pub(super) stopped: Option<Stopped>,
}

impl Receiving {
    pub(super) fn new(stream: RecvStream) -> Receiving {
        Receiving {
            stream,
            codec: RequestStream::default(),
            head: None,
            data: VecDeque::new(),
            ended: false,
            stopped: None,
        }
    }

    /// The head. Ready with `None` if there will be none: see `stopped`.
    pub(super) fn poll_head(&mut self, hub: &Hub, cx: &mut Context<'_>) -> Poll<Option<Box<RequestHead>>> {
        loop {
            if let Some(head) = self.head.take() {
                return Poll::Ready(Some(head));
            }
            if self.stopped.is_some() || self.ended {
                return Poll::Ready(None);
            }
            if self.poll_more(hub, cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Takes what has arrived without waiting, up to a chunk.
    pub(super) fn look(&mut self, hub: &Hub, cx: &mut Context<'_>) {
        while !self.ended
            && self.stopped.is_none()
            && self.data.is_empty()
            && self.poll_more(hub, cx).is_ready()
        {}
        // A body that fits into what has arrived has its end behind it.
        if !self.ended && self.stopped.is_none() {
            let _ = self.poll_more(hub, cx);
        }
    }

    /// Reads once.
    pub(super) fn poll_more(&mut self, hub: &Hub, cx: &mut Context<'_>) -> Poll<()> {
        let read = match pin!(self.stream.read_chunk(CHUNK, true)).poll(cx) {
            Poll::Ready(read) => read,
            Poll::Pending => return Poll::Pending,
        };
        let (bytes, end) = match read {
            Ok(Some(chunk)) => (chunk.bytes, false),
            Ok(None) => (Bytes::new(), true),
            Err(ReadError::Reset(_) | ReadError::ConnectionLost(_) | ReadError::ClosedStream) => {
                self.stopped = Some(Stopped::Gone);
                return Poll::Ready(());
            }
            Err(_) => {
                self.stopped = Some(Stopped::Gone);
                return Poll::Ready(());
            }
        };
        self.ended = end;
        let (head, data) = (&mut self.head, &mut self.data);
        let limits = hub.shared.head_limits();
        let taken = self.codec.receive(bytes, end, &limits, &mut |event| match event {
            Event::Request(request) => *head = Some(request),
            Event::Data(bytes) => data.push_back(bytes),
        });
        match taken {
            Ok(()) => {}
            Err(Error::Connection(code, why)) => {
                hub.fail(code, why);
                self.stopped = Some(Stopped::Gone);
            }
            Err(Error::Stream(code, _)) => {
                self.stop(code);
                self.stopped = Some(Stopped::Broken(code));
            }
            Err(Error::Refused(failure)) => self.stopped = Some(Stopped::Refused(failure)),
        }
        Poll::Ready(())
    }

    /// Takes bytes that nobody wants; how many, 0 at the end.
    pub(super) fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        if self.ended {
            return Poll::Ready(0);
        }
        pin!(self.stream.read_chunk(CHUNK, true)).poll(cx).map(|read| match read {
            Ok(Some(chunk)) => chunk.bytes.len(),
            Ok(None) | Err(_) => {
                self.ended = true;
                0
            }
        })
    }

    /// Asks the client not to send the rest.
    pub(super) fn stop(&mut self, code: Code) {
        if !self.ended {
            // It has ended meanwhile if this fails.
            let _ = self.stream.stop(number(code));
            self.ended = true;
        }
    }
}
