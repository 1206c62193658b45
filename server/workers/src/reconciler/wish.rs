//! The wish: the processes that should exist.

use super::recycle::Limits;
use crate::process::ReleaseId;
use queue::PoolIndex;
use settings::Step;
use std::collections::BTreeMap;
use std::time::Duration;

/// The processes that should exist. Only reloads, signals, the load and limits change this value.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The release in force, which replacement templates load.
    pub release: ReleaseId,
    /// The number of workers of each pool. All of them are forked from the same template.
    pub counts: BTreeMap<PoolIndex, usize>,
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

/// The abilities of a [source](crate::spawner) of workers, for everything that has to know them before there
/// is one. A new source adds a constant here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Whether a worker can be ended and another worker started instead, also with other code.
    pub can_replace: bool,
    /// Whether a worker can leave a template behind.
    pub can_fork: bool,
    /// How many times longer than `timeouts.worker_boot` a worker may take until it is ready.
    pub boot_factor: u32,
    /// Whether a worker returns requests that it has not started. Only then some are sent in advance.
    pub returns_requests: bool,
    pub signals: Signals,
    /// Whether the process has started this server. Then the process receives the addresses of the server and
    /// may stop it, and the server adopts no orphans, which belong to that process.
    pub starts_server: bool,
}

/// How workers are signalled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signals {
    /// Directly, if the system guarantees that no other process gets the signal, else by the template.
    Direct,
    /// Like `Direct`, but asked for backtraces only once they catch that signal: it would end a virtual
    /// machine that is still starting.
    DirectOnceCaught,
    /// By messages to the process, which signals itself.
    Messages,
}

impl Capabilities {
    /// A template that forks workers.
    pub const TEMPLATE: Capabilities = Capabilities {
        can_replace: true,
        can_fork: true,
        boot_factor: 1,
        returns_requests: true,
        signals: Signals::Direct,
        starts_server: false,
    };
    /// Workers that are started one by one. Each loads the app itself, on a Ruby that takes seconds to start.
    pub const SPAWNED: Capabilities = Capabilities {
        can_fork: false,
        boot_factor: 3,
        returns_requests: false,
        signals: Signals::DirectOnceCaught,
        ..Capabilities::TEMPLATE
    };
    /// A process that is both template and worker.
    pub const ATTACHED: Capabilities = Capabilities {
        can_replace: false,
        can_fork: false,
        signals: Signals::Messages,
        starts_server: true,
        ..Capabilities::TEMPLATE
    };
}
