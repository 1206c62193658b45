//! A reload, from the order to its end: when new code is tried, when it takes over, and when everything goes back.
//!
//! Why: a deploy must not need a minute of luck. New code boots beside the old, proves itself with one worker, and takes over one
//! worker at a time, or in larger steps. Until the last of them, the way back is open.
//!
//! ```text
//! Idle ─► Weighing (─► Vacating) ─► Booting ─► Probing ─► Watching ─► Rolling ─► Settling ─► Idle (new)
//!                                        └──────────┴───────────┴──────────┴─────► Reverting ─► Idle (old)
//!                                                              Settling ─► Undoing ─► Idle (old)
//! ```
//!
//! Pure: orders, observations and the time go in, [`Order`]s come out; [`crate::supervisor`] carries them out, the
//! [process table](crate::table) moves the workers.
//!
//! Contract:
//! 1. Until `Rolling` the old generation has all its workers; from then on there are never fewer than wanted, because an old one
//!    leaves only when a new one is ready.
//! 2. Each reload ends in exactly one [`Order::Finish`], whatever dies meanwhile.
//! 3. One reload runs at a time. Of those that come meanwhile only the newest waits; the others end at once.
//! 4. Before anything happens, memory is [weighed](crate::room). In place, old workers leave and the old template ends before the new
//!    code is loaded: if that fails, the old code is loaded again.
//! 5. An outcome is the truth: whatever has died, the code that it names is the one that serves, or that the next template loads.
//! 6. Every state has a way out that depends on nothing but time, or on the deadlines of the table.

use crate::table::{Census, Generation, TemplateStage};
use settings::Step;
use std::time::{Duration, Instant};

/// Deaths of new workers while they take over, after which everything goes back. One may be an accident.
const DEATHS: u32 = 3;
/// How long weighing may take.
const WEIGHING: Duration = Duration::from_secs(10);

/// What a reload does between boot and takeover.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Whether the worker on trial has to answer a request first.
    pub probe: bool,
    /// For how long it serves a share of the requests before the others follow; `None`: not at all.
    pub watch: Option<Duration>,
    /// Whether old workers and the old template leave first, because memory has no room for both.
    pub in_place: bool,
    /// How many workers are replaced at a time.
    pub step: Step,
    /// For how long the old template stays.
    pub keep: Duration,
}

impl Default for Plan {
    /// The shortest way: no trial, one worker at a time, no way back.
    fn default() -> Plan {
        Plan { probe: false, watch: None, in_place: false, step: Step::Workers(1), keep: Duration::ZERO }
    }
}

/// What the table says about both generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The generation that a reload brings.
    pub new: Census,
    /// The generation that served before.
    pub old: Census,
    /// Ready workers that are not of the new generation.
    pub others: usize,
    /// How many workers there should be.
    pub wanted: usize,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Find out whether memory has room; the result is told by [`Rollout::weighed`].
    Weigh,
    /// Only so many old workers serve from now on; the others leave.
    Vacate(usize),
    /// As many old workers as wanted serve again.
    Reoccupy,
    /// End the templates that are there; their workers serve on.
    Retire,
    /// Start a template with the code of before, which nobody has any more.
    Restore,
    /// Start a template with the new code. The number that it is given is told by [`Rollout::started`].
    Start,
    /// Send the request to the worker on trial that it has to answer; the result is told by [`Rollout::probed`].
    Probe,
    /// Give the worker on trial its share of the requests, and count.
    Watch,
    /// The template of this generation stays when its workers have left: it may be needed again.
    Keep(Generation),
    /// This generation takes over, so many workers at a time.
    Roll(Generation, Step),
    /// This generation has been replaced; its template stays.
    Spare(Generation),
    /// End this generation.
    Abandon(Generation),
    /// Tell whoever wants to know.
    Say(Stage, String),
    /// The reload is over. On success its code and settings are those that are started again after a crash; after
    /// [`Outcome::Undone`] those of before.
    Finish(Outcome),
}

/// How a reload ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The new code serves.
    Done(String),
    /// The old code serves, as was wished.
    Undone(String),
    /// The old code serves, and why.
    Failed(String),
    /// The new code serves, because the way back that was begun has ended with the old template.
    NoWayBack(String),
}

/// What a reload is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It waits for the one before it.
    Waiting,
    /// Old workers leave, and their template ends.
    Vacating,
    /// The new code is loaded.
    Booting,
    /// One worker answers a request of our own.
    Probing,
    /// One worker serves a share of the requests.
    Watching,
    /// Workers are replaced.
    Rolling,
    /// The new code serves, the old template is still there.
    Settling,
    /// The old code takes over again.
    Reverting,
}

impl Stage {
    /// Its name, as users read it.
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
    /// Whether memory has room is being found out, until this time.
    Weighing {
        until: Instant,
    },
    /// Old workers leave until so many are left.
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
    /// `ready`: new workers at the last look. `deaths`: new workers that died.
    Rolling {
        ready: usize,
        deaths: u32,
    },
    Settling {
        until: Instant,
    },
    /// The trial has been given up.
    Abandoning {
        reason: String,
    },
    /// The old generation takes over again. `failure`: why, if that is not what was wished.
    Returning {
        failure: Option<String>,
    },
}

/// The reload under way.
#[derive(Debug)]
pub struct Rollout {
    state: State,
    plan: Plan,
    old: Generation,
    new: Generation,
    begun: Instant,
    /// Why the new code should not serve, but does.
    unwanted: Option<String>,
}

impl Rollout {
    /// Nothing is under way.
    pub fn new(now: Instant) -> Rollout {
        Rollout { state: State::Idle, plan: Plan::default(), old: 0, new: 0, begun: now, unwanted: None }
    }

    /// Whether a reload has begun and is not finished. The template that stays afterwards does not count.
    pub fn is_busy(&self) -> bool {
        !matches!(self.state, State::Idle | State::Settling { .. })
    }

    /// The generation that it brings, from its start until the old template ends.
    pub fn new_generation(&self) -> Option<Generation> {
        (self.state != State::Idle).then_some(self.new)
    }

    /// The generation that was there before, for as long.
    pub fn old_generation(&self) -> Option<Generation> {
        (self.state != State::Idle).then_some(self.old)
    }

    /// What it is doing; `None` while there is none.
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

    /// When what it is doing ends at the latest, if time ends it.
    pub fn until(&self) -> Option<Instant> {
        match self.state {
            State::Watching { until } | State::Settling { until } => Some(until),
            _ => None,
        }
    }

    /// What it does between boot and takeover.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A reload is wished, and none is busy. `old` serves now.
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

    /// Memory has room, or in place will have it with so many old workers; or why the reload cannot be.
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

    /// The new template was started as this generation.
    pub fn started(&mut self, new: Generation) {
        self.new = new;
    }

    /// The way back is wished.
    ///
    /// # Errors
    /// There is nothing to go back to.
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

    /// The new template could not load the app.
    pub fn boot_failed(&mut self, reason: &str, facts: &Facts) -> Vec<Order> {
        if matches!(self.state, State::Booting { .. }) { self.revert(reason, facts) } else { Vec::new() }
    }

    /// A worker of the new generation died, or was killed because it did not get ready.
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

    /// The worker on trial has answered, or why that does not do.
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

    /// What was counted while the worker on trial served.
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

    /// Whether the time for watching is over.
    pub fn has_watched(&self, now: Instant) -> bool {
        matches!(self.state, State::Watching { until } if until <= now)
    }

    /// The server ends. What is under way ends with it.
    pub fn stop(&mut self) -> Vec<Order> {
        let busy = self.is_busy();
        self.state = State::Idle;
        let ended = Outcome::Failed("the server is stopping".to_owned());
        if busy { vec![Order::Finish(ended)] } else { Vec::new() }
    }

    /// What to do after something has changed, or time has passed.
    pub fn observe(&mut self, facts: &Facts, now: Instant) -> Vec<Order> {
        match &mut self.state {
            State::Idle => Vec::new(),
            State::Weighing { until } => {
                // Who measures has died: what is not known does not hold the reload up.
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
                // Whatever serves now, if the new generation does not, there is nothing left to wait for.
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
            // There is no way back any more: the old template has died, and its workers are being replaced.
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
