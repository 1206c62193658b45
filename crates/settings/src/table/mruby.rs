//! Handlers on the mruby inside the server. Which of them answers where is in the `[routes]` table.

use super::entry::{Category, bare, entries, long};
use crate::kind::numbers::{Count, Period, Size};
use crate::kind::texts::Switch;
use crate::kind::wrappers::OrOff;

entries! { Category::Mruby;
    MRUBY: Switch = Switch, {
        key: "mruby_file",
        in_file: false,
        flags: &[bare("mruby", "true")],
        default: "false",
        doc: "Serve the file that is named, such as handler.rb, on mruby",
        more: "Its last value answers call(env). In firebrick.toml handlers belong to routes: \
               [routes] \"/api\" = \"api.rb\".",
    }
    HEAP: Size = Size { min: 4 << 20, max: 1 << 40 }, {
        key: "mruby.heap",
        flags: &[long("mruby-heap", "SIZE")],
        default: "256MiB",
        doc: "Memory of the mruby VM of each front thread",
    }
    REQUEST_HEAP: Size = Size { min: 64 << 10, max: 1 << 40 }, {
        key: "mruby.request_heap",
        flags: &[long("mruby-request-heap", "SIZE")],
        default: "32MiB",
        doc: "Memory that one request may take of it (500 beyond)",
    }
    STEP_TIME: OrOff<Period> = OrOff(Period::ANY), {
        key: "mruby.step_time",
        flags: &[long("mruby-step-time", "TIME")],
        default: "1s",
        doc: "How long a handler may compute without waiting (500 beyond); 0 is off",
        more: "While it computes, its front thread does nothing else. A libmruby without the debug hook (Debian 12's) stops \
               code that allocates nothing at the cost of the thread's VM: docs/mruby-limits.md.",
    }
    DEADLINE: OrOff<Period> = OrOff(Period::ANY), {
        key: "mruby.deadline",
        flags: &[long("mruby-deadline", "TIME")],
        default: "60s",
        doc: "From the request to the head of the handler's response (504); 0 is off",
    }
    MAX_TASKS: Count = Count { min: 1, max: 10_000_000 }, {
        key: "mruby.max_tasks",
        flags: &[long("mruby-max-tasks", "N")],
        default: "100000",
        doc: "Requests and tasks that may wait in the mruby VM of a front thread (503)",
    }
    MAX_BODY: Size = Size { min: 0, max: 1 << 40 }, {
        key: "mruby.max_body",
        flags: &[long("mruby-max-body", "SIZE")],
        default: "8MiB",
        doc: "Largest request body for a handler, which gets it whole (413 beyond)",
    }
    REPROXY: Switch = Switch, {
        key: "mruby.reproxy",
        flags: &[bare("mruby-reproxy", "true")],
        default: "false",
        doc: "Let the x-reproxy-url of a response name other servers, too",
        more: "A path of this server may always be named. Other servers only when this is true, because a handler that passes on the \
               fields of somebody else's response would let them choose where requests go.",
    }
}
