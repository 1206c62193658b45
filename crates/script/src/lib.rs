//! Handlers in Ruby inside the server: Rack apps on mruby, one VM for each front thread.
//!
//! Why: authentication, rewriting, rate limits and small APIs need no process of their own. Here they are straight-line Ruby in
//! the event loop: what waits (for time, Redis, another server) suspends its own request and nothing else.
//!
//! Contract:
//! 1. Handlers are evaluated once per front thread, in order, before requests reach them; requests that come earlier wait.
//! 2. A handler answers, or says 399: then the next one of the chain does, and what it has set comes along.
//! 3. What a handler does wrong costs its own request. Whatever breaks the VM itself costs those under way in it, and it is
//!    opened anew.
//! 4. Everything happens on the thread that opened the [`Script`]; nothing blocks it but Ruby that computes.
#![forbid(unsafe_code)]

mod answer;
mod env;
mod fetch;
mod kit;
mod load;
mod next;
mod observed;
mod ops;
mod outcome;
mod park;
mod plan;
pub mod redis;
mod route;
mod runtime;
mod script;
mod stdlib;
mod stream;
mod subject;
mod tasks;
mod watchdog;

pub use load::{Source, check};
pub use next::Hops;
pub use observed::{Alarm, Observed};
pub use plan::{Limits, Plan, Route};
pub use runtime::Complain;
pub use script::{Handling, Next, OnFailure, Script};
pub use stdlib::files::required;

/// Whether a path, as it was sent, is below a route (without a slash at its end).
pub fn is_below(path: &[u8], route: &[u8]) -> bool {
    route::Path::new(path).below(route).is_some()
}

/// Which mruby is inside: `3.1.0`; `None` when built without it.
pub fn version() -> Option<String> {
    mruby::Vm::version()
}

/// What a program says about the mruby in it: `mruby 3.1.0`, or that there is none.
pub fn about() -> String {
    match version() {
        Some(version) if mruby::Vm::has_hook() => format!("mruby {version} with debug hook"),
        Some(version) => format!("mruby {version}"),
        None => "without mruby".to_owned(),
    }
}
