//! Carries out reforks: turns the decisions of [`crate::refork`] into events of the process table and lines
//! for the log.
//!
//! As with reloads, events of processes are recorded when they happen and passed to the refork afterwards.

use super::{Event, Notice, RunningTemplate, Supervisor};
use crate::deaths;
use crate::dispatch::Serial;
use crate::os;
use crate::recycle::Seen;
use crate::refork::{Order, Refork, choose};
use crate::rollout::Facts;
use crate::shared::ThreadMessage;
use crate::spawner::Template;
use crate::table::{Cause, Generation, Row, Stage, TemplateStage, WorkerExit};
use stats::{Ended, ReforksSnapshot, Running};
use std::io;
use std::time::{Instant, SystemTime};

pub(super) struct Reforks {
    refork: Refork,
    notes: Vec<Note>,
    /// The reforks that have ended.
    record: ReforksSnapshot,
    /// When the last refork began.
    begun: (Instant, SystemTime),
}

/// An event of a process of the new generation.
enum Note {
    Promoted(Serial, Generation),
    TemplateFailed(String),
    WorkerGone(Serial),
    WorkerDied(String),
}

impl Reforks {
    pub(super) fn new(now: Instant) -> Reforks {
        let begun = (now, SystemTime::now());
        Reforks { refork: Refork::new(now), notes: Vec::new(), record: ReforksSnapshot::default(), begun }
    }

    /// Returns the generation that a refork brings.
    pub(super) fn generation(&self) -> Option<Generation> {
        self.refork.new_generation()
    }

    /// Returns whether workers are being replaced. A reload waits for that.
    pub(super) fn is_rolling(&self) -> bool {
        self.refork.is_rolling()
    }

    /// Records that the app has been loaded again.
    pub(super) fn reloaded(&mut self) {
        self.refork.reloaded();
    }

    pub(super) fn stop(&mut self) {
        self.refork.stop();
    }

    /// Records that the template of `generation` is unusable, with the reason.
    pub(super) fn template_failed(&mut self, generation: Generation, why: &str) {
        if self.generation() == Some(generation) {
            self.notes.push(Note::TemplateFailed(why.to_owned()));
        }
    }
}

impl Supervisor {
    /// Checks whether a worker should become the next template. Does nothing in development, or when there is
    /// only one worker.
    pub(super) fn consider_refork(&mut self, rows: &[Row], notify: &mut impl FnMut(Notice)) {
        let now = Instant::now();
        if self.options.spawns() {
            return;
        }
        let Some(done) = self.reforks.refork.may_begin(now) else { return };
        let (after, memory) = {
            let settings = self.options.settings.borrow();
            let off = settings.process.environment == "development";
            let Some(after) = settings.rack.refork_after.threshold(done).filter(|_| !off) else { return };
            (after, settings.limits.worker_memory)
        };
        let quiet = !self.stopping
            && self.table.wanted() > 1
            && self.table.is_calm()
            && self.reloads.is_idle()
            && !self.recycler.is_recycling();
        let Some(old) = self.table.serving().filter(|_| quiet) else { return };
        if self.table.census(old).template != TemplateStage::Up {
            return;
        }
        let of_old = |row: &&Row| row.stage == Stage::Up && row.generation == old;
        let seen: Vec<Seen> = rows.iter().filter(of_old).map(|row| self.seen(row, now)).collect();
        let Some(serial) = choose(&seen, after, memory) else { return };
        if let Some(row) = rows.iter().find(|row| row.serial == serial) {
            let (index, pid) = (row.index, row.pid);
            notify(Notice::Log(format!(
                "refork: worker {index} (pid {pid}) has served {after} requests and becomes the next template"
            )));
        }
        self.reforks.begun = (now, SystemTime::now());
        let orders = self.reforks.refork.begin(serial, old, now);
        self.carry_out_refork(orders, notify);
    }

    /// Gives a worker its end of the socket of the template that it will leave behind.
    pub(super) fn promote(&mut self, serial: Serial, generation: Generation) -> io::Result<()> {
        self.reforks.notes.push(Note::Promoted(serial, generation));
        let (ours, socket) = os::pair()?;
        socket.set_nonblocking(false)?;
        let process = Template::adopt(generation, ours, self.template_reports.0.clone())?;
        self.templates.insert(generation, RunningTemplate::new(process));
        self.shared.mailbox(0).post(ThreadMessage::Promote { serial, socket });
        Ok(())
    }

    pub(super) fn refork_worker_gone(&mut self, exit: &WorkerExit) {
        self.reforks.notes.push(Note::WorkerGone(exit.serial));
        let is_new = self.reforks.generation() == Some(exit.generation);
        if is_new && exit.cause != Cause::Ordered {
            let how = deaths::describe(exit, self.options.timeouts().worker);
            self.reforks.notes.push(Note::WorkerDied(how));
        }
    }

    fn refork_facts(&self) -> Facts {
        let refork = &self.reforks.refork;
        self.facts_between(refork.old_generation(), refork.new_generation())
    }

    /// Passes events to the refork and carries out its orders. Called after each event.
    pub(super) fn observe_refork(&mut self, notify: &mut impl FnMut(Notice)) {
        for note in std::mem::take(&mut self.reforks.notes) {
            let (facts, now) = (self.refork_facts(), Instant::now());
            let refork = &mut self.reforks.refork;
            let orders = match note {
                Note::Promoted(serial, generation) => refork.promoted(serial, generation),
                Note::TemplateFailed(why) => refork.template_failed(&why, now),
                Note::WorkerDied(how) => refork.worker_died(&how, &facts, now),
                Note::WorkerGone(serial) => refork.worker_gone(serial),
            };
            self.carry_out_refork(orders, notify);
        }
        loop {
            let orders = self.reforks.refork.observe(&self.refork_facts(), Instant::now());
            if orders.is_empty() {
                break;
            }
            self.carry_out_refork(orders, notify);
        }
    }

    /// Returns the state of the current refork and the record of those that have ended.
    pub(super) fn reforks_snapshot(&self) -> ReforksSnapshot {
        let Facts { new, wanted, .. } = self.refork_facts();
        let running = self.reforks.refork.stage().map(|stage| {
            let text = match stage {
                "replacing" => "the successor of a warm worker boots".to_owned(),
                "becoming" => "a warm worker finishes its requests and becomes the next template".to_owned(),
                _ => format!("{} of {wanted} workers are forked from a warm one", new.ready.min(wanted)),
            };
            Running { stage: stage.to_owned(), text, started_at: self.reforks.begun.1 }
        });
        ReforksSnapshot { running, ..self.reforks.record.clone() }
    }

    /// Cancels a refork that is not replacing workers yet, because a reload begins.
    pub(super) fn refork_gives_way(&mut self, notify: &mut impl FnMut(Notice)) {
        let orders = self.reforks.refork.give_way(Instant::now());
        self.carry_out_refork(orders, notify);
    }

    fn carry_out_refork(&mut self, orders: Vec<Order>, notify: &mut impl FnMut(Notice)) {
        for order in orders {
            match order {
                Order::Promote(serial) => self.event(Event::Promote(serial), notify),
                Order::Demote(serial) => self.event(Event::Demote(serial), notify),
                Order::Keep(generation) => self.event(Event::Keep(generation), notify),
                Order::Roll(generation) => self.event(Event::Roll(generation), notify),
                Order::Spare(generation) => self.event(Event::Spare(generation), notify),
                Order::Abandon(generation) => self.event(Event::Abandon(generation), notify),
                Order::Say(text) => notify(Notice::Log(text)),
                Order::Finish(outcome, text) => {
                    let took = self.reforks.begun.0.elapsed();
                    self.reforks.record.ended(Ended::new(outcome, &text, took, SystemTime::now()));
                }
            }
        }
    }
}
