//! Handlers in Ruby inside the server: Rack apps on mruby, one VM per front thread.
//!
//! Authentication, rewriting, rate limits and small APIs need no process of their own. Here they are
//! straight-line Ruby in the event loop: a wait (for time, Redis or another server) suspends its own request
//! and nothing else.
//!
//! Contract:
//! 1. Handlers are evaluated once per front thread, in order, before they get requests. Requests that arrive
//!    earlier wait.
//! 2. A handler responds, or returns 399. Then the next link in the chain responds, with the variables and
//!    fields that the handler has set.
//! 3. A mistake in a handler affects its own request only. A fault that breaks the VM fails all its requests,
//!    and a new VM is opened.
//! 4. All work happens on the thread that opened the [`Script`]; only computing Ruby code blocks it.
//!
//! Layers, from the bottom: `waiting`, `held` and `stream` use only values; `chain` is the request's
//! position; `context` joins them; `ops` has the types of operations; the areas (`basic`, `stdlib`, `redis`,
//! `fetch`, `next`, `kit`) are tables of them; `areas` joins the areas; `runtime` is the VM with them; `task`
//! runs tasks; `script` serves requests.
#![forbid(unsafe_code)]

mod areas;
mod basic;
mod chain;
mod context;
mod env;
mod failure;
mod fetch;
mod held;
mod kit;
mod load;
mod next;
mod observed;
mod ops;
mod outcome;
mod park;
mod plan;
mod redis;
mod returned;
mod runtime;
mod script;
mod stdlib;
mod stream;
mod subject;
mod task;
mod waiting;
mod watchdog;

pub use basic::Log;
pub use chain::{Hops, Next};
pub use load::{HandlerSource, check};
pub use observed::{Alarm, Observed};
pub use plan::{HandlerPlan, HandlerRoute, RouteLimits};
pub use script::{Handling, Script};
pub use stdlib::files::required;

/// Returns whether a path, as the client sent it, is below a route (without a trailing slash).
pub fn is_below(path: &[u8], route: &[u8]) -> bool {
    handler::path::Path::new(path).below(route).is_some()
}

/// Returns the version of mruby: `3.1.0`; `None` in a build without it.
pub fn version() -> Option<String> {
    mruby::Vm::version()
}

/// Describes the mruby of this program for `--version`: `mruby 3.1.0`, or `without mruby`.
pub fn about() -> String {
    match version() {
        Some(version) if mruby::Vm::has_hook() => format!("mruby {version} with debug hook"),
        Some(version) => format!("mruby {version}"),
        None => "without mruby".to_owned(),
    }
}
