//! The rules. Each reads the figures and returns what it has found.

use super::{ENOUGH, Evidence};
use crate::finding::Finding;
use crate::route::RouteSnapshot;
use text::people::figure;

type Rule = fn(&Evidence<'_>) -> Vec<Finding>;

pub(super) const ALL: [Rule; 6] = [repeated_query, connections, gvl, garbage, cache, pool];

/// The rule about routes that want a pool of their own.
pub(super) const POOL: &str = "pool";
/// The part of a route's requests that repeat a query, from which it is the route's fault and not that of a few.
const REPEATING: f64 = 0.1;
/// The part of a route's requests that keep the lock, from which it is the route's fault and not that of a collection of garbage in C.
const HOLDING: f64 = 0.2;
/// The part of the processor time that garbage collection may take.
const GARBAGE: f64 = 0.15;
/// The fewest requests, of those looked at, that a cache would have answered.
const HITS: u64 = 10;
/// How much of their time connections of a pool may be in use by fibers, which have no fixed number of them.
const IN_USE: f64 = 0.7;
/// How many times as long as the others a route takes that should not share threads with them.
const LONGER: f64 = 10.0;
/// The part of their time that the others wait for a thread.
const WAIT: f64 = 0.2;
/// The characters of a place.
const PLACE: usize = 110;

/// A query that requests make again and again, where one for all rows would do.
fn repeated_query(all: &Evidence<'_>) -> Vec<Finding> {
    let of = |route: &&RouteSnapshot| {
        let count = route.app_ms.count;
        let often = route.repeating as f64 >= REPEATING * count as f64;
        if count < ENOUGH || !often || route.repeating == 0 {
            return None;
        }
        let each = route.repeats as f64 / route.repeating as f64;
        let queries = route.queries.unwrap_or(route.repeats) as f64 / count as f64;
        let text = format!(
            "{} makes {} queries a request, {} of them the same one, which takes {} of its time: \
             load or write all rows at once (includes, preload, insert_all){}.",
            route.route,
            figure(queries),
            figure(each),
            percent(route.repeats_ms / route.app_sum_ms),
            at(route.repeats_at.as_deref()),
        );
        Some(all.finding("repeated_query", Some(route), text, route.repeats_ms * (1.0 - 1.0 / each)))
    };
    all.routes.iter().filter_map(of).collect()
}

/// Requests that share fewer connections to the database than there are threads.
fn connections(all: &Evidence<'_>) -> Vec<Finding> {
    let Some(size) = all.server.database_connections else { return Vec::new() };
    let with_queries = || all.routes.iter().filter(|route| route.queries.unwrap_or(0) > 0);
    let requests: u64 = with_queries().map(|route| route.app_ms.count).sum();
    let workers = &all.server.workers;
    let Some(largest) = workers.iter().max_by_key(|worker| worker.threads_max) else { return Vec::new() };
    if requests < ENOUGH || size == 0 {
        return Vec::new();
    }
    let time_ms: f64 = with_queries().map(|route| route.app_sum_ms).sum();
    let seats = largest.threads_max;
    let (why, saves_ms) = if largest.fibers > 0 {
        // Most fibers have no connection most of the time.
        let in_queries_ms: f64 = with_queries().filter_map(|route| route.queries_ms).sum();
        let used = in_queries_ms / (all.seconds * 1e3 * workers.len() as f64 * f64::from(size));
        if used < IN_USE || seats <= size {
            return Vec::new();
        }
        (
            format!("{size} connections to the database are in use for {} of the time", percent(used)),
            time_ms * used,
        )
    } else if size < seats {
        let lost = 1.0 - f64::from(size) / f64::from(seats);
        let why = format!(
            "{seats} threads of a worker share {size} connections to the database, and {} of the time in the app is in requests with queries",
            percent(time_ms / all.busy_ms)
        );
        (why, time_ms * lost)
    } else {
        return Vec::new();
    };
    let text = format!("{why}: set pool to {seats} in config/database.yml, or lower threads.");
    vec![all.finding("connections", None, text, saves_ms)]
}

/// Functions in C that keep Ruby's lock, so that all other threads of the worker stand still.
fn gvl(all: &Evidence<'_>) -> Vec<Finding> {
    // Without other threads nothing waits for it.
    if all.server.workers.iter().all(|worker| worker.threads_max < 2) {
        return Vec::new();
    }
    let of = |route: &&RouteSnapshot| {
        let often = route.holding as f64 >= HOLDING * route.app_ms.count as f64;
        if route.app_ms.count < ENOUGH || !often || route.holding == 0 {
            return None;
        }
        let text = format!(
            "{} keeps Ruby's lock (GVL) for up to {} in C, in {} of its requests, while everything else in the worker waits: \
             give its paths a pool of their own ([pools] in firebrick.toml), or do it in a job{}.",
            route.route,
            ms(route.longest_hold_ms),
            percent(route.holding as f64 / route.app_ms.count as f64),
            at(route.holding_at.as_deref()),
        );
        Some(all.finding("gvl", Some(route), text, route.holding_ms))
    };
    all.routes.iter().filter_map(of).collect()
}

/// Too much garbage collection. It is compared with the processor time, which does not depend on how long requests wait.
fn garbage(all: &Evidence<'_>) -> Vec<Finding> {
    let known = || all.routes.iter().filter(|route| route.gc_ms.is_some() && route.cpu_ms.is_some());
    let measured: u64 = known().map(|route| route.measured).sum();
    let gc_ms: f64 = known().filter_map(|route| route.gc_ms).sum();
    let cpu_ms: f64 = known().filter_map(|route| route.cpu_ms).sum();
    let part = gc_ms / cpu_ms;
    if measured < ENOUGH || part.is_nan() || part < GARBAGE {
        return Vec::new();
    }
    let most = known().max_by_key(|route| route.allocations);
    let most = most.and_then(|route| Some((route, route.allocations? as f64 / route.app_ms.count as f64)));
    let cause = most.map_or(String::new(), |(route, each)| {
        format!(", mostly for {}, which allocates {} objects a request", route.route, figure(each))
    });
    // Full collections are the longest; those of a single worker have no place between requests.
    let cure = match all.server.workers.len() > 1 && all.server.out_of_band_gc.count == 0 {
        true => "allocate less there, or set rack.out_of_band_gc = true, which collects between requests",
        false => {
            "allocate less there, or give the heap more room \
             (RUBY_GC_HEAP_FREE_SLOTS_MIN_RATIO=0.4 and RUBY_GC_HEAP_FREE_SLOTS_GOAL_RATIO=0.65)"
        }
    };
    let text = format!(
        "Garbage collection takes {} of the processor time of requests{cause}: {cure}.",
        percent(part)
    );
    vec![all.finding("garbage", None, text, gc_ms)]
}

/// Responses that the app lets a cache keep, while there is none.
fn cache(all: &Evidence<'_>) -> Vec<Finding> {
    let of = |route: &&RouteSnapshot| {
        if all.server.kept_responses.is_some() || route.app_ms.count < ENOUGH || route.would_hit < HITS {
            return None;
        }
        let hits = route.would_hit as f64 / route.sampled.max(route.would_hit) as f64;
        let text = format!(
            "At least {} of the requests of {} get a response that another one got before and that was still fresh \
             by its Cache-Control, and spend {} in the app: turn the cache on ([cache] memory = \"64MiB\").",
            percent(hits),
            route.route,
            ms(route.app_sum_ms / route.app_ms.count as f64)
        );
        Some(all.finding("cache", Some(route), text, hits * route.app_sum_ms))
    };
    all.routes.iter().filter_map(of).collect()
}

/// A long route whose requests hold the threads for which all others wait.
fn pool(all: &Evidence<'_>) -> Vec<Finding> {
    if !all.server.pools.is_empty() {
        return Vec::new();
    }
    let of = |route: &&RouteSnapshot| {
        let others = || all.routes.iter().filter(|other| other.route != route.route);
        let sum = |of: fn(&RouteSnapshot) -> f64| others().map(|other| of(other)).sum::<f64>();
        let count = sum(|other| other.app_ms.count as f64);
        let mean = route.app_sum_ms / route.app_ms.count as f64;
        let others_mean = sum(|other| other.app_sum_ms) / count;
        let queue_ms = sum(|other| other.queue_ms.sum);
        let wait = queue_ms / sum(|other| other.queue_ms.sum + other.app_sum_ms);
        let few = route.app_ms.count < ENOUGH || count < 2.0 * ENOUGH as f64;
        // Only one that holds most of the threads can make the others wait.
        if few || route.share < 0.5 || mean < LONGER * others_mean || wait.is_nan() || wait < WAIT {
            return None;
        }
        let text = format!(
            "{} takes {}, other requests take {} and wait {} for a thread ({} of their time): \
             give its paths a pool of their own ([pools] in firebrick.toml).",
            route.route,
            ms(mean),
            ms(others_mean),
            ms(queue_ms / count),
            percent(wait)
        );
        // The others' wait goes away, and no work.
        Some(Finding {
            saves: queue_ms / all.time_ms,
            frees: 0.0,
            ..all.finding(POOL, Some(route), text, 0.0)
        })
    };
    all.routes.iter().filter_map(of).collect()
}

/// Returns the words for a place, if it is known.
fn at(place: Option<&str>) -> String {
    place.map_or(String::new(), |place| {
        let end = place.char_indices().nth(PLACE).map_or(place.len(), |(end, _)| end);
        format!(", at {}{}", place[..end].trim_end_matches('.'), if end < place.len() { "…" } else { "" })
    })
}

fn percent(part: f64) -> String {
    match 100.0 * part {
        percent if percent < 9.95 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// Formats a time of so many milliseconds.
fn ms(ms: f64) -> String {
    if ms < 999.5 { format!("{} ms", figure(ms)) } else { format!("{} s", figure(ms / 1e3)) }
}
