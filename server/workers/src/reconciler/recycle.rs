//! The rule of limits: which worker is replaced because it has grown too large, is too old, or has served too many
//! requests. [`Recycler`] takes observations and returns decisions; the jitter comes from a given random
//! generator.
//!
//! Why one at a time, and successor first: a replacement costs memory and warm caches, and a limit that hits
//! all workers at once would take the app down. Why jitter: workers that were forked together would otherwise
//! leave together.
//!
//! Contract:
//! 1. A worker is recycled gracefully: it gets DRAIN only when its successor is ready. The next one waits
//!    until it is gone.
//! 2. For its memory, a worker is recycled after [`YOUNG`] at the earliest: the successor of a worker that
//!    exceeds the limit sooner would exceed it just as soon.
//! 3. At one and a half times the limit, a worker is killed at once. If its first measurement was over the
//!    limit, that first figure replaces the limit, because killing would not help.
//! 4. If two workers in a row were over the limit while young, the limit is too small. That is logged once,
//!    and no worker is recycled for its memory until the limit changes. Rule 3 still applies.
//! 5. `max_requests` and `max_age` are varied by up to 10 % for each worker.

use super::{Act, Cause, Reconciler};
use crate::deaths::{mebibytes, span};
use queue::Serial;
use stats::DeathCause;
use std::collections::BTreeMap;
use std::time::Duration;

/// The age from which a worker may be recycled for its memory.
pub const YOUNG: Duration = Duration::from_secs(60);
/// The share by which `max_requests` and `max_age` are varied.
const JITTER: f64 = 0.1;

/// The limits; `None` is off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// PSS in bytes.
    pub memory: Option<u64>,
    /// Finished requests.
    pub max_requests: Option<u64>,
    /// Time since the fork.
    pub max_age: Option<Duration>,
}

impl Limits {
    /// Returns the PSS in bytes at which a worker is killed at once.
    fn hard(memory: u64) -> u64 {
        memory.saturating_add(memory / 2)
    }
}

/// An observation of a worker that takes requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    pub serial: Serial,
    /// Time since its fork.
    pub age: Duration,
    /// Finished requests.
    pub requests: u64,
    /// PSS as last measured, in bytes.
    pub pss: Option<u64>,
}

/// Why a worker is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Its PSS in bytes.
    Memory(u64),
    /// The number of requests that it has served.
    Requests(u64),
    Age(Duration),
}

impl Why {
    pub fn cause(self) -> DeathCause {
        match self {
            Why::Memory(_) => DeathCause::Memory,
            Why::Requests(_) => DeathCause::MaxRequests,
            Why::Age(_) => DeathCause::MaxAge,
        }
    }

    /// Returns the reason in words, to follow "finished,".
    pub fn describe(self, limits: Limits) -> String {
        match self {
            Why::Memory(pss) => {
                let (pss, limit) = (mebibytes(pss), mebibytes(limits.memory.unwrap_or(0)));
                format!("replaced because its memory of {pss} exceeds limits.worker_memory ({limit})")
            }
            Why::Requests(_) => {
                format!("replaced because of limits.max_requests ({})", limits.max_requests.unwrap_or(0))
            }
            Why::Age(_) => {
                format!("replaced because of limits.max_age ({})", span(limits.max_age.unwrap_or_default()))
            }
        }
    }
}

/// Returns the reason why a worker with `pss` bytes is killed, to follow "was killed,".
fn describe_kill(pss: u64, limits: Limits) -> String {
    let (pss, limit) = (mebibytes(pss), mebibytes(limits.memory.unwrap_or(0)));
    format!("because its memory of {pss} exceeds limits.worker_memory ({limit}) by half or more")
}

/// Returns the log line about a memory limit that is too small.
fn describe_too_small(pss: [u64; 2], limits: Limits) -> String {
    let most = pss[0].max(pss[1]);
    format!(
        "limits.worker_memory ({}) is too small for this app: two workers in a row had more in their first minute ({} and {}). \
         Their successors would have, too, so no worker is replaced for its memory; set it to {} MB or more",
        mebibytes(limits.memory.unwrap_or(0)),
        mebibytes(pss[0]),
        mebibytes(pss[1]),
        (most + most / 2).div_ceil(1_000_000)
    )
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Start its successor, then let it finish.
    Recycle(Serial, Why),
    /// Kill it, because of this PSS in bytes.
    Kill(Serial, u64),
    /// The memory limit is too small: the PSS of two young workers, in bytes.
    TooSmall([u64; 2]),
}

#[derive(Debug)]
struct Worker {
    /// The worker's own factor for `max_requests` and `max_age`.
    factor: f64,
    /// The first measurement of its PSS.
    first_pss: Option<u64>,
    /// Whether it was over the memory limit while young.
    was_over: bool,
    /// Whether it stayed below the limit until it was no longer young.
    was_fine: bool,
}

#[derive(Debug)]
pub struct Recycler {
    random: fastrand::Rng,
    limits: Limits,
    workers: BTreeMap<Serial, Worker>,
    /// The worker that is being recycled.
    leaving: Option<Serial>,
    /// The PSS of the last young worker over the limit; cleared when another passes [`YOUNG`] below it.
    over: Option<(Serial, u64)>,
    too_small: bool,
}

impl Recycler {
    /// Creates a recycler that knows no workers.
    pub fn new(random: fastrand::Rng) -> Recycler {
        let (limits, workers) = (Limits::default(), BTreeMap::new());
        Recycler { random, limits, workers, leaving: None, over: None, too_small: false }
    }

    /// Returns whether the memory limit was found too small.
    pub fn is_too_small(&self) -> bool {
        self.too_small
    }

    /// Returns whether a worker is being replaced.
    pub fn is_recycling(&self) -> bool {
        self.leaving.is_some()
    }

    /// Removes a dead worker.
    pub fn gone(&mut self, serial: Serial) {
        self.workers.remove(&serial);
        if self.leaving == Some(serial) {
            self.leaving = None;
        }
    }

    /// Returns the PSS in bytes at which a worker is replaced, and the one at which it is killed.
    pub fn thresholds(&self, serial: Serial, limit: u64) -> [u64; 2] {
        let first = self.workers.get(&serial).and_then(|worker| worker.first_pss).unwrap_or(0);
        [limit, Limits::hard(limit.max(first))]
    }

    /// Judges the workers that take requests.
    pub fn decide(&mut self, limits: Limits, seen: &[Figures]) -> Vec<Decision> {
        if limits.memory != self.limits.memory {
            (self.over, self.too_small) = (None, false);
            self.workers.values_mut().for_each(|worker| (worker.was_over, worker.was_fine) = (false, false));
        }
        self.limits = limits;
        let mut decisions = Vec::new();
        for one in seen {
            self.note(one);
            if let Some(pss) = self.has_exploded(one) {
                // Its PSS says nothing about the limit.
                self.over = self.over.filter(|(serial, _)| *serial != one.serial);
                decisions.push(Decision::Kill(one.serial, pss));
                continue;
            }
            decisions.extend(self.judge_limit(one));
        }
        let killed = |serial| {
            decisions.iter().any(|decision| matches!(decision, Decision::Kill(one, _) if *one == serial))
        };
        if self.leaving.is_none() {
            let reasons = seen
                .iter()
                .filter(|one| !killed(one.serial))
                .filter_map(|one| Some((one, self.reason(one)?)));
            // The oldest first.
            if let Some((one, why)) = reasons.max_by_key(|(one, _)| one.age) {
                self.leaving = Some(one.serial);
                decisions.push(Decision::Recycle(one.serial, why));
            }
        }
        decisions
    }

    fn note(&mut self, seen: &Figures) {
        let random = &mut self.random;
        let worker = self.workers.entry(seen.serial).or_insert_with(|| Worker {
            factor: 1.0 + JITTER * (random.f64() * 2.0 - 1.0),
            first_pss: None,
            was_over: false,
            was_fine: false,
        });
        worker.first_pss = worker.first_pss.or(seen.pss);
    }

    /// Returns the PSS of a worker that must be killed.
    fn has_exploded(&self, seen: &Figures) -> Option<u64> {
        let (limit, pss) = (self.limits.memory?, seen.pss?);
        let first = self.workers.get(&seen.serial)?.first_pss?;
        (pss >= Limits::hard(limit.max(first))).then_some(pss)
    }

    /// Returns a decision if two young workers in a row are over the limit.
    fn judge_limit(&mut self, seen: &Figures) -> Option<Decision> {
        let (limit, pss) = (self.limits.memory?, seen.pss?);
        let worker = self.workers.get_mut(&seen.serial)?;
        if seen.age >= YOUNG {
            if !worker.was_over && !worker.was_fine {
                worker.was_fine = true;
                self.over = None;
            }
            return None;
        }
        if pss <= limit || worker.was_over || self.too_small {
            return None;
        }
        worker.was_over = true;
        match self.over.replace((seen.serial, pss)) {
            Some((_, other)) => {
                self.too_small = true;
                Some(Decision::TooSmall([other, pss]))
            }
            None => None,
        }
    }

    fn reason(&self, seen: &Figures) -> Option<Why> {
        let factor = self.workers.get(&seen.serial).map_or(1.0, |worker| worker.factor);
        let over = |limit: u64| seen.pss.filter(|pss| *pss > limit && seen.age >= YOUNG && !self.too_small);
        if let Some(pss) = self.limits.memory.and_then(over) {
            return Some(Why::Memory(pss));
        }
        let served = |most: u64| seen.requests >= ((most as f64 * factor).round() as u64).max(1);
        if self.limits.max_requests.is_some_and(served) {
            return Some(Why::Requests(seen.requests));
        }
        let old = self.limits.max_age.is_some_and(|most| seen.age >= most.mul_f64(factor));
        old.then_some(Why::Age(seen.age))
    }
}

impl Reconciler {
    /// Returns the PSS in bytes at which a worker is replaced, and the one at which it is killed.
    pub fn thresholds(&self, serial: Serial) -> Option<[u64; 2]> {
        let limit = self.wish.limits.memory?;
        Some(self.rules.recycler.thresholds(serial, limit))
    }

    /// Returns whether limits or reforks depend on the figures of workers.
    pub fn needs_figures(&self) -> bool {
        let reforks = self.source.can_fork && self.wish.refork_after.is_some();
        self.source.can_replace && (reforks || self.wish.limits != Limits::default())
    }

    /// Judges the workers that take requests.
    pub(super) fn check_limits(&mut self, figures: &[Figures]) {
        let limits = self.wish.limits;
        let serving = |one: &&Figures| !self.is_baseline(one.serial);
        let figures: &[Figures] = &figures.iter().filter(serving).copied().collect::<Vec<_>>();
        if self.source.can_replace && limits != Limits::default() {
            for decision in self.rules.recycler.decide(limits, figures) {
                match decision {
                    Decision::Recycle(serial, why) => {
                        self.reason(serial, why.cause(), why.describe(limits));
                        self.recycle(serial);
                    }
                    Decision::Kill(serial, pss) => {
                        self.reason(serial, DeathCause::Memory, describe_kill(pss, limits));
                        self.kill_worker(serial, Cause::Ordered);
                    }
                    Decision::TooSmall(pss) => self.log(describe_too_small(pss, limits)),
                }
            }
        }
        self.consider_refork(figures);
    }

    fn reason(&mut self, of: Serial, cause: DeathCause, why: String) {
        self.acts.push(Act::Reason { of, cause, why });
    }
}

#[cfg(test)]
#[path = "recycle_tests.rs"]
mod tests;
