//! `firebrick leaks`: asks one worker twice for its heap, and tells what has grown.
//!
//! Contract:
//! 1. A group of objects grows if it has more after a full collection than before, by more than noise ([`Growth::of`]). Objects that the app
//!    replaces all the time count in both snapshots, so they do not grow.
//! 2. With `--trace` the first snapshot is taken when allocations have been recorded for a while, so that this also holds by place.
//! 3. A command that ends early leaves nothing behind: recording ends by itself.

use crate::client::{ControlClient, Error, explain, reason, show};
use crate::heap::{HeapFigures, HeapGroup, HeapLine, HeapRoute, HeapSnapshot};
use crate::table::{grid, mib, span};
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use text::people::grouped;

/// The time between the snapshots, by default, and the longest.
pub const USUAL: Duration = Duration::from_secs(300);
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// The most lines, by default.
pub const TOP: usize = 10;
/// Recording goes on so much longer than the command needs, in case that it ends early.
const SPARE_S: u64 = 300;

/// Fewer new objects, or bytes, are noise: caches of Ruby itself that fill as code runs for the first time.
const LEAST_OBJECTS: i64 = 16;
const LEAST_BYTES: i64 = 4 << 10;
/// A collection that grows by so much without new objects, such as an Array of numbers.
const LEAST_GROWN: i64 = 64 << 10;
/// The most routes of a line, and the least share of one that is shown.
const MOST_ROUTES: usize = 3;
const LEAST_PART: f64 = 0.01;
/// The share of requests that must leave an object behind.
const LEAST_SHARE: f64 = 0.01;

/// The options of `firebrick leaks`.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaksOrder {
    /// The time between the two snapshots.
    pub time: Duration,
    pub worker: Option<u32>,
    pub pid: Option<u32>,
    /// Record where objects are allocated, and by which routes.
    pub trace: bool,
    pub examples: bool,
    /// The most lines.
    pub top: usize,
    pub json: bool,
}

/// The result, as `--json` prints it.
#[derive(Debug, Serialize)]
struct LeaksReport<'a> {
    worker: u32,
    pid: u32,
    seconds: f64,
    /// Requests that the worker finished between the snapshots.
    requests: u64,
    growth: Vec<Growth>,
    before: &'a HeapSnapshot,
    after: &'a HeapSnapshot,
}

/// A group that has grown.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Growth {
    class: String,
    at: Option<String>,
    /// New objects and bytes.
    count: i64,
    bytes: i64,
    /// Of each request; `None` without requests.
    bytes_per_request: Option<f64>,
    /// The routes whose objects have become more, the largest share first; only with `--trace`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<GrowingRoute>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    examples: Vec<String>,
}

/// The part of a growth that requests of one route have allocated.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct GrowingRoute {
    /// As in [`HeapRoute`].
    route: String,
    count: i64,
    bytes: i64,
    /// Of the bytes of all routes that grow, from 0 to 1.
    share: f64,
}

/// Runs `firebrick leaks` for the server in `dir`.
pub fn leaks_command(dir: &Path, client: &ControlClient, wish: &LeaksOrder) -> ExitCode {
    show(leaks(dir, client, wish))
}

fn leaks(dir: &Path, client: &ControlClient, wish: &LeaksOrder) -> Result<String, String> {
    let which = match (wish.pid, wish.worker) {
        (Some(pid), _) => format!("&pid={pid}"),
        (None, Some(worker)) => format!("&worker={worker}"),
        (None, None) => String::new(),
    };
    let examples = if wish.examples { "&examples" } else { "" };
    let (mut which, mut settle) = (which, Duration::ZERO);
    if wish.trace {
        let trace = wish.time.as_secs() + SPARE_S;
        let traced = take(dir, client, &format!("/heap?dump=0&trace={trace}{which}"))?;
        which = format!("&worker={}&pid={}", traced.worker, traced.pid);
        settle = wish.time / 4;
        output::complain(format_args!(
            "worker {} (pid {}) records where it allocates, which makes it slower; the first dump in {}",
            traced.worker,
            traced.pid,
            span(settle.as_secs_f64())
        ));
        std::thread::sleep(settle);
    }
    let before = take(dir, client, &format!("/heap?{}{examples}", &which[which.len().min(1)..]))?;
    let (begun, rest) = (Instant::now(), wish.time.saturating_sub(settle));
    output::complain(format_args!(
        "worker {} (pid {}): first dump, {}, {} ms without the worker; the second in {}",
        before.worker,
        before.pid,
        mib_text(before.dump_bytes),
        before.stopped_ms.ceil(),
        span(rest.as_secs_f64())
    ));
    std::thread::sleep(rest);
    let end = if wish.trace { "&trace=0" } else { "" };
    let target = format!("/heap?worker={}&pid={}{examples}{end}", before.worker, before.pid);
    let after = take(dir, client, &target)?;
    let seconds = begun.elapsed().as_secs_f64();
    let requests = after.requests.saturating_sub(before.requests);
    let growth = Growth::all(&before, &after, requests);
    if wish.json {
        let (worker, pid) = (after.worker, after.pid);
        let report = LeaksReport { worker, pid, seconds, requests, growth, before: &before, after: &after };
        return serde_json::to_string_pretty(&report)
            .map(|text| text + "\n")
            .map_err(|error| error.to_string());
    }
    Ok(report(dir, &before, &after, &growth, (seconds, requests), wish))
}

/// Asks for a snapshot, and waits for it.
fn take(dir: &Path, client: &ControlClient, target: &str) -> Result<HeapSnapshot, String> {
    let text = client.document(target).map_err(|error| match error {
        Error::Refused(..) => reason(&error, dir),
        _ => explain(&error, dir),
    })?;
    if text.trim().is_empty() {
        return Err("the server ended before the dump was complete".to_owned());
    }
    match serde_json::from_str(text.trim()) {
        Ok(HeapLine::Heap(heap)) => Ok(*heap),
        Ok(HeapLine::Failed(why)) => Err(why),
        Err(error) => Err(Error::NotControl(client.address().clone(), error.to_string()).to_string()),
    }
}

impl Growth {
    /// Returns the groups that have grown, the most bytes first.
    fn all(before: &HeapSnapshot, after: &HeapSnapshot, requests: u64) -> Vec<Growth> {
        let sizes = |snapshot: &HeapSnapshot| {
            let mut classes: HashMap<String, (i64, i64)> = HashMap::new();
            for group in &snapshot.groups {
                let sum = classes.entry(group.class.clone()).or_default();
                *sum = (sum.0 + signed(group.count), sum.1 + signed(group.bytes));
            }
            classes
        };
        let (classes_before, classes) = (sizes(before), sizes(after));
        let places: HashMap<(&str, Option<&str>), &HeapGroup> =
            before.groups.iter().map(|group| ((&*group.class, group.at.as_deref()), group)).collect();
        let mut all: Vec<Growth> = Vec::new();
        for group in &after.groups {
            let was = places.get(&(&*group.class, group.at.as_deref()));
            // A group that is not listed may have had so much.
            let (count, bytes) = was.map_or((0, before.unlisted_bytes), |was| (was.count, was.bytes));
            let of_class = |classes: &HashMap<String, (i64, i64)>| {
                classes.get(&group.class).copied().unwrap_or_default()
            };
            let ((count_before, bytes_before), (count_after, bytes_after)) =
                (of_class(&classes_before), of_class(&classes));
            // Objects that have only taken the place of older ones of their class do not grow.
            let count = (signed(group.count) - signed(count)).min(count_after - count_before);
            let bytes = (signed(group.bytes) - signed(bytes)).min(bytes_after - bytes_before);
            let routes = || GrowingRoute::all(was.map_or(&[][..], |was| &was.routes[..]), &group.routes);
            all.extend(
                Growth::of(group, count, bytes, requests).map(|growth| Growth { routes: routes(), ..growth }),
            );
        }
        all.sort_by_key(|growth| std::cmp::Reverse(growth.bytes));
        all
    }

    /// Returns the growth of a group, if it is more than noise.
    fn of(group: &HeapGroup, count: i64, bytes: i64, requests: u64) -> Option<Growth> {
        let of_requests = LEAST_SHARE * requests as f64;
        let by_objects = bytes >= LEAST_BYTES && count >= LEAST_OBJECTS && count as f64 >= of_requests;
        let by_size = bytes >= LEAST_GROWN && count >= 0 && bytes as f64 >= 8.0 * requests as f64;
        (by_objects || by_size).then(|| Growth {
            class: group.class.clone(),
            at: group.at.clone(),
            count,
            bytes,
            bytes_per_request: (requests > 0).then(|| bytes as f64 / requests as f64),
            routes: Vec::new(),
            examples: group.examples.clone(),
        })
    }
}

impl GrowingRoute {
    /// Returns the routes that have more objects, or larger ones, than before.
    fn all(before: &[HeapRoute], after: &[HeapRoute]) -> Vec<GrowingRoute> {
        let was = |route: &str| before.iter().find(|one| one.route == route);
        let grown = after.iter().map(|now| {
            let (count, bytes) = was(&now.route).map_or((0, 0), |was| (was.count, was.bytes));
            (now, signed(now.count) - signed(count), signed(now.bytes) - signed(bytes))
        });
        let grown: Vec<_> = grown.filter(|(_, _, bytes)| *bytes > 0).collect();
        let whole: i64 = grown.iter().map(|(_, _, bytes)| bytes).sum();
        let mut all: Vec<GrowingRoute> = grown
            .into_iter()
            .map(|(now, count, bytes)| GrowingRoute {
                route: now.route.clone(),
                count,
                bytes,
                share: bytes as f64 / whole as f64,
            })
            .collect();
        all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.route.cmp(&b.route)));
        all
    }

    /// Returns the text for people, such as `posts#show 98 %`.
    fn shown(all: &[GrowingRoute]) -> String {
        let parts = all.iter().take(MOST_ROUTES).filter(|one| one.share >= LEAST_PART);
        let mut shown: Vec<String> =
            parts.map(|one| format!("{} {:.0} %", one.route, 100.0 * one.share)).collect();
        let left = all.len() - shown.len();
        if shown.is_empty() {
            return "-".to_owned();
        }
        if left > 0 {
            shown.push(format!("{left} more"));
        }
        shown.join(", ")
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn mib_text(bytes: u64) -> String {
    format!("{} MiB", mib(bytes))
}

/// Returns the report for people.
fn report(
    dir: &Path,
    before: &HeapSnapshot,
    after: &HeapSnapshot,
    growth: &[Growth],
    (seconds, requests): (f64, u64),
    wish: &LeaksOrder,
) -> String {
    let mut out = format!(
        "worker {} (pid {}): {} requests in {}; {} objects before, {} after; it stood still for {:.1} and {:.1} ms\n\n",
        after.worker,
        after.pid,
        grouped(requests),
        span(seconds),
        grouped(before.objects),
        grouped(after.objects),
        before.stopped_ms,
        after.stopped_ms,
    );
    if growth.is_empty() {
        out.push_str("nothing grows\n");
    } else {
        out.push_str(&growing(dir, growth, requests, wish));
    }
    if requests == 0 {
        out.push_str("The worker served no request meanwhile: what requests leave behind cannot be seen.\n");
    }
    if after.unreadable > 0 {
        let _ = writeln!(
            out,
            "{} lines of the dump could not be read and are not counted.",
            grouped(after.unreadable)
        );
    }
    if !growth.is_empty() && !wish.trace {
        out.push_str("`firebrick leaks --trace` adds where they are allocated, and by which routes; it makes the worker slower meanwhile.\n");
    }
    out.push('\n');
    out.push_str(&memory(after));
    out
}

/// Returns the table of what grows.
fn growing(dir: &Path, growth: &[Growth], requests: u64, wish: &LeaksOrder) -> String {
    let each = |value: f64| if value >= 10.0 { grouped(value.round() as u64) } else { format!("{value:.2}") };
    let titles = ["bytes/request", "objects/request", "bytes", "objects", "class", "allocated at", "route"];
    let columns = if wish.trace { titles.len() } else { titles.len() - 1 };
    let mut rows = vec![titles[..columns].iter().map(|title| (*title).to_owned()).collect::<Vec<_>>()];
    for one in growth.iter().take(wish.top) {
        let place = one.at.as_deref().map(|at| shortened(at, dir));
        let mut row = vec![
            one.bytes_per_request.map_or("-".to_owned(), each),
            if requests > 0 { each(one.count.max(0) as f64 / requests as f64) } else { "-".to_owned() },
            grouped(one.bytes.unsigned_abs()),
            grouped(one.count.unsigned_abs()),
            one.class.clone(),
            place.unwrap_or_else(|| "-".to_owned()),
            GrowingRoute::shown(&one.routes),
        ];
        row.truncate(columns);
        rows.push(row);
    }
    let grid = grid(&rows);
    let mut lines = grid.lines();
    let mut out = "what grows, the most bytes first:\n".to_owned();
    out.extend(lines.next().map(|titles| format!("{titles}\n")));
    for (line, one) in lines.zip(growth) {
        let _ = writeln!(out, "{line}");
        one.examples.iter().for_each(|example| {
            let _ = writeln!(out, "    \"{example}\"");
        });
    }
    if growth.len() > wish.top {
        let _ = writeln!(out, "and {} more: --top N", growth.len() - wish.top);
    }
    out
}

/// Leaves out the folder of the app.
fn shortened(at: &str, dir: &Path) -> String {
    let inside = dir.to_str().and_then(|dir| at.strip_prefix(dir)?.strip_prefix('/'));
    inside.unwrap_or(at).to_owned()
}

/// Compares resident memory, Ruby's heap and malloc, in sentences.
fn memory(snapshot: &HeapSnapshot) -> String {
    // The worker has its memory as before the collection; what is in use shows after it.
    let HeapFigures { pages_bytes, live_slots, free_slots, malloc_held, .. } = snapshot.before;
    let malloc_used = snapshot.after.malloc_used;
    let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 };
    let slots = live_slots + free_slots;
    let empty = share(slots.saturating_sub(snapshot.after.live_slots), slots);
    let mut out = format!(
        "memory: {} resident; Ruby's heap has {}, of which {empty:.0} % is empty after a full collection",
        mib_text(snapshot.rss_bytes),
        mib_text(pages_bytes),
    );
    let allocator = snapshot.before.allocator.as_deref();
    let unused = match (malloc_held, malloc_used) {
        (Some(held), Some(used)) => {
            let (unused, name) = (held.saturating_sub(used), allocator.unwrap_or("malloc"));
            let _ = write!(
                out,
                "; {name} has {}, of which {} ({:.0} %) is unused",
                mib_text(held),
                mib_text(unused),
                share(unused, held)
            );
            let rest = snapshot.rss_bytes.saturating_sub(pages_bytes + held);
            if rest > 0 {
                let _ = write!(out, "; {} is code, stacks and the rest", mib_text(rest));
            }
            Some((unused, share(unused, held)))
        }
        _ => {
            out.push_str("; the allocator does not tell how much it has");
            None
        }
    };
    out.push_str(".\n");
    out.push_str(match (unused, empty) {
        (Some((bytes, part)), _) if bytes >= FRAGMENTED && part >= 30.0 => {
            "malloc is fragmented: it cannot return the unused memory, because small pieces of it are in use everywhere. \
             rack.allocator = \"jemalloc\" keeps less.\n"
        }
        (_, empty) if empty >= 40.0 && pages_bytes >= FRAGMENTED => {
            "Ruby's heap is fragmented: few objects keep many pages. A peak of the past has left them; rack.out_of_band_gc \
             and smaller responses lower such peaks.\n"
        }
        _ => "Neither Ruby's heap nor malloc is fragmented.\n",
    });
    out
}

/// Less unused memory is not worth a word.
const FRAGMENTED: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn heap(groups: &[(&str, Option<&str>, u64, u64)]) -> HeapSnapshot {
        let group = |&(class, at, count, bytes): &(&str, Option<&str>, u64, u64)| HeapGroup {
            class: class.to_owned(),
            at: at.map(str::to_owned),
            count,
            bytes,
            ..HeapGroup::default()
        };
        HeapSnapshot { groups: groups.iter().map(group).collect(), ..HeapSnapshot::default() }
    }

    fn grown(
        before: &HeapSnapshot,
        after: &HeapSnapshot,
        requests: u64,
    ) -> Vec<(String, Option<String>, i64)> {
        Growth::all(before, after, requests).into_iter().map(|one| (one.class, one.at, one.count)).collect()
    }

    #[test]
    fn only_what_grows_is_named() {
        let before =
            heap(&[("String", None, 1_000, 50_000), ("Order", None, 50, 4_000), ("Array", None, 5, 500)]);
        let after = heap(&[
            ("String", None, 1_500, 1_550_000),
            ("Order", None, 52, 4_200),
            ("Array", None, 5, 90_500),
        ]);
        let expected = [("String".to_owned(), None, 500), ("Array".to_owned(), None, 0)];
        assert_eq!(grown(&before, &after, 500), expected);
        assert_eq!(grown(&before, &before, 500), []);
        // One object in a hundred requests is the least.
        assert_eq!(grown(&before, &after, 1_000_000), []);
    }

    #[test]
    fn objects_that_are_replaced_do_not_grow() {
        let before = heap(&[("Entry", None, 10_000, 400_000), ("Entry", Some("a.rb:1"), 100, 4_000)]);
        let after = heap(&[("Entry", Some("a.rb:1"), 9_000, 360_000), ("Entry", None, 1_105, 44_000)]);
        assert_eq!(grown(&before, &after, 10_000), []);
    }

    #[test]
    fn a_group_that_was_not_listed_may_be_old() {
        let mut before = heap(&[]);
        before.unlisted_bytes = 10_000;
        let after = heap(&[("Order", None, 100, 9_000)]);
        assert_eq!(grown(&before, &after, 100), []);
    }

    #[test]
    fn routes_of_a_growth_are_told_by_their_shares() {
        let with_routes = |routes: &[(&str, u64)]| {
            let mut heap = heap(&[("String", Some("a.rb:1"), 0, 0)]);
            let routes = routes.iter().map(|(route, bytes)| HeapRoute {
                route: (*route).to_owned(),
                count: bytes / 10,
                bytes: *bytes,
            });
            heap.groups[0].routes = routes.collect();
            heap.groups[0].count = heap.groups[0].routes.iter().map(|one| one.count).sum();
            heap.groups[0].bytes = heap.groups[0].routes.iter().map(|one| one.bytes).sum();
            heap
        };
        let before = with_routes(&[("posts#index", 5_000), ("posts#old", 9_000)]);
        let after = with_routes(&[
            ("posts#show", 98_000),
            ("posts#index", 6_500),
            ("posts#old", 100),
            ("posts#edit", 400),
            ("(none)", 100),
        ]);
        let grown = Growth::all(&before, &after, 100);
        let routes: Vec<_> = grown[0].routes.iter().map(|one| (&*one.route, one.count, one.bytes)).collect();
        let expected = [
            ("posts#show", 9_800, 98_000),
            ("posts#index", 150, 1_500),
            ("posts#edit", 40, 400),
            ("(none)", 10, 100),
        ];
        assert_eq!(routes, expected);
        assert_eq!(GrowingRoute::shown(&grown[0].routes), "posts#show 98 %, posts#index 2 %, 2 more");
        assert_eq!(GrowingRoute::shown(&[]), "-");
        assert_eq!(Growth::all(&heap(&[]), &after, 100)[0].routes.len(), 5);
    }

    #[test]
    fn memory_is_told_in_sentences() {
        let mib = |count: u64| count << 20;
        let figures = |held: u64, used: u64, free: u64| HeapSnapshot {
            rss_bytes: mib(300),
            before: HeapFigures {
                pages_bytes: mib(100),
                live_slots: 95,
                free_slots: 5,
                allocator: Some("glibc's malloc".to_owned()),
                malloc_held: Some(mib(held)),
                ..HeapFigures::default()
            },
            after: HeapFigures {
                live_slots: 100 - free,
                malloc_used: Some(mib(used)),
                ..HeapFigures::default()
            },
            ..HeapSnapshot::default()
        };
        let text = memory(&figures(150, 60, 10));
        assert!(text.contains("of which 90.0 MiB (60 %) is unused; 50.0 MiB is code"), "{text}");
        assert!(text.contains("malloc is fragmented"), "{text}");
        assert!(memory(&figures(150, 140, 50)).contains("Ruby's heap is fragmented"));
        assert!(memory(&figures(150, 140, 10)).contains("Neither Ruby's heap nor malloc is fragmented"));
    }
}
