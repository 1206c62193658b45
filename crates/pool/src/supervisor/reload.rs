//! Carries out reloads: turns the orders of the [rollout](crate::rollout) into events of the process table,
//! and into lines for the log and for the callers that follow the reload.
//!
//! Events of processes are recorded when they happen and passed to the rollout afterwards, so that its orders
//! never come between an event of the table and the resulting actions.

use super::{Event, Notice, Supervisor};
use crate::deaths;
use crate::dispatch::Serial;
use crate::progress::Progress;
use crate::reload_record::Record;
use crate::rollout::{Facts, Order, Outcome, Plan, Rollout, Stage};
use crate::room::Figures;
use crate::shared::{Report, ThreadMessage};
use crate::spawner::BootConfig;
use crate::table::{Cause, Code, FIRST_CODE, Generation, Stage as WorkerStage, WorkerExit};
use crate::verdict::{self, Tally, verdict};
use settings::Machine;
use settings::puma::Evaluated;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc;

/// How long the memory check waits for the end of a template.
const ENDING: Duration = Duration::from_secs(1);

/// A progress message to the caller of a reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadStep {
    Step {
        /// The stage, in one word.
        stage: &'static str,
        /// The same as a sentence for users.
        text: String,
    },
    /// The reload has ended: the requested code serves, or the reason why it does not.
    End(Result<String, String>),
}

/// The channel for progress messages.
pub type Steps = mpsc::UnboundedSender<ReloadStep>;

/// The running reload, and the one that waits for it.
pub(super) struct Reloads {
    rollout: Rollout,
    /// The start configuration of each code version: the one that a reload brings and the one before.
    boots: BTreeMap<Code, BootConfig>,
    /// The code version of the running reload, or of the last one.
    new: Code,
    /// The code version before that.
    before: Code,
    /// The code version whose settings are in force.
    published: Code,
    listener: Option<Steps>,
    /// The pid of a template that is ending.
    ending: Option<u32>,
    /// The newest reload that was ordered during the running one.
    waiting: Option<Waiting>,
    notes: Vec<Note>,
    probe: Option<Probe>,
    watch: Option<Watch>,
    record: Record,
    stopped: bool,
}

/// A reload that was ordered during another one.
struct Waiting {
    steps: Option<Steps>,
    in_place: bool,
}

/// The requests that the worker on trial must answer.
struct Probe {
    serial: Serial,
    /// The current path and those after it.
    targets: VecDeque<String>,
    /// Whether the paths come from `reload.probe`. Otherwise they are guesses, which may be wrong.
    wished: bool,
    answered: Vec<String>,
}

/// The requests that each worker had served when the trial began.
struct Watch {
    begun: BTreeMap<Serial, Tally>,
}

/// An event of a process of the new generation.
enum Note {
    BootFailed(String),
    WorkerDied(String),
}

impl Reloads {
    /// Creates the state without a reload. `boot` is the start configuration of the first template.
    pub(super) fn new(boot: BootConfig, now: Instant) -> Reloads {
        Reloads {
            rollout: Rollout::new(now),
            boots: BTreeMap::from([(FIRST_CODE, boot)]),
            new: FIRST_CODE,
            before: FIRST_CODE,
            published: FIRST_CODE,
            listener: None,
            ending: None,
            waiting: None,
            notes: Vec::new(),
            probe: None,
            watch: None,
            record: Record::default(),
            stopped: false,
        }
    }

    /// Returns how to start a template with this code.
    pub(super) fn boot_of(&self, code: Code) -> Option<&BootConfig> {
        self.boots.get(&code)
    }

    /// Tells the rollout that the template of this generation is started with this code.
    pub(super) fn started(&mut self, generation: Generation, code: Code) {
        if code == self.new && self.rollout.is_busy() {
            self.rollout.started(generation);
        }
    }

    /// Returns whether this is the code of the running reload.
    fn is_new(&self, code: Option<Code>) -> bool {
        code == Some(self.new) && self.new != self.published && self.rollout.is_busy()
    }

    /// Returns whether a reload is running.
    pub(super) fn is_busy(&self) -> bool {
        self.rollout.is_busy()
    }

    /// Returns whether no reload is running, none waits, and none can be undone.
    pub(super) fn is_idle(&self) -> bool {
        self.rollout.stage().is_none() && self.waiting.is_none()
    }

    /// Returns the generation that serves until the running reload is done.
    pub(super) fn old_generation(&self) -> Option<Generation> {
        self.rollout.old_generation().filter(|_| self.rollout.is_busy())
    }

    /// Returns the stage of the running reload.
    pub(super) fn stage(&self) -> Option<Stage> {
        self.rollout.stage()
    }

    /// Returns the generation that the running reload brings.
    pub(super) fn generation(&self) -> Option<Generation> {
        self.rollout.new_generation().filter(|_| self.rollout.is_busy())
    }
}

fn end(listener: Option<&Steps>, result: Result<String, String>) {
    // The listener may have gone.
    let _ = listener.map(|steps| steps.send(ReloadStep::End(result)));
}

impl Supervisor {
    pub(super) fn reload(&mut self, steps: Option<Steps>, in_place: bool, notify: &mut impl FnMut(Notice)) {
        if self.reloads.stopped {
            return end(steps.as_ref(), Err("the server is stopping".to_owned()));
        }
        if self.reloads.rollout.is_busy() || self.reforks.is_rolling() {
            let what = if self.reforks.is_rolling() { "a refork" } else { "another reload" };
            let text = format!("{what} is under way; this one follows it");
            let _ = steps.as_ref().map(|steps| {
                steps.send(ReloadStep::Step { stage: Stage::Waiting.name(), text: text.clone() })
            });
            if let Some(older) = self.reloads.waiting.replace(Waiting { steps, in_place }) {
                self.reloads.record.superseded();
                end(older.steps.as_ref(), Err("a newer reload has taken its place".to_owned()));
            }
            return;
        }
        self.begin_reload(steps, in_place, notify);
    }

    fn begin_reload(&mut self, steps: Option<Steps>, in_place: bool, notify: &mut impl FnMut(Notice)) {
        let now = Instant::now();
        self.refork_gives_way(notify);
        self.reloads.listener = steps;
        self.reloads.record.begun(false, (now, SystemTime::now()));
        let boot = match (self.options.refresh.0)(None) {
            Ok(boot) => boot,
            Err(why) => return self.finish_reload(Outcome::Failed(why), notify),
        };
        let mut plan = self.reload_plan();
        if in_place {
            // A trial would have little to compare with, and there is no old template to return to.
            (plan.in_place, plan.watch) = (true, None);
        }
        let reloads = &mut self.reloads;
        (reloads.before, reloads.new) = (self.table.in_force(), boot.release);
        reloads.boots.retain(|code, _| *code == reloads.before);
        reloads.boots.insert(reloads.new, boot);
        let Some(old) = self.table.serving() else {
            let why = "no worker has been ready yet; reload when the server is up".to_owned();
            return self.finish_reload(Outcome::Failed(why), notify);
        };
        let orders = self.reloads.rollout.request(plan, old, now);
        self.carry_out(orders, notify);
        self.observe_reload(notify);
    }

    /// Tells a template that has evaluated `puma.rb` to load the app. In a reload, the calls of `puma.rb` are
    /// part of the new settings. A template that replaces a dead one uses the settings in force.
    pub(super) fn configured(&mut self, generation: Generation, evaluated: Evaluated) -> Result<(), String> {
        let calls = evaluated.map_err(|refusal| refusal.to_string())?;
        let code = self.table.code_of(generation);
        if let Some(code) = code.filter(|_| self.reloads.is_new(code)) {
            let boot = (self.options.refresh.0)(Some((code, &calls)))?;
            self.reloads.boots.insert(code, boot);
        }
        self.boot_template(generation)
            .map_err(|e| format!("the template cannot be told to load the app: {e}"))
    }

    fn reload_plan(&self) -> Plan {
        let settings = self.options.settings.borrow();
        if settings.process.environment == "development" {
            return Plan { step: settings.reload.step, ..Plan::default() };
        }
        let watch = Some(settings.reload.watch).filter(|_| settings.reload.share > 0);
        Plan { probe: true, watch, in_place: false, step: settings.reload.step, keep: settings.reload.keep }
    }

    pub(super) fn undo_reload(&mut self, steps: Option<Steps>, notify: &mut impl FnMut(Notice)) {
        let busy = self.reloads.rollout.is_busy();
        match self.reloads.rollout.undo(&self.reload_facts()) {
            Ok(orders) => {
                if busy {
                    self.reloads.record.undo_wished();
                } else {
                    self.reloads.record.begun(true, (Instant::now(), SystemTime::now()));
                    // A template that dies from now on is replaced by one with the old code.
                    self.event(Event::InForce(self.reloads.before), notify);
                }
                if self.reloads.listener.is_none() {
                    self.reloads.listener = steps;
                } else if let Some(steps) = steps {
                    // The cancelled reload has its own listener, which gets the reason.
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
        self.reforks.stop();
        if let Some(waiting) = self.reloads.waiting.take() {
            end(waiting.steps.as_ref(), Err("the server is stopping".to_owned()));
        }
        let orders = self.reloads.rollout.stop();
        self.carry_out(orders, notify);
    }

    /// Records that the template of `generation` is unusable, with the reason.
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
        self.facts_between(rollout.old_generation(), rollout.new_generation())
    }

    /// Returns the facts by which a rollout or a refork decides.
    pub(super) fn facts_between(&self, old: Option<Generation>, new: Option<Generation>) -> Facts {
        let [new, old] = [new, old].map(Option::unwrap_or_default);
        Facts {
            new: self.table.census(new),
            old: self.table.census(old),
            others: self.table.others_ready(new),
            wanted: self.table.wanted(),
        }
    }

    /// Returns the state of the current reload and the record of those that have ended.
    pub(super) fn reloads_snapshot(&self) -> stats::ReloadsSnapshot {
        let share = self.options.settings.borrow().reload.share;
        self.reloads.record.snapshot(&self.reloads.rollout, &self.reload_facts(), share, Instant::now())
    }

    /// Passes events to the rollout and carries out its orders. Called after each event.
    pub(super) fn observe_reload(&mut self, notify: &mut impl FnMut(Notice)) {
        for note in std::mem::take(&mut self.reloads.notes) {
            let facts = self.reload_facts();
            let orders = match note {
                Note::BootFailed(why) => self.reloads.rollout.boot_failed(&why, &facts),
                Note::WorkerDied(how) => self.reloads.rollout.worker_died(&how, &facts),
            };
            self.carry_out(orders, notify);
        }
        self.judge(notify);
        loop {
            let facts = self.reload_facts();
            let orders = self.reloads.rollout.observe(&facts, Instant::now());
            if orders.is_empty() {
                break;
            }
            self.carry_out(orders, notify);
        }
        if !self.reloads.rollout.is_busy()
            && !self.reforks.is_rolling()
            && let Some(Waiting { steps, in_place }) = self.reloads.waiting.take()
        {
            self.begin_reload(steps, in_place, notify);
        }
    }

    fn carry_out(&mut self, orders: Vec<Order>, notify: &mut impl FnMut(Notice)) {
        for order in orders {
            self.reloads.record.ordered(&order, self.reloads.rollout.new_generation());
            match order {
                Order::Weigh => self.weigh_memory(),
                Order::Vacate(serving) => self.event(Event::Vacate(serving), notify),
                Order::Reoccupy => self.event(Event::Reoccupy, notify),
                Order::Retire => self.event(Event::RetireTemplates, notify),
                Order::Restore => self.event(Event::NewGeneration, notify),
                Order::Start => {
                    notify(Notice::Reloading);
                    self.event(Event::TrialGeneration(self.reloads.new), notify);
                }
                Order::Probe => self.probe(notify),
                Order::Watch => self.watch(notify),
                Order::Keep(generation) => self.event(Event::Keep(generation), notify),
                Order::Roll(generation, step) => {
                    self.event(Event::Step(step.of(self.table.wanted())), notify);
                    self.event(Event::Roll(generation), notify);
                }
                Order::Spare(generation) => self.event(Event::Spare(generation), notify),
                Order::Abandon(generation) => {
                    self.reloads.ending = self.templates.get(&generation).map(|one| one.process.pid());
                    self.event(Event::Abandon(generation), notify);
                }
                Order::Say(stage, text) => {
                    notify(Notice::Log(format!("reload: {}: {text}", stage.name())));
                    let step = ReloadStep::Step { stage: stage.name(), text };
                    let _ = self.reloads.listener.as_ref().map(|steps| steps.send(step));
                }
                Order::Finish(outcome) => self.finish_reload(outcome, notify),
            }
        }
    }

    // The memory check.

    /// Measures the memory that a reload depends on, on another thread, because that takes milliseconds.
    fn weigh_memory(&mut self) {
        let template = self.table.serving().and_then(|serving| self.templates.get(&serving));
        let template = template.map(|template| template.process.pid());
        let workers: Vec<u32> =
            self.table.rows().filter(|row| row.stage == WorkerStage::Up).map(|row| row.pid).collect();
        let (shared, ending) = (self.shared.clone(), self.reloads.ending.take());
        tokio::task::spawn_blocking(move || {
            use stats::memory::{anonymous_bytes, private_bytes, rss_bytes};
            // The spare template of the previous reload is about to free its memory.
            let until = Instant::now() + ENDING;
            while ending.is_some_and(|pid| rss_bytes(pid) > 0) && Instant::now() < until {
                std::thread::sleep(ENDING / 100);
            }
            let all: u64 = workers.iter().map(|pid| private_bytes(*pid)).sum();
            shared.report(Report::Weighed(Figures {
                available: Machine::memory_available(),
                template: template.map_or(0, anonymous_bytes),
                template_alone: template.map_or(0, private_bytes),
                worker: all / workers.len().max(1) as u64,
            }));
        });
    }

    pub(super) fn weighed(&mut self, figures: &Figures, notify: &mut impl FnMut(Notice)) {
        let (wanted, plan) = (self.table.wanted(), self.reloads.rollout.plan());
        let result = if plan.in_place {
            Ok(figures.staying(wanted))
        } else {
            figures.fits(plan.step.of(wanted)).map(|()| wanted)
        };
        let facts = self.reload_facts();
        let orders = self.reloads.rollout.weighed(result, &facts);
        self.carry_out(orders, notify);
    }

    // The probe.

    fn worker_on_trial(&self) -> Option<Serial> {
        let new = self.reloads.generation()?;
        let is_it = |row: &crate::table::Row| row.generation == new && row.stage == WorkerStage::Up;
        self.table.rows().find(is_it).map(|row| row.serial)
    }

    fn probe(&mut self, notify: &mut impl FnMut(Notice)) {
        let boot = self.reloads.boots.get(&self.reloads.new);
        let (Some(serial), Some(boot)) = (self.worker_on_trial(), boot) else { return };
        let (wished, settings) = (boot.settings.reload.probe.clone(), &boot.settings);
        let targets = match (wished.is_empty(), settings.rack.warmup.is_empty()) {
            (false, _) => wished.clone(),
            (true, false) => settings.rack.warmup.clone(),
            (true, true) => vec!["/up".to_owned()],
        };
        self.reloads.probe =
            Some(Probe { serial, targets: targets.into(), wished: !wished.is_empty(), answered: Vec::new() });
        self.probe_next(notify);
    }

    fn probe_next(&mut self, notify: &mut impl FnMut(Notice)) {
        let limit = self.options.timeouts().worker_boot;
        let Some(probe) = &self.reloads.probe else { return };
        let Some(target) = probe.targets.front() else {
            let text = probe.answered.join(", ");
            return self.probe_ended(Ok(text), notify);
        };
        let (serial, target) = (probe.serial, target.clone());
        self.shared.mailbox(0).post(ThreadMessage::Probe { serial, target, limit });
    }

    pub(super) fn probed(
        &mut self,
        serial: Serial,
        result: Result<u16, String>,
        notify: &mut impl FnMut(Notice),
    ) {
        let Some(probe) = self.reloads.probe.as_mut().filter(|probe| probe.serial == serial) else { return };
        let Some(target) = probe.targets.pop_front() else { return };
        // A guessed path may not exist or may need authentication.
        let allowed = if probe.wished { 400 } else { 500 };
        match result {
            Ok(404) if !probe.wished => {
                probe.answered.push(format!("GET {target} returned 404 (ignored; set `reload.probe`)"));
            }
            Ok(status) if status < allowed => probe.answered.push(format!("GET {target} returned {status}")),
            Ok(status) => {
                return self.probe_ended(Err(format!("GET {target} returned {status}")), notify);
            }
            Err(why) => return self.probe_ended(Err(format!("GET {target}: {why}")), notify),
        }
        self.probe_next(notify);
    }

    fn probe_ended(&mut self, result: Result<String, String>, notify: &mut impl FnMut(Notice)) {
        self.reloads.probe = None;
        let facts = self.reload_facts();
        let orders = self.reloads.rollout.probed(result, &facts, Instant::now());
        self.carry_out(orders, notify);
    }

    // The trial.

    pub(super) fn open_on_trial(&mut self, serial: Serial) {
        let (now, mut assigned) = (Instant::now(), Vec::new());
        let share = self.options.settings.borrow().reload.share * 10;
        let Some(worker) = self.workers.get_mut(&serial) else { return };
        worker.progress = Progress::new(now);
        for &kind in self.shared.kinds() {
            let seats = worker.seats_of(kind);
            self.shared.dispatch(kind).worker_on_trial(serial, seats, share, now, &mut assigned);
        }
        self.shared.deliver(&assigned);
    }

    fn watch(&mut self, notify: &mut impl FnMut(Notice)) {
        let Some(new) = self.reloads.rollout.new_generation() else { return };
        self.reloads.watch = Some(Watch { begun: self.shared.tallies() });
        let settings = self.options.settings.borrow().reload.clone();
        let text = format!(
            "one worker serves {} % of the requests for {} s",
            settings.share,
            settings.watch.as_secs_f64()
        );
        self.carry_out(vec![Order::Say(Stage::Watching, text)], notify);
        self.event(Event::OpenTrial(new), notify);
    }

    /// Compares what was served since the trial began, as soon as a verdict is possible.
    fn judge(&mut self, notify: &mut impl FnMut(Notice)) {
        if self.reloads.rollout.stage() != Some(Stage::Watching) {
            return;
        }
        let (Some(watch), Some(new)) = (&self.reloads.watch, self.worker_on_trial()) else { return };
        let now = self.shared.tallies();
        let since =
            |serial: Serial, tally: Tally| tally - watch.begun.get(&serial).copied().unwrap_or_default();
        let of = |wanted: bool| now.iter().filter(move |(serial, _)| (**serial == new) == wanted);
        let [ours, theirs] = [true, false]
            .map(|is_new| -> Tally { of(is_new).map(|(serial, tally)| since(*serial, *tally)).sum() });
        let over = self.reloads.rollout.has_watched(Instant::now());
        if let Some(verdict) = verdict(ours, theirs, over) {
            let verdict = verdict.and_then(|text| self.weigh(new).map(|()| text));
            let facts = self.reload_facts();
            let orders = self.reloads.rollout.judged(verdict, &facts);
            self.carry_out(orders, notify);
        }
    }

    /// Compares the memory of the worker on trial with that of the others.
    fn weigh(&self, new: Serial) -> Result<(), String> {
        let up = || self.table.rows().filter(|row| row.stage == WorkerStage::Up);
        let resident = |row: crate::table::Row| stats::memory::rss_bytes(row.pid);
        let ours = up().find(|row| row.serial == new).map_or(0, resident);
        let others: Vec<u64> = up().filter(|row| row.serial != new).map(resident).collect();
        verdict::weigh(ours, &others)
    }

    fn finish_reload(&mut self, outcome: Outcome, notify: &mut impl FnMut(Notice)) {
        let failed = matches!(outcome, Outcome::Failed(_));
        self.reloads.record.finished(&outcome, (Instant::now(), SystemTime::now()));
        if !failed {
            self.reforks.reloaded();
        }
        let (new, before) = (self.reloads.new, self.reloads.before);
        let (in_force, line, result) = match outcome {
            Outcome::Done(text) => (new, format!("reload: {text}"), Ok(text)),
            Outcome::NoWayBack(why) => (new, format!("reload: {why}"), Err(why)),
            Outcome::Undone(text) => (before, format!("reload: {text}"), Ok(text)),
            Outcome::Failed(why) => {
                (self.table.in_force(), format!("reload failed, the old code serves on: {why}"), Err(why))
            }
        };
        self.event(Event::InForce(in_force), notify);
        self.publish(in_force, notify);
        notify(Notice::Log(line));
        if !failed {
            self.reloaded_size(notify);
        }
        notify(Notice::ReloadEnded);
        end(self.reloads.listener.take().as_ref(), result);
    }
    /// Puts the settings that were read with this code in force.
    fn publish(&mut self, code: Code, notify: &mut impl FnMut(Notice)) {
        if self.reloads.published != code
            && let Some(boot) = self.reloads.boots.get(&code).cloned()
        {
            notify(Notice::Reloaded(code));
            self.options.boot = BootConfig { unlink: self.options.boot.unlink.clone(), ..boot };
            self.reloads.published = code;
        }
    }
}
