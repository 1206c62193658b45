//! The orders of callers: to reload, to undo, to stop.

use super::*;

impl Reconciler {
    /// Loads the app again and replaces the workers. `in_place`: for machines whose memory cannot hold both
    /// versions, old workers and the old template exit first.
    pub fn reload(&mut self, caller: Option<Caller>, in_place: bool, now: Instant) -> Vec<Act> {
        self.now = now;
        if !self.source.can_replace {
            self.refuse(caller);
        } else if self.is_stopping() {
            self.end_for(caller, Err(STOPPING.to_owned()));
        } else if self.is_reloading() || self.rules.refork.is_rolling() {
            let what = if self.rules.refork.is_rolling() { "a refork" } else { "another reload" };
            if let Some(to) = caller {
                let text = format!("{what} is under way; this one follows it");
                self.acts.push(Act::Say(Line::Step { to, stage: "waiting", text }));
            }
            if let Some(older) = self.rules.reload.waiting.replace(ReloadOrder { caller, in_place }) {
                self.reached(Milestone::Superseded);
                self.end_for(older.caller, Err("a newer reload has taken its place".to_owned()));
            }
        } else {
            self.begin_reload(ReloadOrder { caller, in_place });
        }
        self.settle_all()
    }

    /// Returns to the code in force before the last reload, or cancels the running one.
    pub fn undo(&mut self, caller: Option<Caller>, now: Instant) -> Vec<Act> {
        self.now = now;
        if !self.source.can_replace {
            self.refuse(caller);
            return self.settle_all();
        }
        let was_busy = self.is_reloading();
        if let Err(why) = self.may_undo() {
            self.end_for(caller, Err(why.to_owned()));
            return self.settle_all();
        }
        if was_busy {
            self.rules.reload.story.undo = true;
            if self.rules.reload.story.caller.is_none() {
                self.rules.reload.story.caller = caller;
            } else {
                // The cancelled reload has its own caller, which gets the reason.
                self.end_for(caller, Ok("the reload under way is undone".to_owned()));
            }
            self.revert("it was undone");
        } else {
            self.rules.reload.story = Story { undo: true, ..Story::new(caller, now) };
            self.reached(Milestone::ReloadBegan);
            // A template that dies from now on is replaced by one with the old code.
            self.wish.code = self.rules.reload.course.before;
            self.rules.reload.state = State::Returning { failure: None };
            self.step("workers of the old code take over again".to_owned());
            let (old, step) = (self.rules.reload.course.old, self.rules.reload.plan.step);
            self.roll(old, step);
        }
        self.settle_all()
    }

    pub(super) fn may_undo(&self) -> Result<(), &'static str> {
        let is_up = self.census(self.rules.reload.course.old).template == TemplateStage::Up;
        match self.rules.reload.state {
            State::Settling { .. } if is_up => Ok(()),
            State::Rolling { .. } if !is_up => {
                Err("the template with the old code has ended: there is nothing to go back to")
            }
            State::Abandoning { .. } | State::Returning { .. } => Err("it is being undone already"),
            State::Idle | State::Settling { .. } => {
                Err("there is nothing to undo: the template with the old code has ended (`reload.keep`); \
                     deploy the old code and reload")
            }
            _ => Ok(()),
        }
    }

    pub(super) fn refuse(&mut self, caller: Option<Caller>) {
        match caller {
            Some(_) => self.end_for(caller, Err(NO_SUPERVISION.to_owned())),
            None => self.log(NO_SUPERVISION.to_owned()),
        }
    }

    pub(super) fn begin_reload(&mut self, order: ReloadOrder) {
        self.give_way();
        let reload = &mut self.rules.reload;
        reload.story = Story::new(order.caller, self.now);
        reload.reading = Some(order);
        reload.last_code += 1;
        let code = reload.last_code;
        self.reached(Milestone::ReloadBegan);
        self.acts.push(Act::Try(Trial::Read(code)));
    }

    /// Takes the settings of the new code.
    pub(in crate::reconciler) fn read(&mut self, code: Code, result: Result<Plan, String>) {
        if code != self.rules.reload.last_code {
            return;
        }
        let Some(ReloadOrder { in_place, .. }) = self.rules.reload.reading.take() else { return };
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
        // In place, a trial would have little to compare with.
        reload.plan = if in_place { Plan { watch: None, ..plan } } else { plan };
        reload.course = Course { old, new: 0, before: self.wish.code, code, in_place };
        reload.state = State::Weighing { until: self.now + WEIGHING };
        if settling {
            self.abandon(spare);
        }
        self.acts.push(Act::Try(Trial::Weigh));
    }

    pub(in crate::reconciler) fn stop_reload(&mut self) {
        if let Some(waiting) = self.rules.reload.waiting.take() {
            self.end_for(waiting.caller, Err(STOPPING.to_owned()));
        }
        let was_busy = self.is_reloading();
        (self.rules.reload.state, self.rules.reload.reading) = (State::Idle, None);
        if was_busy {
            self.finish(ReloadOutcome::Failed, STOPPING.to_owned());
        }
    }
}
