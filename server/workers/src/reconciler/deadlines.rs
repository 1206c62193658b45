//! The limits of all waits.

use super::*;

impl Reconciler {
    pub(super) fn tick(&mut self) {
        for index in 0..self.slots.workers.len() {
            self.check_worker(index);
        }
        let late: Vec<(Generation, TemplateEnd)> =
            self.generations.iter().filter_map(|g| Some((g.number, self.missed(g)?))).collect();
        for (generation, why) in late {
            self.end_template(generation, why);
        }
        if self.start.retry.is_some_and(|at| at <= self.now) {
            self.start_template();
        }
    }

    fn check_worker(&mut self, index: usize) {
        let Timeouts { boot, shutdown, .. } = self.wish.timeouts;
        let Some(worker) = self.slots.workers[index].as_mut() else { return };
        let age = self.now.saturating_duration_since(worker.since);
        match worker.state {
            State::Booting { .. } if age >= boot => {
                self.count_death(index, false);
                self.kill(index, Cause::SlowBoot);
            }
            State::Booting { asked: false } if age + KILL_AFTER >= boot => {
                worker.state = State::Booting { asked: true };
                self.signal(index, WorkerSignal::Backtraces);
            }
            State::Draining if age >= shutdown => self.kill(index, Cause::SlowDrain),
            State::Stuck { others_finished } if age >= KILL_AFTER && (others_finished || age >= shutdown) => {
                self.kill(index, Cause::Stuck);
            }
            // Repeated until the process has ended, because a template may have failed to deliver the signal.
            State::Ending(cause) if age >= KILL_AFTER && worker.signs.ended.is_none() => {
                self.kill(index, cause);
            }
            _ => {}
        }
    }

    /// Returns which deadline a template has missed.
    fn missed(&self, generation: &GenerationState) -> Option<TemplateEnd> {
        let over = |since: Instant, limit| self.now.saturating_duration_since(since) >= limit;
        match generation.template {
            Template::Gone => None,
            Template::Booting { since } => over(since, self.wish.timeouts.boot).then(|| {
                let place = |lines: &String| format!("; it was here:\n{}", lines.trim_end());
                let place = generation.loading.as_ref().map_or_else(String::new, place);
                TemplateEnd::Failed { why: "did not load the app within timeouts.worker_boot", place }
            }),
            Template::Up => {
                let waits_for = |worker: &Worker| match worker.state {
                    State::Forking => Some(worker.since),
                    _ => worker.signs.ended,
                };
                let late =
                    |worker: &Worker| waits_for(worker).is_some_and(|since| over(since, ORDER_TIMEOUT));
                let end = TemplateEnd::Failed { why: "does not respond", place: String::new() };
                self.workers_of(generation.number).any(late).then_some(end)
            }
        }
    }
}
