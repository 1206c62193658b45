//! Runs a reload from the order to its end: decides when the new code is tried, when it takes over, and when
//! the old code returns.
//!
//! Why: a deploy must not depend on luck. The new code boots beside the old, proves itself with one worker,
//! and takes over one worker at a time or in larger steps. The old code can return until the last step is
//! done.
//!
//! ```text
//! Idle ─► Weighing (─► Vacating) ─► Booting ─► Probing ─► Watching ─► Rolling ─► Settling ─► Idle (new)
//!                                        └──────────┴───────────┴──────────┴─────► Reverting ─► Idle (old)
//!                                                              Settling ─► Undoing ─► Idle (old)
//! ```
//!
//! Pure: takes orders, observations and the time, and returns [`Order`]s. [`crate::supervisor`] carries them
//! out; the [process table](crate::table) moves the workers.
//!
//! Contract:
//! 1. Until `Rolling`, the old generation keeps all its workers. From then on there are never fewer workers
//!    than wanted, because an old worker leaves only when a new one is ready.
//! 2. Each reload ends in exactly one [`Order::Finish`], whichever process dies in the meantime.
//! 3. One reload runs at a time. Of the reloads ordered meanwhile, only the newest waits; the others end at
//!    once.
//! 4. Memory is [checked](crate::room) before anything else. In place, old workers leave and the old template
//!    ends before the new code is loaded; if that fails, the old code is loaded again.
//! 5. An outcome names the code that really serves, or that the next template loads, whichever processes have
//!    died.
//! 6. Every state has an exit that depends only on time, or on the deadlines of the table.

use crate::table::{Census, Generation, TemplateStage};
use settings::Step;
use std::time::{Duration, Instant};

/// The number of new workers that may die during the takeover before the old code returns. A single death may
/// be an accident.
const DEATHS: u32 = 3;
/// The time limit of the memory check.
const WEIGHING: Duration = Duration::from_secs(10);

/// The steps of a reload between boot and takeover.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Whether the worker on trial has to answer a request first.
    pub probe: bool,
    /// How long that worker serves a share of the requests before the others are replaced; `None` skips this
    /// step.
    pub watch: Option<Duration>,
    /// Whether old workers and the old template leave first, because memory has no room for both.
    pub in_place: bool,
    /// The number of workers that are replaced at a time.
    pub step: Step,
    /// How long the old template stays after the reload.
    pub keep: Duration,
}

impl Default for Plan {
    /// Returns the shortest plan: no trial, one worker at a time, no undo.
    fn default() -> Plan {
        Plan { probe: false, watch: None, in_place: false, step: Step::Workers(1), keep: Duration::ZERO }
    }
}

/// The state of both generations in the process table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The generation that the reload brings.
    pub new: Census,
    /// The generation that served before.
    pub old: Census,
    /// Ready workers that do not belong to the new generation.
    pub others: usize,
    /// The wanted number of workers.
    pub wanted: usize,
}

/// An order to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Check whether memory has room. The result comes through [`Rollout::weighed`].
    Weigh,
    /// Keep only this many old workers serving; the others leave.
    Vacate(usize),
    /// Return to the wanted number of old workers.
    Reoccupy,
    /// End the existing templates. Their workers keep serving.
    Retire,
    /// Start a template with the old code, because none is left.
    Restore,
    /// Start a template with the new code. Its generation comes through [`Rollout::started`].
    Start,
    /// Send the probe request to the worker on trial. The result comes through [`Rollout::probed`].
    Probe,
    /// Give the worker on trial its share of the requests and start counting.
    Watch,
    /// Keep the template of this generation after its workers have left: it may be needed again.
    Keep(Generation),
    /// Let this generation take over, this many workers at a time.
    Roll(Generation, Step),
    /// This generation has been replaced; its template stays.
    Spare(Generation),
    Abandon(Generation),
    /// Report this to the log and to the callers that follow the reload.
    Say(Stage, String),
    /// The reload is over. On success, the new code and settings are used for restarts after a crash; after
    /// [`Outcome::Undone`], the old ones.
    Finish(Outcome),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done(String),
    /// The old code serves, as requested.
    Undone(String),
    /// The old code serves, for this reason.
    Failed(String),
    /// The new code serves, because the old template died during the undo.
    NoWayBack(String),
}

/// The stage of a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Waiting for the previous reload.
    Waiting,
    /// Old workers leave, and their template ends.
    Vacating,
    Booting,
    /// One worker answers a request that the server itself sends.
    Probing,
    Watching,
    Rolling,
    /// The new code serves, and the old template is still there.
    Settling,
    Reverting,
}

impl Stage {
    /// Returns the name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Waiting => "waiting",
            Stage::Vacating => "vacating",
            Stage::Booting => "booting",
            Stage::Probing => "probing",
            Stage::Watching => "watching",
            Stage::Rolling => "rolling",
            Stage::Settling => "settling",
            Stage::Reverting => "reverting",
        }
    }
}

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

/// The state machine of a reload.
#[derive(Debug)]
pub struct Rollout {
    state: State,
    plan: Plan,
    old: Generation,
    new: Generation,
    begun: Instant,
    /// Why the new code should not serve, although it does.
    unwanted: Option<String>,
}

impl Rollout {
    /// Creates the state in which no reload runs.
    pub fn new(now: Instant) -> Rollout {
        Rollout { state: State::Idle, plan: Plan::default(), old: 0, new: 0, begun: now, unwanted: None }
    }

    /// Returns whether a reload is running. The old template that stays afterwards does not count.
    pub fn is_busy(&self) -> bool {
        !matches!(self.state, State::Idle | State::Settling { .. })
    }

    /// Returns the generation that the reload brings, from its start until the old template ends.
    pub fn new_generation(&self) -> Option<Generation> {
        (self.state != State::Idle).then_some(self.new)
    }

    /// Returns the generation that served before, for the same time.
    pub fn old_generation(&self) -> Option<Generation> {
        (self.state != State::Idle).then_some(self.old)
    }

    /// Returns the current stage, or `None` if no reload runs.
    pub fn stage(&self) -> Option<Stage> {
        Some(match self.state {
            State::Idle => return None,
            State::Vacating { .. } => Stage::Vacating,
            State::Weighing { .. } | State::Booting { .. } => Stage::Booting,
            State::Probing => Stage::Probing,
            State::Watching { .. } => Stage::Watching,
            State::Rolling { .. } => Stage::Rolling,
            State::Settling { .. } => Stage::Settling,
            State::Abandoning { .. } | State::Returning { .. } => Stage::Reverting,
        })
    }

    /// Returns the time at which the current stage ends, if it is limited by time.
    pub fn until(&self) -> Option<Instant> {
        match self.state {
            State::Watching { until } | State::Settling { until } => Some(until),
            _ => None,
        }
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Begins a reload while none is running. `old` is the generation that serves now.
    pub fn request(&mut self, plan: Plan, old: Generation, now: Instant) -> Vec<Order> {
        debug_assert!(!self.is_busy());
        let mut orders = Vec::new();
        if matches!(self.state, State::Settling { .. }) {
            orders.push(Order::Abandon(self.old));
        }
        (self.plan, self.old, self.begun, self.unwanted) = (plan, old, now, None);
        self.new = 0;
        self.state = State::Weighing { until: now + WEIGHING };
        orders.push(Order::Weigh);
        orders
    }

    /// Takes the result of the memory check: there is room (in place, with this number of old workers), or
    /// the reason to refuse the reload.
    pub fn weighed(&mut self, result: Result<usize, String>, facts: &Facts) -> Vec<Order> {
        match (&self.state, result) {
            (State::Weighing { .. }, Err(why)) => self.finish(Outcome::Failed(why)),
            (State::Weighing { .. }, Ok(serving)) if self.plan.in_place => {
                let serving = serving.clamp(1, facts.wanted.max(1));
                self.state = State::Vacating { serving };
                let text = format!(
                    "{serving} of {} workers serve until the new code does; the old template ends",
                    facts.wanted
                );
                vec![Order::Say(Stage::Vacating, text), Order::Vacate(serving)]
            }
            (State::Weighing { .. }, Ok(_)) => self.boot("loading the app beside the old one"),
            _ => Vec::new(),
        }
    }

    fn boot(&mut self, text: &str) -> Vec<Order> {
        self.state = State::Booting { loaded: false };
        vec![Order::Say(Stage::Booting, text.to_owned()), Order::Start]
    }

    /// Takes the generation of the new template.
    pub fn started(&mut self, new: Generation) {
        self.new = new;
    }

    /// Returns to the old code.
    ///
    /// # Errors
    /// Fails if there is no old code to return to, or if the reload is being undone already.
    pub fn undo(&mut self, facts: &Facts) -> Result<Vec<Order>, &'static str> {
        match self.state {
            State::Settling { .. } if facts.old.template == TemplateStage::Up => {
                let text = "workers of the old code take over again".to_owned();
                self.state = State::Returning { failure: None };
                Ok(vec![Order::Say(Stage::Reverting, text), Order::Roll(self.old, self.plan.step)])
            }
            State::Rolling { .. } if facts.old.template != TemplateStage::Up => {
                Err("the template with the old code has ended: there is nothing to go back to")
            }
            State::Weighing { .. }
            | State::Vacating { .. }
            | State::Booting { .. }
            | State::Probing
            | State::Watching { .. }
            | State::Rolling { .. } => Ok(self.revert("it was undone", facts)),
            State::Abandoning { .. } | State::Returning { .. } => Err("it is being undone already"),
            State::Idle | State::Settling { .. } => {
                Err("there is nothing to undo: the template with the old code has ended (`reload.keep`); \
                     deploy the old code and reload")
            }
        }
    }

    /// Takes the news that the new template could not load the app.
    pub fn boot_failed(&mut self, reason: &str, facts: &Facts) -> Vec<Order> {
        if matches!(self.state, State::Booting { .. }) { self.revert(reason, facts) } else { Vec::new() }
    }

    /// Takes the news that a worker of the new generation died, or was killed because it was not ready in
    /// time.
    pub fn worker_died(&mut self, how: &str, facts: &Facts) -> Vec<Order> {
        match &mut self.state {
            State::Booting { .. } | State::Probing | State::Watching { .. } => {
                self.revert(&format!("its first {how}"), facts)
            }
            State::Rolling { deaths, .. } => {
                *deaths += 1;
                if *deaths < DEATHS {
                    return Vec::new();
                }
                self.revert(&format!("{DEATHS} of its workers died; the last: {how}"), facts)
            }
            _ => Vec::new(),
        }
    }

    /// Takes the result of the probe, or the reason why the response is not acceptable.
    pub fn probed(&mut self, result: Result<String, String>, facts: &Facts, now: Instant) -> Vec<Order> {
        match (&self.state, result) {
            (State::Probing, Ok(text)) => {
                let mut orders = vec![Order::Say(Stage::Probing, text)];
                orders.extend(self.watch(now));
                orders
            }
            (State::Probing, Err(reason)) => self.revert(&reason, facts),
            _ => Vec::new(),
        }
    }

    /// Takes the verdict on the worker on trial.
    pub fn judged(&mut self, verdict: Result<String, String>, facts: &Facts) -> Vec<Order> {
        match (&self.state, verdict) {
            (State::Watching { .. }, Ok(text)) => {
                let mut orders = vec![Order::Say(Stage::Watching, text)];
                orders.extend(self.roll());
                orders
            }
            (State::Watching { .. }, Err(reason)) => self.revert(&reason, facts),
            _ => Vec::new(),
        }
    }

    /// Returns whether the trial's time is over.
    pub fn has_watched(&self, now: Instant) -> bool {
        matches!(self.state, State::Watching { until } if until <= now)
    }

    /// Ends the reload because the server shuts down.
    pub fn stop(&mut self) -> Vec<Order> {
        let busy = self.is_busy();
        self.state = State::Idle;
        let ended = Outcome::Failed("the server is stopping".to_owned());
        if busy { vec![Order::Finish(ended)] } else { Vec::new() }
    }

    /// Returns the orders to carry out after a change or after some time.
    pub fn observe(&mut self, facts: &Facts, now: Instant) -> Vec<Order> {
        match &mut self.state {
            State::Idle => Vec::new(),
            State::Weighing { until } => {
                // The measuring thread has died; the reload goes on without a figure.
                if *until > now { Vec::new() } else { self.weighed(Ok(1), facts) }
            }
            State::Vacating { serving } => {
                if facts.old.all > *serving && facts.old.template != TemplateStage::Gone {
                    return Vec::new();
                }
                let mut orders = vec![Order::Retire];
                orders.extend(self.boot("loading the app in the place of the old one"));
                orders
            }
            State::Booting { loaded } => {
                let mut orders = Vec::new();
                if facts.new.template == TemplateStage::Up && !*loaded {
                    *loaded = true;
                    let seconds = now.saturating_duration_since(self.begun).as_secs_f64();
                    let text = format!("the app is loaded ({seconds:.1} s)");
                    orders.push(Order::Say(Stage::Booting, text));
                }
                if facts.new.template == TemplateStage::Gone {
                    orders.extend(self.revert("its template has ended", facts));
                } else if facts.new.ready > 0 {
                    orders.extend(self.probe(now));
                }
                orders
            }
            State::Probing | State::Watching { .. } if facts.new.template == TemplateStage::Gone => {
                self.revert("its template has ended", facts)
            }
            State::Probing | State::Watching { .. } => Vec::new(),
            State::Rolling { ready, .. } => {
                let mut orders = Vec::new();
                let now_ready = facts.new.ready.min(facts.wanted);
                if now_ready > *ready {
                    *ready = now_ready;
                    let text = format!("{now_ready} of {} workers run the new code", facts.wanted);
                    orders.push(Order::Say(Stage::Rolling, text));
                }
                if facts.new.template == TemplateStage::Gone {
                    orders.extend(self.revert("its template has ended", facts));
                } else if facts.new.ready >= facts.wanted && facts.others == 0 {
                    orders.extend(self.settle(facts, now));
                }
                orders
            }
            State::Settling { until } => {
                let gone = facts.old.template == TemplateStage::Gone;
                if !gone && *until > now {
                    return Vec::new();
                }
                self.state = State::Idle;
                if gone { Vec::new() } else { vec![Order::Abandon(self.old)] }
            }
            State::Abandoning { reason } => {
                if facts.new.all > 0 || facts.new.template != TemplateStage::Gone {
                    return Vec::new();
                }
                let reason = std::mem::take(reason);
                if !self.plan.in_place {
                    return self.finish(Outcome::Failed(reason));
                }
                let reason = format!(
                    "{reason}\nThe reload was in place, so there is no template of the old code: {} old workers serve on, and the code \
                     of before is loaded again",
                    facts.others
                );
                let mut orders = vec![Order::Restore];
                orders.extend(self.finish(Outcome::Failed(reason)));
                orders
            }
            State::Returning { failure }
                if facts.old.template == TemplateStage::Gone && facts.new.template == TemplateStage::Up =>
            {
                self.unwanted = Some(failure.take().unwrap_or_else(|| "it cannot be undone".to_owned()));
                self.state = State::Rolling { ready: 0, deaths: 0 };
                let text = "the old template has died, so the new code takes over after all".to_owned();
                vec![Order::Say(Stage::Rolling, text)]
            }
            State::Returning { failure } => {
                // When the new generation no longer serves, there is nothing left to wait for, whichever code
                // serves now.
                if facts.new.staying > 0 || facts.others < facts.wanted.min(1) {
                    return Vec::new();
                }
                let outcome = match failure.take() {
                    Some(reason) => Outcome::Failed(reason),
                    None => Outcome::Undone("the old code serves again".to_owned()),
                };
                self.finish(outcome)
            }
        }
    }

    fn probe(&mut self, now: Instant) -> Vec<Order> {
        if !self.plan.probe {
            return self.watch(now);
        }
        self.state = State::Probing;
        vec![Order::Probe]
    }

    fn watch(&mut self, now: Instant) -> Vec<Order> {
        let Some(time) = self.plan.watch.filter(|time| !time.is_zero()) else { return self.roll() };
        self.state = State::Watching { until: now + time };
        vec![Order::Watch]
    }

    fn roll(&mut self) -> Vec<Order> {
        self.state = State::Rolling { ready: 0, deaths: 0 };
        vec![Order::Keep(self.old), Order::Roll(self.new, self.plan.step)]
    }

    fn settle(&mut self, facts: &Facts, now: Instant) -> Vec<Order> {
        let seconds = now.saturating_duration_since(self.begun).as_secs_f64();
        let mut text = format!("the new code serves ({seconds:.1} s)");
        let mut orders = Vec::new();
        if facts.old.template == TemplateStage::Up {
            orders.push(Order::Spare(self.old));
        }
        if facts.old.template == TemplateStage::Up && !self.plan.keep.is_zero() {
            let keep = self.plan.keep.as_secs_f64();
            text += &format!("; for {keep:.0} s `firebrick reload --undo` goes back at once");
            self.state = State::Settling { until: now + self.plan.keep };
        } else {
            orders.push(Order::Abandon(self.old));
            self.state = State::Idle;
        }
        orders.push(Order::Finish(match self.unwanted.take() {
            Some(reason) => {
                Outcome::NoWayBack(format!("{reason}, and the old template has died: the new code serves"))
            }
            None => Outcome::Done(text),
        }));
        orders
    }

    fn revert(&mut self, reason: &str, facts: &Facts) -> Vec<Order> {
        let say = |text: &str| Order::Say(Stage::Reverting, text.to_owned());
        match self.state {
            State::Weighing { .. } => self.finish(Outcome::Failed(reason.to_owned())),
            State::Vacating { .. } => {
                let mut orders = vec![Order::Reoccupy];
                orders.extend(self.finish(Outcome::Failed(reason.to_owned())));
                orders
            }
            State::Rolling { .. } if facts.old.template == TemplateStage::Up => {
                self.state = State::Returning { failure: Some(reason.to_owned()) };
                vec![say("workers of the old code take over again"), Order::Roll(self.old, self.plan.step)]
            }
            // There is no way back: the old template has died, and its workers are being replaced.
            State::Rolling { .. } if facts.new.template != TemplateStage::Gone => Vec::new(),
            State::Rolling { .. } => {
                self.finish(Outcome::Failed(format!("{reason}, and so has the old one's")))
            }
            _ => {
                self.state = State::Abandoning { reason: reason.to_owned() };
                vec![say("the old code serves on"), Order::Abandon(self.new)]
            }
        }
    }

    fn finish(&mut self, outcome: Outcome) -> Vec<Order> {
        self.unwanted = None;
        self.state = State::Idle;
        vec![Order::Finish(outcome)]
    }
}

#[cfg(test)]
#[path = "rollout_tests.rs"]
mod tests;
