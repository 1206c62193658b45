//! The course of a reload: what follows from what is seen, the steps forward and back, and what the log, the
//! caller and statistics learn of them.

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
        let step = self.rules.reload.plan.step.of(wanted);
        // The new worker has a baseline beside it.
        let most = if self.rules.reload.plan.shadow.is_some() { step.max(2) } else { step };
        match figures.fits(most) {
            Ok(()) => self.boot("loading the app beside the old one"),
            Err(why) => self.finish(ReloadOutcome::Failed, why),
        }
    }

    fn begin_vacating(&mut self, serving: usize) {
        let wanted = self.wanted();
        let serving = serving.clamp(1, wanted.max(1));
        self.rules.reload.state = State::Vacating { serving };
        self.step(format!(
            "{serving} of {wanted} workers serve until the new code does; the old template ends"
        ));
        self.vacate(serving);
    }

    /// Takes the news that the new template has loaded the app, and what it does or has done before it can fork.
    pub(in crate::reconciler) fn warming(&mut self, generation: Generation, text: String) {
        if matches!(self.rules.reload.state, State::Booting { .. }) && self.brought_by(generation).is_some() {
            self.loaded();
            self.step(text);
        }
    }

    /// Says once that the new template has loaded the app.
    fn loaded(&mut self) {
        let State::Booting { loaded: loaded @ false } = &mut self.rules.reload.state else { return };
        *loaded = true;
        let seconds = self.reload_seconds();
        self.step(format!("the app is loaded ({seconds:.1} s)"));
    }

    /// Takes the result of the probe or of the comparison.
    pub(in crate::reconciler) fn tried(&mut self, result: Result<String, String>) {
        match (&self.rules.reload.state, result) {
            (State::Probing, Ok(text)) => {
                self.step(text);
                self.begin_shadow();
            }
            (State::Shadowing { .. }, Ok(text)) => {
                self.step(text);
                self.watch();
            }
            (State::Watching { .. }, Ok(text)) => {
                self.step(text);
                self.roll_new();
            }
            (State::Probing | State::Shadowing { .. } | State::Watching { .. }, Err(reason)) => {
                self.revert(&reason)
            }
            _ => {}
        }
    }

    /// Takes the news of the new generation, and goes on as far as possible.
    pub(in crate::reconciler) fn observe_reload(&mut self) {
        for news in std::mem::take(&mut self.rules.reload.news) {
            match news {
                News::TemplateFailed(why) => self.new_template_failed(&why),
                News::WorkerDied(how) => self.new_worker_died(&how),
                News::ChosenGone => self.chosen_gone(),
            }
        }
        while self.go_on() {}
        self.end_baseline();
        if !self.is_stopping()
            && self.replaces_workers().is_none()
            && let Some((wish, caller)) = self.rules.reload.waiting.take()
        {
            self.begin_reload(wish, caller);
        }
    }

    fn new_template_failed(&mut self, why: &str) {
        let reload = &self.rules.reload;
        if matches!(reload.state, State::Booting { .. }) || reload.is_refork() {
            self.revert(why);
        }
    }

    fn new_worker_died(&mut self, how: &str) {
        let none_ready = self.rules.reload.is_refork() && self.reload_facts().new.ready == 0;
        match &mut self.rules.reload.state {
            State::Booting { .. }
            | State::Probing
            | State::Pairing { .. }
            | State::Shadowing { .. }
            | State::Watching { .. } => {
                self.revert(&format!("its first {how}"));
            }
            State::Rolling { deaths, .. } | State::Settling { deaths, .. } => {
                *deaths += 1;
                if none_ready {
                    self.revert(&format!("its first {how}"));
                } else if *deaths >= DEATHS {
                    self.revert(&format!("{DEATHS} of its workers died; the last: {how}"));
                }
            }
            _ => {}
        }
    }

    /// Goes on if possible, and returns whether it was.
    fn go_on(&mut self) -> bool {
        let (facts, now) = (self.reload_facts(), self.now);
        let (on_trial, unpaired) = (self.on_trial(), self.shadowed(now).is_none());
        let is_gone = |census: Census| census.template == Template::Gone;
        let refork = self.rules.reload.is_refork();
        match &mut self.rules.reload.state {
            State::Idle | State::Replacing { .. } => return false,
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
            State::Booting { .. } if refork && facts.new.template != Template::Up => return false,
            State::Booting { .. } if refork => self.roll_new(),
            State::Booting { loaded } => {
                if facts.new.template == Template::Up && !*loaded {
                    self.loaded();
                } else if is_gone(facts.new) {
                    self.revert("its template has ended");
                } else if facts.new.ready > 0 {
                    self.probe();
                } else {
                    return false;
                }
            }
            State::Probing | State::Pairing { .. } | State::Shadowing { .. } | State::Watching { .. }
                if is_gone(facts.new) =>
            {
                self.revert("its template has ended");
            }
            State::Pairing { until, forked } => {
                let (until, forked) = (*until, *forked);
                return self.pair(until, forked);
            }
            // Not before there is a worker that can be watched.
            State::Shadowing { pair: (_, new), .. } if unpaired && on_trial.is_some() => {
                let code = if on_trial == Some(*new) { "old" } else { "new" };
                self.no_shadow(&format!("the worker of the {code} code has ended"));
            }
            State::Watching { until, worker }
                if on_trial.is_some_and(|up| *worker != Some(up)) && *until > now =>
            {
                let time = *until - now;
                *worker = on_trial;
                self.compare(time);
            }
            State::Probing | State::Shadowing { .. } | State::Watching { .. } => return false,
            State::Rolling { ready, deaths } => {
                let now_ready = facts.new.ready.min(facts.wanted);
                if now_ready > *ready {
                    *ready = now_ready;
                    self.step(format!("{now_ready} of {} workers run the new code", facts.wanted));
                } else if is_gone(facts.new) && !refork {
                    return self.lost_new_template(&facts);
                } else if facts.new.ready >= facts.wanted && facts.others == 0 {
                    let (deaths, keep) = (*deaths, self.rules.reload.plan.keep);
                    match refork {
                        true => self.rules.reload.state = State::Settling { until: now + keep, deaths },
                        false => self.succeed(&facts),
                    }
                } else {
                    return false;
                }
            }
            State::Settling { until, .. } if refork && *until > now => return false,
            State::Settling { .. } if refork => self.finish_refork(),
            State::Settling { until, .. } => {
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
            State::Returning { failure } if is_gone(facts.old) && facts.new.template == Template::Up => {
                let unwanted = failure.take().unwrap_or_else(|| "it cannot be undone".to_owned());
                self.rules.reload.course.unwanted = Some(unwanted);
                self.rules.reload.state = State::Rolling { ready: 0, deaths: 0 };
                self.step("the old template has died, so the new code takes over after all".to_owned());
            }
            State::Returning { failure } => {
                let failure = failure.clone();
                if !self.is_back() {
                    return false;
                }
                match failure {
                    Some(reason) => self.finish(ReloadOutcome::Failed, reason),
                    None => self.finish(ReloadOutcome::Undone, "the old code serves again".to_owned()),
                }
            }
        }
        true
    }

    /// Returns whether no worker of the new code stays, whichever template has forked it, and others serve.
    fn is_back(&self) -> bool {
        let release = self.rules.reload.course.release;
        let is_new = |worker: &Worker| self.release_of(worker.generation) == Some(release);
        let has_left = !self.workers().any(|worker| worker.is_staying() && is_new(worker));
        has_left
            && (self.wanted() == 0 || self.workers().any(|worker| self.serves(worker) && !is_new(worker)))
    }

    // The steps.

    fn boot(&mut self, text: &str) {
        self.rules.reload.state = State::Booting { loaded: false };
        self.step(text.to_owned());
        if let Some(new) = self.start_trial(self.rules.reload.course.release) {
            self.rules.reload.course.new = new;
        }
        self.balance();
    }

    fn probe(&mut self) {
        let Some(serial) = self.on_trial().filter(|_| self.rules.reload.plan.probe) else {
            return self.begin_shadow();
        };
        self.rules.reload.state = State::Probing;
        self.acts.push(Act::Try(Trial::Probe(serial, self.rules.reload.course.release)));
    }

    pub(super) fn watch(&mut self) {
        let Plan { watch, share, .. } = self.rules.reload.plan;
        let Some(time) = watch.filter(|time| !time.is_zero()) else { return self.roll_new() };
        self.rules.reload.state = State::Watching { until: self.now + time, worker: self.on_trial() };
        self.rules.reload.course.met = true;
        self.step(format!("one worker serves up to {share} % of the requests for {} s", time.as_secs_f64()));
        self.compare(time);
        self.open_trial(self.rules.reload.course.new, share);
    }

    /// Begins the comparison of the worker on trial with the others, or begins it again with a worker that has replaced it.
    fn compare(&mut self, time: Duration) {
        let share = self.rules.reload.plan.share;
        let watch = self.on_trial().map(|serial| Act::Try(Trial::Watch { serial, share, time }));
        self.acts.extend(watch);
    }

    fn roll_new(&mut self) {
        let Course { old, new, .. } = self.rules.reload.course;
        let step = self.rules.reload.plan.step;
        self.rules.reload.state = State::Rolling { ready: 0, deaths: 0 };
        self.rules.reload.course.met = true;
        self.keep(old);
        self.roll(new, step);
    }

    fn succeed(&mut self, facts: &TakeoverState) {
        let mut text = format!("the new code serves ({:.1} s)", self.reload_seconds());
        let (old, keep) = (self.rules.reload.course.old, self.rules.reload.plan.keep);
        let is_up = facts.old.template == Template::Up;
        if is_up {
            self.spare(old);
        }
        if is_up && !keep.is_zero() {
            text += &format!("; for {:.0} s `firebrick reload --undo` goes back at once", keep.as_secs_f64());
            self.rules.reload.state = State::Settling { until: self.now + keep, deaths: 0 };
        } else {
            self.rules.reload.state = State::Idle;
            self.abandon(old);
        }
        match self.rules.reload.course.unwanted.take() {
            Some(reason) => {
                let text = format!("{reason}, and the old template has died: the new code serves");
                self.end_reload(ReloadOutcome::NoWayBack, text);
            }
            None => self.end_reload(ReloadOutcome::Done, text),
        }
    }

    /// Handles the end of the new template while its workers take over. Returns whether anything followed.
    fn lost_new_template(&mut self, facts: &TakeoverState) -> bool {
        if facts.old.template == Template::Up {
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
        if self.rules.reload.is_refork() {
            return self.refork_failed(reason);
        }
        let reason = reason.to_owned();
        match self.rules.reload.state {
            State::Weighing { .. } => self.finish(ReloadOutcome::Failed, reason),
            State::Vacating { .. } => {
                self.reoccupy();
                self.finish(ReloadOutcome::Failed, reason);
            }
            State::Rolling { .. } if self.census(old).template == Template::Up => {
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
    fn fail(&mut self, reason: String, facts: &TakeoverState) {
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

    // Reforks.

    pub(in crate::reconciler) fn begin_refork(&mut self, serial: Serial, old: Generation, keep: Duration) {
        let reload = &mut self.rules.reload;
        reload.course.begin(ReloadKind::Refork, None, false, self.now);
        (reload.course.old, reload.course.new) = (old, 0);
        reload.plan = Plan { keep, ..Plan::default() };
        reload.state = State::Replacing { serial };
        self.reached(Milestone::Began(ReloadKind::Refork));
    }

    /// Notes that the chosen worker finishes now, and leaves the template of `new` behind.
    pub(in crate::reconciler) fn refork_promoted(&mut self, new: Generation) {
        let reload = &mut self.rules.reload;
        (reload.state, reload.course.new) = (State::Booting { loaded: false }, new);
    }

    fn chosen_gone(&mut self) {
        if matches!(self.rules.reload.state, State::Replacing { .. }) {
            self.end_refork(ReforkOutcome::Dropped, "the chosen worker ended before its successor was ready");
        }
    }

    /// Makes room for a reload: a refork that has just begun is cancelled, and one that is settling is
    /// finished.
    pub(super) fn give_way(&mut self) {
        let why = "a reload began";
        match self.rules.reload.state {
            _ if !self.rules.reload.is_refork() => {}
            State::Settling { .. } => self.finish_refork(),
            State::Booting { .. } => {
                self.abandon(self.rules.reload.course.new);
                self.end_refork(ReforkOutcome::Dropped, why);
            }
            _ => self.end_refork(ReforkOutcome::Dropped, why),
        }
    }

    fn finish_refork(&mut self) {
        let old = self.rules.reload.course.old;
        self.spare(old);
        self.abandon(old);
        self.end_refork(ReforkOutcome::Done, "all workers were forked from a warm one");
    }

    fn refork_failed(&mut self, why: &str) {
        let Course { old, new, .. } = self.rules.reload.course;
        let outcome = match self.rules.reload.state {
            State::Rolling { .. } | State::Settling { .. } => {
                self.roll(old, self.rules.reload.plan.step);
                ReforkOutcome::Reverted
            }
            _ => {
                self.abandon(new);
                ReforkOutcome::Failed
            }
        };
        self.end_refork(outcome, why);
    }

    fn end_refork(&mut self, outcome: ReforkOutcome, text: &str) {
        self.rules.reload.state = State::Idle;
        let took = self.now.saturating_duration_since(self.rules.reload.course.begun);
        self.reforked(outcome, text, took);
    }

    // Reports.

    pub(super) fn finish(&mut self, outcome: ReloadOutcome, text: String) {
        self.rules.reload.state = State::Idle;
        self.end_reload(outcome, text);
    }

    /// Reports the end of a reload. The code that serves now is in force.
    pub(super) fn end_reload(&mut self, outcome: ReloadOutcome, text: String) {
        let reload = &mut self.rules.reload;
        reload.course.unwanted = None;
        let Course { before, release, .. } = reload.course;
        let (caller, took) = (reload.course.caller.take(), self.now - reload.course.begun);
        let (line, result) = match outcome {
            ReloadOutcome::Done | ReloadOutcome::Undone => (format!("reload: {text}"), Ok(text.clone())),
            ReloadOutcome::NoWayBack => (format!("reload: {text}"), Err(text.clone())),
            _ => (format!("reload failed, the old code serves on: {text}"), Err(text.clone())),
        };
        let (met, undo, undo_caller) =
            (reload.course.met, reload.course.undo, reload.course.undo_caller.take());
        match outcome {
            ReloadOutcome::Done | ReloadOutcome::NoWayBack => self.wish.release = release,
            ReloadOutcome::Undone => self.wish.release = before,
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
        self.reached(Milestone::Reloaded { outcome, release: self.wish.release, changed, text, took });
        self.end_for(
            undo_caller,
            match outcome {
                ReloadOutcome::Undone => Ok("the reload under way is undone: the old code serves".to_owned()),
                _ => result.clone(),
            },
        );
        self.end_for(caller, result);
    }

    fn reload_seconds(&self) -> f64 {
        self.now.saturating_duration_since(self.rules.reload.course.begun).as_secs_f64()
    }

    /// Reports a step to the log and to the caller. Reforks have neither.
    pub(super) fn step(&mut self, text: String) {
        let Some(stage) = self.stage().filter(|_| !self.rules.reload.is_refork()) else { return };
        let reload = &mut self.rules.reload;
        reload.course.said.clone_from(&text);
        let callers = [reload.course.caller, reload.course.undo_caller];
        self.log(format!("reload: {stage}: {text}"));
        for caller in callers {
            self.tell(caller, ReloadStep::Step { stage, text: text.clone() });
        }
    }

    pub(super) fn end_for(&mut self, caller: Option<Caller>, result: Result<String, String>) {
        self.tell(caller, ReloadStep::end(result));
    }

    pub(super) fn tell(&mut self, caller: Option<Caller>, step: ReloadStep) {
        self.acts.extend(caller.map(|to| Act::Tell { to, step }));
    }

    /// Takes the end of a worker.
    pub(in crate::reconciler) fn worker_gone(&mut self, exit: &WorkerExit) {
        let reload = &mut self.rules.reload;
        if reload.is_replacing(exit.serial) {
            reload.news.push(News::ChosenGone);
        }
        if exit.cause != Cause::Ordered && reload.generation() == Some(exit.generation) {
            let how = deaths::describe(exit, self.wish.timeouts.worker);
            reload.news.push(News::WorkerDied(how));
        }
    }
}
