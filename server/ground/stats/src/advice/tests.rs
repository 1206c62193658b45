use super::*;
use crate::durations::DurationSummary;
use crate::server::WorkerSnapshot;
use proptest::prelude::*;
use std::time::{Duration, SystemTime};

fn times(count: u64, ms: f64) -> DurationSummary {
    DurationSummary { count, sum: count as f64 * ms, mean: ms, p50: ms, ..DurationSummary::default() }
}

/// A route without faults: some queries, little garbage, no wait.
fn route(name: &str, count: u64, ms: f64) -> RouteSnapshot {
    RouteSnapshot {
        route: name.to_owned(),
        named: true,
        requests: count,
        app_ms: times(count, ms),
        total_ms: times(count, ms + 0.2),
        queue_ms: times(count, 0.05),
        app_sum_ms: count as f64 * ms,
        measured: count,
        cpu_ms: Some(0.6 * count as f64 * ms),
        gc_ms: Some(0.05 * count as f64 * ms),
        allocations: Some(2_000 * count),
        queries: Some(4 * count),
        queries_ms: Some(0.2 * count as f64 * ms),
        ..RouteSnapshot::default()
    }
}

fn worker(threads: u32, fibers: u32) -> WorkerSnapshot {
    WorkerSnapshot { threads_max: threads, fibers, ..crate::server::tests::server(1).workers.remove(0) }
}

/// A server with two workers of five threads, and a pool of as many connections.
fn server(change: impl FnOnce(&mut ServerSnapshot)) -> ServerSnapshot {
    let mut server = ServerSnapshot {
        database_connections: Some(5),
        workers: vec![worker(5, 0), worker(5, 0)],
        ..crate::server::tests::server(2)
    };
    change(&mut server);
    server
}

fn found(mut routes: Vec<RouteSnapshot>, server: &ServerSnapshot) -> Vec<Finding> {
    crate::share_out(&mut routes);
    let since = SystemTime::UNIX_EPOCH;
    let taken_at = since + Duration::from_secs(100);
    advise(&RoutesSnapshot { since, taken_at, limit: 200, routes, advice: None }, server)
}

/// Each fault, with the words that its sentence must have.
type Fault = (&'static str, fn(u64) -> (RouteSnapshot, ServerSnapshot), &'static [&'static str]);

const FAULTS: [Fault; 7] = [
    (
        "repeated_query",
        |count| {
            let slow = RouteSnapshot {
                queries: Some(37 * count),
                repeating: count,
                repeats: 36 * count,
                repeats_ms: 0.61 * count as f64 * 50.0,
                repeats_at: Some("app/views/posts/index.html.erb:3: SELECT * FROM users".to_owned()),
                ..route("posts#index", count, 50.0)
            };
            (slow, server(|_| {}))
        },
        &[
            "posts#index makes 37 queries a request, 36 of them",
            "61 % of its time",
            "index.html.erb:3",
            "includes",
        ],
    ),
    (
        "connections",
        |count| (route("posts#index", count, 50.0), server(|server| server.database_connections = Some(2))),
        &["5 threads of a worker share 2 connections", "pool to 5"],
    ),
    (
        "connections",
        |count| {
            let busy = RouteSnapshot { queries_ms: Some(190_000.0), ..route("posts#index", count, 2_000.0) };
            let fibers = |server: &mut ServerSnapshot| {
                server.workers = vec![worker(1_000, 1_000)];
                server.database_connections = Some(2);
            };
            (busy, server(fibers))
        },
        &["2 connections to the database are in use for 95 % of the time"],
    ),
    (
        "gvl",
        |count| {
            let slow = RouteSnapshot {
                holding: count / 2 + 1,
                holding_ms: (count / 2 + 1) as f64 * 70.0,
                longest_hold_ms: 80.0,
                holding_at: Some("app/reports.rb:12: Digest::Instance#digest".to_owned()),
                ..route("reports#export", count, 90.0)
            };
            (slow, server(|_| {}))
        },
        &[
            "reports#export keeps Ruby's lock (GVL) for up to 80 ms",
            "reports.rb:12",
            "Digest::Instance#digest",
        ],
    ),
    (
        "garbage",
        |count| {
            let slow = RouteSnapshot {
                gc_ms: Some(0.2 * count as f64 * 50.0), // a third of its processor time
                allocations: Some(41_000 * count),
                ..route("posts#all", count, 50.0)
            };
            (slow, server(|_| {}))
        },
        &["of the processor time", "posts#all, which allocates 41,000 objects", "rack.out_of_band_gc"],
    ),
    (
        "cache",
        |count| {
            let kept = RouteSnapshot {
                sampled: count / 16,
                cacheable: count / 16,
                would_hit: count / 20,
                ..route("pages#home", count, 20.0)
            };
            (kept, server(|_| {}))
        },
        &["At least 80 % of the requests of pages#home", "spend 20 ms in the app", "[cache] memory"],
    ),
    (
        "pool",
        |count| (route("reports#show", count, 5_000.0), server(|_| {})),
        &["reports#show takes 5 s, other requests take 2 ms and wait 38 ms", "[pools]"],
    ),
];

/// The other routes: quick ones, which wait for the report that has no pool of its own.
fn others(rule: &str) -> Vec<RouteSnapshot> {
    let wait = if rule == "pool" { 38.0 } else { 0.05 };
    vec![RouteSnapshot { queue_ms: times(2_000, wait), ..route("posts#show", 2_000, 2.0) }]
}

#[test]
fn each_fault_is_named_first_with_its_figure() {
    for (rule, fault, words) in FAULTS {
        let (slow, server) = fault(400);
        let all = found([others(rule), vec![slow]].concat(), &server);
        let first = all.first().unwrap_or_else(|| panic!("{rule}: nothing"));
        assert_eq!(first.rule, rule, "{all:?}");
        assert!(words.iter().all(|word| first.text.contains(word)), "{words:?}: {}", first.text);
        assert!(first.text.ends_with('.') && !first.text.contains('\n'), "{}", first.text);
        assert_eq!(all.len(), 1, "only the fault that was planted: {all:?}");
    }
}

#[test]
fn what_a_fault_causes_is_not_named_beside_it() {
    for at in [0, 3] {
        let (slow, server) = FAULTS[at].1(400);
        let slow = RouteSnapshot { app_ms: times(400, 900.0), app_sum_ms: 400.0 * 900.0, ..slow };
        let all = found([others("pool"), vec![slow]].concat(), &server);
        assert_eq!(all.iter().map(|one| &*one.rule).collect::<Vec<_>>(), [FAULTS[at].0]);
    }
}

#[test]
fn few_requests_and_apps_without_faults_get_no_advice() {
    for (rule, fault, _) in FAULTS {
        let (slow, server) = fault(ENOUGH - 1);
        assert_eq!(found(vec![slow], &server), [], "{rule}: of too few requests");
    }
    assert_eq!(found(vec![route("a", 5_000, 5.0), route("b", 5_000, 40.0)], &server(|_| {})), []);
    assert_eq!(found(Vec::new(), &server(|server| server.database_connections = Some(1))), []);
    let alone = server(|server| server.workers = vec![worker(1, 0)]);
    let (hog, _) = FAULTS[3].1(400);
    assert_eq!(found(vec![hog], &alone), [], "nothing waits for the lock of a single thread");
}

proptest! {
    #[test]
    fn whatever_the_figures_findings_are_sorted_and_within_the_time(
        routes in proptest::collection::vec((any::<u32>(), any::<[u32; 8]>(), any::<bool>()), 0..8),
        threads in 0u32..9, fibers in 0u32..3, connections: Option<u8>,
    ) {
        let routes: Vec<RouteSnapshot> = routes.into_iter().enumerate().map(|(at, (count, figures, named))| {
            let [ms, gc, repeating, repeats, time, held, wait, queries] = figures.map(f64::from);
            let count = u64::from(count >> 8);
            RouteSnapshot {
                gc_ms: named.then_some(gc),
                repeating: repeating as u64,
                repeats: repeats as u64,
                repeats_ms: time,
                holding: held as u64 / 7,
                holding_ms: held,
                queries: named.then_some(queries as u64),
                queue_ms: times(count, wait / 1e6),
                ..route(&at.to_string(), count, ms / 1e6)
            }
        }).collect();
        let server = server(|server| {
            server.workers = vec![worker(threads, fibers)];
            server.database_connections = connections.map(u32::from);
        });
        let busy: f64 = routes.iter().map(|route| route.app_sum_ms).sum();
        let all = found(routes, &server);
        prop_assert!(all.len() <= MOST && (busy > 0.0 || all.is_empty()));
        prop_assert!(all.windows(2).all(|two| two[0].saves >= two[1].saves));
        prop_assert!(all.iter().all(|one| (LEAST..=1.0).contains(&one.saves) && (0.0..=1.0).contains(&one.frees) && !one.text.contains("NaN")), "{all:?}");
    }
}
