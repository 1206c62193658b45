//! One client with its waiting requests, and the requests that wait.

use crate::client::QueueKey;
use crate::links::{Linked, Links, List};
use std::time::{Duration, Instant};

/// The list of a client's requests.
pub(crate) const OWN: usize = 0;
/// The list of all requests by time.
pub(crate) const ALL: usize = 1;

/// A waiting request.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    pub(crate) since: Instant,
    pub(crate) thread: u16,
    pub(crate) slot: u32,
    /// Its client.
    pub(crate) flow: u32,
    /// Whether a worker has had it, or its position is old for another reason.
    pub(crate) returned: bool,
    pub(crate) links: [Links; 2],
}

impl Linked for Entry {
    #[inline]
    fn links(&mut self, list: usize) -> &mut Links {
        &mut self.links[list]
    }
}

/// The ring of a class in which a client takes its turn.
pub(crate) const TURN: usize = 0;
/// The list of clients with about as many requests.
pub(crate) const BUCKET: usize = 1;

/// Where a client takes its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ring {
    None,
    /// With the clients of which no worker has a request.
    Idle,
    /// With the others.
    Busy,
}

/// A client in a class.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) key: QueueKey,
    pub(crate) entries: List<OWN>,
    pub(crate) waiting: u32,
    /// Requests that have waited and that a worker has now.
    pub(crate) seats: u32,
    /// The seat time, in microseconds, that the client may use before the others have had a turn. Negative after
    /// a request that took longer than expected.
    pub(crate) credit: i64,
    pub(crate) mean: Mean,
    /// Whether its turn has begun and has credit left, so that it goes before the others.
    pub(crate) goes_on: bool,
    pub(crate) ring: Ring,
    links: [Links; 2],
}

impl Flow {
    /// Creates a client with `credit`.
    pub(crate) fn new(key: QueueKey, credit: i64) -> Flow {
        Flow {
            key,
            entries: List::default(),
            waiting: 0,
            seats: 0,
            credit,
            mean: Mean::default(),
            goes_on: false,
            ring: Ring::None,
            links: Default::default(),
        }
    }

    /// Begins a turn, which is worth `turn` of seat time, unless the last turn continues. Returns whether the
    /// client must be passed over.
    #[inline]
    pub(crate) fn passes(&mut self, turn: i64) -> bool {
        if self.credit <= 0 {
            self.credit = self.credit.max(-turn * DEBT) + turn;
        }
        self.credit <= 0
    }
}

impl Linked for Flow {
    #[inline]
    fn links(&mut self, list: usize) -> &mut Links {
        &mut self.links[list]
    }
}

/// The most turns that a client is passed over for its past use.
pub(crate) const DEBT: i64 = 16;

/// The mean seat time of the last requests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Mean {
    us: f32,
    /// How many requests it is made of, at most [`Mean::LAST`].
    count: u8,
}

impl Mean {
    const LAST: u8 = 32;

    #[inline]
    pub(crate) fn add(&mut self, us: u32) {
        let more = us as f32 - self.us;
        if self.count == Mean::LAST {
            self.us += more * (1.0 / Mean::LAST as f32);
        } else {
            self.count += 1;
            self.us += more / f32::from(self.count);
        }
    }

    /// Returns the mean in microseconds, at least 1; `None` before the first request has ended.
    #[inline]
    pub(crate) fn us(&self) -> Option<u32> {
        (self.count > 0).then_some((self.us as u32).max(1))
    }
}

/// Returns whole microseconds.
pub(crate) fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}
