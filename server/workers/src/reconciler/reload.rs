//! The rule of reloads: when new code is tried, when it takes over, and when the old code returns. A
//! [refork](super::refork) is a reload of the same code, whose template is a warm worker: it needs no trial.
//!
//! Why: a deploy must not depend on luck. The new code boots beside the old, proves itself with one worker,
//! and takes over one worker at a time or in larger steps. The old code can return until the last step is
//! done.
//!
//! ```text
//! Idle ─► Weighing (─► Vacating) ─► Booting ─► Probing (─► Pairing ─► Shadowing) ─► Watching ─► Rolling ─► Settling ─► Idle (new)
//!                                      └──────────┴───────────┴───────────┴────────────┘           │           │
//!                                          Abandoning ─► Idle (old)                                └───────────┴─► Returning ─► Idle (old)
//! refork: Idle ─► Replacing ─► Booting ─► Rolling ─► Settling ─► Idle (new template)
//! ```
//!
//! Contract:
//! 1. Until `Rolling`, the old generation keeps all its workers. From then on there are never fewer workers
//!    than wanted, because an old worker leaves only when a new one is ready.
//! 2. Each reload ends in exactly one [`Milestone::Reloaded`], whichever process dies in the meantime.
//! 3. One reload or refork runs at a time. A refork gives way to a reload, unless it is replacing workers. Of
//!    the reloads ordered meanwhile, only the newest waits; the others end at once.
//! 4. Memory is [checked](crate::trial) before anything else. In place, old workers leave and the old template
//!    ends before the new code is loaded; if that fails, the old code is loaded again.
//! 5. An outcome names the code that really serves, or that the next template loads, whichever processes have
//!    died.
//! 6. Every state has an exit that depends only on time, or on the deadlines of processes.

mod course;
mod shadow;

use super::templates::Census;
use super::*;
use crate::deaths;
use crate::trial::Figures;
use stats::{ReforkOutcome, ReloadOutcome, ReloadStage, ReloadStep, ReloadWish};

/// The time limit of the memory check.
const WEIGHING: Duration = Duration::from_secs(10);
const STOPPING: &str = "the server is stopping";
const NOTHING_TO_UNDO: &str = "there is nothing to undo: the template with the old code has ended (`reload.keep`); \
     deploy the old code and reload";

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
    /// Of a refork: the worker serves until its successor is ready.
    Replacing {
        serial: Serial,
    },
    /// `loaded`: whether the template has loaded the app. In a refork, the worker finishes and leaves the
    /// template behind.
    Booting {
        loaded: bool,
    },
    Probing,
    /// The baseline of the shadow boots, until this time at the latest. `forked`: its fork was ordered.
    Pairing {
        until: Instant,
        forked: bool,
    },
    /// `pair`: the workers of the old and of the new code that get copies.
    Shadowing {
        until: Instant,
        pair: (Serial, Serial),
    },
    /// `worker`: the one that is compared with the others.
    Watching {
        until: Instant,
        worker: Option<Serial>,
    },
    /// `ready`: new workers at the last observation. `deaths`: new workers that died.
    Rolling {
        ready: usize,
        deaths: u32,
    },
    /// The old template stays. `deaths`: workers of a refork that died.
    Settling {
        until: Instant,
        deaths: u32,
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

/// A reload, the undo of one, or a refork: the generations between which it moves the workers, with their
/// releases, and what its followers learn.
#[derive(Debug)]
struct Course {
    kind: ReloadKind,
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
    /// The caller that has requested it while the reload ran, which has a caller of its own, or none.
    undo_caller: Option<Caller>,
    /// Why the new code should not serve, although it does.
    unwanted: Option<String>,
}

impl Course {
    fn new(release: ReleaseId, now: Instant) -> Course {
        Course {
            kind: ReloadKind::Reload,
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
            undo_caller: None,
            unwanted: None,
        }
    }

    /// Begins for another caller. The generations stay: the last reload may still be undone.
    fn begin(&mut self, kind: ReloadKind, caller: Option<Caller>, undo: bool, now: Instant) {
        (self.kind, self.caller, self.begun, self.undo) = (kind, caller, now, undo);
        (self.met, self.undo_caller, self.unwanted) = (false, None, None);
        self.said.clear();
    }
}

/// An event of the new generation, or of the worker that a refork has chosen.
#[derive(Debug)]
enum News {
    TemplateFailed(String),
    WorkerDied(String),
    ChosenGone,
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
    fn is_running(&self) -> bool {
        self.course.kind == ReloadKind::Reload && !matches!(self.state, State::Idle | State::Settling { .. })
    }

    /// Returns whether a refork runs, or its old template stays.
    fn is_refork(&self) -> bool {
        self.course.kind == ReloadKind::Refork && self.state != State::Idle
    }

    /// Returns the generation that the running reload or refork brings. A refork also watches it while it
    /// settles.
    pub(super) fn generation(&self) -> Option<Generation> {
        let new = self.course.new;
        ((self.is_running() || self.is_refork()) && new > 0).then_some(new)
    }

    /// Returns whether this worker is to leave a template behind when its successor is ready.
    pub(super) fn is_replacing(&self, serial: Serial) -> bool {
        self.state == State::Replacing { serial }
    }

    pub(super) fn template_failed(&mut self, number: Generation, why: &str) {
        if self.generation() == Some(number) {
            self.news.push(News::TemplateFailed(why.to_owned()));
        }
    }
}

impl Reconciler {
    // Questions.

    /// Returns whether a reload is running. The old template that stays afterwards does not count.
    pub fn is_reloading(&self) -> bool {
        self.rules.reload.reading.is_some() || self.rules.reload.is_running()
    }

    /// Returns whether a reload is running or waits.
    pub fn has_reload(&self) -> bool {
        self.is_reloading() || self.rules.reload.waiting.is_some()
    }

    /// Returns what another reload has to wait for, and in which the number of workers stays.
    pub(super) fn replaces_workers(&self) -> Option<&'static str> {
        let reload = &self.rules.reload;
        match reload.state {
            State::Rolling { .. } if reload.is_refork() => Some("a refork"),
            _ => self.is_reloading().then_some("another reload"),
        }
    }

    /// Returns whether no reload or refork is running, none waits, and none can be undone.
    pub(super) fn has_no_reload(&self) -> bool {
        let reload = &self.rules.reload;
        reload.state == State::Idle && reload.reading.is_none() && reload.waiting.is_none()
    }

    /// Returns whether a running reload or refork brings this generation, and which of them.
    pub fn brought_by(&self, generation: Generation) -> Option<ReloadKind> {
        let reload = &self.rules.reload;
        (reload.generation() == Some(generation)).then_some(reload.course.kind)
    }

    /// Returns whether all workers of the old code serve while the template of this generation gets ready.
    pub fn has_time(&self, generation: Generation) -> bool {
        self.brought_by(generation) == Some(ReloadKind::Reload) && !self.rules.reload.course.in_place
    }

    /// Returns the code whose settings are to be read again when the template of this generation has
    /// evaluated `puma.rb`: that of a reload.
    pub fn release_to_read(&self, generation: Generation) -> Option<ReleaseId> {
        let boots = matches!(self.rules.reload.state, State::Booting { .. });
        let brought = self.brought_by(generation) == Some(ReloadKind::Reload);
        (boots && brought).then_some(self.rules.reload.course.release)
    }

    /// Returns the generation whose app is in force: during a reload, the old one.
    pub fn in_force(&self) -> Option<Generation> {
        let reload = &self.rules.reload;
        if reload.is_running() { Some(reload.course.old) } else { self.serving() }
    }

    /// Returns the code whose helper processes run: that of a reload from the time its template is ready
    /// until it is reverted, otherwise the code in force.
    pub fn release_in_charge(&self) -> ReleaseId {
        let reload = &self.rules.reload;
        let reverting = matches!(reload.state, State::Abandoning { .. } | State::Returning { .. });
        let new = reload.generation().filter(|_| !reverting && !reload.is_refork());
        let ready = new.filter(|new| self.census(*new).template == Template::Up);
        ready.and_then(|new| self.release_of(new)).unwrap_or(self.wish.release)
    }

    /// Returns the worker that is compared with the others, and whether the time for that is over.
    pub fn watched(&self, now: Instant) -> Option<(Serial, bool)> {
        let State::Watching { until, .. } = self.rules.reload.state else { return None };
        Some((self.on_trial()?, until <= now))
    }

    /// Returns what is under way, its stage, and the same as a sentence.
    pub fn reload_stage(&self, now: Instant) -> Option<(ReloadKind, ReloadStage, String)> {
        let reload = &self.rules.reload;
        let stage = self.stage()?;
        let TakeoverState { new, wanted, .. } = self.reload_facts();
        let ready = new.ready.min(wanted);
        let left = |until: Instant| until.saturating_duration_since(now).as_secs_f64();
        let text = match reload.state {
            State::Replacing { .. } => "the successor of a warm worker boots".to_owned(),
            State::Booting { .. } if reload.is_refork() => {
                "a warm worker finishes its requests and becomes the next template".to_owned()
            }
            _ if reload.is_refork() => format!("{ready} of {wanted} workers are forked from a warm one"),
            State::Shadowing { until, .. } => {
                format!("copies of requests are compared for {:.0} s more", left(until))
            }
            State::Watching { until, .. } => {
                let (share, left) = (reload.plan.share, left(until));
                format!("one worker serves up to {share} % of the requests for {left:.0} s more")
            }
            State::Rolling { .. } => format!("{ready} of {wanted} workers run the new code"),
            State::Settling { until, .. } => {
                format!("for {:.0} s more `firebrick reload --undo` goes back at once", left(until))
            }
            _ => reload.course.said.clone(),
        };
        Some((reload.course.kind, stage, text))
    }

    /// Returns the stage that users see, or `None` if nothing is under way.
    fn stage(&self) -> Option<ReloadStage> {
        Some(match self.rules.reload.state {
            State::Idle => return None,
            State::Vacating { .. } => ReloadStage::Vacating,
            State::Replacing { .. } => ReloadStage::Replacing,
            State::Booting { .. } if self.rules.reload.is_refork() => ReloadStage::Becoming,
            State::Weighing { .. } | State::Booting { .. } => ReloadStage::Booting,
            State::Probing => ReloadStage::Probing,
            State::Pairing { .. } | State::Shadowing { .. } => ReloadStage::Shadowing,
            State::Watching { .. } => ReloadStage::Watching,
            State::Rolling { .. } => ReloadStage::Rolling,
            State::Settling { .. } => ReloadStage::Settling,
            State::Abandoning { .. } | State::Returning { .. } => ReloadStage::Reverting,
        })
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
        let new = self.rules.reload.generation()?;
        self.workers_of(new).find(|worker| worker.state == workers::State::Up).map(|worker| worker.serial)
    }

    // Orders.

    /// Carries out an order of a caller: to load the app again, or to return.
    pub fn reload(&mut self, wish: ReloadWish, caller: Option<Caller>, now: Instant) -> Vec<Act> {
        self.now = now;
        if !self.source.can_replace {
            match caller {
                Some(_) => self.end_for(caller, Err(NO_SUPERVISION.to_owned())),
                None => self.log(NO_SUPERVISION.to_owned()),
            }
        } else if wish == ReloadWish::Undo {
            self.undo(caller);
        } else {
            self.begin_or_wait(wish, caller);
        }
        self.settle_all()
    }

    fn begin_or_wait(&mut self, wish: ReloadWish, caller: Option<Caller>) {
        if self.is_stopping() {
            return self.end_for(caller, Err(STOPPING.to_owned()));
        }
        let Some(what) = self.replaces_workers() else { return self.begin_reload(wish, caller) };
        let text = format!("{what} is under way; this one follows it");
        self.tell(caller, ReloadStep::Step { stage: ReloadStage::Waiting, text });
        if let Some((_, older)) = self.rules.reload.waiting.replace((wish, caller)) {
            self.reached(Milestone::Superseded);
            self.end_for(older, Err("a newer reload has taken its place".to_owned()));
        }
    }

    /// Returns to the code in force before the last reload, or cancels the running one.
    fn undo(&mut self, caller: Option<Caller>) {
        if let Err(why) = self.may_undo() {
            return self.end_for(caller, Err(why.to_owned()));
        }
        if self.is_reloading() {
            (self.rules.reload.course.undo, self.rules.reload.course.undo_caller) = (true, caller);
            self.revert("it was undone");
        } else {
            self.rules.reload.course.begin(ReloadKind::Reload, caller, true, self.now);
            self.reached(Milestone::Began(ReloadKind::Reload));
            // A template that dies from now on is replaced by one with the old code.
            self.wish.release = self.rules.reload.course.before;
            self.rules.reload.state = State::Returning { failure: None };
            self.step("workers of the old code take over again".to_owned());
            let (old, step) = (self.rules.reload.course.old, self.rules.reload.plan.step);
            self.roll(old, step);
        }
    }

    fn may_undo(&self) -> Result<(), &'static str> {
        let is_up = self.census(self.rules.reload.course.old).template == Template::Up;
        match self.rules.reload.state {
            _ if self.rules.reload.is_refork() => Err(NOTHING_TO_UNDO),
            State::Settling { .. } if is_up => Ok(()),
            State::Rolling { .. } if !is_up => {
                Err("the template with the old code has ended: there is nothing to go back to")
            }
            State::Abandoning { .. } | State::Returning { .. } => Err("it is being undone already"),
            State::Idle | State::Settling { .. } => Err(NOTHING_TO_UNDO),
            _ => Ok(()),
        }
    }

    fn begin_reload(&mut self, wish: ReloadWish, caller: Option<Caller>) {
        self.give_way();
        let reload = &mut self.rules.reload;
        reload.course.begin(ReloadKind::Reload, caller, false, self.now);
        reload.reading = Some(wish);
        reload.last_release += 1;
        let release = reload.last_release;
        self.reached(Milestone::Began(ReloadKind::Reload));
        self.acts.push(Act::Try(Trial::Read(release)));
    }

    /// Takes the settings of the new code.
    pub(super) fn read(&mut self, release: ReleaseId, result: Result<Plan, String>) {
        if release != self.rules.reload.last_release {
            return;
        }
        let Some(wish) = self.rules.reload.reading.take() else { return };
        let in_place = wish == ReloadWish::InPlace;
        let plan = match result {
            Ok(plan) => plan,
            Err(why) => return self.end_reload(ReloadOutcome::Failed, why),
        };
        let Some(old) = self.serving() else {
            let why = "no worker has been ready yet; reload when the server is up";
            return self.end_reload(ReloadOutcome::Failed, why.to_owned());
        };
        let spare = self.rules.reload.course.old;
        let settling = matches!(self.rules.reload.state, State::Settling { .. });
        let reload = &mut self.rules.reload;
        reload.plan = match wish {
            // In place, a trial would have little to compare with.
            ReloadWish::InPlace => Plan { shadow: None, watch: None, ..plan },
            ReloadWish::Shadowed(time) => Plan { shadow: Some(time).filter(|time| !time.is_zero()), ..plan },
            _ => plan,
        };
        let course = &mut reload.course;
        (course.old, course.new, course.in_place) = (old, 0, in_place);
        (course.before, course.release) = (self.wish.release, release);
        reload.state = State::Weighing { until: self.now + WEIGHING };
        if settling {
            self.abandon(spare);
        }
        self.acts.push(Act::Try(Trial::Weigh));
    }

    pub(super) fn stop_reload(&mut self) {
        if let Some((_, caller)) = self.rules.reload.waiting.take() {
            self.end_for(caller, Err(STOPPING.to_owned()));
        }
        let undo_caller = self.rules.reload.course.undo_caller.take();
        self.end_for(undo_caller, Err(STOPPING.to_owned()));
        let was_busy = self.is_reloading();
        (self.rules.reload.state, self.rules.reload.reading) = (State::Idle, None);
        self.rules.refork.stop();
        if was_busy {
            self.finish(ReloadOutcome::Failed, STOPPING.to_owned());
        }
    }
}
