//! The handlers of a server, with their routes and limits.

use crate::load::HandlerSource;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteLimits {
    /// The most heap that all steps of a request may add, in bytes.
    pub request_heap: usize,
    /// The most CPU time without a wait; `None` is unlimited.
    pub step_time: Option<Duration>,
    /// The time from the first step to the head of the response; `None` is unlimited.
    pub deadline: Option<Duration>,
    /// The most requests and tasks in the VM.
    pub max_tasks: usize,
    /// The largest request body in bytes; bodies are collected in memory.
    pub max_body: usize,
    /// Whether `x-reproxy-url` may name another server.
    pub reproxy: bool,
}

impl RouteLimits {
    /// Returns the largest value of each limit.
    pub(crate) fn loosest<'a>(all: impl Iterator<Item = &'a RouteLimits>) -> RouteLimits {
        let none = RouteLimits {
            request_heap: 0,
            step_time: Some(Duration::ZERO),
            deadline: Some(Duration::ZERO),
            max_tasks: 1,
            max_body: 0,
            reproxy: false,
        };
        all.fold(none, |most, limits| RouteLimits {
            request_heap: most.request_heap.max(limits.request_heap),
            step_time: most.step_time.zip(limits.step_time).map(|(a, b)| a.max(b)),
            deadline: most.deadline.zip(limits.deadline).map(|(a, b)| a.max(b)),
            max_tasks: most.max_tasks.max(limits.max_tasks),
            max_body: most.max_body.max(limits.max_body),
            reproxy: most.reproxy || limits.reproxy,
        })
    }
}

/// The handlers of a path and all paths below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerRoute {
    /// The path without a trailing slash; empty for the root. It is the handlers' `SCRIPT_NAME`.
    pub path: String,
    /// Indexes into [`HandlerPlan::sources`], in the order in which the handlers get requests.
    pub handlers: Vec<usize>,
    pub limits: Arc<RouteLimits>,
}

impl HandlerRoute {
    /// Returns the path as in the configuration.
    pub(crate) fn shown(&self) -> &str {
        if self.path.is_empty() { "/" } else { &self.path }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandlerPlan {
    /// The files, without duplicates.
    pub sources: Vec<HandlerSource>,
    /// The routes, longer paths first.
    pub routes: Vec<HandlerRoute>,
    /// The largest heap of one VM, in bytes.
    pub heap: usize,
    /// The directory for bodies that are too large, until they are refused.
    pub temp_dir: PathBuf,
}
