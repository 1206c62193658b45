//! This worker's slot of the scoreboard: shows the front, without a message, which requests have been started.

use crate::raw::os;
use crate::recorder::Recorder;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release, SeqCst},
    fence,
};
use wire::recorder;
use wire::scoreboard::{
    BLOCKED_US, BLOCKING_CALLS, COMPUTING, FAILURES, PROFILE, REQUESTS, SERVING, Serving, THREADS, link_at,
    thread_at, withdrawn_at,
};

/// One worker's slot.
#[derive(Clone, Copy)]
pub(crate) struct Scoreboard {
    words: &'static [AtomicU64],
    /// The mapping, which includes the slots before this one.
    mapped: &'static [AtomicU64],
    links: usize,
}

impl Scoreboard {
    /// Maps slot `index` of a file of slots of `slot_len` bytes, for a worker with so many links, and clears it.
    pub(crate) fn map(fd: RawFd, index: usize, slot_len: usize, links: usize) -> io::Result<Scoreboard> {
        let mapped = os::map_words(fd, (index + 1) * slot_len)?;
        let words = &mapped[index * slot_len / 8..];
        for word in words {
            word.store(0, Release);
        }
        Ok(Scoreboard { words, mapped, links })
    }

    /// Unmaps the memory. No copy of this may be used any more.
    pub(crate) fn unmap(self) {
        os::unmap_words(self.mapped);
    }

    /// Returns the flight recorder, which is the end of the slot.
    #[inline]
    pub(crate) fn recorder(self) -> Recorder {
        Recorder::new(&self.words[self.words.len().saturating_sub(recorder::LEN / 8)..])
    }

    fn put(self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at / 8) {
            word.store(value, Release);
        }
    }

    fn add(self, at: usize) {
        if let Some(word) = self.words.get(at / 8) {
            word.fetch_add(1, Release);
        }
    }

    pub(crate) fn thread_started(self) {
        self.add(THREADS);
    }

    /// Sets how many requests of a link have been taken up or discarded. Returns whether the front has
    /// withdrawn the last of them.
    #[inline]
    pub(crate) fn passed(self, link: u32, count: u64) -> bool {
        let link = link as usize;
        self.put(link_at(link), count);
        // The front writes this word and then reads how many were taken up; the worker does it the other way
        // round. So at least one of the two sees the other's write (docs/internals/wire.md).
        fence(SeqCst);
        let withdrawn = self.words.get(withdrawn_at(link) / 8);
        withdrawn.is_some_and(|withdrawn| withdrawn.load(SeqCst) >= count)
    }

    /// Records that a thread begins to serve a request, or enters its fiber.
    #[inline]
    pub(crate) fn begin(self, thread: usize, link: u32, id: u32, now_us: u64) {
        let at = thread_at(self.links, thread);
        self.put(at + 8, now_us);
        self.put(at, Serving { link, id }.pack());
    }

    /// Returns the request that a thread is serving, as one word and the time since when; zeros when it serves none.
    pub(crate) fn serving(self, thread: usize) -> (u64, u64) {
        let at = thread_at(self.links, thread) / 8;
        let word = |at: usize| self.words.get(at).map_or(0, |word| word.load(Acquire));
        (word(at), word(at + 1))
    }

    /// Returns the front's order to take a profile.
    pub(crate) fn ordered_profile(self) -> u64 {
        self.words.get(PROFILE / 8).map_or(0, |word| word.load(Acquire))
    }

    /// Returns the number of requests that fibers serve.
    pub(crate) fn served_by_fibers(self) -> u64 {
        self.words.get(SERVING / 8).map_or(0, |word| word.load(Acquire))
    }

    /// Returns the number of requests finished.
    pub(crate) fn finished(self) -> u64 {
        self.words.get(REQUESTS / 8).map_or(0, |word| word.load(Acquire))
    }

    /// Records that no fiber runs on a thread.
    #[inline]
    pub(crate) fn rests(self, thread: usize) {
        self.put(thread_at(self.links, thread), 0);
    }

    /// Sets the number of requests being served by fibers.
    #[inline]
    pub(crate) fn serves(self, count: u64) {
        self.put(SERVING, count);
    }

    /// Records whether fibers of a thread have used up a slice and go on computing.
    pub(crate) fn computes(self, thread: usize, computes: bool) {
        let Some(bit) = 1u64.checked_shl(thread as u32) else { return };
        if let Some(word) = self.words.get(COMPUTING / 8) {
            if computes {
                word.fetch_or(bit, Release)
            } else {
                word.fetch_and(!bit, Release)
            };
        }
    }

    /// Records a call that has blocked a loop of fibers for `us`.
    pub(crate) fn blocked(self, us: u64) {
        self.add(BLOCKING_CALLS);
        if let Some(word) = self.words.get(BLOCKED_US / 8) {
            word.fetch_add(us, Release);
        }
    }

    #[inline]
    pub(crate) fn finish(self, thread: usize, failed: bool) {
        self.rests(thread);
        self.add(REQUESTS);
        if failed {
            self.add(FAILURES);
        }
    }
}
