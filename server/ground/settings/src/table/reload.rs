//! Reloads.

use std::time::Duration;

use super::entry::{Category, long};
use super::section::section;
use crate::kind::lists::{PathPrefixes, RequestPaths, Steps};
use crate::kind::numbers::{Count, Period};
use crate::kind::texts::Choice;
use crate::kind::wrappers::Auto;
use crate::value::reload::OnDifference;
use crate::value::step::Step;

section! { Category::Reload;
    /// How `firebrick reload` replaces the workers.
    Reload:

    /// Paths that the first new worker must answer before it gets requests
    probe: Vec<String> = RequestPaths, {
        key: "reload.probe",
        flags: &[long("reload-probe", "PATHS")],
        default_shown: Some("the paths of `rack.warmup`, else `/up` if the app has it"),
        more: "The server requests each path once, with GET. A status of 400 or more, or no response within `timeouts.worker_boot`, ends the \
               reload. Default paths may also return 4xx. Not in development.",
        reloadable: true,
    }
    /// Time to compare copies of requests before a client meets the new code
    shadow: Duration = Period::ANY, {
        key: "reload.shadow",
        flags: &[long("reload-shadow", "TIME")],
        default: "0",
        more: "Copies of GET and HEAD requests, without cookies and credentials, go to a worker of the old code and to one of the new; \
               their responses are compared and go to no client. Takes the memory of one more worker. 0 turns it off; `firebrick reload --shadow \
               TIME` sets it for one reload, and `--shadow 0` reloads without.",
        reloadable: true,
    }
    /// The reaction to different responses to copies of requests
    on_difference: OnDifference = Choice(&[("report", OnDifference::Report), ("undo", OnDifference::Undo)]), {
        key: "reload.on_difference",
        flags: &[long("reload-on-difference", "report|undo")],
        default: "report",
        more: "`report` lists the differences. `undo` also ends the reload, and the old code serves on. New failures, and routes that take \
               longer or use more, end it in any case.",
        reloadable: true,
    }
    /// Largest percentage of requests for the first new worker
    share: u32 = Count { min: 0, max: 100 }, {
        key: "reload.share",
        flags: &[long("reload-share", "PERCENT")],
        default: "25",
        more: "The worker begins with 1 %, and gets no more than an old one. With 0 the server replaces the workers without watching the first one. Not in \
               development.",
        reloadable: true,
    }
    /// Time to watch the first new worker before the others are replaced
    watch: Duration = Period::ANY, {
        key: "reload.watch",
        flags: &[long("reload-watch", "TIME")],
        default: "10s",
        more: "The reload ends if the new worker dies, or if one of its routes fails (5xx) more often, takes longer or uses more than in the \
               old workers. Not in development.",
        reloadable: true,
    }
    /// Time for the new template to repeat recent requests before it forks
    warm: Option<Duration> = Auto(Period::ANY), {
        key: "reload.warm",
        flags: &[long("reload-warm", "TIME|auto")],
        default: "auto",
        default_shown: Some("5s, and 40s if the app runs with YJIT, which compiles a method at its 30th call"),
        more: "Workers then begin with the code, caches and call sites of these requests. Only GET requests, without cookies and other secrets, and \
               only if Active Record can prevent writes, or for `reload.warm_paths`. It ends before `timeouts.worker_boot` does. With 0 nothing is repeated. Not in development. See docs/reload.md.",
        reloadable: true,
    }
    /// Paths whose requests the new template may repeat, with all below them
    warm_paths: Vec<String> = PathPrefixes, {
        key: "reload.warm_paths",
        flags: &[long("reload-warm-paths", "PATHS")],
        default_shown: Some("all, if Active Record is there to prevent writes"),
        more: "They are repeated even where nothing prevents writes, and requests for other paths are not.",
        reloadable: true,
    }
    /// Number of workers to replace at a time
    step: Step = Steps, {
        key: "reload.step",
        flags: &[long("reload-step", "NUMBER")],
        default: "1",
        more: "A number, or a percentage of `workers` (rounded up). During the reload, up to this many additional workers run, and the number \
               of ready workers never falls. A larger step is faster and takes more memory.",
        reloadable: true,
        known_as: &["max_surge", "rolling_batch"],
    }
    /// Time to keep the old template after a reload, for --undo
    keep: Duration = Period::ANY, {
        key: "reload.keep",
        flags: &[long("reload-keep", "TIME")],
        default: "30s",
        more: "The old template takes memory meanwhile. With 0, and always in development, it ends at once.",
        reloadable: true,
    }
}
