//! The story of a reload: its steps and its end, for the log, the caller and statistics.

use super::*;

impl Reconciler {
    pub(super) fn finish(&mut self, outcome: ReloadOutcome, text: String) {
        self.rules.reload.state = State::Idle;
        self.end_reload(outcome, text);
    }

    /// Reports the end of a reload. The code that serves now is in force.
    pub(super) fn end_reload(&mut self, outcome: ReloadOutcome, text: String) {
        let reload = &mut self.rules.reload;
        reload.story.unwanted = None;
        let Course { before, code, .. } = reload.course;
        let (caller, took) = (reload.story.caller.take(), self.now - reload.story.begun);
        let (line, result) = match outcome {
            ReloadOutcome::Done | ReloadOutcome::Undone => (format!("reload: {text}"), Ok(text.clone())),
            ReloadOutcome::NoWayBack => (format!("reload: {text}"), Err(text.clone())),
            _ => (format!("reload failed, the old code serves on: {text}"), Err(text.clone())),
        };
        let (met, undo) = (reload.story.met, reload.story.undo);
        match outcome {
            ReloadOutcome::Done | ReloadOutcome::NoWayBack => self.wish.code = code,
            ReloadOutcome::Undone => self.wish.code = before,
            _ => {}
        }
        let changed = outcome != ReloadOutcome::Failed;
        if changed {
            self.rules.refork.reloaded();
        }
        let outcome = match outcome {
            ReloadOutcome::Failed if undo => ReloadOutcome::Undone,
            ReloadOutcome::Failed if met => ReloadOutcome::Reverted,
            outcome => outcome,
        };
        self.log(line);
        self.reached(Milestone::Reloaded { outcome, code: self.wish.code, changed, text, took });
        self.end_for(caller, result);
    }

    pub(super) fn reload_seconds(&self) -> f64 {
        self.now.saturating_duration_since(self.rules.reload.story.begun).as_secs_f64()
    }

    /// Reports a step to the log and to the caller.
    pub(super) fn step(&mut self, text: String) {
        let reload = &mut self.rules.reload;
        let Some(stage) = reload.state.name() else { return };
        reload.story.said.clone_from(&text);
        let caller = reload.story.caller;
        self.log(format!("reload: {stage}: {text}"));
        if let Some(to) = caller {
            self.acts.push(Act::Say(Line::Step { to, stage, text }));
        }
    }

    pub(super) fn end_for(&mut self, caller: Option<Caller>, result: Result<String, String>) {
        if let Some(to) = caller {
            self.acts.push(Act::Say(Line::End { to, result }));
        }
    }

    /// Tells both rules of takeovers that a worker is gone.
    pub(in crate::reconciler) fn worker_gone(&mut self, exit: &WorkerExit) {
        self.rules.refork.worker_gone(exit.serial);
        if exit.cause != Cause::Ordered {
            let how = deaths::describe(exit, self.wish.timeouts.worker);
            self.rules.reload.worker_died(exit.generation, &how);
            self.rules.refork.worker_died(exit.generation, &how);
        }
    }
}
