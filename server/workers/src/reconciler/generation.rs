//! Keeps the state of one template and the fork back-off of its workers.

use crate::process::{Generation, ReleaseId};
use std::time::{Duration, Instant};

/// The delay after the first failure. Each further failure doubles it.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_BOOT_WAIT: Duration = Duration::from_secs(10);
const LONGEST_IDLE_WAIT: Duration = Duration::from_secs(2);
/// A worker that exits sooner than this after it became ready, without having served a request, counts as an
/// idle death.
pub(super) const SHORT_LIFE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Template {
    Booting { since: Instant },
    Up,
    Gone,
}

/// The purpose of a generation's workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The wanted workers, or the workers that replace them.
    Service,
    /// One worker is tried in addition to the wanted workers. It gets requests only if it has a `share` of
    /// them, in per cent.
    Trial { share: Option<u32> },
    /// The generation has been replaced. Its template stays, so that it can take over again.
    Spare,
    /// The generation is no longer needed. Its template ends as soon as its workers have exited.
    Abandoned,
}

#[derive(Debug)]
pub(super) struct GenerationState {
    pub(super) number: Generation,
    /// The code that its template has loaded.
    pub(super) release: ReleaseId,
    pub(super) template: Template,
    pub(super) role: Role,
    /// Where the template was when it was slow to load the app.
    pub(super) loading: Option<String>,
    /// Whether the template outlives its workers, because it may become a spare.
    pub(super) kept: bool,
    /// Whether one of its workers was ready.
    pub(super) proven: bool,
    /// Consecutive workers that failed before they were ready.
    pub(super) boot_failures: u32,
    /// Consecutive workers that exited right after they were ready, without having served a request.
    idle_deaths: u32,
    not_before: Option<Instant>,
}

impl GenerationState {
    pub(super) fn new(number: Generation, release: ReleaseId, now: Instant) -> GenerationState {
        let template = Template::Booting { since: now };
        GenerationState {
            number,
            release,
            template,
            role: Role::Service,
            loading: None,
            kept: false,
            proven: false,
            boot_failures: 0,
            idle_deaths: 0,
            not_before: None,
        }
    }

    /// Returns whether the template can fork workers that count.
    pub(super) fn can_serve(&self) -> bool {
        self.role == Role::Service && self.template == Template::Up
    }

    /// Returns the delay before the next fork is allowed.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.not_before.map(|at| at.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    pub(super) fn worker_ready(&mut self) {
        (self.proven, self.boot_failures) = (true, 0);
    }

    /// Counts a worker that failed before it was ready.
    pub(super) fn boot_failed(&mut self, now: Instant) {
        self.boot_failures += 1;
        // A single failure after successes may be an accident; a second failure has a cause.
        let counted = self.boot_failures - u32::from(self.proven);
        self.not_before = Some(now + wait(counted, LONGEST_BOOT_WAIT));
    }

    /// Counts the exit of a worker that had been ready since `ready`. Only a short life without a single
    /// request delays the next fork.
    pub(super) fn worker_died(&mut self, ready: Instant, served: bool, now: Instant) {
        if served || now.saturating_duration_since(ready) >= SHORT_LIFE {
            self.idle_deaths = 0;
        } else {
            self.idle_deaths += 1;
            self.not_before = Some(now + wait(self.idle_deaths - 1, LONGEST_IDLE_WAIT));
        }
    }
}

fn wait(failures: u32, longest: Duration) -> Duration {
    failures.checked_sub(1).map_or(Duration::ZERO, |earlier| net::backoff(FIRST_WAIT, earlier, longest))
}
