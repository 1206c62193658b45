//! One template and the back-off of the workers that it forks.

use super::event::{Code, Generation};
use std::time::{Duration, Instant};

/// Wait after the first failure; each further one doubles it.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_BOOT_WAIT: Duration = Duration::from_secs(10);
const LONGEST_IDLE_WAIT: Duration = Duration::from_secs(2);
/// A worker that exits sooner after it got ready, without having served, counts as idle death.
pub(super) const SHORT_LIFE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Template {
    Booting { since: Instant },
    Up,
    Gone,
}

/// What its workers are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// They are the wanted workers, or take over from them.
    Service,
    /// One worker is tried beside the wanted ones, and does not count as one of them. It gets requests only if it is `open`.
    Trial { open: bool },
    /// It has been replaced. Its template stays, to take over again if that is wished.
    Spare,
    /// It is not needed any more: it ends as soon as its workers have.
    Abandoned,
}

#[derive(Debug)]
pub(super) struct GenerationState {
    pub(super) number: Generation,
    /// What its template has loaded.
    pub(super) code: Code,
    pub(super) template: Template,
    pub(super) role: Role,
    /// Its template outlives its workers, because it may become a spare.
    pub(super) kept: bool,
    /// One of its workers was ready.
    pub(super) proven: bool,
    /// Workers in a row that failed before they were ready.
    pub(super) boot_failures: u32,
    /// Workers in a row that exited right after they were ready, without having served a request.
    idle_deaths: u32,
    not_before: Option<Instant>,
}

impl GenerationState {
    pub(super) fn new(number: Generation, code: Code, now: Instant) -> GenerationState {
        let template = Template::Booting { since: now };
        GenerationState {
            number,
            code,
            template,
            role: Role::Service,
            kept: false,
            proven: false,
            boot_failures: 0,
            idle_deaths: 0,
            not_before: None,
        }
    }

    /// Whether its template can fork workers that count.
    pub(super) fn can_serve(&self) -> bool {
        self.role == Role::Service && self.template == Template::Up
    }

    /// Time until the next fork is allowed.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.not_before.map(|at| at.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    pub(super) fn worker_ready(&mut self) {
        (self.proven, self.boot_failures) = (true, 0);
    }

    /// A worker failed before it was ready.
    pub(super) fn boot_failed(&mut self, now: Instant) {
        self.boot_failures += 1;
        // A single failure after successes is an accident; from the second on there is a reason.
        let counted = self.boot_failures - u32::from(self.proven);
        self.not_before = Some(now + doubling(counted).min(LONGEST_BOOT_WAIT));
    }

    /// A worker exited that had been ready since `ready`. Only a short life without a single request delays the next fork.
    pub(super) fn worker_died(&mut self, ready: Instant, served: bool, now: Instant) {
        if served || now.saturating_duration_since(ready) >= SHORT_LIFE {
            self.idle_deaths = 0;
        } else {
            self.idle_deaths += 1;
            self.not_before = Some(now + doubling(self.idle_deaths - 1).min(LONGEST_IDLE_WAIT));
        }
    }
}

fn doubling(failures: u32) -> Duration {
    if failures == 0 { Duration::ZERO } else { FIRST_WAIT * (1 << (failures - 1).min(10)) }
}
