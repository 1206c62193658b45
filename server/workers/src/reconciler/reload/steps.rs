//! The steps of a reload: forward, and back to the old code.

use super::*;

impl Reconciler {
    pub(super) fn boot(&mut self, text: &str) {
        self.rules.reload.state = State::Booting { loaded: false };
        self.step(text.to_owned());
        if let Some(new) = self.start_trial(self.rules.reload.course.code) {
            self.rules.reload.course.new = new;
        }
        self.balance();
    }

    pub(super) fn probe(&mut self) {
        let Some(serial) = self.on_trial().filter(|_| self.rules.reload.plan.probe) else {
            return self.watch();
        };
        self.rules.reload.state = State::Probing;
        self.acts.push(Act::Try(Trial::Probe(serial, self.rules.reload.course.code)));
    }

    pub(super) fn watch(&mut self) {
        let Plan { watch, share, .. } = self.rules.reload.plan;
        let Some(time) = watch.filter(|time| !time.is_zero()) else { return self.roll_new() };
        self.rules.reload.state = State::Watching { until: self.now + time };
        self.rules.reload.story.met = true;
        self.step(format!("one worker serves {share} % of the requests for {} s", time.as_secs_f64()));
        if let Some(serial) = self.on_trial() {
            self.acts.push(Act::Try(Trial::Watch(serial)));
        }
        self.open_trial(self.rules.reload.course.new, share);
    }

    pub(super) fn roll_new(&mut self) {
        let (Course { old, new, .. }, step) = (self.rules.reload.course, self.rules.reload.plan.step);
        self.rules.reload.state = State::Rolling { ready: 0, deaths: 0 };
        self.rules.reload.story.met = true;
        self.keep(old);
        self.roll(new, step);
    }

    pub(super) fn succeed(&mut self, facts: &TakeoverState) {
        let mut text = format!("the new code serves ({:.1} s)", self.reload_seconds());
        let (old, keep) = (self.rules.reload.course.old, self.rules.reload.plan.keep);
        let is_up = facts.old.template == TemplateStage::Up;
        if is_up {
            self.spare(old);
        }
        if is_up && !keep.is_zero() {
            text += &format!("; for {:.0} s `firebrick reload --undo` goes back at once", keep.as_secs_f64());
            self.rules.reload.state = State::Settling { until: self.now + keep };
        } else {
            self.rules.reload.state = State::Idle;
            self.abandon(old);
        }
        match self.rules.reload.story.unwanted.take() {
            Some(reason) => {
                let text = format!("{reason}, and the old template has died: the new code serves");
                self.end_reload(ReloadOutcome::NoWayBack, text);
            }
            None => self.end_reload(ReloadOutcome::Done, text),
        }
    }

    /// Handles the end of the new template while its workers take over. Returns whether anything followed.
    pub(super) fn lost_new_template(&mut self, facts: &TakeoverState) -> bool {
        if facts.old.template == TemplateStage::Up {
            self.revert("its template has ended");
        } else {
            let why = "its template has ended, and so has the old one's";
            self.finish(ReloadOutcome::Failed, why.to_owned());
        }
        true
    }

    /// Returns to the old code, for this reason.
    pub(super) fn revert(&mut self, reason: &str) {
        let Course { old, new, .. } = self.rules.reload.course;
        let reason = reason.to_owned();
        match self.rules.reload.state {
            State::Weighing { .. } => self.finish(ReloadOutcome::Failed, reason),
            State::Vacating { .. } => {
                self.reoccupy();
                self.finish(ReloadOutcome::Failed, reason);
            }
            State::Rolling { .. } if self.census(old).template == TemplateStage::Up => {
                self.rules.reload.state = State::Returning { failure: Some(reason) };
                self.step("workers of the old code take over again".to_owned());
                self.roll(old, self.rules.reload.plan.step);
            }
            // There is no way back: the old template has died, and its workers are being replaced.
            State::Rolling { .. } => {}
            _ => {
                self.rules.reload.state = State::Abandoning { reason };
                self.step("the old code serves on".to_owned());
                self.abandon(new);
            }
        }
    }

    /// Ends a reload whose new generation has ended.
    pub(super) fn fail(&mut self, reason: String, facts: &TakeoverState) {
        if !self.rules.reload.course.in_place {
            return self.finish(ReloadOutcome::Failed, reason);
        }
        self.start_template();
        self.balance();
        let others = facts.others;
        let reason = format!(
            "{reason}\nThe reload was in place, so there is no template of the old code: {others} old workers serve on, and the code \
             of before is loaded again"
        );
        self.finish(ReloadOutcome::Failed, reason);
    }
}
