//! The wish: the processes that should exist.

use super::recycle::Limits;
use settings::Step;
use std::time::Duration;

/// The number of a version of the app's code and settings. Each reload reads a new version.
pub type Code = u32;

/// The number of a pool of workers: its index in [`Wish::counts`].
pub type Pool = usize;

/// The pool of the workers that no other pool claims.
pub const DEFAULT: Pool = 0;

/// The processes that should exist. Only reloads, signals, the load and limits change this value.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The code in force, which replacement templates load.
    pub code: Code,
    /// The number of workers of each pool. All of them are forked from the same template.
    pub counts: Vec<usize>,
    /// When workers are replaced.
    pub limits: Limits,
    /// The number of requests after which a worker becomes the next template; `None`: never.
    pub refork_after: Option<u64>,
    pub timeouts: Timeouts,
    pub phase: Phase,
}

/// Time limits of processes.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For a template to load the app, and for a worker to become ready after its fork
    /// (`timeouts.worker_boot`).
    pub boot: Duration,
    /// For a worker to finish its requests (`timeouts.shutdown`).
    pub shutdown: Duration,
    /// For a request (`timeouts.worker`).
    pub worker: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Serving,
    /// The server shuts down soon: the number of workers stays as it is.
    Leaving,
    /// No worker is started any more.
    Stopping,
}

/// How a reload takes place.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Whether the worker on trial has to answer a request first.
    pub probe: bool,
    /// How long that worker serves a share of the requests before the others are replaced; `None` skips this
    /// step.
    pub watch: Option<Duration>,
    /// That share, in per cent.
    pub share: u32,
    /// The number of workers that are replaced at a time.
    pub step: Step,
    /// How long the old template stays after the reload.
    pub keep: Duration,
}

impl Default for Plan {
    /// Returns the shortest plan: no trial, one worker at a time, no undo.
    fn default() -> Plan {
        Plan { probe: false, watch: None, share: 0, step: Step::Workers(1), keep: Duration::ZERO }
    }
}

/// The abilities of the source of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether a worker can be ended and another worker started instead, also with other code.
    pub can_replace: bool,
    /// Whether a worker can leave a template behind.
    pub can_fork: bool,
}
