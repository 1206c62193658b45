//! The rule of reforks, in which a warm worker becomes the next template: when, which worker, and when the
//! old template returns.
//!
//! Why: workers share the memory that the template has loaded. Code, compiled code and caches that they load
//! later are private to each worker, so the shared part shrinks over time. A template made from a warm worker
//! contains all of that, and its workers share it again.
//!
//! ```text
//! Idle ─► Replacing ─► Becoming ─► Rolling ─► Settling ─► Idle (new template)
//!             └────────────┴──────────┴───────────┴─────► Idle (as before)
//! ```
//!
//! *Replacing*: the chosen worker serves until its successor is ready. *Becoming*: it finishes and leaves a
//!  template behind. *Rolling*: workers of the new template take over one at a time. *Settling*: the old
//!  template stays for a moment.
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
use super::templates::Census;
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// The worker serves until its successor is ready.
    Replacing {
        serial: Serial,
    },
    Becoming,
    Rolling {
        deaths: u32,
    },
    Settling {
        deaths: u32,
        until: Instant,
    },
}

/// An event of the chosen worker or of the new generation.
#[derive(Debug)]
enum News {
    TemplateFailed(String),
    WorkerGone(Serial),
    WorkerDied(String),
}

#[derive(Debug)]
pub(super) struct Refork {
    state: State,
    old: Generation,
    new: Generation,
    begun: Instant,
    /// Reforks since the app was loaded.
    done: usize,
    failures: u32,
    not_before: Instant,
    news: Vec<News>,
}

impl Refork {
    /// Creates the state in which no refork runs.
    pub(super) fn new(now: Instant) -> Refork {
        let (state, news) = (State::Idle, Vec::new());
        Refork { state, old: 0, new: 0, begun: now, done: 0, failures: 0, not_before: now, news }
    }

    fn may_begin(&self, now: Instant) -> bool {
        self.state == State::Idle && self.failures < FAILURES && self.not_before <= now
    }

    /// Returns whether the worker is to leave a template behind when its successor is ready.
    pub(super) fn is_replacing(&self, serial: Serial) -> bool {
        self.state == State::Replacing { serial }
    }

    /// Returns whether workers are being replaced, which a reload has to wait for.
    pub(super) fn is_rolling(&self) -> bool {
        matches!(self.state, State::Rolling { .. })
    }

    /// Returns the generation that the refork brings, until it has settled.
    fn generation(&self) -> Option<Generation> {
        let exists = matches!(self.state, State::Becoming | State::Rolling { .. } | State::Settling { .. });
        exists.then_some(self.new)
    }

    pub(super) fn template_failed(&mut self, number: Generation, why: &str) {
        if self.generation() == Some(number) {
            self.news.push(News::TemplateFailed(why.to_owned()));
        }
    }

    pub(super) fn worker_gone(&mut self, serial: Serial) {
        if self.is_replacing(serial) {
            self.news.push(News::WorkerGone(serial));
        }
    }

    pub(super) fn worker_died(&mut self, number: Generation, how: &str) {
        if self.generation() == Some(number) {
            self.news.push(News::WorkerDied(how.to_owned()));
        }
    }

    /// Resets the counts, because the app has been loaded again.
    pub(super) fn reloaded(&mut self) {
        (self.done, self.failures) = (0, 0);
    }

    /// Ends the refork, because the server shuts down.
    pub(super) fn stop(&mut self) {
        (self.state, self.failures) = (State::Idle, FAILURES);
    }
}

impl Reconciler {
    /// Returns the number of reforks since the app was loaded.
    pub fn reforks(&self) -> usize {
        self.rules.refork.done
    }

    /// Returns the generation that a refork brings.
    pub fn refork_generation(&self) -> Option<Generation> {
        self.rules.refork.generation()
    }

    /// Returns the stage of the refork in one word and as a sentence, or `None` if none runs.
    pub fn refork_stage(&self) -> Option<(&'static str, String)> {
        let of_workers = || {
            let (ready, wanted) = (self.new_census().ready, self.wanted());
            format!("{} of {wanted} workers are forked from a warm one", ready.min(wanted))
        };
        Some(match self.rules.refork.state {
            State::Idle => return None,
            State::Replacing { .. } => ("replacing", "the successor of a warm worker boots".to_owned()),
            State::Becoming => {
                ("becoming", "a warm worker finishes its requests and becomes the next template".to_owned())
            }
            State::Rolling { .. } => ("rolling", of_workers()),
            State::Settling { .. } => ("settling", of_workers()),
        })
    }

    fn new_census(&self) -> Census {
        self.census(self.rules.refork.generation().unwrap_or_default())
    }

    /// Chooses the worker that becomes the next template, if it is time.
    pub(super) fn consider_refork(&mut self, figures: &[Figures]) {
        let may = self.source.can_fork && self.wanted() > 1;
        let may = may && self.rules.refork.may_begin(self.now);
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
        let refork = &mut self.rules.refork;
        (refork.state, refork.old, refork.begun) = (State::Replacing { serial }, old, self.now);
        self.reached(Milestone::ReforkBegan);
        self.recycle(serial);
    }

    /// Notes that the chosen worker finishes now, and leaves the template of `new` behind.
    pub(super) fn refork_promoted(&mut self, new: Generation) {
        (self.rules.refork.state, self.rules.refork.new) = (State::Becoming, new);
    }

    /// Handles new events, and continues as far as possible.
    pub(super) fn observe_refork(&mut self) {
        for news in std::mem::take(&mut self.rules.refork.news) {
            match news {
                News::TemplateFailed(why) if self.rules.refork.generation().is_some() => {
                    self.refork_failed(&why)
                }
                News::TemplateFailed(_) => {}
                News::WorkerGone(serial) if self.rules.refork.is_replacing(serial) => {
                    self.drop_refork("the chosen worker ended before its successor was ready");
                }
                News::WorkerGone(_) => {}
                News::WorkerDied(how) => self.refork_worker_died(&how),
            }
        }
        let (new, others) = (self.new_census(), self.others_ready(self.rules.refork.new));
        match self.rules.refork.state {
            State::Becoming if new.template == Template::Up => {
                self.rules.refork.state = State::Rolling { deaths: 0 };
                let (old, new) = (self.rules.refork.old, self.rules.refork.new);
                self.keep(old);
                self.roll(new, settings::Step::Workers(1));
            }
            State::Rolling { deaths } if new.ready >= self.wanted() && others == 0 => {
                self.rules.refork.state = State::Settling { deaths, until: self.now + SETTLE };
            }
            State::Settling { until, .. } if until <= self.now => self.finish_refork(),
            _ => {}
        }
    }

    /// Handles the death of a worker of the new generation, also of one that was not ready in time.
    fn refork_worker_died(&mut self, how: &str) {
        let none_ready = self.new_census().ready == 0;
        match &mut self.rules.refork.state {
            State::Becoming => self.refork_failed(&format!("its first {how}")),
            State::Rolling { deaths } | State::Settling { deaths, .. } => {
                *deaths += 1;
                if none_ready {
                    self.refork_failed(&format!("its first {how}"));
                } else if *deaths >= DEATHS {
                    self.refork_failed(&format!("{DEATHS} of its workers died; the last: {how}"));
                }
            }
            State::Idle | State::Replacing { .. } => {}
        }
    }

    /// Makes room for a reload: a refork that has just begun is cancelled, and one that is settling is
    /// finished.
    pub(super) fn give_way(&mut self) {
        match self.rules.refork.state {
            State::Replacing { .. } => self.drop_refork("a reload began"),
            State::Becoming => {
                self.abandon(self.rules.refork.new);
                self.drop_refork("a reload began");
            }
            State::Settling { .. } => self.finish_refork(),
            State::Idle | State::Rolling { .. } => {}
        }
    }

    fn finish_refork(&mut self) {
        let refork = &mut self.rules.refork;
        (refork.state, refork.failures) = (State::Idle, 0);
        refork.done += 1;
        let old = refork.old;
        self.spare(old);
        self.abandon(old);
        let text = "all workers were forked from a warm one";
        let seconds = self.now.saturating_duration_since(self.rules.refork.begun).as_secs_f64();
        self.log(format!("refork: {text} ({seconds:.1} s)"));
        self.reforked(ReforkOutcome::Done, text);
    }

    fn drop_refork(&mut self, why: &str) {
        self.rules.refork.state = State::Idle;
        self.reforked(ReforkOutcome::Dropped, why);
    }

    fn reforked(&mut self, outcome: ReforkOutcome, text: &str) {
        let took = self.now.saturating_duration_since(self.rules.refork.begun);
        self.reached(Milestone::Reforked { outcome, text: text.to_owned(), took });
    }

    fn refork_failed(&mut self, why: &str) {
        let now = self.now;
        let refork = &mut self.rules.refork;
        let Refork { state, old, new, .. } = *refork;
        refork.state = State::Idle;
        refork.failures += 1;
        refork.not_before = now + PAUSE;
        let gives_up = refork.failures >= FAILURES;
        let outcome = match state {
            State::Rolling { .. } | State::Settling { .. } => {
                self.roll(old, settings::Step::Workers(1));
                ReforkOutcome::Reverted
            }
            _ => {
                self.abandon(new);
                ReforkOutcome::Failed
            }
        };
        self.log(format!("refork failed, the workers stay those of the old template: {why}"));
        self.reforked(outcome, why);
        if gives_up {
            self.log(format!(
                "refork: it failed {FAILURES} times in a row, so no worker becomes a template until the next reload"
            ));
        }
    }
}

#[cfg(test)]
#[path = "refork_tests.rs"]
mod tests;
