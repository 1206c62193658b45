//! Statistics by route, and what is kept of workers that have died.

use super::entry::{Category, long};
use super::section::section;
use crate::kind::numbers::Count;

section! { Category::Stats;
    /// Statistics by route.
    Stats:

    /// Maximum number of routes that have figures of their own; 0 is off
    routes: usize = Count { min: 0, max: 10_000 }, {
        key: "stats.routes",
        flags: &[long("stats-routes", "N")],
        default: "200",
        more: "firebrick routes shows them. When there are more routes, the ones that are asked for least give way, and their figures go into \
               (other). Each takes at most 2.5 KiB in each front thread. docs/routes.md tells what a route is.",
        reloadable: true,
    }
    /// Maximum number of requests kept of workers that have died; 0 is off
    keep_requests: usize = Count { min: 0, max: 1000 }, {
        key: "deaths.keep_requests",
        flags: &[long("deaths-keep-requests", "N")],
        default: "8",
        more: "For firebrick deaths --replay, in the server's memory only. Credentials, cookies, and parameters with names such as password or token \
               are overwritten first. A body longer than 64 KiB is left out. docs/replay.md tells what else may be private.",
        reloadable: true,
    }
    /// Maximum number of routes in /metrics; 0 is none
    route_metrics: usize = Count { min: 0, max: 10_000 }, {
        key: "stats.route_metrics",
        flags: &[long("stats-route-metrics", "N")],
        default: "50",
        more: "Only routes that the app has named become values of the label route; those with the most time in the app come first. All other \
               requests are counted together as (other).",
        reloadable: true,
    }
}
