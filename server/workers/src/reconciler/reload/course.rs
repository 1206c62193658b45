//! The course of a reload: what follows from what is seen.

use super::*;

impl Reconciler {
    /// Takes the figures of the memory.
    pub(in crate::reconciler) fn weighed(&mut self, figures: &Figures) {
        if !matches!(self.rules.reload.state, State::Weighing { .. }) {
            return;
        }
        let wanted = self.wanted();
        if self.rules.reload.course.in_place {
            let serving = figures.staying(wanted);
            return self.begin_vacating(serving);
        }
        match figures.fits(self.rules.reload.plan.step.of(wanted)) {
            Ok(()) => self.boot("loading the app beside the old one"),
            Err(why) => self.finish(ReloadOutcome::Failed, why),
        }
    }

    pub(super) fn begin_vacating(&mut self, serving: usize) {
        let wanted = self.wanted();
        let serving = serving.clamp(1, wanted.max(1));
        self.rules.reload.state = State::Vacating { serving };
        self.step(format!(
            "{serving} of {wanted} workers serve until the new code does; the old template ends"
        ));
        self.vacate(serving);
    }

    /// Takes the result of the probe or of the comparison.
    pub(in crate::reconciler) fn tried(&mut self, result: Result<String, String>) {
        match (&self.rules.reload.state, result) {
            (State::Probing, Ok(text)) => {
                self.step(text);
                self.watch();
            }
            (State::Watching { .. }, Ok(text)) => {
                self.step(text);
                self.roll_new();
            }
            (State::Probing | State::Watching { .. }, Err(reason)) => self.revert(&reason),
            _ => {}
        }
    }

    /// Takes the news of the new generation, and goes on as far as possible.
    pub(in crate::reconciler) fn observe_reload(&mut self) {
        for news in std::mem::take(&mut self.rules.reload.news) {
            match news {
                News::TemplateFailed(why) => self.new_template_failed(&why),
                News::WorkerDied(how) => self.new_worker_died(&how),
            }
        }
        while self.go_on() {}
        if !self.is_stopping()
            && !self.is_reloading()
            && !self.rules.refork.is_rolling()
            && let Some(order) = self.rules.reload.waiting.take()
        {
            self.begin_reload(order);
        }
    }

    pub(super) fn new_template_failed(&mut self, why: &str) {
        if matches!(self.rules.reload.state, State::Booting { .. }) {
            self.revert(why);
        }
    }

    pub(super) fn new_worker_died(&mut self, how: &str) {
        match &mut self.rules.reload.state {
            State::Booting { .. } | State::Probing | State::Watching { .. } => {
                self.revert(&format!("its first {how}"));
            }
            State::Rolling { deaths, .. } => {
                *deaths += 1;
                if *deaths >= DEATHS {
                    self.revert(&format!("{DEATHS} of its workers died; the last: {how}"));
                }
            }
            _ => {}
        }
    }

    /// Goes on if possible, and returns whether it was.
    pub(super) fn go_on(&mut self) -> bool {
        let (facts, now) = (self.reload_facts(), self.now);
        let is_gone = |census: Census| census.template == TemplateStage::Gone;
        match &mut self.rules.reload.state {
            State::Idle => return false,
            State::Weighing { until } if *until > now => return false,
            // The measuring thread has died; the reload goes on without a figure.
            State::Weighing { .. } if self.rules.reload.course.in_place => self.begin_vacating(1),
            State::Weighing { .. } => self.boot("loading the app beside the old one"),
            State::Vacating { serving } => {
                if facts.old.all > *serving && !is_gone(facts.old) {
                    return false;
                }
                self.retire_templates();
                self.boot("loading the app in the place of the old one");
            }
            State::Booting { loaded } => {
                if facts.new.template == TemplateStage::Up && !*loaded {
                    *loaded = true;
                    let seconds = self.reload_seconds();
                    self.step(format!("the app is loaded ({seconds:.1} s)"));
                } else if is_gone(facts.new) {
                    self.revert("its template has ended");
                } else if facts.new.ready > 0 {
                    self.probe();
                } else {
                    return false;
                }
            }
            State::Probing | State::Watching { .. } if is_gone(facts.new) => {
                self.revert("its template has ended");
            }
            State::Probing | State::Watching { .. } => return false,
            State::Rolling { ready, .. } => {
                let now_ready = facts.new.ready.min(facts.wanted);
                if now_ready > *ready {
                    *ready = now_ready;
                    self.step(format!("{now_ready} of {} workers run the new code", facts.wanted));
                } else if is_gone(facts.new) {
                    return self.lost_new_template(&facts);
                } else if facts.new.ready >= facts.wanted && facts.others == 0 {
                    self.succeed(&facts);
                } else {
                    return false;
                }
            }
            State::Settling { until } => {
                if !is_gone(facts.old) && *until > now {
                    return false;
                }
                self.rules.reload.state = State::Idle;
                self.abandon(self.rules.reload.course.old);
            }
            State::Abandoning { reason } => {
                if facts.new.all > 0 || !is_gone(facts.new) {
                    return false;
                }
                let reason = std::mem::take(reason);
                self.fail(reason, &facts);
            }
            State::Returning { failure } if is_gone(facts.old) && facts.new.template == TemplateStage::Up => {
                let unwanted = failure.take().unwrap_or_else(|| "it cannot be undone".to_owned());
                self.rules.reload.story.unwanted = Some(unwanted);
                self.rules.reload.state = State::Rolling { ready: 0, deaths: 0 };
                self.step("the old template has died, so the new code takes over after all".to_owned());
            }
            State::Returning { failure } => {
                // When the new generation no longer serves, there is nothing left to wait for, whichever code
                // serves now.
                if facts.new.staying > 0 || facts.others < facts.wanted.min(1) {
                    return false;
                }
                match failure.take() {
                    Some(reason) => self.finish(ReloadOutcome::Failed, reason),
                    None => self.finish(ReloadOutcome::Undone, "the old code serves again".to_owned()),
                }
            }
        }
        true
    }
}
