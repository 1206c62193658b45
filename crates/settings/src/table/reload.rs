//! Reloads.

use std::time::Duration;

use super::entry::{Category, long, section};
use crate::kind::lists::{RequestPaths, Steps};
use crate::kind::numbers::{Count, Period};
use crate::value::step::Step;

section! { Category::Reload;
    /// How `firebrick reload` replaces the workers.
    Reload:

    /// Paths that the first new worker must answer before it gets requests
    probe: Vec<String> = RequestPaths, {
        key: "reload.probe",
        flags: &[long("reload-probe", "PATHS")],
        default_shown: Some("those of `rack.warmup`, else `/up` if the app has it"),
        more: "Each is requested once, with GET. A status of 400 or more, or none within `timeouts.worker_boot`, ends the reload. \
               Paths that are not set here may return 4xx. Not in development.",
        reloadable: true,
    }
    /// Percent of the requests for the first new worker while it is watched
    share: u32 = Count { min: 0, max: 100 }, {
        key: "reload.share",
        flags: &[long("reload-share", "PERCENT")],
        default: "10",
        more: "0 replaces the workers without watching. Not in development.",
        reloadable: true,
    }
    /// How long the first new worker is watched before the others follow
    watch: Duration = Period::ANY, {
        key: "reload.watch",
        flags: &[long("reload-watch", "TIME")],
        default: "10s",
        more: "It must not die, nor fail (5xx) more often or be much slower than the old ones; that ends the reload. Not in \
               development.",
        reloadable: true,
    }
    /// How many workers are replaced at a time
    step: Step = Steps, {
        key: "reload.step",
        flags: &[long("reload-step", "NUMBER")],
        default: "1",
        more: "A number, or a percentage of `workers` (rounded up). So many workers more than wanted exist meanwhile, and never \
               fewer are ready: a larger step is faster and takes more memory.",
        reloadable: true,
        known_as: &["max_surge", "rolling_batch"],
    }
    /// How long the old template stays after a reload, for --undo
    keep: Duration = Period::ANY, {
        key: "reload.keep",
        flags: &[long("reload-keep", "TIME")],
        default: "30s",
        more: "It takes memory meanwhile. 0 ends it at once, and in development it always ends at once.",
        reloadable: true,
    }
}
