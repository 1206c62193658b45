//! The orders of callers: to reload, to undo, to stop.

use super::*;

impl Reconciler {
    /// Carries out an order of a caller: to load the app again, or to return.
    pub fn reload(&mut self, wish: ReloadWish, caller: Option<Caller>, now: Instant) -> Vec<Act> {
        self.now = now;
        if !self.source.can_replace {
            match caller {
                Some(_) => self.end_for(caller, Err(NO_SUPERVISION.to_owned())),
                None => self.log(NO_SUPERVISION.to_owned()),
            }
        } else if wish == ReloadWish::Undo {
            self.undo(caller);
        } else {
            self.begin_or_wait(wish, caller);
        }
        self.settle_all()
    }

    fn begin_or_wait(&mut self, wish: ReloadWish, caller: Option<Caller>) {
        if self.is_stopping() {
            return self.end_for(caller, Err(STOPPING.to_owned()));
        }
        let what = match self.rules.refork.is_rolling() {
            true => "a refork",
            false if self.is_reloading() => "another reload",
            false => return self.begin_reload(wish, caller),
        };
        let text = format!("{what} is under way; this one follows it");
        self.tell(caller, ReloadStep::Step { stage: "waiting".to_owned(), text });
        if let Some((_, older)) = self.rules.reload.waiting.replace((wish, caller)) {
            self.reached(Milestone::Superseded);
            self.end_for(older, Err("a newer reload has taken its place".to_owned()));
        }
    }

    /// Returns to the code in force before the last reload, or cancels the running one.
    fn undo(&mut self, caller: Option<Caller>) {
        if let Err(why) = self.may_undo() {
            return self.end_for(caller, Err(why.to_owned()));
        }
        if self.is_reloading() {
            self.rules.reload.course.undo = true;
            if self.rules.reload.course.caller.is_none() {
                self.rules.reload.course.caller = caller;
            } else {
                // The cancelled reload has its own caller, which gets the reason.
                self.end_for(caller, Ok("the reload under way is undone".to_owned()));
            }
            self.revert("it was undone");
        } else {
            self.rules.reload.course.begin(caller, true, self.now);
            self.reached(Milestone::ReloadBegan);
            // A template that dies from now on is replaced by one with the old code.
            self.wish.release = self.rules.reload.course.before;
            self.rules.reload.state = State::Returning { failure: None };
            self.step("workers of the old code take over again".to_owned());
            let (old, step) = (self.rules.reload.course.old, self.rules.reload.plan.step);
            self.roll(old, step);
        }
    }

    fn may_undo(&self) -> Result<(), &'static str> {
        let is_up = self.census(self.rules.reload.course.old).template == Template::Up;
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

    pub(super) fn begin_reload(&mut self, wish: ReloadWish, caller: Option<Caller>) {
        self.give_way();
        let reload = &mut self.rules.reload;
        reload.course.begin(caller, false, self.now);
        reload.reading = Some(wish);
        reload.last_release += 1;
        let release = reload.last_release;
        self.reached(Milestone::ReloadBegan);
        self.acts.push(Act::Try(Trial::Read(release)));
    }

    /// Takes the settings of the new code.
    pub(in crate::reconciler) fn read(&mut self, release: ReleaseId, result: Result<Plan, String>) {
        if release != self.rules.reload.last_release {
            return;
        }
        let Some(wish) = self.rules.reload.reading.take() else { return };
        let in_place = wish == ReloadWish::InPlace;
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
        let course = &mut reload.course;
        (course.old, course.new, course.in_place) = (old, 0, in_place);
        (course.before, course.release) = (self.wish.release, release);
        reload.state = State::Weighing { until: self.now + WEIGHING };
        if settling {
            self.abandon(spare);
        }
        self.acts.push(Act::Try(Trial::Weigh));
    }

    pub(in crate::reconciler) fn stop_reload(&mut self) {
        if let Some((_, caller)) = self.rules.reload.waiting.take() {
            self.end_for(caller, Err(STOPPING.to_owned()));
        }
        let was_busy = self.is_reloading();
        (self.rules.reload.state, self.rules.reload.reading) = (State::Idle, None);
        if was_busy {
            self.finish(ReloadOutcome::Failed, STOPPING.to_owned());
        }
    }
}
