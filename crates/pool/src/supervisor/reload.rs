//! Reloads, carried out: what the [rollout](crate::rollout) decides becomes events of the process table, and lines for the log and
//! for those who listen.
//!
//! What happens to processes is noted when it happens and told to the rollout afterwards, so that its orders never come between an
//! event of the table and the actions that follow from it.

use super::{Event, Notice, Supervisor};
use crate::deaths;
use crate::rollout::{Facts, Order, Outcome, Plan, Rollout, Stage};
use crate::spawner::BootConfig;
use crate::table::{Cause, Generation, WorkerExit};
use std::time::Instant;
use tokio::sync::mpsc;

/// What somebody who waits for a reload hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadStep {
    /// It goes on.
    Step {
        /// What it is doing, in one word.
        stage: &'static str,
        /// The same for people.
        text: String,
    },
    /// It is over: the code that was wished serves, or not and why.
    End(Result<String, String>),
}

/// Where steps go.
pub type Steps = mpsc::UnboundedSender<ReloadStep>;

/// The reload under way, and the one that waits for it.
pub(super) struct Reloads {
    rollout: Rollout,
    /// How the template of the new generation is started.
    boot: Option<(Generation, BootConfig)>,
    /// How the one before it was started, while it is there.
    before: Option<BootConfig>,
    listener: Option<Steps>,
    /// The newest reload that was asked for meanwhile.
    waiting: Option<Option<Steps>>,
    notes: Vec<Note>,
    stopped: bool,
}

/// What happened to processes of the new generation.
enum Note {
    BootFailed(String),
    WorkerDied(String),
}

impl Reloads {
    pub(super) fn new(now: Instant) -> Reloads {
        Reloads {
            rollout: Rollout::new(now),
            boot: None,
            before: None,
            listener: None,
            waiting: None,
            notes: Vec::new(),
            stopped: false,
        }
    }

    /// How to start the template of a generation that is new.
    pub(super) fn boot_of(&self, generation: Generation) -> Option<&BootConfig> {
        self.boot.as_ref().filter(|(number, _)| *number == generation).map(|(_, boot)| boot)
    }

    /// The generation that a reload brings.
    pub(super) fn generation(&self) -> Option<Generation> {
        self.rollout.new_generation().filter(|_| self.rollout.is_busy())
    }
}

fn end(listener: Option<&Steps>, result: Result<String, String>) {
    // Whoever listened may have gone.
    let _ = listener.map(|steps| steps.send(ReloadStep::End(result)));
}

impl Supervisor {
    pub(super) fn reload(&mut self, steps: Option<Steps>, notify: &mut impl FnMut(Notice)) {
        if self.reloads.stopped {
            return end(steps.as_ref(), Err("the server is stopping".to_owned()));
        }
        if self.reloads.rollout.is_busy() {
            let text = "another reload is under way; this one follows it".to_owned();
            let _ = steps.as_ref().map(|steps| {
                steps.send(ReloadStep::Step { stage: Stage::Waiting.name(), text: text.clone() })
            });
            if let Some(older) = self.reloads.waiting.replace(steps) {
                end(older.as_ref(), Err("a newer reload has taken its place".to_owned()));
            }
            return;
        }
        self.begin_reload(steps, notify);
    }

    fn begin_reload(&mut self, steps: Option<Steps>, notify: &mut impl FnMut(Notice)) {
        let now = Instant::now();
        self.reloads.listener = steps;
        let boot = match (self.options.refresh.0)() {
            Ok(boot) => boot,
            Err(why) => return self.finish_reload(Outcome::Failed(why), notify),
        };
        let plan = self.reload_plan();
        self.reloads.before = None;
        self.reloads.boot = Some((self.table.last_generation() + 1, boot));
        let Some(old) = self.table.serving() else {
            let why = "no worker has been ready yet; reload when the server is up".to_owned();
            return self.finish_reload(Outcome::Failed(why), notify);
        };
        let orders = self.reloads.rollout.request(plan, old, now);
        self.carry_out(orders, notify);
        self.observe_reload(notify);
    }

    fn reload_plan(&self) -> Plan {
        let settings = self.options.settings.borrow();
        if settings.process.environment == "development" {
            return Plan::default();
        }
        Plan { probe: false, watch: None, keep: settings.reload.keep }
    }

    pub(super) fn undo_reload(&mut self, steps: Option<Steps>, notify: &mut impl FnMut(Notice)) {
        match self.reloads.rollout.undo(&self.reload_facts()) {
            Ok(orders) => {
                if self.reloads.listener.is_none() {
                    self.reloads.listener = steps;
                } else if let Some(steps) = steps {
                    // The reload that is broken off has a listener of its own, who is told why.
                    end(Some(&steps), Ok("the reload under way is undone".to_owned()));
                }
                self.carry_out(orders, notify);
                self.observe_reload(notify);
            }
            Err(why) => end(steps.as_ref(), Err(why.to_owned())),
        }
    }

    pub(super) fn stop_reload(&mut self, notify: &mut impl FnMut(Notice)) {
        self.reloads.stopped = true;
        if let Some(waiting) = self.reloads.waiting.take() {
            end(waiting.as_ref(), Err("the server is stopping".to_owned()));
        }
        let orders = self.reloads.rollout.stop();
        self.carry_out(orders, notify);
    }

    /// The template of `generation` is of no use, and why.
    pub(super) fn new_template_failed(&mut self, generation: Generation, why: &str) {
        if self.reloads.generation() == Some(generation) {
            self.reloads.notes.push(Note::BootFailed(why.to_owned()));
        }
    }

    pub(super) fn new_worker_died(&mut self, exit: &WorkerExit) {
        let generation = self.workers.get(&exit.serial).map(|worker| worker.generation);
        if exit.cause != Cause::Ordered && generation.is_some() && generation == self.reloads.generation() {
            let how = deaths::describe(exit, self.options.timeouts().worker);
            self.reloads.notes.push(Note::WorkerDied(how));
        }
    }

    fn reload_facts(&self) -> Facts {
        let rollout = &self.reloads.rollout;
        let [new, old] = [rollout.new_generation(), rollout.old_generation()].map(Option::unwrap_or_default);
        Facts {
            new: self.table.census(new),
            old: self.table.census(old),
            others: self.table.others_ready(new),
            wanted: self.table.wanted(),
        }
    }

    /// Tells the rollout what has changed. Called after each event.
    pub(super) fn observe_reload(&mut self, notify: &mut impl FnMut(Notice)) {
        for note in std::mem::take(&mut self.reloads.notes) {
            let facts = self.reload_facts();
            let orders = match note {
                Note::BootFailed(why) => self.reloads.rollout.boot_failed(&why, &facts),
                Note::WorkerDied(how) => self.reloads.rollout.worker_died(&how, &facts),
            };
            self.carry_out(orders, notify);
        }
        loop {
            let facts = self.reload_facts();
            let orders = self.reloads.rollout.observe(&facts, Instant::now());
            if orders.is_empty() {
                break;
            }
            self.carry_out(orders, notify);
        }
        if !self.reloads.rollout.is_busy()
            && let Some(steps) = self.reloads.waiting.take()
        {
            self.begin_reload(steps, notify);
        }
    }

    fn carry_out(&mut self, orders: Vec<Order>, notify: &mut impl FnMut(Notice)) {
        for order in orders {
            match order {
                Order::Start => {
                    self.reloads.rollout.started(self.table.last_generation() + 1);
                    self.event(Event::TrialGeneration, notify);
                }
                Order::Probe | Order::Watch => {}
                Order::Keep(generation) => self.event(Event::Keep(generation), notify),
                Order::Roll(generation) => self.event(Event::Roll(generation), notify),
                Order::Spare(generation) => self.event(Event::Spare(generation), notify),
                Order::Abandon(generation) => self.event(Event::Abandon(generation), notify),
                Order::Say(stage, text) => {
                    notify(Notice::Log(format!("reload: {}: {text}", stage.name())));
                    let step = ReloadStep::Step { stage: stage.name(), text };
                    let _ = self.reloads.listener.as_ref().map(|steps| steps.send(step));
                }
                Order::Finish(outcome) => self.finish_reload(outcome, notify),
            }
        }
    }

    fn finish_reload(&mut self, outcome: Outcome, notify: &mut impl FnMut(Notice)) {
        let (line, result) = match outcome {
            Outcome::Done(text) => {
                if let Some((_, boot)) = self.reloads.boot.take() {
                    notify(Notice::Reloaded(boot.settings.clone()));
                    self.reloads.before = Some(std::mem::replace(&mut self.options.boot, boot));
                }
                (format!("reload: {text}"), Ok(text))
            }
            Outcome::Undone(text) => {
                if let Some(before) = self.reloads.before.take() {
                    notify(Notice::Reloaded(before.settings.clone()));
                    self.options.boot = before;
                }
                (format!("reload: {text}"), Ok(text))
            }
            Outcome::Failed(why) => {
                self.reloads.boot = None;
                (format!("reload failed, the old code serves on: {why}"), Err(why))
            }
        };
        notify(Notice::Log(line));
        end(self.reloads.listener.take().as_ref(), result);
    }
}
