//! The answer to one request on its way from the link that reads it to the handler that waits for it.
//!
//! One side fills in what frames say (`on_…`), the other polls. Both are on the same thread.

use crate::spool::{Backlog, Room};
use bytes::Bytes;
use handler::{Broken, Chunk, Failure, Fields, FileRegion};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::task::{Context, Poll, Waker};

/// What a handler can learn before it has its response.
#[derive(Debug)]
pub(crate) enum News {
    /// An informational response.
    Interim(u16, Fields),
    /// The head of the response, with what there is of its body.
    Head(Head),
    /// The app took the connection over; this is its end of it.
    Hijacked(OwnedFd),
    /// There will be no response.
    Failed(Failure),
}

/// A response head and the beginning of the body.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) fields: Fields,
    pub(crate) body: Bytes,
    /// Where the rest of the body comes from, if not from the reply.
    pub(crate) stream: Option<OwnedFd>,
}

#[derive(Debug, Default)]
struct Inner {
    news: VecDeque<News>,
    backlog: Backlog,
    end: Option<Result<(), Broken>>,
    headed: bool,
    unwanted: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Reply {
    inner: RefCell<Inner>,
    waker: RefCell<Option<Waker>>,
}

impl Reply {
    pub(crate) fn on_news(&self, news: News) {
        let mut inner = self.inner.borrow_mut();
        inner.headed |= !matches!(news, News::Interim(..));
        if !inner.unwanted {
            inner.news.push_back(news);
        }
        drop(inner);
        self.wake();
    }

    /// Body bytes; the window to give back.
    pub(crate) fn on_body(&self, bytes: &[u8], room: &Room, temp_dir: &Path) -> std::io::Result<u32> {
        let mut inner = self.inner.borrow_mut();
        if inner.unwanted {
            return Ok(0);
        }
        inner.backlog.push(bytes, room, temp_dir)?;
        let grant = inner.backlog.grant(room);
        drop(inner);
        self.wake();
        Ok(grant)
    }

    pub(crate) fn on_file(&self, region: FileRegion) {
        let mut inner = self.inner.borrow_mut();
        if !inner.unwanted && region.len > 0 {
            inner.backlog.push_file(region);
        }
        drop(inner);
        self.wake();
    }

    pub(crate) fn on_end(&self, end: Result<(), Broken>) {
        let mut inner = self.inner.borrow_mut();
        if inner.end.is_none() {
            inner.end = Some(end);
        }
        drop(inner);
        self.wake();
    }

    /// Whether the final response, or a hijack, has begun.
    pub(crate) fn headed(&self) -> bool {
        self.inner.borrow().headed
    }

    /// Nobody will take what comes.
    pub(crate) fn unwanted(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.unwanted = true;
        inner.news.clear();
        inner.backlog.clear();
    }

    /// Whether [`Reply::unwanted`] was called.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.inner.borrow().unwanted
    }

    pub(crate) fn poll_news(&self, cx: &mut Context<'_>) -> Poll<News> {
        match self.inner.borrow_mut().news.pop_front() {
            Some(news) => Poll::Ready(news),
            None => self.wait(cx),
        }
    }

    /// The next piece of the body, and the window to give back.
    pub(crate) fn poll_chunk(
        &self,
        room: &Room,
        cx: &mut Context<'_>,
    ) -> Poll<(Option<Result<Chunk, Broken>>, u32)> {
        let mut inner = self.inner.borrow_mut();
        if let Some(chunk) = inner.backlog.pop() {
            let grant = inner.backlog.grant(room);
            return Poll::Ready((Some(Ok(chunk)), grant));
        }
        match inner.end {
            Some(Ok(())) => Poll::Ready((None, 0)),
            Some(Err(broken)) => Poll::Ready((Some(Err(broken)), 0)),
            None => {
                drop(inner);
                self.wait(cx)
            }
        }
    }

    /// The whole body when it is here already: its length and, when it is a single piece, the piece.
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
