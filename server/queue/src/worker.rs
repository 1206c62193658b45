//! The seats of one worker.

use crate::availability::{Availability, PassReason};
use crate::pace::Pace;
use crate::tally::Tally;
use crate::ticket::Serial;
use std::time::{Duration, Instant};

/// A worker that has finished nothing for this long gets nothing in advance.
pub(crate) const SILENT: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) serial: Serial,
    /// The number of requests that the worker serves at a time.
    pub(crate) seats: u32,
    /// The number that it could serve.
    built: u32,
    /// The number of requests that it holds.
    pub(crate) taken: u32,
    pub(crate) availability: Availability,
    /// Connections that the worker's app has taken over. They hold no seat.
    pub(crate) tunnels: u32,
    /// The time of the last completed request, or of the request that ended an idle period.
    progress: Instant,
    pub(crate) tally: Tally,
}

impl Worker {
    pub(crate) fn new(serial: Serial, seats: u32, now: Instant) -> Worker {
        Worker {
            serial,
            seats,
            built: seats,
            taken: 0,
            availability: Availability::default(),
            tunnels: 0,
            progress: now,
            tally: Tally::default(),
        }
    }

    /// Lets the worker hold at most `limit` requests at a time; `None`: as many as it can serve, and more in
    /// advance.
    pub(crate) fn limit(&mut self, limit: Option<u32>) {
        self.seats = limit.map_or(self.built, |limit| limit.clamp(1, self.built.max(1)));
    }

    pub(crate) fn free(&self) -> u32 {
        self.seats.saturating_sub(self.taken)
    }

    /// Returns whether the worker takes new requests, now or when it has finished its own.
    pub(crate) fn is_open(&self) -> bool {
        !self.availability.has(PassReason::Leaving)
    }

    /// Returns the order in which workers get requests, the lowest first: with free seats, not computing, most
    /// free seats, fewest tunnels.
    #[inline]
    pub(crate) fn rank(&self) -> (bool, bool, i64, u32, u32) {
        let over = i64::from(self.taken) - i64::from(self.seats);
        (over >= 0, self.availability.has(PassReason::Computing), over, self.tunnels, self.taken)
    }

    /// Takes a seat, or with `pace` one in advance. Returns false if there is none.
    #[inline]
    pub(crate) fn take(&mut self, pace: Option<&Pace>, now: Instant) -> bool {
        if self.taken >= self.seats {
            // A limit is one on all that the worker holds.
            let Some(pace) = pace.filter(|_| self.seats == self.built) else { return false };
            let silent = now.saturating_duration_since(self.progress) > SILENT;
            let depth = if silent { 1 } else { pace.depth(now) };
            if self.taken >= self.seats.saturating_mul(depth) {
                return false;
            }
        }
        if self.taken == 0 {
            self.progress = now;
        }
        self.taken += 1;
        true
    }

    /// Frees `seats` seats whose requests the worker has not served.
    pub(crate) fn free_up(&mut self, seats: u32) {
        self.taken = self.taken.saturating_sub(seats);
    }

    /// Frees the seat of a request that took `app` in the app.
    #[inline]
    pub(crate) fn finished(&mut self, app: Option<Duration>, now: Instant) {
        self.free_up(1);
        self.progress = now;
        self.tally.requests += 1;
        self.tally.app_us += app.map_or(0, |app| app.as_micros() as u64);
    }
}
