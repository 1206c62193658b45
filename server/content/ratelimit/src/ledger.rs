//! Holds the state that all threads of a process share: [`LimiterState`].
//!
//! Contract:
//! 1. The counts of a key are in one place, so the threads of a process together never admit more than the limit.
//! 2. An outage of Redis is logged once, when the first thread notices it, and once when all threads have reconnected.

use crate::counters::Counters;
use crate::rate::{Count, Limit};
use settings::RateLimit;
use stats::{RateLimitSnapshot, RateLimitsSnapshot};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The counts of a process, and its threads' view of Redis.
pub struct LimiterState {
    counts: Counters<Count>,
    /// Until when a key is refused without asking Redis. No request can be admitted earlier, because the time
    /// in Redis only grows.
    refused: Counters<u64>,
    /// By the limits' names.
    tallies: Mutex<BTreeMap<String, Arc<Tally>>>,
    /// The number of threads that have lost Redis.
    away: AtomicU32,
    /// The last known number of servers, this one included; 0 while unknown.
    servers: AtomicU32,
    /// The name of this server among them.
    pub(crate) id: String,
    began: Instant,
    log: Box<dyn Fn(&str) + Send + Sync>,
}

/// The results of a limit.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) admitted: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Admitted and refused requests that were decided locally because Redis was away.
    pub(crate) alone: AtomicU64,
}

impl LimiterState {
    /// Creates a ledger without counts. Lines for the error log go to `log`.
    pub fn new(log: Box<dyn Fn(&str) + Send + Sync>) -> LimiterState {
        LimiterState {
            counts: Counters::default(),
            refused: Counters::default(),
            tallies: Mutex::default(),
            away: AtomicU32::new(0),
            servers: AtomicU32::new(0),
            id: format!("{:016x}", fastrand::u64(..)),
            began: Instant::now(),
            log,
        }
    }

    /// Returns nanoseconds. They do not start at 0, which is the time of keys that do not exist yet.
    fn now(&self) -> u64 {
        const FIRST: u64 = 1 << 60;
        FIRST + u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX >> 4)
    }

    /// Counts a request in memory if it is admitted. Returns zero if so, else how long it has to wait.
    pub(crate) fn count(&self, limit: &Limit, key: &str) -> Duration {
        let now = self.now();
        let verdict = self.counts.change(key.as_bytes(), now, |count| {
            (limit.check(count, 1, now), now.saturating_add(limit.memory()))
        });
        if verdict.allowed { Duration::ZERO } else { Duration::from_nanos(verdict.retry.max(1)) }
    }

    /// Returns how long a key is refused according to Redis's last answer; zero if Redis has to be asked.
    pub(crate) fn refused(&self, key: &str) -> Duration {
        let until = self.refused.get(key.as_bytes()).unwrap_or_default();
        Duration::from_nanos(until.saturating_sub(self.now()))
    }

    /// Records that Redis admits no request of this key for `wait`.
    pub(crate) fn refuse(&self, key: &str, wait: Duration) {
        let now = self.now();
        let until = now.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        self.refused.change(key.as_bytes(), now, |known| {
            *known = until;
            ((), until)
        });
    }

    /// Returns the results of the limits of this name so far.
    pub(crate) fn tally(&self, name: &str) -> Arc<Tally> {
        let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
        tallies.entry(name.to_owned()).or_default().clone()
    }

    /// Records that a thread has lost Redis.
    pub(crate) fn lost(&self, redis: &str, why: &str) {
        if self.away.fetch_add(1, Ordering::Relaxed) == 0 {
            let share = match self.servers() {
                1 => "this server admits the whole limit".to_owned(),
                servers => format!("this server admits 1/{servers} of each limit"),
            };
            (self.log)(&format!(
                "rate limits: Redis on {redis} is unreachable ({why}); until it returns, {share}"
            ));
        }
    }

    /// Records that a thread has Redis again.
    pub(crate) fn found(&self, redis: &str) {
        if self.away.fetch_sub(1, Ordering::Relaxed) == 1 {
            (self.log)(&format!("rate limits: Redis on {redis} is back; all servers count together again"));
        }
    }

    /// Sets the number of servers.
    pub(crate) fn saw(&self, servers: u32) {
        self.servers.store(servers, Ordering::Relaxed);
    }

    /// Returns how many servers share a limit, as far as known.
    pub(crate) fn servers(&self) -> u32 {
        self.servers.load(Ordering::Relaxed).max(1)
    }

    /// Returns the figures for `/stats`; `None` without limits. `redis`: the limits are shared in Redis.
    pub fn snapshot(&self, limits: &[RateLimit], redis: bool) -> Option<RateLimitsSnapshot> {
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let one = |limit: &RateLimit| {
            let tally = self.tally(&limit.name);
            RateLimitSnapshot {
                name: limit.name.clone(),
                rate: limit.rate.to_string(),
                burst: limit.burst,
                shared: limit.shared,
                dry_run: limit.dry_run,
                admitted: read(&tally.admitted),
                refused: read(&tally.refused),
                alone: read(&tally.alone),
            }
        };
        (!limits.is_empty()).then(|| RateLimitsSnapshot {
            limits: limits.iter().map(one).collect(),
            redis_up: redis.then(|| self.away.load(Ordering::Relaxed) == 0),
            servers: self.servers(),
        })
    }
}

impl Tally {
    /// Counts a decision.
    pub(crate) fn add(&self, admitted: bool, alone: bool) {
        let number = if admitted { &self.admitted } else { &self.refused };
        number.fetch_add(1, Ordering::Relaxed);
        if alone {
            self.alone.fetch_add(1, Ordering::Relaxed);
        }
    }
}
