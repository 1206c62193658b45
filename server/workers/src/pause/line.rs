//! Queues the requests that wait for the end of a pause, in order of arrival. Pure: times are passed in.
//!
//! Contract:
//! 1. Requests of a pool leave in order of arrival. Pools do not wait for each other.
//! 2. While requests from before the end of the pause are left, later requests wait behind them. Then the
//!    line is open again, and the remaining requests leave as the queue has room.
//! 3. A request waits for room at most for the given patience, counted from the last request that got room or
//!    from the opening of the line. After that the limits of the queue decide.
//! 4. A released request is on its way until it is in the queue or its client has gone. Only then is the next
//!    request released. Two front threads could bring theirs to the queue in any order, and so could one thread:
//!    a connection that its thread is about to read also sees that its requests have been released.

use super::{PauseFigures, PausePhase, PauseTerms};
use queue::PoolIndex;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The outcome for a request that enters the line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// It does not have to wait.
    Passes,
    /// It waits under this number.
    Waits(u64),
    /// `max` requests wait. The pause ends at `until`, or is over.
    Full { max: usize, until: Option<Instant> },
    /// The server is shutting down.
    Refused,
}

#[derive(Debug)]
pub(super) struct PauseLine<T> {
    phase: PausePhase,
    terms: Option<PauseTerms>,
    /// The number of the next request.
    next: u64,
    pools: Vec<PoolLine<T>>,
    waiting: usize,
    /// The number of the first request that came after the end of the pause.
    first_after: u64,
    /// When the last request from before the end of the pause had left, or the pause ended without any.
    open_since: Option<Instant>,
    held: u64,
    refused: u64,
    left: u64,
}

/// The requests of one pool.
#[derive(Debug)]
struct PoolLine<T> {
    /// The requests by their numbers.
    waiting: BTreeMap<u64, T>,
    on_the_way: usize,
    /// How many more requests the queue has room for.
    room: usize,
    /// When the pause ended, or the last request was released.
    advanced: Option<Instant>,
}

impl<T> PauseLine<T> {
    pub(super) fn new(pools: usize) -> PauseLine<T> {
        let pool = || PoolLine { waiting: BTreeMap::new(), on_the_way: 0, room: 0, advanced: None };
        PauseLine {
            phase: PausePhase::Off,
            terms: None,
            next: 0,
            pools: (0..pools).map(|_| pool()).collect(),
            waiting: 0,
            first_after: 0,
            open_since: None,
            held: 0,
            refused: 0,
            left: 0,
        }
    }

    pub(super) fn begin(&mut self, terms: PauseTerms) -> Result<(), &'static str> {
        if self.phase == PausePhase::Refusing {
            return Err("the server is shutting down");
        }
        self.phase = PausePhase::On;
        self.terms = Some(terms);
        self.open_since = None;
        Ok(())
    }

    /// Ends the pause. Returns the number of requests that wait; `None` without a pause.
    pub(super) fn end(&mut self, now: Instant) -> Option<usize> {
        if self.phase != PausePhase::On {
            return None;
        }
        self.phase = PausePhase::Releasing;
        self.first_after = self.next;
        for pool in &mut self.pools {
            (pool.advanced, pool.room) = (Some(now), 0);
        }
        self.settle(now);
        Some(self.waiting)
    }

    /// Refuses all requests from now on, if the app is paused. Returns the waiting ones.
    pub(super) fn refuse(&mut self) -> Vec<T> {
        if self.phase != PausePhase::On {
            // Requests that are being released go to the app, as they would without the shutdown.
            return Vec::new();
        }
        self.phase = PausePhase::Refusing;
        self.terms = None;
        self.refused += self.waiting as u64;
        self.waiting = 0;
        let pools = self.pools.iter_mut();
        pools.flat_map(|pool| std::mem::take(&mut pool.waiting).into_values()).collect()
    }

    /// Adds a request to the line, if it has to wait. `concerns` tells whether a pause with
    /// these paths concerns the request.
    pub(super) fn enter(
        &mut self,
        pool: PoolIndex,
        concerns: impl FnOnce(&[String]) -> bool,
        request: T,
    ) -> Entered {
        if self.phase == PausePhase::Refusing {
            self.refused += 1;
            return Entered::Refused;
        }
        let terms = match &self.terms {
            Some(terms) if self.is_closed() && concerns(&terms.paths) => terms,
            _ => return Entered::Passes,
        };
        if self.waiting >= terms.max {
            self.refused += 1;
            let until = (self.phase == PausePhase::On).then_some(terms.until);
            return Entered::Full { max: terms.max, until };
        }
        let number = self.next;
        self.next += 1;
        self.waiting += 1;
        self.held += 1;
        self.pools[usize::from(pool.0)].waiting.insert(number, request);
        Entered::Waits(number)
    }

    /// Removes a request whose client has gone. The request may have been released already; then its place on the
    /// way is free, and the next request is returned, as by [`PauseLine::arrived`].
    pub(super) fn leave(&mut self, pool: PoolIndex, number: u64, now: Instant) -> Option<T> {
        if self.pools[usize::from(pool.0)].waiting.remove(&number).is_some() {
            self.waiting -= 1;
            self.left += 1;
            self.settle(now);
            return None;
        }
        if self.phase == PausePhase::Refusing {
            return None;
        }
        self.arrived(pool, now)
    }

    /// Records that a released request is in the queue, or that its client has gone. Returns the next request,
    /// if the queue had room for more at the last [`PauseLine::release`].
    pub(super) fn arrived(&mut self, pool: PoolIndex, now: Instant) -> Option<T> {
        let its = &mut self.pools[usize::from(pool.0)];
        its.on_the_way = its.on_the_way.saturating_sub(1);
        self.next(pool, now)
    }

    /// Returns whether a request of a pool is on the way.
    pub(super) fn is_moving(&self, pool: PoolIndex) -> bool {
        self.pools[usize::from(pool.0)].on_the_way > 0
    }

    /// Removes the next request of a pool from the line, if the pause is over and no other is on the way; or all,
    /// when the requests have waited for `patience` without any getting room. `room`: the number of requests
    /// that the queue has room for.
    pub(super) fn release(
        &mut self,
        pool: PoolIndex,
        room: usize,
        patience: Duration,
        now: Instant,
    ) -> Vec<T> {
        let its = &mut self.pools[usize::from(pool.0)];
        let since = [its.advanced, self.open_since].into_iter().flatten().min();
        let impatient = since.is_some_and(|since| now.saturating_duration_since(since) >= patience);
        its.room = room.saturating_sub(its.on_the_way);
        if !impatient {
            return self.next(pool, now).into_iter().collect();
        }
        let mut released = Vec::new();
        while let Some(next) = self.pop(pool, now) {
            released.push(next);
        }
        released
    }

    /// Removes the next request of a pool from the line, if the queue has room for it and no other is on the way.
    fn next(&mut self, pool: PoolIndex, now: Instant) -> Option<T> {
        let its = &mut self.pools[usize::from(pool.0)];
        if its.on_the_way > 0 || its.room == 0 {
            return None;
        }
        self.pop(pool, now)
    }

    /// Removes the next request of a pool from the line, if the pause is over.
    fn pop(&mut self, pool: PoolIndex, now: Instant) -> Option<T> {
        if self.phase != PausePhase::Releasing {
            return None;
        }
        let its = &mut self.pools[usize::from(pool.0)];
        let (_, next) = its.waiting.pop_first()?;
        its.on_the_way += 1;
        its.room = its.room.saturating_sub(1);
        its.advanced = Some(now);
        self.waiting -= 1;
        self.settle(now);
        Some(next)
    }

    /// Opens the line when the last request from before the end of the pause has left, and ends the release with
    /// the last request.
    fn settle(&mut self, now: Instant) {
        if self.phase != PausePhase::Releasing {
            return;
        }
        if !self.is_closed() {
            self.open_since.get_or_insert(now);
        }
        if self.waiting == 0 {
            self.phase = PausePhase::Off;
            self.open_since = None;
        }
    }

    /// Returns whether requests may have to wait, or are refused.
    pub(super) fn is_closed(&self) -> bool {
        match self.phase {
            PausePhase::Off => false,
            PausePhase::On | PausePhase::Refusing => true,
            PausePhase::Releasing => {
                let first = self.pools.iter().filter_map(|pool| pool.waiting.keys().next()).min();
                first.is_some_and(|first| *first < self.first_after)
            }
        }
    }

    pub(super) fn phase(&self) -> PausePhase {
        self.phase
    }

    /// Returns the phase, and when a pause that is on ends.
    pub(super) fn at(&self) -> (PausePhase, Option<Instant>) {
        (self.phase, self.terms.as_ref().map(|terms| terms.until))
    }

    pub(super) fn waiting_of(&self, pool: PoolIndex) -> usize {
        self.pools[usize::from(pool.0)].waiting.len()
    }

    pub(super) fn figures(&self) -> PauseFigures {
        PauseFigures {
            phase: self.phase,
            terms: self.terms.clone(),
            waiting: self.waiting,
            held: self.held,
            refused: self.refused,
            left: self.left,
        }
    }
}
