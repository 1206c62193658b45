//! The flight recorder: what this worker has done last, in the memory of the scoreboard, where the front finds it when the worker has died.
//!
//! Contract: recording takes no lock, allocates nothing and calls nothing that waits. Once a second in which there is an event it reads the process's
//! memory, which takes three system calls. Only threads that hold the GVL record, so the words need no atomic changes, only whole ones.

use crate::raw::gvl::{Guarded, Gvl};
use crate::raw::{os, ruby};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::compiler_fence;
use wire::recorder::{
    self, AT, EVENT, EventKind, KIND, LONGEST, NUMBER, REQUEST, SECOND, TEXT, VALUES, event_at, pack,
    second_at,
};

/// The part of a slot in which a worker records.
#[derive(Clone, Copy)]
pub(crate) struct Recorder(&'static [AtomicU64]);

/// Ruby's number of collections at the last event.
static COLLECTIONS: Guarded<usize> = Guarded::new(0);

impl Recorder {
    /// `words`: [`recorder::LEN`] bytes.
    pub(crate) fn new(words: &'static [AtomicU64]) -> Recorder {
        Recorder(words)
    }

    /// Records that a request begins, by its method and its path, after `queued_us` in the queue.
    #[inline]
    pub(crate) fn begin(
        self,
        _gvl: &Gvl,
        (thread, link, id): (usize, u32, u32),
        (now_us, queued_us): (u64, u64),
        (method, path): (&[u8], &[u8]),
    ) {
        let mut text = EventText::new(method);
        text.add(b" ");
        text.add(path);
        self.event((EventKind::Begin, 0), thread, (link, id), now_us, [queued_us, 0], &text);
        let Some(second) = self.second(now_us) else { return };
        add(&second[1], 1);
    }

    /// Records the end of a request. `route`: the app's name for it, or nothing.
    #[inline]
    pub(crate) fn end(
        self,
        gvl: &Gvl,
        (thread, link, id): (usize, u32, u32),
        (now_us, took_us): (u64, u64),
        (failed, status): (bool, u16),
        route: &'static str,
    ) {
        let count = ruby::gc_count(gvl);
        let collected =
            COLLECTIONS.with(gvl, |last| count.wrapping_sub(std::mem::replace(last, count))) as u64;
        let kind = if failed { EventKind::Fail } else { EventKind::End };
        self.event(
            (kind, status),
            thread,
            (link, id),
            now_us,
            [took_us, collected],
            &EventText::new(route.as_bytes()),
        );
        let Some(second) = self.second(now_us) else { return };
        add(&second[1], 1 << 32);
        add(&second[2], u64::from(failed) | (collected & 0xffff) << 32);
        add(&second[3], (took_us / 1000).min(1 << 20) << 32);
    }

    /// Records an exception of the app.
    pub(crate) fn raised(self, _gvl: &Gvl, (thread, link, id): (usize, u32, u32), what: &[u8]) {
        self.event((EventKind::Raised, 0), thread, (link, id), os::now_us(), [0, 0], &EventText::new(what));
    }

    /// Records a signal or an order.
    pub(crate) fn told(self, _gvl: &Gvl, what: &str) {
        self.event((EventKind::Told, 0), 0, (0, 0), os::now_us(), [0, 0], &EventText::new(what.as_bytes()));
    }

    #[inline]
    fn event(
        self,
        (kind, status): (EventKind, u16),
        thread: usize,
        (link, id): (u32, u32),
        now_us: u64,
        values: [u64; 2],
        text: &EventText,
    ) {
        let number = self.get(0).wrapping_add(1);
        let at = event_at(number) / 8;
        let Some(event) =
            self.0.get(at..at + EVENT / 8).and_then(|words| words.first_chunk::<{ EVENT / 8 }>())
        else {
            return;
        };
        let put = |at: usize, value: u64| event[at / 8].store(value, Relaxed);
        put(NUMBER, 0);
        // The worker may be killed between any two instructions, so the compiler must keep this order.
        compiler_fence(Release);
        put(AT, now_us);
        put(KIND, pack(kind, text.len, thread, status));
        put(REQUEST, u64::from(link) << 32 | u64::from(id));
        put(VALUES, values[0]);
        put(VALUES + 8, values[1]);
        let (words, _) = text.bytes.as_chunks::<8>();
        for (to, word) in event[TEXT / 8..].iter().zip(&words[..text.len.div_ceil(8)]) {
            to.store(u64::from_le_bytes(*word), Relaxed);
        }
        event[NUMBER / 8].store(number, Release);
        self.put(0, number);
    }

    /// Returns the words of the second, which may be new.
    #[inline]
    fn second(self, now_us: u64) -> Option<&'static [AtomicU64; SECOND / 8]> {
        let second = now_us / 1_000_000;
        let at = second_at(second) / 8;
        let words = self.0.get(at..at + SECOND / 8)?.first_chunk::<{ SECOND / 8 }>()?;
        if words[0].load(Relaxed) != second {
            words[1..].iter().for_each(|word| word.store(0, Relaxed));
            words[3].store(os::resident_kib().min(u64::from(u32::MAX)), Relaxed);
            words[0].store(second, Relaxed);
        }
        Some(words)
    }

    #[inline]
    fn get(self, at: usize) -> u64 {
        self.0.get(at / 8).map_or(0, |word| word.load(Relaxed))
    }

    #[inline]
    fn put(self, at: usize, value: u64) {
        if let Some(word) = self.0.get(at / 8) {
            word.store(value, Relaxed);
        }
    }
}

#[inline]
fn add(word: &AtomicU64, value: u64) {
    word.store(word.load(Relaxed).wrapping_add(value), Relaxed);
}

const _: () = assert!(recorder::LEN.is_multiple_of(64));

/// The text of an event, which is cut at its longest.
struct EventText {
    bytes: [u8; LONGEST],
    len: usize,
}

impl EventText {
    #[inline]
    fn new(text: &[u8]) -> EventText {
        let mut new = EventText { bytes: [0; LONGEST], len: 0 };
        new.add(text);
        new
    }

    #[inline]
    fn add(&mut self, text: &[u8]) {
        let len = text.len().min(LONGEST - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&text[..len]);
        self.len += len;
    }
}
