//! The rule of reforks, in which a warm worker becomes the next template: when, which worker, and when the
//! old template returns.
//!
//! Why: workers share the memory that the template has loaded. Code, compiled code and caches that they load
//! later are private to each worker, so the shared part shrinks over time. A template made from a warm worker
//! contains all of that, and its workers share it again.
//!
//! Its states are those of a [reload](super::reload), whose rule also moves the workers. *Replacing*: the
//! chosen worker serves until its successor is ready. *Booting* ("becoming"): it finishes and leaves a template
//! behind. *Rolling*: workers of the new template take over one at a time. *Settling*: the old template stays
//! for a moment.
//!
//! Contract:
//! 1. A failure at any step leaves the old generation in place or brings it back, as long as its template
//!    lives.
//! 2. After a failure there is no attempt for [`PAUSE`]; after [`FAILURES`] in a row, none until the next
//!    reload.
//! 3. A reload waits only while workers are being replaced. That always ends, because a new worker that is
//!    not ready in time counts as a failure.
//! 4. No refork begins while a reload runs or can still be undone, so an undo never leads to a template that
//!    a refork has replaced.

use super::recycle::Figures;
use super::*;
use stats::ReforkOutcome;

/// The number of consecutive failures after which no refork is attempted until the next reload.
const FAILURES: u32 = 3;
/// The time between a failure and the next attempt.
const PAUSE: Duration = Duration::from_secs(10);
/// How long the old template stays, in case workers of the new one die.
const SETTLE: Duration = Duration::from_secs(5);

/// Returns the worker that becomes the next template: the oldest that has finished `after` requests and does
/// not exceed `memory` bytes of PSS (`limits.worker_memory`), because its successors would start with that
/// size.
fn choose(seen: &[Figures], after: u64, memory: Option<u64>) -> Option<Serial> {
    let is_sound = |one: &&Figures| match (memory, one.pss) {
        (Some(limit), Some(pss)) => pss <= limit,
        _ => true,
    };
    let warm = seen.iter().filter(|one| one.requests >= after).filter(is_sound);
    warm.max_by_key(|one| (one.age, std::cmp::Reverse(one.serial))).map(|one| one.serial)
}

/// The reforks so far.
#[derive(Debug)]
pub(super) struct Refork {
    /// Reforks since the app was loaded.
    done: usize,
    failures: u32,
    not_before: Instant,
}

impl Refork {
    pub(super) fn new(now: Instant) -> Refork {
        Refork { done: 0, failures: 0, not_before: now }
    }

    /// Resets the counts, because the app has been loaded again.
    pub(super) fn reloaded(&mut self) {
        (self.done, self.failures) = (0, 0);
    }

    /// Begins no refork any more, because the server shuts down.
    pub(super) fn stop(&mut self) {
        self.failures = FAILURES;
    }
}

impl Reconciler {
    /// Returns the number of reforks since the app was loaded.
    pub fn reforks(&self) -> usize {
        self.rules.refork.done
    }

    /// Chooses the worker that becomes the next template, if it is time.
    pub(super) fn consider_refork(&mut self, figures: &[Figures]) {
        let Refork { failures, not_before, .. } = self.rules.refork;
        let may = self.source.can_fork && self.wanted() > 1 && failures < FAILURES && not_before <= self.now;
        let Some(after) = self.wish.refork_after.filter(|_| may) else { return };
        let quiet = !self.is_stopping()
            && self.is_calm()
            && self.has_no_reload()
            && !self.rules.recycler.is_recycling();
        let Some(old) = self.newest().filter(|_| quiet).map(|generation| generation.number) else { return };
        // The default pool's workers have the warmest memory: others know the code of their paths only.
        let is_it =
            |worker: &Worker, one: &Figures| worker.serial == one.serial && worker.pool == PoolIndex::DEFAULT;
        let of_old = |one: &&Figures| self.workers_of(old).any(|worker| is_it(worker, one));
        let seen: Vec<Figures> = figures.iter().filter(of_old).copied().collect();
        let Some(serial) = choose(&seen, after, self.wish.limits.memory) else { return };
        let row = self.rows().find(|row| row.serial == serial);
        if let Some(Row { index, pid, .. }) = row {
            self.log(format!(
                "refork: worker {index} (pid {pid}) has served {after} requests and becomes the next template"
            ));
        }
        self.begin_refork(serial, old, SETTLE);
        self.recycle(serial);
    }

    /// Notes the end of a refork.
    pub(super) fn reforked(&mut self, outcome: ReforkOutcome, text: &str, took: Duration) {
        let failed = matches!(outcome, ReforkOutcome::Failed | ReforkOutcome::Reverted);
        let refork = &mut self.rules.refork;
        if failed {
            (refork.failures, refork.not_before) = (refork.failures + 1, self.now + PAUSE);
            self.log(format!("refork failed, the workers stay those of the old template: {text}"));
        } else if outcome == ReforkOutcome::Done {
            (refork.done, refork.failures) = (refork.done + 1, 0);
            self.log(format!("refork: {text} ({:.1} s)", took.as_secs_f64()));
        }
        self.reached(Milestone::Reforked { outcome, text: text.to_owned(), took });
        if failed && self.rules.refork.failures >= FAILURES {
            self.log(format!(
                "refork: it failed {FAILURES} times in a row, so no worker becomes a template until the next reload"
            ));
        }
    }
}

#[cfg(test)]
#[path = "refork_tests.rs"]
mod tests;
