use super::*;
use crate::route::{RouteOrder, RouteSnapshot};
use proptest::prelude::*;
use wire::used::Used;

fn routes(limit: usize) -> Routes {
    let mut routes = Routes::default();
    routes.set_limit(limit);
    routes
}

fn request(route: RouteOf<'_>) -> Finished<'_> {
    let used = Used { gc_us: Some(50), allocations: Some(700), queries: Some(3), queries_us: Some(150) };
    Finished {
        status: 200,
        total_us: 1_000,
        queue_us: Some(100),
        app_us: Some(800),
        cpu_us: Some(500),
        gvl_us: Some(100),
        sending_us: 30,
        used,
        route,
        ..Finished::default()
    }
}

fn path(path: &str) -> Finished<'_> {
    request(RouteOf::Path { method: b"GET", path: path.as_bytes() })
}

fn row(snapshot: &RoutesSnapshot, name: &str) -> RouteSnapshot {
    let found = snapshot.routes.iter().find(|row| row.route == name);
    found.unwrap_or_else(|| panic!("no {name} in {:?}", names(snapshot))).clone()
}

fn names(snapshot: &RoutesSnapshot) -> Vec<&str> {
    snapshot.routes.iter().map(|row| row.route.as_str()).collect()
}

#[test]
fn paths_become_routes_only_by_responses_of_the_app() {
    let mut kept = routes(10);
    for status in [404, 400, 405, 0] {
        kept.finished(&Finished { status, ..path("/none/5") });
    }
    kept.finished(&path("/posts/1"));
    kept.finished(&Finished { status: 404, ..path("/posts/2") });
    kept.finished(&Finished { status: 404, ..request(RouteOf::Named("posts#show")) });
    kept.finished(&request(RouteOf::Kind(RouteKind::File)));
    let all = merged([kept]);
    assert_eq!(names(&all), ["posts#show", "GET /posts/:id", "(file)", "(not found)"]);
    let (unknown, post) = (row(&all, "(not found)"), row(&all, "GET /posts/:id"));
    assert_eq!((unknown.requests, unknown.client_errors, unknown.no_status), (4, 3, 1));
    assert_eq!((post.requests, post.successful, post.client_errors, post.named), (2, 1, 1, false));
    assert!(row(&all, "posts#show").named);
}

#[test]
fn the_first_requests_of_a_route_are_examples_and_then_some() {
    let mut kept = routes(1);
    for route in [RouteOf::Named("posts#show"), RouteOf::Path { method: b"GET", path: b"/a/7" }] {
        kept.reset();
        let examples: Vec<u64> = (1..200).filter(|_| kept.finished(&request(route))).collect();
        assert_eq!(examples, [1, 2, 3, 4, 5, 6, 7, 64, 128, 192], "{route:?}");
    }
    assert!(!kept.finished(&Finished { status: 404, ..path("/none") }));
    assert!(!kept.finished(&request(RouteOf::Kind(RouteKind::File))));
    assert!(!routes(0).finished(&path("/a")));
}

#[test]
fn parts_add_up_to_the_time() {
    let mut kept = routes(10);
    (0..10).for_each(|_| _ = kept.finished(&path("/a")));
    // Not measured: as much as those before.
    (0..10).for_each(|_| {
        kept.finished(&Finished { cpu_us: None, gvl_us: None, used: Used::default(), ..path("/a") });
    });
    let one = row(&merged([kept]), "GET /a");
    assert_eq!((one.requests, one.measured), (20, 10));
    assert_eq!(
        (one.cpu_ms, one.gvl_ms, one.waiting_ms, one.gc_ms),
        (Some(10.0), Some(2.0), Some(4.0), Some(1.0))
    );
    assert_eq!((one.allocations, one.queries, one.queries_ms), (Some(14_000), Some(30), Some(1.5)));
    assert_eq!((one.app_sum_ms, one.queue_ms.sum, one.sending_ms, one.total_ms.sum), (16.0, 2.0, 0.6, 20.0));
    let parts = one.app_sum_ms + one.queue_ms.sum + one.sending_ms + one.front_ms;
    assert!((parts - one.total_ms.sum).abs() < 1e-9);
    assert_eq!(one.share, 1.0);
}

#[test]
fn names_of_the_app_are_preferred_to_paths() {
    let mut kept = routes(3);
    for name in ["a#a", "a#b"] {
        kept.finished(&request(RouteOf::Named(name)));
    }
    for number in 0..1_000 {
        kept.finished(&path(&format!("/page-{}", "x".repeat(number % 90))));
    }
    let all = merged([kept.clone()]);
    assert!(["a#a", "a#b", "(other)"].iter().all(|name| names(&all).contains(name)), "{:?}", names(&all));
    assert_eq!(all.routes.iter().map(|row| row.requests).sum::<u64>(), 1_002);
    kept.set_limit(1);
    let all = merged([kept.clone()]);
    assert_eq!((all.routes.len(), all.routes[0].named), (2, true));
    // A name's place is not for paths.
    kept.finished(&path("/other"));
    assert!(merged([kept.clone()]).routes[0].named);
    assert_eq!(all.routes.iter().map(|row| row.requests).sum::<u64>(), 1_002);
    kept.set_limit(0);
    kept.finished(&path("/a"));
    assert!(merged([kept]).routes.is_empty());
}

#[test]
fn a_route_that_is_asked_for_often_is_kept_among_many_paths() {
    let mut kept = routes(50);
    let mut random = 1_u64;
    for number in 0..200_000_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Letters: no ids.
        let word: String = (0..12).map(|at| char::from(b'g' + (random >> (4 * at) & 15) as u8)).collect();
        let word = if number % 20 == 0 { "/often/7".to_owned() } else { format!("/{word}") };
        kept.finished(&path(&word));
    }
    assert_eq!((kept.entries.len(), kept.places.len()), (50, 50));
    assert!(kept.entries.capacity() <= 100 && kept.places.capacity() <= 200);
    let all = merged([kept]).sorted(RouteOrder::Requests);
    assert!(row(&all, "GET /often/:id").requests > 9_800, "{:?}", &all.routes[..3]);
    assert_eq!(all.routes.iter().map(|row| row.requests).sum::<u64>(), 200_000);
    assert_eq!(all.routes.iter().map(|row| row.queries.unwrap_or(0)).sum::<u64>(), 600_000);
}

#[test]
fn a_million_random_paths_take_no_more_memory_than_a_few_thousand() {
    let mut kept = routes(50);
    let mut random = 1_u64;
    let mut next = move || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        random >> 33
    };
    // Words, ids, long segments, bytes that are no text, queries.
    let alphabet = b"/ghijklmnopqrstuvwxyz-_.0123456789ABCDEF?%\xe9\0";
    let mut path = Vec::new();
    let memory = |kept: &Routes| {
        assert!(kept.entries.len() <= 50 && kept.places.len() == kept.entries.len());
        let names = kept.entries.iter().map(|entry| entry.name.len());
        assert!(names.max().unwrap_or(0) <= text::route::MOST_BYTES);
        (kept.entries.capacity(), kept.places.capacity())
    };
    let mut early = (0, 0);
    for number in 0..1_000_000 {
        path.clear();
        path.push(b'/');
        for _ in 0..1 + next() % 24 {
            path.push(alphabet[next() as usize % alphabet.len()]);
        }
        kept.finished(&request(RouteOf::Path { method: b"GET", path: &path }));
        if number == 5_000 {
            early = memory(&kept);
        }
    }
    assert_eq!(memory(&kept), early);
    let all = merged([kept]);
    assert!(all.routes.len() <= 51, "{}", all.routes.len());
    assert_eq!(all.routes.iter().map(|row| row.requests).sum::<u64>(), 1_000_000);
}

#[test]
fn threads_are_added_up_by_name() {
    let (mut one, mut two) = (routes(2), routes(2));
    for name in ["/a", "/b", "/a"] {
        one.finished(&path(name));
    }
    for name in ["/a", "/c"] {
        two.finished(&path(name));
    }
    let all = merged([one, two]);
    assert_eq!(names(&all), ["GET /a", "GET /b", "(other)"]);
    assert_eq!([0, 1, 2].map(|at: usize| all.routes[at].requests), [3, 1, 1]);
}

#[test]
fn an_interval_has_what_is_new() {
    let mut kept = routes(5);
    kept.finished(&path("/a"));
    kept.finished(&path("/b"));
    let before = merged([kept.clone()]);
    kept.finished(&Finished { total_us: 9_000, ..path("/a") });
    let new = merged([kept]).since(&before);
    assert_eq!(names(&new), ["GET /a"]);
    let one = &new.routes[0];
    assert_eq!((one.requests, one.queries, one.cpu_ms, one.share), (1, Some(3), Some(0.5), 1.0));
    assert!(one.total_ms.p50 > 8.0 && one.total_ms.p50 < 10.0, "{:?}", one.total_ms);
}

proptest! {
    #[test]
    fn sums_are_exact_and_estimates_never_fall(
        requests in prop::collection::vec((0..12_u8, prop::option::of(0..1_000_u32), 1..1_000_u32, 0..2_u8), 1..300),
        limit in 1..6_usize,
    ) {
        let mut kept = routes(limit);
        let (mut app, mut last) = (0, 0.0);
        for (name, cpu, app_us, named) in &requests {
            let name = format!("/{}", char::from(b'a' + name));
            let route = match named {
                0 => RouteOf::Named(&name),
                _ => RouteOf::Path { method: b"GET", path: name.as_bytes() },
            };
            let cpu_us = cpu.map(|cpu| cpu % (app_us + 1));
            kept.finished(&Finished { app_us: Some(*app_us), cpu_us, total_us: 2_000, ..request(route) });
            app += u64::from(*app_us);
            let all = merged([kept.clone()]);
            let cpu: f64 = all.routes.iter().filter_map(|row| row.cpu_ms).sum();
            prop_assert!(cpu >= last - 0.002 * all.routes.len() as f64, "{cpu} after {last}");
            last = cpu;
        }
        let all = merged([kept]);
        prop_assert_eq!(all.routes.iter().map(|row| row.requests).sum::<u64>(), requests.len() as u64);
        prop_assert!((all.routes.iter().map(|row| row.app_sum_ms).sum::<f64>() - app as f64 / 1e3).abs() < 1e-6);
        for row in &all.routes {
            let parts = row.cpu_ms.unwrap_or(0.0) + row.gvl_ms.unwrap_or(0.0) + row.waiting_ms.unwrap_or(row.app_sum_ms);
            prop_assert!(row.cpu_ms.is_none() || (parts - row.app_sum_ms).abs() < 1e-6);
        }
    }
}
