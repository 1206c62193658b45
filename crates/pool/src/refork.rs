//! Runs reforks, in which a warm worker becomes the next template. Decides when, which worker, and when to
//! return to the old template.
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
//! Pure: takes observations and the time, and returns [`Order`]s. [`crate::supervisor`] carries them out; the
//! [process table](crate::table) moves the workers.
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

use crate::dispatch::Serial;
use crate::recycle::Seen;
use crate::rollout::Facts;
use crate::table::{Generation, TemplateStage};
use stats::ReforkOutcome;
use std::time::{Duration, Instant};

/// The number of consecutive failures after which no refork is attempted until the next reload.
pub const FAILURES: u32 = 3;
/// The time between a failure and the next attempt.
pub const PAUSE: Duration = Duration::from_secs(10);
/// How long the old template stays, in case workers of the new one die.
pub const SETTLE: Duration = Duration::from_secs(5);
/// The number of new workers that may die before the old generation takes over again. A single death may be
/// an accident.
const DEATHS: u32 = 3;

/// Returns the worker that becomes the next template: the oldest that has finished `after` requests and does
/// not exceed `memory` bytes of PSS (`limits.worker_memory`), because its successors would start with that
/// size.
pub fn choose(seen: &[Seen], after: u64, memory: Option<u64>) -> Option<Serial> {
    let is_sound = |one: &&Seen| match (memory, one.pss) {
        (Some(limit), Some(pss)) => pss <= limit,
        _ => true,
    };
    let warm = seen.iter().filter(|one| one.requests >= after).filter(is_sound);
    warm.max_by_key(|one| (one.age, std::cmp::Reverse(one.serial))).map(|one| one.serial)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Start this worker's successor. Then the worker finishes and leaves a template behind.
    Promote(Serial),
    /// The worker is not to leave a template behind.
    Demote(Serial),
    /// Keep the template of this generation after its workers have left: it may be needed again.
    Keep(Generation),
    /// Let this generation take over.
    Roll(Generation),
    /// This generation has been replaced; its template stays.
    Spare(Generation),
    Abandon(Generation),
    /// Write a line to the log.
    Say(String),
    /// The refork is over; contains the outcome in words.
    Finish(ReforkOutcome, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Replacing { serial: Serial },
    Becoming,
    Rolling { deaths: u32 },
    Settling { deaths: u32, until: Instant },
}

/// The state machine of a refork.
#[derive(Debug)]
pub struct Refork {
    state: State,
    old: Generation,
    new: Generation,
    begun: Instant,
    /// Reforks since the app was loaded.
    done: usize,
    failures: u32,
    not_before: Instant,
}

impl Refork {
    /// Creates the state in which no refork runs.
    pub fn new(now: Instant) -> Refork {
        Refork { state: State::Idle, old: 0, new: 0, begun: now, done: 0, failures: 0, not_before: now }
    }

    /// Returns the number of reforks since the app was loaded, or `None` if no refork may begin now.
    pub fn may_begin(&self, now: Instant) -> Option<usize> {
        let may = self.state == State::Idle && self.failures < FAILURES && self.not_before <= now;
        may.then_some(self.done)
    }

    /// Begins a refork: the worker `serial` becomes the next template. `old` serves now.
    pub fn begin(&mut self, serial: Serial, old: Generation, now: Instant) -> Vec<Order> {
        debug_assert!(self.state == State::Idle);
        (self.state, self.old, self.begun) = (State::Replacing { serial }, old, now);
        vec![Order::Promote(serial)]
    }

    /// Returns the stage in one word, or `None` if no refork runs.
    pub fn stage(&self) -> Option<&'static str> {
        match self.state {
            State::Idle => None,
            State::Replacing { .. } => Some("replacing"),
            State::Becoming => Some("becoming"),
            State::Rolling { .. } => Some("rolling"),
            State::Settling { .. } => Some("settling"),
        }
    }

    /// Returns whether workers are being replaced, which a reload has to wait for.
    pub fn is_rolling(&self) -> bool {
        matches!(self.state, State::Rolling { .. })
    }

    /// Returns the generation that the refork brings, until it has settled.
    pub fn new_generation(&self) -> Option<Generation> {
        let exists = matches!(self.state, State::Becoming | State::Rolling { .. } | State::Settling { .. });
        exists.then_some(self.new)
    }

    /// Returns the generation that served before, for the same time.
    pub fn old_generation(&self) -> Option<Generation> {
        self.new_generation().map(|_| self.old)
    }

    /// Takes the news that the successor of `serial` is ready. The worker now finishes and leaves the
    /// template of `new` behind.
    pub fn promoted(&mut self, serial: Serial, new: Generation) -> Vec<Order> {
        if self.state != (State::Replacing { serial }) {
            return vec![Order::Abandon(new)];
        }
        (self.state, self.new) = (State::Becoming, new);
        Vec::new()
    }

    /// Takes the news that a worker is gone.
    pub fn worker_gone(&mut self, serial: Serial) -> Vec<Order> {
        if self.state != (State::Replacing { serial }) {
            return Vec::new();
        }
        // The worker has died, or left for another reason.
        vec![self.dropped("the chosen worker ended before its successor was ready")]
    }

    /// Takes the news that a worker of the new generation died, or was killed because it was not ready in
    /// time.
    pub fn worker_died(&mut self, how: &str, facts: &Facts, now: Instant) -> Vec<Order> {
        match &mut self.state {
            State::Becoming => self.failed(&format!("its first {how}"), now),
            State::Rolling { deaths } | State::Settling { deaths, .. } => {
                *deaths += 1;
                if facts.new.ready == 0 {
                    self.failed(&format!("its first {how}"), now)
                } else if *deaths >= DEATHS {
                    self.failed(&format!("{DEATHS} of its workers died; the last: {how}"), now)
                } else {
                    Vec::new()
                }
            }
            State::Idle | State::Replacing { .. } => Vec::new(),
        }
    }

    /// Takes the news that the template of the new generation is unusable.
    pub fn template_failed(&mut self, why: &str, now: Instant) -> Vec<Order> {
        if self.new_generation().is_some() { self.failed(why, now) } else { Vec::new() }
    }

    /// Returns the orders to carry out after a change or after some time.
    pub fn observe(&mut self, facts: &Facts, now: Instant) -> Vec<Order> {
        match self.state {
            State::Becoming if facts.new.template == TemplateStage::Up => {
                self.state = State::Rolling { deaths: 0 };
                vec![Order::Keep(self.old), Order::Roll(self.new)]
            }
            State::Rolling { deaths } if facts.new.ready >= facts.wanted && facts.others == 0 => {
                self.state = State::Settling { deaths, until: now + SETTLE };
                Vec::new()
            }
            State::Settling { until, .. } if until <= now => self.finish(now),
            _ => Vec::new(),
        }
    }

    /// Makes room for a reload: a refork that has just begun is cancelled, and one that is settling is
    /// finished. Must not be called while [`Refork::is_rolling`].
    pub fn give_way(&mut self, now: Instant) -> Vec<Order> {
        match self.state {
            State::Replacing { serial } => vec![Order::Demote(serial), self.dropped("a reload began")],
            State::Becoming => vec![Order::Abandon(self.new), self.dropped("a reload began")],
            State::Settling { .. } => self.finish(now),
            State::Idle | State::Rolling { .. } => Vec::new(),
        }
    }

    /// Resets the counts, because the app has been loaded again.
    pub fn reloaded(&mut self) {
        (self.done, self.failures) = (0, 0);
    }

    /// Ends the refork, because the server shuts down.
    pub fn stop(&mut self) {
        (self.state, self.failures) = (State::Idle, FAILURES);
    }

    fn finish(&mut self, now: Instant) -> Vec<Order> {
        self.state = State::Idle;
        self.done += 1;
        self.failures = 0;
        let seconds = now.saturating_duration_since(self.begun).as_secs_f64();
        let text = "all workers were forked from a warm one";
        vec![
            Order::Spare(self.old),
            Order::Abandon(self.old),
            Order::Say(format!("refork: {text} ({seconds:.1} s)")),
            Order::Finish(ReforkOutcome::Done, text.to_owned()),
        ]
    }

    fn dropped(&mut self, why: &str) -> Order {
        self.state = State::Idle;
        Order::Finish(ReforkOutcome::Dropped, why.to_owned())
    }

    fn failed(&mut self, why: &str, now: Instant) -> Vec<Order> {
        let (order, outcome) = match self.state {
            State::Rolling { .. } | State::Settling { .. } => {
                (Order::Roll(self.old), ReforkOutcome::Reverted)
            }
            _ => (Order::Abandon(self.new), ReforkOutcome::Failed),
        };
        self.state = State::Idle;
        self.failures += 1;
        self.not_before = now + PAUSE;
        let text = format!("refork failed, the workers stay those of the old template: {why}");
        let mut orders = vec![order, Order::Say(text), Order::Finish(outcome, why.to_owned())];
        if self.failures >= FAILURES {
            let text = format!(
                "refork: it failed {FAILURES} times in a row, so no worker becomes a template until the next reload"
            );
            orders.push(Order::Say(text));
        }
        orders
    }
}

#[cfg(test)]
#[path = "refork_tests.rs"]
mod tests;
