//! Commands that were sent and may be joined later.
//!
//! Why bounded: Ruby cannot say that it has forgotten a promise, and many are never joined (`redis.incr 'hits'`). Their
//! replies are kept for a while and then dropped, oldest first, so memory stays flat.

use super::line::{Fault, Reply};
use mruby::Tape;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Promises that are kept.
const MAX_KEPT: usize = 16 << 10;
/// Bytes of replies that are kept.
const MAX_BYTES: usize = 32 << 20;
/// Promises that are weighed at a time.
const WEIGHED: usize = 2;

/// Numbers rise by one; those before `first` are gone.
#[derive(Default)]
pub(crate) struct Promises {
    first: i64,
    kept: VecDeque<Option<Kept>>,
    bytes: usize,
    /// Where weighing goes on.
    next: usize,
}

struct Kept {
    reply: Reply,
    bytes: usize,
}

impl Promises {
    pub(crate) fn keep(&mut self, reply: Reply) -> i64 {
        self.kept.push_back(Some(Kept { reply, bytes: 0 }));
        self.weigh();
        while self.kept.len() > MAX_KEPT || self.bytes > MAX_BYTES || matches!(self.kept.front(), Some(None))
        {
            self.drop_first();
        }
        self.first + self.kept.len() as i64 - 1
    }

    /// The reply of a promise. It can be had once; who asks and then goes away leaves it to others.
    pub(crate) fn poll(&mut self, number: i64, cx: &mut Context<'_>) -> Poll<Result<Tape, Fault>> {
        let index = usize::try_from(number - self.first).unwrap_or(usize::MAX);
        let Some(Some(kept)) = self.kept.get_mut(index) else {
            let why = format!("the reply is gone: {MAX_KEPT} later ones were kept and not joined either");
            return Poll::Ready(Err(Fault::new("Redis::UnknownError", why)));
        };
        let tape = ready!(Pin::new(&mut kept.reply).poll(cx));
        self.bytes -= kept.bytes;
        self.kept[index] = None;
        while matches!(self.kept.front(), Some(None)) {
            self.drop_first();
        }
        Poll::Ready(Ok(tape))
    }

    fn drop_first(&mut self) {
        if let Some(kept) = self.kept.pop_front() {
            self.bytes -= kept.map_or(0, |kept| kept.bytes);
            self.first += 1;
            self.next = self.next.saturating_sub(1);
        }
    }

    /// Goes round, faster than promises are added.
    fn weigh(&mut self) {
        for _ in 0..WEIGHED.min(self.kept.len()) {
            self.next = (self.next + 1) % self.kept.len();
            if let Some(Some(kept)) = self.kept.get_mut(self.next) {
                let bytes = kept.reply.kept().unwrap_or(0);
                self.bytes = self.bytes - kept.bytes + bytes;
                kept.bytes = bytes;
            }
        }
    }
}
