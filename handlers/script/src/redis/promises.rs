//! Promises: commands that were sent and whose replies may be joined later.
//!
//! Ruby does not report that it has dropped a promise, and many are never joined (`redis.incr 'hits'`). So
//! their number and the bytes of their replies are bounded; the oldest are dropped first.

use super::Reply;
use super::fault::Fault;
use mruby::Tape;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// The most promises that are kept.
const MAX_PROMISES: usize = 16 << 10;
/// The most bytes of replies that are kept.
const MAX_BYTES: usize = 32 << 20;
/// The number of promises that are measured each time one is added.
const MEASURED: usize = 2;

/// Promises are numbered in order; those before `first` have been dropped.
#[derive(Default)]
pub(super) struct Promises {
    first: i64,
    kept: VecDeque<Option<Promise>>,
    bytes: usize,
    /// The index at which measuring continues.
    next: usize,
}

struct Promise {
    reply: Reply,
    bytes: usize,
}

impl Promises {
    /// Keeps a reply and returns its number.
    pub(super) fn keep(&mut self, reply: Reply) -> i64 {
        self.kept.push_back(Some(Promise { reply, bytes: 0 }));
        self.measure();
        while self.kept.len() > MAX_PROMISES
            || self.bytes > MAX_BYTES
            || matches!(self.kept.front(), Some(None))
        {
            self.drop_first();
        }
        self.first + self.kept.len() as i64 - 1
    }

    /// Polls the reply of a promise, which can be taken once. A task that stops waiting leaves it to others.
    pub(super) fn poll(&mut self, number: i64, cx: &mut Context<'_>) -> Poll<Result<Tape, Fault>> {
        let index = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        let Some(Some(kept)) = self.kept.get_mut(index) else {
            let why = format!("the reply was dropped: {MAX_PROMISES} later ones have not been joined either");
            return Poll::Ready(Err(Fault::new("Redis::UnknownError", why)));
        };
        let reply = ready!(Pin::new(&mut kept.reply).poll(cx));
        self.bytes -= kept.bytes;
        self.kept[index] = None;
        while matches!(self.kept.front(), Some(None)) {
            self.drop_first();
        }
        Poll::Ready(Ok(reply.0))
    }

    fn drop_first(&mut self) {
        if let Some(kept) = self.kept.pop_front() {
            self.bytes -= kept.map_or(0, |kept| kept.bytes);
            self.first += 1;
            self.next = self.next.saturating_sub(1);
        }
    }

    /// Measures the next promises in turn, faster than new ones are added.
    fn measure(&mut self) {
        for _ in 0..MEASURED.min(self.kept.len()) {
            self.next = (self.next + 1) % self.kept.len();
            if let Some(Some(kept)) = self.kept.get_mut(self.next) {
                let bytes = kept.reply.size().unwrap_or(0);
                self.bytes = self.bytes - kept.bytes + bytes;
                kept.bytes = bytes;
            }
        }
    }
}
