//! Processes that the app has started in its hooks of `before_fork`, such as the job runner of a `puma.rb`: one set of them runs, that of the
//! code in charge.
//!
//! Why: each template runs these hooks, and a reload has two of them for a while. What the old one has started would go on beside what the
//! new one starts, with the old code, and for ever.
//!
//! Contract:
//! 1. In charge is the code that a reload brings, from when its template is ready until it goes back; otherwise the code in force.
//! 2. Processes of other code are ended: by TERM, and by KILL after `timeouts.shutdown`. Should their code be in charge again, its template
//!    runs the hooks again.
//! 3. The processes of a template that has died end when its successor has started its own. A template that a worker leaves behind has
//!    those of the one before.
//! 4. They end with the server.

use super::{Notice, Supervisor};
use crate::process::Process;
use crate::rollout::Stage;
use crate::table::{Code, Generation, TemplateStage};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long they may take when the server ends.
const AT_THE_END: Duration = Duration::from_secs(5);

/// What is known of them.
#[derive(Default)]
pub(super) struct Jobs {
    running: Vec<Job>,
    /// The code whose processes were ended because another one was in charge.
    ended: BTreeSet<Code>,
}

struct Job {
    generation: Generation,
    code: Code,
    process: Process,
}

impl Supervisor {
    /// The template of `generation` has started these.
    pub(super) fn jobs_started(&mut self, generation: Generation, pids: &[u32]) {
        let Some(code) = self.table.code_of(generation).filter(|_| !pids.is_empty()) else { return };
        self.end_jobs(|job| job.code == code && job.generation != generation);
        let jobs = pids.iter().map(|pid| Job { generation, code, process: Process::open(*pid) });
        self.jobs.running.extend(jobs);
        self.jobs.ended.remove(&code);
    }

    /// Called after each event.
    pub(super) fn observe_jobs(&mut self, notify: &mut impl FnMut(Notice)) {
        if self.stopping || (self.jobs.running.is_empty() && self.jobs.ended.is_empty()) {
            return;
        }
        let code = self.code_in_charge();
        let others: BTreeSet<Code> =
            self.jobs.running.iter().map(|job| job.code).filter(|other| *other != code).collect();
        if !others.is_empty() {
            self.end_jobs(|job| job.code != code);
            self.jobs.ended.extend(others);
        }
        if !self.jobs.ended.contains(&code) {
            return;
        }
        let of_code = |generation: &Generation| self.table.code_of(*generation) == Some(code);
        let mut ready = self.templates.iter().rev().filter(|(_, template)| template.facts.is_some());
        // Without a template there will be another one, which runs the hooks anyway.
        if let Some((_, template)) = ready.find(|(generation, _)| of_code(generation)) {
            self.jobs.ended.remove(&code);
            if template.process.before_fork().is_ok() {
                notify(Notice::Log(
                    "the hooks of before_fork run again: what they had started was ended when other code took over".to_owned(),
                ));
            }
        }
    }

    fn code_in_charge(&self) -> Code {
        let new = self.reloads.generation().filter(|_| self.reloads.stage() != Some(Stage::Reverting));
        let ready = new.filter(|new| self.table.census(*new).template == TemplateStage::Up);
        ready.and_then(|new| self.table.code_of(new)).unwrap_or(self.table.in_force())
    }

    fn end_jobs(&mut self, which: impl Fn(&Job) -> bool) {
        let limit = self.options.timeouts().shutdown;
        for job in self.jobs.running.extract_if(.., |job| which(job)) {
            tokio::spawn(end(job.process, limit));
        }
    }

    /// The server ends.
    pub(super) async fn end_all_jobs(&mut self) {
        let limit = self.options.timeouts().shutdown.min(AT_THE_END);
        let ends: Vec<_> =
            self.jobs.running.drain(..).map(|job| tokio::spawn(end(job.process, limit))).collect();
        for one in ends {
            // It fails only if the runtime ends.
            let _ = one.await;
        }
    }
}

async fn end(process: Process, limit: Duration) {
    process.signal(Signal::TERM);
    if tokio::time::timeout(limit, process.ended()).await.is_err() {
        process.signal(Signal::KILL);
    }
}
