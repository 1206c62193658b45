//! Handlers on the built-in mruby. The `[routes]` table maps paths to handlers.

use std::time::Duration;

use super::entry::{Category, bare, entries, long};
use super::section::section;
use crate::kind::numbers::{Count, Period, Size};
use crate::kind::texts::Switch;
use crate::kind::wrappers::OrOff;

entries! { Category::Mruby;
    /// Run the file given instead of DIR, such as handler.rb, on mruby
    MRUBY: bool = Switch, {
        key: "mruby_file",
        in_file: false,
        flags: &[bare("mruby", "true")],
        default: "false",
        more: "The file's last value must respond to call(env). In firebrick.toml handlers belong to routes: \
               [routes] \"/api\" = \"api.rb\".",
    }
    /// Maximum memory of the mruby VM of each front thread
    HEAP: usize = Size { min: 4 << 20, max: 1 << 40 }, {
        key: "mruby.heap",
        flags: &[long("mruby-heap", "SIZE")],
        default: "256MiB",
    }
}

section! { Category::Mruby;
    /// Limits of a request in a handler; sizes are bytes.
    HandlerLimits:

    /// Maximum mruby memory of one request (500)
    request_heap: usize = Size { min: 64 << 10, max: 1 << 40 }, {
        key: "mruby.request_heap",
        flags: &[long("mruby-request-heap", "SIZE")],
        default: "32MiB",
    }
    /// Maximum time that a handler can compute without waiting (500); 0 is off
    step_time: Option<Duration> = OrOff(Period::ANY), {
        key: "mruby.step_time",
        flags: &[long("mruby-step-time", "TIME")],
        default: "1s",
        more: "While a handler computes, its front thread does nothing else. With a libmruby that lacks the debug hook (Debian \
               12), stopping code that allocates no memory costs the thread's VM: docs/mruby-limits.md.",
    }
    /// Maximum time for a handler to begin a response (504); 0 is off
    deadline: Option<Duration> = OrOff(Period::ANY), {
        key: "mruby.deadline",
        flags: &[long("mruby-deadline", "TIME")],
        default: "60s",
    }
    /// Maximum requests and tasks in the mruby VM of a front thread (503)
    max_tasks: usize = Count { min: 1, max: 10_000_000 }, {
        key: "mruby.max_tasks",
        flags: &[long("mruby-max-tasks", "N")],
        default: "100000",
    }
    /// Maximum size of a request body for a handler (413)
    max_body: usize = Size { min: 0, max: 1 << 40 }, {
        key: "mruby.max_body",
        flags: &[long("mruby-max-body", "SIZE")],
        default: "8MiB",
    }
    /// Allow URLs of other servers in a handler's x-reproxy-url
    reproxy: bool = Switch, {
        key: "mruby.reproxy",
        flags: &[bare("mruby-reproxy", "true")],
        default: "false",
        more: "Paths of this server are always allowed. Other servers are not allowed by default: if a handler passes on the headers \
               of another server's response, that server could choose where requests go.",
    }
}
