//! The response to one request, passed from the link that reads it to the handler that waits for it.
//!
//! The link calls `on_…` for each frame, and the handler polls. Both run on the same thread.

use crate::spool::{Backlog, Batch, Room, Written};
use bytes::Bytes;
use handler::held::Holding;
use handler::{Chunk, Failure, Fields, FileRegion};
use net::memory::Reserved;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// An event of a request before its handler has the response.
#[derive(Debug)]
pub(crate) enum ReplyEvent {
    Interim(u16, Fields),
    /// The head of the response, and the body bytes that arrived with it.
    Head(ReplyHead),
    /// The request was not sent, because the responses on its connection hold their share of memory. The
    /// handler submits it again on its turn.
    Postponed,
    /// The app took the connection over; contains the app's end.
    Hijacked(OwnedFd),
    /// No response will come.
    Failed(Failure),
}

/// A response head and the beginning of the body.
#[derive(Debug)]
pub(crate) struct ReplyHead {
    pub(crate) status: u16,
    pub(crate) fields: Fields,
    pub(crate) body: Bytes,
    /// The source of the rest of the body, unless it comes through the reply.
    pub(crate) stream: Option<OwnedFd>,
}

/// The next part of a body.
#[derive(Debug)]
pub(crate) enum Next {
    Chunk(Chunk),
    /// The worker offers to write this many bytes itself.
    Offer(u64),
}

/// The state of body bytes that the worker has offered to write itself. While the offer is open, the worker
/// sends nothing else.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Loan {
    #[default]
    None,
    /// The worker waits for LEND.
    Offered(u64),
    /// The worker has the client's socket.
    Lent(u64),
    /// The worker is done and has written this many bytes.
    Taken(u64),
}

#[derive(Debug, Default)]
struct Inner {
    events: VecDeque<ReplyEvent>,
    backlog: Backlog,
    loan: Loan,
    end: Option<Result<(), Failure>>,
    headed: bool,
    unwanted: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Reply {
    inner: RefCell<Inner>,
    waker: RefCell<Option<Waker>>,
}

impl Reply {
    pub(crate) fn on_event(&self, event: ReplyEvent) {
        let mut inner = self.inner.borrow_mut();
        inner.headed |= !matches!(event, ReplyEvent::Interim(..) | ReplyEvent::Postponed);
        if !inner.unwanted {
            inner.events.push_back(event);
        }
        drop(inner);
        self.wake();
    }

    /// Takes body bytes; `holding` counts them. Returns the window to grant, and whether a writer must begin, which calls
    /// [`Reply::begin_write`].
    pub(crate) fn on_body(
        &self,
        bytes: &[u8],
        room: &Room,
        holding: &dyn Fn() -> Option<Rc<Holding>>,
    ) -> (u32, bool) {
        let mut inner = self.inner.borrow_mut();
        if inner.unwanted {
            return (0, false);
        }
        let begins = inner.backlog.push(bytes, room, holding);
        let grant = inner.backlog.grant(room);
        drop(inner);
        self.wake();
        (grant, begins)
    }

    /// Returns the next bytes for the file; see [`Backlog::begin_write`].
    pub(crate) fn begin_write(&self) -> Option<(Batch, Rc<Reserved>)> {
        self.inner.borrow_mut().backlog.begin_write()
    }

    /// Takes the result of a batch. Returns the window to grant and, the first time, the reason why the bytes cannot be spooled.
    pub(crate) fn on_written(
        &self,
        result: io::Result<Written>,
        room: &Room,
        holding: &dyn Fn() -> Option<Rc<Holding>>,
    ) -> (u32, Option<io::Error>) {
        let mut inner = self.inner.borrow_mut();
        let unspooled = inner.backlog.written(result, holding);
        (inner.backlog.grant(room), unspooled)
    }

    /// Takes a part of a file. `region` is called only if a handler waits for it.
    pub(crate) fn on_file(&self, region: impl FnOnce() -> FileRegion) {
        if self.is_unwanted() {
            return;
        }
        // The creation may make another response give up its file.
        let region = region();
        if region.len > 0 {
            self.inner.borrow_mut().backlog.push_file(region);
        }
        self.wake();
    }

    /// Takes the worker's offer of the next `len` bytes. Returns whether the offer is accepted, which
    /// requires that the head has not been taken yet. Later, the reader may be waiting for the client to make
    /// room, and no worker should wait for a client.
    pub(crate) fn on_offer(&self, len: u64) -> bool {
        let mut inner = self.inner.borrow_mut();
        let head_waits = inner.events.iter().any(|event| matches!(event, ReplyEvent::Head(_)));
        if inner.unwanted || inner.end.is_some() || !inner.backlog.is_empty() || !head_waits {
            return false;
        }
        inner.loan = Loan::Offered(len);
        drop(inner);
        self.wake();
        true
    }

    /// Records that the worker has written `count` bytes to the lent socket. Returns false if that is
    /// impossible.
    pub(crate) fn on_taken(&self, count: u64) -> bool {
        let mut inner = self.inner.borrow_mut();
        match inner.loan {
            Loan::Lent(len) if count <= len => inner.loan = Loan::Taken(count),
            _ => return false,
        }
        drop(inner);
        self.wake();
        true
    }

    /// Returns whether the worker waits for LEND or has the client's socket.
    pub(crate) fn is_lending(&self) -> bool {
        matches!(self.inner.borrow().loan, Loan::Offered(_) | Loan::Lent(_))
    }

    /// Records that the client's socket was lent (`true`) or the offer declined. Returns false if there is no
    /// open offer.
    pub(crate) fn close_offer(&self, lent: bool) -> bool {
        let mut inner = self.inner.borrow_mut();
        let Loan::Offered(len) = inner.loan else { return false };
        inner.loan = if lent { Loan::Lent(len) } else { Loan::None };
        true
    }

    /// Returns the number of bytes written to the lent socket.
    pub(crate) fn poll_taken(&self, cx: &mut Context<'_>) -> Poll<Result<u64, Failure>> {
        let mut inner = self.inner.borrow_mut();
        match inner.loan {
            Loan::Taken(count) => {
                inner.loan = Loan::None;
                Poll::Ready(Ok(count))
            }
            Loan::Lent(_) if inner.end.is_none() => {
                drop(inner);
                self.wait(cx)
            }
            _ => Poll::Ready(Err(match &inner.end {
                Some(Err(failure)) => failure.clone(),
                _ => Failure::app(502, "the worker has not returned the client's socket"),
            })),
        }
    }

    pub(crate) fn on_end(&self, end: Result<(), Failure>) {
        let mut inner = self.inner.borrow_mut();
        if inner.end.is_none() {
            inner.end = Some(end);
        }
        drop(inner);
        self.wake();
    }

    /// Returns whether the final response or a hijack has begun.
    pub(crate) fn headed(&self) -> bool {
        self.inner.borrow().headed
    }

    /// Drops the response and everything that follows, because the handler is gone.
    pub(crate) fn unwanted(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.unwanted = true;
        inner.events.clear();
        inner.backlog.clear();
    }

    /// Returns whether the worker waits because the client has not read: its window is used up, or its offer
    /// has not been looked at.
    pub(crate) fn waits_for_client(&self) -> bool {
        let inner = self.inner.borrow();
        inner.backlog.is_waiting() || matches!(inner.loan, Loan::Offered(_))
    }

    /// Returns the number of bytes that wait in a file.
    pub(crate) fn on_disk(&self) -> u64 {
        self.inner.borrow().backlog.on_disk()
    }

    /// Returns whether [`Reply::unwanted`] was called.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.inner.borrow().unwanted
    }

    pub(crate) fn poll_event(&self, cx: &mut Context<'_>) -> Poll<ReplyEvent> {
        match self.inner.borrow_mut().events.pop_front() {
            Some(event) => Poll::Ready(event),
            None => self.wait(cx),
        }
    }

    /// Returns the next piece of the body, and the window to grant.
    pub(crate) fn poll_chunk(
        &self,
        room: &Room,
        cx: &mut Context<'_>,
    ) -> Poll<(Option<Result<Next, Failure>>, u32)> {
        let mut inner = self.inner.borrow_mut();
        if let Some(chunk) = inner.backlog.pop() {
            let grant = inner.backlog.grant(room);
            return Poll::Ready((Some(Ok(Next::Chunk(chunk))), grant));
        }
        match (&inner.end, inner.loan) {
            (Some(Ok(())), _) => Poll::Ready((None, 0)),
            (Some(Err(failure)), _) => Poll::Ready((Some(Err(failure.clone())), 0)),
            (None, Loan::Offered(len)) => Poll::Ready((Some(Ok(Next::Offer(len))), 0)),
            (None, _) => {
                drop(inner);
                self.wait(cx)
            }
        }
    }

    /// Returns the length of the body if all of it has arrived, and the piece if it is a single one.
    pub(crate) fn whole(&self) -> Option<(u64, Option<Chunk>)> {
        let mut inner = self.inner.borrow_mut();
        if inner.end != Some(Ok(())) {
            return None;
        }
        let len = inner.backlog.len();
        let single = if inner.backlog.pieces() == 1 { inner.backlog.pop() } else { None };
        Some((len, single))
    }

    fn wait<T>(&self, cx: &mut Context<'_>) -> Poll<T> {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            waker => *waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn died() -> Failure {
        Failure::app(502, "the worker died")
    }

    fn reply_with_head() -> Reply {
        let reply = Reply::default();
        let head = ReplyHead { status: 200, fields: Fields::default(), body: Bytes::new(), stream: None };
        reply.on_event(ReplyEvent::Head(head));
        reply
    }

    fn next(reply: &Reply) -> Poll<Option<Result<Next, Failure>>> {
        let room = Room { memory: 1 << 20, file: 0 };
        reply.poll_chunk(&room, &mut Context::from_waker(Waker::noop())).map(|(next, _)| next)
    }

    fn taken(reply: &Reply) -> Poll<Result<u64, Failure>> {
        reply.poll_taken(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn an_offer_is_lent_taken_and_followed_by_the_rest() {
        let reply = reply_with_head();
        assert!(reply.on_offer(10) && reply.is_lending());
        assert!(matches!(next(&reply), Poll::Ready(Some(Ok(Next::Offer(10))))));
        assert!(reply.close_offer(true) && !reply.close_offer(true));
        assert!(taken(&reply).is_pending());
        assert!(!reply.on_taken(11), "more than was offered");
        assert!(reply.on_taken(4) && !reply.is_lending());
        reply.on_end(Ok(()));
        assert_eq!(taken(&reply), Poll::Ready(Ok(4)));
        assert!(matches!(next(&reply), Poll::Ready(None)));
        assert!(!reply.on_taken(4), "nothing is lent any more");
    }

    #[test]
    fn a_declined_offer_leaves_no_trace() {
        let reply = reply_with_head();
        assert!(reply.on_offer(10));
        assert!(reply.close_offer(false) && !reply.is_lending());
        assert!(next(&reply).is_pending());
        assert!(!reply.on_taken(0));
    }

    #[test]
    fn a_worker_whose_offer_is_not_looked_at_waits_for_the_client() {
        let reply = reply_with_head();
        assert!(!reply.waits_for_client());
        assert!(reply.on_offer(10) && reply.waits_for_client());
        reply.close_offer(false);
        assert!(!reply.waits_for_client());
    }

    #[test]
    fn no_worker_waits_for_a_busy_client() {
        let room = Room { memory: 1 << 20, file: 0 };
        let reply = reply_with_head();
        reply.on_body(b"earlier", &room, &|| None);
        assert!(!reply.on_offer(10), "bytes are waiting to be written");
        let reply = reply_with_head();
        let Poll::Ready(ReplyEvent::Head(_)) = reply.poll_event(&mut Context::from_waker(Waker::noop()))
        else {
            panic!("a head")
        };
        assert!(!reply.on_offer(10), "the head is being written");
    }

    #[test]
    fn a_lent_socket_comes_back_when_the_worker_dies() {
        let reply = reply_with_head();
        assert!(reply.on_offer(10) && reply.close_offer(true));
        assert!(taken(&reply).is_pending());
        reply.on_end(Err(died()));
        assert_eq!(taken(&reply), Poll::Ready(Err(died())));
        assert!(matches!(next(&reply), Poll::Ready(Some(Err(failure))) if failure == died()));
    }

    #[test]
    fn an_offer_without_a_reader_is_declined() {
        let reply = reply_with_head();
        reply.unwanted();
        assert!(!reply.on_offer(10) && !reply.is_lending());
        let reply = reply_with_head();
        assert!(reply.on_offer(10));
        reply.unwanted();
        assert!(reply.is_lending(), "until the worker has received LEND");
    }
}
