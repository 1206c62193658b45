//! Which handlers there are, where they answer, and what a request may take there.

use crate::load::Source;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What a request may take in a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Heap that the steps of a request may add in all, bytes.
    pub request_heap: usize,
    /// Computing without waiting; `None` is unlimited.
    pub step_time: Option<Duration>,
    /// From the first step to the head of the response; `None` is unlimited.
    pub deadline: Option<Duration>,
    /// Requests and tasks in the VM at a time.
    pub max_tasks: usize,
    /// Request bodies, which are collected in memory; bytes.
    pub max_body: usize,
    /// Whether `x-reproxy-url` may name another server.
    pub reproxy: bool,
}

impl Limits {
    /// Of each limit the largest.
    pub(crate) fn loosest<'a>(all: impl Iterator<Item = &'a Limits>) -> Limits {
        let none = Limits {
            request_heap: 0,
            step_time: Some(Duration::ZERO),
            deadline: Some(Duration::ZERO),
            max_tasks: 1,
            max_body: 0,
            reproxy: false,
        };
        all.fold(none, |most, limits| Limits {
            request_heap: most.request_heap.max(limits.request_heap),
            step_time: most.step_time.zip(limits.step_time).map(|(a, b)| a.max(b)),
            deadline: most.deadline.zip(limits.deadline).map(|(a, b)| a.max(b)),
            max_tasks: most.max_tasks.max(limits.max_tasks),
            max_body: most.max_body.max(limits.max_body),
            reproxy: most.reproxy || limits.reproxy,
        })
    }
}

/// Handlers below a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Without the slash at its end: the root is empty. It is the handlers' `SCRIPT_NAME`.
    pub path: String,
    /// Asked in this order; numbers of [`Plan::sources`].
    pub handlers: Vec<usize>,
    /// What a request may take.
    pub limits: Arc<Limits>,
}

impl Route {
    /// Its path as people write it.
    pub(crate) fn shown(&self) -> &str {
        if self.path.is_empty() { "/" } else { &self.path }
    }
}

/// All handlers of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Each file once.
    pub sources: Vec<Source>,
    /// Who answers where; longer paths first.
    pub routes: Vec<Route>,
    /// Heap of one VM, bytes.
    pub heap: usize,
    /// Where bodies go that turn out to be too large, until they are refused.
    pub temp_dir: PathBuf,
}
