//! The shadow of a reload: a worker of the old code and one of the new get copies of requests, and no client meets
//! either.
//!
//! Why a baseline, a worker of its own: its caches are as cold as those of the worker on trial, and it serves the same
//! requests, so that times and memory compare; and no seat of a client is taken. (The judgement of canaries calls it
//! that, too: a canary is compared with a fresh instance of the old code, not with the one in production.)
//!
//! Contract:
//! 1. A shadow never makes a reload fail for its own sake: without a baseline there is none, and the reason is a step.
//! 2. The baseline is forked once, after all wanted workers, and leaves when the state is another one.

use super::*;

impl Reconciler {
    /// Begins the shadow, or goes on without one if the plan has none.
    pub(super) fn begin_shadow(&mut self) {
        let Some(time) = self.rules.reload.plan.shadow else { return self.watch() };
        if !self.source.can_fork {
            return self.no_shadow(
                "workers that are not forked load the code themselves, so none could have the old code",
            );
        }
        let until = self.now + self.wish.timeouts.boot;
        self.rules.reload.state = State::Pairing { until, forked: false };
        let seconds = time.as_secs_f64();
        self.step(format!(
            "a worker of the old code and one of the new get copies of requests for {seconds} s"
        ));
        self.balance();
    }

    /// Returns the generation that lacks its baseline.
    pub(in crate::reconciler) fn needs_baseline(&self) -> Option<Generation> {
        let old = self.rules.reload.course.old;
        let template =
            self.generations.iter().find(|one| one.number == old && one.template == Template::Up)?;
        let State::Pairing { forked: false, .. } = self.rules.reload.state else { return None };
        template.wait(self.now).is_none().then_some(old)
    }

    pub(in crate::reconciler) fn is_baseline(&self, serial: Serial) -> bool {
        self.workers().any(|worker| worker.serial == serial && worker.baseline)
    }

    /// Returns the workers that get copies of requests, of the old and of the new code, and whether the time for that is over.
    pub fn shadowed(&self, now: Instant) -> Option<(Serial, Serial, bool)> {
        let State::Shadowing { until, pair: (old, new) } = self.rules.reload.state else { return None };
        let are_up = (self.baseline_up(), self.on_trial()) == (Some(old), Some(new));
        are_up.then_some((old, new, until <= now))
    }

    fn baseline_up(&self) -> Option<Serial> {
        let up = |worker: &&Worker| worker.baseline && worker.state == workers::State::Up;
        self.workers().find(up).map(|worker| worker.serial)
    }

    /// Goes on while the baseline boots. Returns whether anything followed.
    pub(super) fn pair(&mut self, until: Instant, forked: bool) -> bool {
        let old = self.rules.reload.course.old;
        let baseline = self.workers().find(|worker| worker.baseline).map(|worker| worker.is_staying());
        if let (Some(old), Some(new)) = (self.baseline_up(), self.on_trial()) {
            let Plan { shadow, .. } = self.rules.reload.plan;
            let until = self.now + shadow.unwrap_or_default();
            self.rules.reload.state = State::Shadowing { until, pair: (old, new) };
            let release = self.rules.reload.course.release;
            self.acts.push(Act::Try(Trial::Shadow { old, new, release }));
        } else if !forked && baseline.is_some() {
            self.rules.reload.state = State::Pairing { until, forked: true };
        } else if forked && baseline != Some(true) {
            self.no_shadow("a worker of the old code ended before it was ready");
        } else if self.census(old).template != Template::Up {
            self.no_shadow("the template with the old code has ended");
        } else if until <= self.now {
            self.no_shadow("no worker of the old code was ready in time");
        } else {
            return false;
        }
        true
    }

    /// Goes on without a comparison.
    pub(super) fn no_shadow(&mut self, why: &str) {
        self.step(format!("{why}: nothing is compared"));
        self.watch();
    }

    /// Closes a baseline that is no longer needed.
    pub(super) fn end_baseline(&mut self) {
        if matches!(self.rules.reload.state, State::Pairing { .. } | State::Shadowing { .. }) {
            return;
        }
        let over = self.workers().find(|worker| worker.baseline).map(|worker| worker.serial);
        over.into_iter().for_each(|serial| self.close(serial));
    }
}
