//! Tests of screens of several sizes.

use super::*;
use crate::state::{Backtrace, CurvePoint, Overlay};
use crate::view::tests::{request, view, view_with_handlers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::{Duration, Instant};

fn state(workers: u32) -> State {
    let mut state = State::new(Duration::from_secs(2));
    state.curve =
        (0..500).map(|step| CurvePoint { rate: f64::from(step % 40), p95: f64::from(step % 7) }).collect();
    state.view = Some(view(workers));
    state
}

fn state_with_handlers(workers: u32) -> State {
    let mut state = state(workers);
    state.view = Some(view_with_handlers(workers));
    state
}

fn drawn(state: &State, columns: u16, height: u16, colour: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, height)).unwrap();
    terminal.draw(|frame| screen(frame.buffer_mut(), state, Theme::new(colour), "/run/c.sock")).unwrap();
    terminal.backend().buffer().clone()
}

fn text(state: &State, columns: u16, height: u16) -> String {
    crate::once::lines(&drawn(state, columns, height, true))
}

#[test]
fn the_usual_size_shows_everything_important() {
    let shown = text(&state(3), 80, 24);
    for wanted in [
        "Firebrick 0.1.0  /srv/shop",
        "pid 99",
        "up 1 h",
        "ruby 3.1.2 · Rack 2.2.4 · production · 3 workers",
        "every 2 s",
        "Requests/s",
        "123  peak 39",
        "Response time, ms",
        "mean    p50    p95    p99     max",
        "12.0",
        "Queue 0 of 10,000 waiting",
        "Connections 0 open",
        "CPU █████░░░░░ 50 % of 2 CPUs",
        "Memory ███░░░░░░░ 153 MiB of 512 MiB",
        "5xx 1.00",
        "busy threads",
        "4000    ready    ░░░░░ 0/5",
        "█░░░░ 1/5",
        "booting",
        "75 %",
        "40.0 MiB",
        "12.3 s",
        "0:2",
        "GET /slow?",
        "/reports/2026",
        "queued",
        "q quit",
        "s by number",
        "p pause",
        "? help",
    ] {
        assert!(shown.contains(wanted), "{wanted:?} is missing in\n{shown}");
    }
    assert_eq!(shown.lines().count(), 24);
}

#[test]
fn fibers_are_counted_and_columns_stay_aligned() {
    let mut state = state(3);
    let view = state.view.as_mut().unwrap();
    for worker in &mut view.sample.server.workers {
        (worker.fibers, worker.threads_max) = (5_000, 10_000);
    }
    view.sample.server.workers[1].busy_threads = 9_999;
    let shown = text(&state, 80, 24);
    assert!(shown.contains("busy fibers") && !shown.contains("busy threads"), "{shown}");
    assert!(shown.contains(" 9999/10000") && shown.contains(" 0/10000"), "{shown}");
    let line = |of: &str| shown.lines().find(|line| line.contains(of)).unwrap().to_owned();
    let end = |line: &str, of: &str| line[..line.find(of).unwrap() + of.len()].chars().count();
    let (heading, row) = (line("busy fibers"), line("9999/10000"));
    assert_eq!(end(&heading, "memory"), end(&row, "MiB"), "{shown}");
}

#[test]
fn workers_of_several_pools_are_told_apart() {
    let mut state = state(3);
    let view = state.view.as_mut().unwrap();
    let server = &mut view.sample.server;
    server.pools = ["default", "fibers"].map(pool).into();
    let worker = &mut server.workers[1];
    (worker.fibers, worker.threads_max, worker.busy_threads) = (1_000, 1_000, 40);
    worker.pool = "fibers".to_owned();
    let shown = text(&state, 100, 24);
    assert!(shown.contains("busy seats") && shown.contains(" 40/1000 "), "{shown}");
    let line = |of: &str| shown.lines().find(|line| line.contains(of)).unwrap().to_owned();
    let end = |line: &str, of: &str| line[..line.find(of).unwrap() + of.len()].chars().count();
    assert_eq!(end(&line("busy seats"), "pool"), end(&line("40/1000"), "fibers"), "{shown}");
    assert_eq!(end(&line("busy seats"), "memory"), end(&line("40/1000"), "MiB"), "{shown}");
}

fn pool(name: &str) -> stats::PoolSnapshot {
    let figures = serde_json::json!({
        "name": name, "workers": 1, "busy": 0, "seats": 5, "length": 0, "oldest_wait_ms": 0.0, "longest": 0,
        "max": 10, "refused_full": 0, "refused_early": 0, "expired": 0,
    });
    serde_json::from_value(figures).unwrap()
}

#[test]
fn the_clients_that_wait_have_a_line_as_long_as_there_is_room() {
    let mut state = state(3);
    let server = &mut state.view.as_mut().unwrap().sample.server;
    (server.queue.length, server.queue.clients) = (1_234, 12);
    server.waiters = (0..10)
        .map(|number| stats::WaiterSnapshot {
            client: format!("192.0.2.{number}"),
            waiting: 1_000 >> number,
            ..stats::WaiterSnapshot::default()
        })
        .collect();
    let line = |state: &State, columns| {
        let shown = text(state, columns, 40);
        shown.lines().find(|line| line.starts_with("Waiting ")).unwrap().trim_end().to_owned()
    };
    assert_eq!(line(&state, 80), "Waiting 192.0.2.0 1,000, 192.0.2.1 500, 192.0.2.2 250 and 9 more");
    assert!(line(&state, 200).ends_with("192.0.2.9 1 and 2 more"), "{}", line(&state, 200));
    let class = |name: &str, waiting| stats::QueueClassSnapshot {
        name: name.to_owned(),
        waiting,
        ..stats::QueueClassSnapshot::default()
    };
    let server = &mut state.view.as_mut().unwrap().sample.server;
    server.queue_classes = vec![class("default", 1_200), class("paid", 34), class("bots", 0)];
    assert!(line(&state, 200).ends_with("   by class: default 1,200, paid 34"), "{}", line(&state, 200));
    let server = &mut state.view.as_mut().unwrap().sample.server;
    (server.waiters, server.queue.clients) = (Vec::new(), 0);
    assert!(!text(&state, 80, 40).contains("Waiting "));
}

#[test]
fn a_large_screen_shows_more() {
    let shown = text(&state(3), 200, 60);
    for wanted in ["Response time p95", "RSS", "10 min", "restarts"] {
        assert!(shown.contains(wanted), "{wanted:?} is missing in\n{shown}");
    }
    assert!(!text(&state(3), 80, 24).contains("Response time p95"));
}

#[test]
fn handlers_have_two_lines() {
    let shown = text(&state_with_handlers(3), 80, 24);
    for wanted in [
        "Handlers 60.0/s  failed 2.00/s  refused 1.00/s   Tasks 40 of 80, 30 waiting",
        "Heap ██████████ 61.0 MiB of 64.0 MiB (fullest of 2 threads)   VMs replaced 1",
        "busy threads",
        "GET /slow?",
    ] {
        assert!(shown.contains(wanted), "{wanted:?} is missing in\n{shown}");
    }
    assert!(text(&state_with_handlers(0), 60, 16).contains("handlers on mruby"));
    let mut calm = state_with_handlers(0);
    let handlers = calm.view.as_mut().unwrap().sample.server.handlers.as_mut().unwrap();
    handlers.threads.truncate(1);
    calm.view.as_mut().unwrap().between = None;
    let shown = text(&calm, 80, 24);
    assert!(shown.contains("Handlers 0/s  failed 0/s   Tasks"), "{shown}");
    assert!(shown.contains("Heap ███░░░░░░░ 20.0 MiB of 64.0 MiB   VMs"), "{shown}");
    assert!(!text(&state(3), 80, 24).contains("Handlers"));
}

/// Returns the server's report of a reload, from JSON.
fn reloads(json: serde_json::Value) -> stats::ReloadsSnapshot {
    let mut whole = serde_json::to_value(stats::ReloadsSnapshot::default()).unwrap();
    whole.as_object_mut().unwrap().extend(json.as_object().unwrap().clone());
    serde_json::from_value(whole).unwrap()
}

fn death(cause: &str, at: &str, text: &str) -> stats::Death {
    serde_json::from_value(serde_json::json!({
        "at": at, "worker": 1, "pid": 4_001, "generation": 1, "age_s": 60.0, "requests": 7, "cause": cause, "exit_code": null,
        "signal": 9, "peak_rss_bytes": 0, "rss_bytes": null, "pss_bytes": null, "oom_kills_before": null, "oom_kills_after": null,
        "in_flight": [], "text": text,
    }))
    .unwrap()
}

#[test]
fn a_reload_is_shown_with_its_step_and_its_end() {
    let mut state = state(3);
    assert!(!text(&state, 80, 24).contains("Reload") && !text(&state, 80, 24).contains("gen"));
    let sample = &mut state.view.as_mut().unwrap().sample;
    let (stage, step) = ("watching", "one worker serves up to 10 % of the requests for 6 s more");
    sample.server.workers[2].phase = 1;
    sample.server.phase = 1;
    sample.server.reloads = reloads(serde_json::json!({
        "running": { "stage": stage, "text": step, "started_at": "2026-01-31T11:59:00Z" },
    }));
    let shown = text(&state, 80, 24);
    assert!(shown.contains(&format!("Reload {stage}: {step}")), "{shown}");
    assert!(shown.contains("  gen") && shown.contains("    2 ") && shown.contains("waiting"), "{shown}");
    assert!(text(&state, 120, 24).contains("restarts"), "there is room for both");
    let ended = |at: &str, running| {
        let last =
            serde_json::json!({ "at": at, "outcome": "reverted", "text": "30 % failed", "took_s": 9.5 });
        reloads(serde_json::json!({ "last": last, "running": running }))
    };
    let settling =
        serde_json::json!({ "stage": "settling", "text": "x", "started_at": "2026-01-31T11:59:00Z" });
    state.view.as_mut().unwrap().sample.server.reloads = ended("2026-01-31T11:58:00Z", settling);
    assert!(
        text(&state, 80, 24).contains("Reload reverted 2 min ago: 30 % failed"),
        "{}",
        text(&state, 80, 24)
    );
    state.view.as_mut().unwrap().sample.server.reloads =
        ended("2026-01-31T10:58:00Z", serde_json::Value::Null);
    assert!(!text(&state, 80, 24).contains("Reload"), "no news any more");
}

#[test]
fn a_pause_and_a_maintenance_are_shown_while_they_last() {
    let mut state = state(3);
    assert!(!text(&state, 80, 24).contains("Pause") && !text(&state, 80, 24).contains("Maintenance"));
    let server = &mut state.view.as_mut().unwrap().sample.server;
    let paused = serde_json::json!({ "state": "on", "waiting": 12, "remaining_ms": 41_000 });
    server.pause = serde_json::from_value(paused).unwrap();
    server.maintenance = serde_json::from_value(serde_json::json!({ "on": true, "responses": 7 })).unwrap();
    let shown = text(&state, 100, 24);
    assert!(shown.contains("Pause paused: 0 requests in flight, 12 waiting; 41 s more"), "{shown}");
    assert!(shown.contains("Maintenance on for") && shown.contains("7 requests got the page"), "{shown}");
}

#[test]
fn upgrades_are_news_and_reforks_only_when_they_fail() {
    let mut state = state(3);
    let change = |outcome: &str, running: serde_json::Value| {
        serde_json::json!({
            "counts": {"done": 1, "failed": 1}, "running": running,
            "last": {"at": "2026-01-31T11:58:00Z", "outcome": outcome, "text": "because", "took_s": 1.0},
        })
    };
    let none = serde_json::Value::Null;
    let running = serde_json::json!({"stage": "booting", "text": "the workers start", "started_at": "2026-01-31T11:59:00Z"});
    let set = |state: &mut State, upgrades, reforks| {
        let server = &mut state.view.as_mut().unwrap().sample.server;
        server.upgrades = serde_json::from_value(upgrades).unwrap();
        server.reforks = serde_json::from_value(reforks).unwrap();
    };
    set(&mut state, change("done", none.clone()), change("done", none.clone()));
    let shown = text(&state, 80, 24);
    assert!(shown.contains("Upgrade done 2 min ago: because") && !shown.contains("Refork"), "{shown}");
    set(&mut state, change("done", running), change("reverted", none));
    let shown = text(&state, 80, 24);
    for line in ["Upgrade booting: the workers start", "Refork reverted 2 min ago: because"] {
        assert!(shown.contains(line), "{line:?} is missing in\n{shown}");
    }
}

/// Returns a service that has been in a state for two minutes.
fn service(name: &str, state: &str, pid: u32, restarts: u64, last_end: &str) -> stats::ServiceSnapshot {
    serde_json::from_value(serde_json::json!({
        "name": name, "state": state, "pid": pid, "since": "2026-01-31T11:58:00Z", "restarts": restarts, "last_end": last_end,
    }))
    .unwrap()
}

#[test]
fn services_have_a_line_each_and_those_that_do_not_run_come_first() {
    let mut state = state(3);
    assert!(!text(&state, 80, 24).contains("Service"));
    state.view.as_mut().unwrap().sample.server.services = vec![
        service("jobs", "running", 77, 1, ""),
        service("push", "waiting", 0, 1_234, "ended with exit code 3"),
    ];
    let shown = text(&state, 80, 24);
    let [push, jobs] = [
        "Service push  waiting  2 min                  1,234 restarts; ended with exit code 3",
        "Service jobs  running  2 min      pid 77      1 restart",
    ]
    .map(|line| {
        shown.find(&line[..line.len().min(80)]).unwrap_or_else(|| panic!("{line:?} is missing in\n{shown}"))
    });
    assert!(push < jobs, "{shown}");
    let many = (0..12).map(|index| service(&format!("s{index}"), "running", 100 + index, 0, ""));
    state.view.as_mut().unwrap().sample.server.services = many.collect();
    let shown = text(&state, 80, 24);
    assert!(
        shown.contains("Service s0") && shown.contains("Service … 11 more") && shown.contains("busy threads"),
        "{shown}"
    );
    let shown = text(&state, 200, 50);
    assert!(shown.contains("Service s6") && shown.contains("Service … 5 more"), "{shown}");
}

#[test]
fn a_range_of_workers_says_why_it_changed() {
    let mut state = state(3);
    let sizing = |json: serde_json::Value| Some(serde_json::from_value(json).unwrap());
    let server = &mut state.view.as_mut().unwrap().sample.server;
    server.sizing = sizing(serde_json::json!({"wanted": 3, "min": 3, "max": 3, "pinned": false}));
    assert!(!text(&state, 80, 24).contains("Workers 3"));
    let last = serde_json::json!({"at": "2026-01-31T11:59:00Z", "from": 2, "to": 3, "why": "requests wait"});
    let server = &mut state.view.as_mut().unwrap().sample.server;
    server.sizing =
        sizing(serde_json::json!({"wanted": 3, "min": 2, "max": 8, "pinned": false, "last": last}));
    let shown = text(&state, 80, 24);
    assert!(shown.contains("Workers 3 of 2:8   grew 2 → 3, 1 min ago: requests wait"), "{shown}");
    let server = &mut state.view.as_mut().unwrap().sample.server;
    server.sizing = sizing(serde_json::json!({"wanted": 2, "min": 2, "max": 8, "pinned": true}));
    let shown = text(&state, 80, 24);
    assert!(shown.contains("Workers 2 of 2:8, set by a signal until the next reload"), "{shown}");
}

#[test]
fn the_last_unexpected_death_is_shown_for_an_hour() {
    let mut state = state(3);
    let recent = "2026-01-31T11:59:30Z";
    state.view.as_mut().unwrap().sample.deaths = vec![
        death("drain", recent, "worker 0 finished"),
        death("signal", recent, "worker 1 (pid 4001) was killed by signal 9 (SIGKILL)"),
    ];
    let shown = text(&state, 80, 24);
    assert!(shown.contains("Died 30 s ago: worker 1 (pid 4001) was killed by signal 9 (SIGKILL)"), "{shown}");
    state.view.as_mut().unwrap().sample.deaths[1].at -= Duration::from_secs(3_600);
    assert!(!text(&state, 80, 24).contains("Died"));
}

#[test]
fn a_static_site_shows_no_workers() {
    let shown = text(&state(0), 80, 24);
    for absent in ["worker", "Queue", "queue", "app ", "flight", "select", "Ruby"] {
        assert!(!shown.contains(absent), "{absent:?} is in\n{shown}");
    }
    assert!(shown.contains("static site") && shown.contains("123"), "{shown}");
}

#[test]
fn lists_that_do_not_fit_show_how_many_are_hidden() {
    let mut many = state(50);
    let requests = (0..40).map(|index| request(&format!("/r{index}"), 1_000.0 - f64::from(index), Some(0)));
    many.view.as_mut().unwrap().sample.requests = requests.collect();
    let shown = text(&many, 80, 24);
    assert!(shown.contains("… 46 more; s sorts") && shown.contains("… 36 more"), "{shown}");
    many.selected = 39;
    let shown = text(&many, 80, 24);
    assert!(shown.contains("/r39") && !shown.contains("/r0 ") && shown.contains("more above"), "{shown}");
}

#[test]
fn a_small_screen_shows_a_message() {
    for (columns, height) in [(59, 24), (80, 15), (40, 8)] {
        let shown = text(&state(3), columns, height).replace('\n', " ");
        assert!(shown.contains(&format!("{columns}x{height}")) && shown.contains("60x16"), "{shown}");
    }
    assert!(text(&state(3), 60, 16).contains("Requests/s"));
}

#[test]
fn without_colours_the_selection_is_still_visible() {
    use ratatui::style::{Color, Modifier};
    let mut selected = state(3);
    selected.selected = 1;
    let plain = drawn(&selected, 80, 24, false);
    assert!(plain.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    let reversed = plain.content().iter().filter(|cell| cell.modifier.contains(Modifier::REVERSED));
    assert_eq!(reversed.count(), 80);
    assert!(drawn(&selected, 80, 24, true).content().iter().any(|cell| cell.fg != Color::Reset));
}

#[test]
fn an_unreachable_server_is_shown_with_its_last_data() {
    let mut unreachable = state(3);
    unreachable.unreachable = Some((Instant::now(), "nothing listens on /run/c.sock".to_owned()));
    let shown = text(&unreachable, 80, 24);
    assert!(shown.contains("No response for 0 s: nothing listens on /run/c.sock; retrying"), "{shown}");
    assert!(shown.contains("Response time, ms"), "{shown}");
    let mut restarted = state(3);
    restarted.restarted = Some(Instant::now());
    assert!(text(&restarted, 80, 24).contains("server restarted 0 s ago"));
}

#[test]
fn the_apps_own_lines_are_highlighted_in_a_backtrace() {
    let mut traced = state(3);
    let lines = vec![
        "/usr/lib/ruby/sleep.rb:1:in `sleep'".to_owned(),
        "/srv/shop/app/slow.rb:7:in `call'".to_owned(),
        "config.ru:3:in `run'".to_owned(),
    ];
    traced.overlay = Overlay::Trace {
        request: request("/slow", 5_000.0, Some(0)),
        found: Backtrace::Lines(lines),
        scroll: 0,
    };
    let shown = text(&traced, 80, 24);
    assert!(
        shown.contains("▶ app/slow.rb:7:in `call'") && shown.contains("/usr/lib/ruby/sleep.rb:1"),
        "{shown}"
    );
    assert!(shown.contains("▶ config.ru:3") && shown.contains("Esc closes"), "{shown}");
    assert!(shown.contains("GET /slow · 5.00 s · worker 0, thread 2"), "{shown}");
    traced.overlay = Overlay::Help;
    assert!(text(&traced, 80, 24).contains("its Ruby backtrace"));
}

#[test]
fn routes_are_shown() {
    let mut state = state(1);
    state.overlay = Overlay::Routes;
    assert!(text(&state, 110, 24).contains("stats.routes is 0"), "{}", text(&state, 110, 24));
    let route = stats::RouteSnapshot {
        route: "posts#show".to_owned(),
        requests: 10,
        app_sum_ms: 20.0,
        share: 1.0,
        queries: Some(370),
        app_ms: stats::DurationSummary { count: 10, ..Default::default() },
        ..Default::default()
    };
    if let Some(view) = &mut state.view {
        view.sample.server.routes = vec![route.clone()];
        view.routes_before = Some(vec![stats::RouteSnapshot { route: route.route, ..Default::default() }]);
    }
    let shown = text(&state, 110, 24);
    assert!(shown.contains("posts#show") && shown.contains(" 37 ") && shown.contains("100%"), "{shown}");
}

#[test]
fn every_size_can_be_drawn() {
    for workers in [0, 1, 50] {
        for columns in (1..200).step_by(13) {
            // Each height with a third of the widths.
            for height in (1 + columns % 3..60).step_by(3) {
                drawn(&state(workers), columns, height, true);
                drawn(&state_with_handlers(workers), columns, height, true);
            }
        }
    }
}
