//! The layout of the scoreboard (`docs/internals/wire.md`, "The scoreboard"): offsets and the packed thread state.

use crate::recorder;

/// The bytes before the first link of a slot.
pub const HEADER: usize = 64;
/// The bytes of each thread.
pub const THREAD: usize = 16;
/// The offset of the number of finished requests.
pub const REQUESTS: usize = 0;
/// The offset of the number of requests that ended in an exception of the app.
pub const FAILURES: usize = 8;
/// The offset of the number of threads started.
pub const THREADS: usize = 16;

/// The offset of the number of requests being served; used only by workers with fibers.
pub const SERVING: usize = 24;
/// The offset of the number of calls that have blocked a fiber loop for longer than allowed.
pub const BLOCKING_CALLS: usize = 32;
/// The offset of the total duration of those calls in microseconds.
pub const BLOCKED_US: usize = 40;
/// The offset of the threads whose fiber loops are computing: one bit for each of the first 64.
pub const COMPUTING: usize = 48;
/// The offset of the order to take a profile ([`crate::profile::Order`]). The front writes it.
pub const PROFILE: usize = 56;

const BUSY: u64 = 1 << 63;

/// The bytes of each link.
pub const LINK: usize = 16;

/// The numbers of links and threads on which the layout of the slots depends: the threads are the most that a
/// worker may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub threads: usize,
    pub links: usize,
}

impl Layout {
    /// Returns the size of the slot in bytes.
    pub const fn slot_len(self) -> usize {
        self.recorder_at() + recorder::LEN
    }

    /// Returns the offset of the flight recorder, which is the end of the slot.
    pub const fn recorder_at(self) -> usize {
        (HEADER + THREAD * self.threads + LINK * self.links).next_multiple_of(64)
    }
}

/// Returns the offset of the number of requests taken up from link `link`.
pub const fn link_at(link: usize) -> usize {
    HEADER + LINK * link
}

/// Returns the offset of the number of requests of link `link` that the front has withdrawn. The front
/// writes this word.
pub const fn withdrawn_at(link: usize) -> usize {
    link_at(link) + 8
}

/// Returns the offset of thread `t` in the slot of a worker with `links` links. Threads come last, because
/// their number differs among pools.
pub const fn thread_at(links: usize, t: usize) -> usize {
    HEADER + LINK * links + THREAD * t
}

/// The request that a thread is serving.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Serving {
    /// The number of the link on which the request arrived.
    pub link: u32,
    /// The id of the request on that link.
    pub id: u32,
}

impl Serving {
    /// Returns the packed form. `link` must be below 2^31.
    #[inline]
    pub const fn pack(self) -> u64 {
        BUSY | (self.link as u64) << 32 | self.id as u64
    }

    /// Unpacks a word; `None` for an idle thread.
    #[inline]
    pub const fn unpack(word: u64) -> Option<Serving> {
        if word & BUSY == 0 {
            return None;
        }
        Some(Serving { link: ((word & !BUSY) >> 32) as u32, id: word as u32 })
    }
}

/// A thread that is serving a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy {
    pub thread: u32,
    pub serving: Serving,
    /// Since when, in microseconds of the monotonic clock.
    pub since_us: u64,
}

/// A copy of one worker's slot.
#[derive(Debug, Clone, Default)]
pub struct Slot {
    /// Finished requests.
    pub requests: u64,
    /// Requests that ended in an exception of the app.
    pub failures: u64,
    /// Threads started.
    pub threads: u64,
    /// Requests being served, if the worker serves with fibers.
    pub serving: u64,
    /// Calls that have blocked a fiber loop for longer than allowed.
    pub blocking_calls: u64,
    /// The total duration of those calls in microseconds.
    pub blocked_us: u64,
    /// The threads whose fiber loops are computing: one bit for each of the first 64.
    pub computing: u64,
    /// The threads that are serving a request. With fibers: the threads that run a fiber at this moment, and
    /// since when.
    pub busy: Vec<Busy>,
    /// The number of requests taken up, for each link.
    pub taken: Vec<u64>,
}

impl Slot {
    /// Returns whether a fiber of this thread has used up a slice and is still computing.
    pub fn computes(&self, thread: u32) -> bool {
        1u64.checked_shl(thread).is_some_and(|bit| self.computing & bit != 0)
    }

    /// Reads a slot. Missing bytes count as zero.
    pub fn read(bytes: &[u8], Layout { threads, links }: Layout) -> Slot {
        let word =
            |at: usize| bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        Slot {
            requests: word(REQUESTS),
            failures: word(FAILURES),
            threads: word(THREADS),
            serving: word(SERVING),
            blocking_calls: word(BLOCKING_CALLS),
            blocked_us: word(BLOCKED_US),
            computing: word(COMPUTING),
            busy: (0..threads)
                .filter_map(|t| {
                    let serving = Serving::unpack(word(thread_at(links, t)))?;
                    Some(Busy { thread: t as u32, serving, since_us: word(thread_at(links, t) + 8) })
                })
                .collect(),
            taken: (0..links).map(|link| word(link_at(link))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serving_survives_packing() {
        let serving = Serving { link: 3, id: u32::MAX };
        assert_eq!(Serving::unpack(serving.pack()), Some(serving));
        assert_eq!(Serving::unpack(0), None);
    }

    #[test]
    fn a_slot_is_read_back() {
        let layout = Layout { threads: 3, links: 2 };
        let mut bytes = vec![0; layout.slot_len()];
        bytes[0..8].copy_from_slice(&9u64.to_le_bytes());
        bytes[32..40].copy_from_slice(&3u64.to_le_bytes());
        bytes[40..48].copy_from_slice(&450_000u64.to_le_bytes());
        bytes[48..56].copy_from_slice(&(1u64 << 63 | 2).to_le_bytes());
        let at = thread_at(2, 2);
        bytes[at..at + 8].copy_from_slice(&Serving { link: 1, id: 5 }.pack().to_le_bytes());
        bytes[at + 8..at + 16].copy_from_slice(&77u64.to_le_bytes());
        let at = link_at(1);
        bytes[at..at + 8].copy_from_slice(&4u64.to_le_bytes());
        let slot = Slot::read(&bytes, layout);
        assert_eq!(slot.taken, [0, 4]);
        assert_eq!(withdrawn_at(1) + 8, thread_at(2, 0));
        assert!(thread_at(2, 2) + 16 <= layout.slot_len());
        assert_eq!(slot.requests, 9);
        assert_eq!([0, 1, 63, 64].map(|thread| slot.computes(thread)), [false, true, true, false]);
        assert_eq!((slot.blocking_calls, slot.blocked_us), (3, 450_000));
        assert_eq!(slot.busy, [Busy { thread: 2, serving: Serving { link: 1, id: 5 }, since_us: 77 }]);
    }
}
