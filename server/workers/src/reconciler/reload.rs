//! The rule of reloads: when new code is tried, when it takes over, and when the old code returns.
//!
//! Why: a deploy must not depend on luck. The new code boots beside the old, proves itself with one worker,
//! and takes over one worker at a time or in larger steps. The old code can return until the last step is
//! done.
//!
//! ```text
//! Idle ─► Weighing (─► Vacating) ─► Booting ─► Probing ─► Watching ─► Rolling ─► Settling ─► Idle (new)
//!                                      └──────────┴──────────┘           │           │
//!                                          Abandoning ─► Idle (old)      └───────────┴─► Returning ─► Idle (old)
//! ```
//!
//! Contract:
//! 1. Until `Rolling`, the old generation keeps all its workers. From then on there are never fewer workers
//!    than wanted, because an old worker leaves only when a new one is ready.
//! 2. Each reload ends in exactly one [`Milestone::Reloaded`], whichever process dies in the meantime.
//! 3. One reload runs at a time, and no refork beside it. Of the reloads ordered meanwhile, only the newest
//!    waits; the others end at once.
//! 4. Memory is [checked](crate::trial) before anything else. In place, old workers leave and the old template
//!    ends before the new code is loaded; if that fails, the old code is loaded again.
//! 5. An outcome names the code that really serves, or that the next template loads, whichever processes have
//!    died.
//! 6. Every state has an exit that depends only on time, or on the deadlines of processes.

mod course;
mod orders;

use super::templates::Census;
use super::*;
use crate::deaths;
use crate::trial::Figures;
use stats::{ReloadOutcome, ReloadStep, ReloadWish};

/// The time limit of the memory check.
const WEIGHING: Duration = Duration::from_secs(10);
const STOPPING: &str = "the server is stopping";

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Idle,
    /// Memory is being checked, until this time at the latest.
    Weighing {
        until: Instant,
    },
    /// Old workers leave until this many are left.
    Vacating {
        serving: usize,
    },
    /// `loaded`: whether the template has loaded the app.
    Booting {
        loaded: bool,
    },
    Probing,
    Watching {
        until: Instant,
    },
    /// `ready`: new workers at the last observation. `deaths`: new workers that died.
    Rolling {
        ready: usize,
        deaths: u32,
    },
    /// The old template stays.
    Settling {
        until: Instant,
    },
    /// The trial has been given up, and the new generation is ending.
    Abandoning {
        reason: String,
    },
    /// The old generation is taking over again. `failure`: the reason, unless an undo was requested.
    Returning {
        failure: Option<String>,
    },
}

impl State {
    /// Returns the name that users see, or `None` if no reload runs.
    fn name(&self) -> Option<&'static str> {
        Some(match self {
            State::Idle => return None,
            State::Vacating { .. } => "vacating",
            State::Weighing { .. } | State::Booting { .. } => "booting",
            State::Probing => "probing",
            State::Watching { .. } => "watching",
            State::Rolling { .. } => "rolling",
            State::Settling { .. } => "settling",
            State::Abandoning { .. } | State::Returning { .. } => "reverting",
        })
    }
}

/// A reload, or the undo of one: the generations between which it moves the workers, with their releases, and
/// what its followers learn.
#[derive(Debug)]
struct Course {
    caller: Option<Caller>,
    begun: Instant,
    old: Generation,
    /// 0 before the template is started.
    new: Generation,
    before: ReleaseId,
    release: ReleaseId,
    in_place: bool,
    /// The last step in words.
    said: String,
    /// Whether a worker with the new code may have served clients.
    met: bool,
    /// Whether an undo was requested.
    undo: bool,
    /// Why the new code should not serve, although it does.
    unwanted: Option<String>,
}

impl Course {
    fn new(release: ReleaseId, now: Instant) -> Course {
        Course {
            caller: None,
            begun: now,
            old: 0,
            new: 0,
            before: release,
            release,
            in_place: false,
            said: String::new(),
            met: false,
            undo: false,
            unwanted: None,
        }
    }

    /// Begins for another caller. The generations stay: the last reload may still be undone.
    fn begin(&mut self, caller: Option<Caller>, undo: bool, now: Instant) {
        (self.caller, self.begun, self.undo) = (caller, now, undo);
        (self.met, self.unwanted) = (false, None);
        self.said.clear();
    }
}

/// An event of the new generation.
#[derive(Debug)]
enum News {
    TemplateFailed(String),
    WorkerDied(String),
}

#[derive(Debug)]
pub(super) struct Reload {
    state: State,
    plan: Plan,
    course: Course,
    /// The order for which settings are being read.
    reading: Option<ReloadWish>,
    /// The newest order that came during the running reload.
    waiting: Option<(ReloadWish, Option<Caller>)>,
    last_release: ReleaseId,
    news: Vec<News>,
}

/// The state of both generations.
#[derive(Debug, Clone, Copy)]
struct TakeoverState {
    new: Census,
    old: Census,
    /// Ready workers that do not belong to the new generation.
    others: usize,
    wanted: usize,
}

impl Reload {
    /// Creates the state in which no reload runs.
    pub(super) fn new(release: ReleaseId, now: Instant) -> Reload {
        Reload {
            state: State::Idle,
            plan: Plan::default(),
            course: Course::new(release, now),
            reading: None,
            waiting: None,
            last_release: release,
            news: Vec::new(),
        }
    }

    /// Returns whether a reload is running. The old template that stays afterwards does not count.
    fn is_busy(&self) -> bool {
        self.reading.is_some() || !matches!(self.state, State::Idle | State::Settling { .. })
    }

    /// Returns the generation that the running reload brings.
    fn generation(&self) -> Option<Generation> {
        (self.is_busy() && self.course.new > 0).then_some(self.course.new)
    }

    pub(super) fn template_failed(&mut self, number: Generation, why: &str) {
        if self.generation() == Some(number) {
            self.news.push(News::TemplateFailed(why.to_owned()));
        }
    }

    pub(super) fn worker_died(&mut self, number: Generation, how: &str) {
        if self.generation() == Some(number) {
            self.news.push(News::WorkerDied(how.to_owned()));
        }
    }
}

impl Reconciler {
    // Questions.

    /// Returns whether a reload is running. The old template that stays afterwards does not count.
    pub fn is_reloading(&self) -> bool {
        self.rules.reload.is_busy()
    }

    /// Returns whether a reload is running or waits.
    pub fn has_reload(&self) -> bool {
        self.is_reloading() || self.rules.reload.waiting.is_some()
    }

    /// Returns whether no reload is running, none waits, and none can be undone.
    pub(super) fn has_no_reload(&self) -> bool {
        let reload = &self.rules.reload;
        reload.state == State::Idle && reload.reading.is_none() && reload.waiting.is_none()
    }

    /// Returns the generation that the running reload brings.
    pub fn reload_generation(&self) -> Option<Generation> {
        self.rules.reload.generation()
    }

    /// Returns the code whose settings are to be read again when the template of this generation has
    /// evaluated `puma.rb`: that of a reload.
    pub fn release_to_read(&self, generation: Generation) -> Option<ReleaseId> {
        let boots = matches!(self.rules.reload.state, State::Booting { .. });
        (boots && self.reload_generation() == Some(generation)).then_some(self.rules.reload.course.release)
    }

    /// Returns the generation whose app is in force: during a reload, the old one.
    pub fn in_force(&self) -> Option<Generation> {
        let reload = &self.rules.reload;
        let running = !matches!(reload.state, State::Idle | State::Settling { .. });
        if running { Some(reload.course.old) } else { self.serving() }
    }

    /// Returns the code whose helper processes run: that of a reload from the time its template is ready
    /// until it is reverted, otherwise the code in force.
    pub fn release_in_charge(&self) -> ReleaseId {
        let reload = &self.rules.reload;
        let reverting = matches!(reload.state, State::Abandoning { .. } | State::Returning { .. });
        let new = self.reload_generation().filter(|_| !reverting);
        let ready = new.filter(|new| self.census(*new).template == Template::Up);
        ready.and_then(|new| self.release_of(new)).unwrap_or(self.wish.release)
    }

    /// Returns the worker that is compared with the others, and whether the time for that is over.
    pub fn watched(&self, now: Instant) -> Option<(Serial, bool)> {
        let State::Watching { until } = self.rules.reload.state else { return None };
        Some((self.on_trial()?, until <= now))
    }

    /// Returns the stage of the reload and the same as a sentence.
    pub fn reload_stage(&self, now: Instant) -> Option<(&'static str, String)> {
        let reload = &self.rules.reload;
        let stage = reload.state.name()?;
        let left = |until: Instant| until.saturating_duration_since(now).as_secs_f64();
        let text = match reload.state {
            State::Watching { until } => {
                let (share, left) = (reload.plan.share, left(until));
                format!("one worker serves {share} % of the requests for {left:.0} s more")
            }
            State::Rolling { .. } => {
                let TakeoverState { new, wanted, .. } = self.reload_facts();
                format!("{} of {wanted} workers run the new code", new.ready.min(wanted))
            }
            State::Settling { until } => {
                format!("for {:.0} s more `firebrick reload --undo` goes back at once", left(until))
            }
            _ => reload.course.said.clone(),
        };
        Some((stage, text))
    }

    fn reload_facts(&self) -> TakeoverState {
        let Course { old, new, .. } = self.rules.reload.course;
        TakeoverState {
            new: self.census(new),
            old: self.census(old),
            others: self.others_ready(new),
            wanted: self.wanted(),
        }
    }

    fn on_trial(&self) -> Option<Serial> {
        let new = self.reload_generation()?;
        self.workers_of(new).find(|worker| worker.state == workers::State::Up).map(|worker| worker.serial)
    }
}
