//! Manages the processes that the app starts in its `before_fork` hooks, such as the job runner of a
//! `puma.rb`: only the processes of the current code run.
//!
//! Why: each template runs these hooks, and during a reload there are two templates. Without this module, the
//! old template's processes would never end: they would run the old code beside the processes of the new template.
//!
//! Contract:
//! 1. The current code is the code of a reload from the time its template is ready until it is reverted;
//!    otherwise it is the code in force.
//! 2. Processes of other code are ended with TERM, and with KILL after `timeouts.shutdown`. If their code
//!    becomes current again, its template runs the hooks again.
//! 3. The processes of a template that has died are ended when its successor has started its own. A template
//!    that a worker leaves behind takes over the processes of its predecessor.
//! 4. All of them end with the server.

use super::{Notice, Supervisor};
use crate::process::Generation;
use crate::process::Process;
use crate::process::ReleaseId;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::time::Duration;

/// The time limit for these processes when the server shuts down.
const AT_THE_END: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(super) struct Jobs {
    running: Vec<Job>,
    /// Code versions whose processes were ended because another version became current.
    ended: BTreeSet<ReleaseId>,
}

struct Job {
    generation: Generation,
    release: ReleaseId,
    process: Process,
}

impl Supervisor {
    /// Records the processes that the template of `generation` has started.
    pub(super) fn jobs_started(&mut self, generation: Generation, pids: &[u32]) {
        let Some(release) = self.reconciler.release_of(generation).filter(|_| !pids.is_empty()) else {
            return;
        };
        self.end_jobs(|job| job.release == release && job.generation != generation);
        let jobs = pids.iter().map(|pid| Job { generation, release, process: Process::open(*pid) });
        self.subjects.jobs.running.extend(jobs);
        self.subjects.jobs.ended.remove(&release);
    }

    /// Ends processes of other code, and starts them again when their code is current again. Called after
    /// each event.
    pub(super) fn observe_jobs(&mut self) {
        if self.is_stopping()
            || (self.subjects.jobs.running.is_empty() && self.subjects.jobs.ended.is_empty())
        {
            return;
        }
        let release = self.reconciler.release_in_charge();
        let others: BTreeSet<ReleaseId> = self
            .subjects
            .jobs
            .running
            .iter()
            .map(|job| job.release)
            .filter(|other| *other != release)
            .collect();
        if !others.is_empty() {
            self.end_jobs(|job| job.release != release);
            self.subjects.jobs.ended.extend(others);
        }
        if !self.subjects.jobs.ended.contains(&release) {
            return;
        }
        let of_code = |generation: &Generation| self.reconciler.release_of(*generation) == Some(release);
        let mut ready = self.templates.iter().rev().filter(|(_, template)| template.facts.is_some());
        // Without a template, another one will be started, which runs the hooks anyway.
        if let Some((_, template)) = ready.find(|(generation, _)| of_code(generation)) {
            self.subjects.jobs.ended.remove(&release);
            if template.process.tell(&crate::spawner::message::before_fork()).is_ok() {
                self.notify(Notice::Log(
                    "running the before_fork hooks again: their processes were stopped when other code took over".to_owned(),
                ));
            }
        }
    }

    fn end_jobs(&mut self, which: impl Fn(&Job) -> bool) {
        let limit = self.options.timeouts().shutdown;
        for job in self.subjects.jobs.running.extract_if(.., |job| which(job)) {
            tokio::spawn(end(job.process, limit));
        }
    }

    /// Ends all processes because the server shuts down.
    pub(super) async fn end_all_jobs(&mut self) {
        let limit = self.options.timeouts().shutdown.min(AT_THE_END);
        let ends: Vec<_> =
            self.subjects.jobs.running.drain(..).map(|job| tokio::spawn(end(job.process, limit))).collect();
        for one in ends {
            // Fails only if the runtime is shutting down.
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
