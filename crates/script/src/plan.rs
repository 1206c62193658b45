//! Which handlers there are, their routes and limits.

use crate::load::Source;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Limits of the requests of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Most heap that all steps of a request may add, bytes.
    pub request_heap: usize,
    /// Most CPU time without a wait; `None` is unlimited.
    pub step_time: Option<Duration>,
    /// From the first step to the head of the response; `None` is unlimited.
    pub deadline: Option<Duration>,
    /// Most requests and tasks in the VM.
    pub max_tasks: usize,
    /// Largest request body, which is collected in memory; bytes.
    pub max_body: usize,
    /// Whether `x-reproxy-url` may name another server.
    pub reproxy: bool,
}

impl Limits {
    /// The largest value of each limit.
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
    /// Without a trailing slash: the root is empty. It is the handlers' `SCRIPT_NAME`.
    pub path: String,
    /// Indexes into [`Plan::sources`], in the order in which they get requests.
    pub handlers: Vec<usize>,
    /// Limits of its requests.
    pub limits: Arc<Limits>,
}

impl Route {
    /// The path as in the configuration.
    pub(crate) fn shown(&self) -> &str {
        if self.path.is_empty() { "/" } else { &self.path }
    }
}

/// All handlers of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Each file once.
    pub sources: Vec<Source>,
    /// The routes, longer paths first.
    pub routes: Vec<Route>,
    /// Largest heap of one VM, bytes.
    pub heap: usize,
    /// Directory for bodies that are too large, until they are refused.
    pub temp_dir: PathBuf,
}
