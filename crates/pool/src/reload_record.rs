//! Keeps the record of reloads: the running one, the last one, and the number of each outcome.
//!
//! Pure: takes the orders of the [rollout](crate::rollout) with the time; [`Record::snapshot`] returns the
//! state to show.

use crate::rollout::{Facts, Order, Outcome, Rollout, Stage};
use crate::table::Generation;
use stats::{ReloadCounts, ReloadEnd, ReloadOutcome, ReloadStage, ReloadsSnapshot};
use std::time::{Duration, Instant, SystemTime};

#[derive(Debug, Default)]
pub(crate) struct Record {
    counts: ReloadCounts,
    last: Option<ReloadEnd>,
    current: Option<Current>,
}

/// The current or last reload.
#[derive(Debug)]
struct Current {
    begun: (Instant, SystemTime),
    said: String,
    /// Whether a worker with the new code may have served clients.
    met: bool,
    /// Whether an undo was requested.
    undo: bool,
}

impl Record {
    /// Records the beginning of a reload, or of the undo of one that has ended.
    pub(crate) fn begun(&mut self, undo: bool, now: (Instant, SystemTime)) {
        self.current = Some(Current { begun: now, said: String::new(), met: false, undo });
    }

    /// Records that the running reload is to be undone.
    pub(crate) fn undo_wished(&mut self) {
        if let Some(current) = &mut self.current {
            current.undo = true;
        }
    }

    /// Records an order. `new`: the generation that the reload brings.
    pub(crate) fn ordered(&mut self, order: &Order, new: Option<Generation>) {
        let Some(current) = &mut self.current else { return };
        match order {
            Order::Say(_, text) => current.said.clone_from(text),
            Order::Watch => current.met = true,
            Order::Roll(generation, _) if Some(*generation) == new => current.met = true,
            _ => {}
        }
    }

    pub(crate) fn finished(&mut self, outcome: &Outcome, now: (Instant, SystemTime)) {
        let (met, undo) = self.current.as_ref().map_or((false, false), |current| (current.met, current.undo));
        let (kind, text) = match outcome {
            Outcome::Done(text) => (ReloadOutcome::Done, text),
            Outcome::Undone(text) => (ReloadOutcome::Undone, text),
            Outcome::NoWayBack(text) => (ReloadOutcome::NoWayBack, text),
            Outcome::Failed(text) if undo => (ReloadOutcome::Undone, text),
            Outcome::Failed(text) if met => (ReloadOutcome::Reverted, text),
            Outcome::Failed(text) => (ReloadOutcome::Failed, text),
        };
        let took = self
            .current
            .as_ref()
            .map_or(Duration::ZERO, |current| now.0.saturating_duration_since(current.begun.0));
        self.counts.count(kind);
        // The rest of the text concerns the time after the reload and becomes outdated.
        let text =
            if kind == ReloadOutcome::Done { text.split(';').next().unwrap_or_default() } else { text };
        self.last = Some(ReloadEnd::new(kind, text, took, now.1));
    }

    /// Counts a waiting reload that ends because a newer one replaces it.
    pub(crate) fn superseded(&mut self) {
        self.counts.count(ReloadOutcome::Superseded);
    }

    /// Returns the state at `now`. `share`: the percentage of requests that a worker on trial gets.
    pub(crate) fn snapshot(
        &self,
        rollout: &Rollout,
        facts: &Facts,
        share: u32,
        now: Instant,
    ) -> ReloadsSnapshot {
        let running = rollout.stage().zip(self.current.as_ref()).map(|(stage, current)| {
            let left =
                rollout.until().map_or(0.0, |until| until.saturating_duration_since(now).as_secs_f64());
            let text = match stage {
                Stage::Watching => {
                    format!("one worker serves {share} % of the requests for {left:.0} s more")
                }
                Stage::Rolling => {
                    let ready = facts.new.ready.min(facts.wanted);
                    format!("{ready} of {} workers run the new code", facts.wanted)
                }
                Stage::Settling => {
                    format!("for {left:.0} s more `firebrick reload --undo` goes back at once")
                }
                Stage::Waiting | Stage::Vacating | Stage::Booting | Stage::Probing | Stage::Reverting => {
                    current.said.clone()
                }
            };
            ReloadStage { stage: stage.name().to_owned(), text, started_at: current.begun.1 }
        });
        ReloadsSnapshot { counts: self.counts.clone(), running, last: self.last.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollout::Plan;
    use crate::table::{Census, TemplateStage};

    fn facts(ready: usize, template: TemplateStage) -> Facts {
        let census = |ready, template| Census { template, ready, staying: ready, all: ready };
        Facts { new: census(ready, template), old: census(4, TemplateStage::Up), others: 4, wanted: 4 }
    }

    /// A rollout and its record, driven in the same way as by the supervisor.
    struct Run {
        rollout: Rollout,
        record: Record,
        now: Instant,
    }

    impl Run {
        fn begun(plan: Plan) -> Run {
            let now = Instant::now();
            let mut run = Run { rollout: Rollout::new(now), record: Record::default(), now };
            run.record.begun(false, (now, SystemTime::UNIX_EPOCH));
            let orders = run.rollout.request(plan, 1, now);
            run.carry(orders);
            let orders = run.rollout.weighed(Ok(1), &facts(0, TemplateStage::Booting));
            run.rollout.started(2);
            run.carry(orders);
            run
        }

        fn carry(&mut self, orders: Vec<Order>) {
            for order in orders {
                self.record.ordered(&order, self.rollout.new_generation().or(Some(2)));
                if let Order::Finish(outcome) = order {
                    self.record.finished(&outcome, (self.now, SystemTime::UNIX_EPOCH));
                }
            }
        }

        fn observe(&mut self, facts: &Facts) {
            let orders = self.rollout.observe(facts, self.now);
            self.carry(orders);
        }

        fn shown(&self, facts: &Facts) -> (String, String) {
            let running = self.record.snapshot(&self.rollout, facts, 10, self.now).running.expect("a reload");
            (running.stage, running.text)
        }

        fn ended(&self) -> ReloadOutcome {
            self.record.last.as_ref().expect("an end").outcome
        }
    }

    fn plan() -> Plan {
        let [watch, keep] = [10, 30].map(Duration::from_secs);
        Plan { watch: Some(watch), keep, ..Plan::default() }
    }

    #[test]
    fn each_step_is_shown_as_it_is_now() {
        let mut run = Run::begun(plan());
        let booting = facts(0, TemplateStage::Booting);
        assert_eq!(run.shown(&booting), ("booting".into(), "loading the app beside the old one".into()));
        let up = facts(1, TemplateStage::Up);
        run.observe(&up);
        run.now += Duration::from_secs(4);
        let text = "one worker serves 10 % of the requests for 6 s more";
        assert_eq!(run.shown(&up), ("watching".into(), text.into()));
        let orders = run.rollout.judged(Ok("fine".into()), &up);
        run.carry(orders);
        let rolling = facts(3, TemplateStage::Up);
        assert_eq!(run.shown(&rolling), ("rolling".into(), "3 of 4 workers run the new code".into()));
        let all = Facts { others: 0, ..facts(4, TemplateStage::Up) };
        run.observe(&all);
        assert_eq!(run.ended(), ReloadOutcome::Done);
        let last = run.record.last.as_ref().unwrap();
        assert_eq!((last.took_s, last.text.as_str()), (4.0, "the new code serves (4.0 s)"));
        let text = "for 30 s more `firebrick reload --undo` goes back at once";
        assert_eq!(run.shown(&all), ("settling".into(), text.into()));
        run.now += Duration::from_secs(30);
        run.observe(&all);
        let shown = run.record.snapshot(&run.rollout, &all, 10, run.now);
        assert_eq!((shown.running, shown.counts.of(ReloadOutcome::Done)), (None, 1));
    }

    #[test]
    fn what_no_client_met_has_failed_and_the_rest_is_reverted_or_undone() {
        let booting = facts(0, TemplateStage::Booting);
        let mut run = Run::begun(plan());
        let orders = run.rollout.boot_failed("a syntax error", &booting);
        run.carry(orders);
        run.observe(&facts(0, TemplateStage::Gone));
        assert_eq!(run.ended(), ReloadOutcome::Failed);

        let mut run = Run::begun(plan());
        run.observe(&facts(1, TemplateStage::Up));
        let orders = run.rollout.judged(Err("too slow".into()), &facts(1, TemplateStage::Up));
        run.carry(orders);
        assert_eq!(run.shown(&booting), ("reverting".into(), "the old code serves on".into()));
        run.observe(&facts(0, TemplateStage::Gone));
        assert_eq!(run.ended(), ReloadOutcome::Reverted);

        let mut run = Run::begun(plan());
        run.observe(&facts(1, TemplateStage::Up));
        run.record.undo_wished();
        let orders = run.rollout.undo(&facts(1, TemplateStage::Up)).expect("possible");
        run.carry(orders);
        run.observe(&facts(0, TemplateStage::Gone));
        assert_eq!(run.ended(), ReloadOutcome::Undone);
        run.record.superseded();
        assert_eq!(run.record.counts.iter().map(|(_, count)| count).sum::<u64>(), 2);
    }
}
