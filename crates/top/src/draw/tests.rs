//! Screens of several sizes.

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
fn every_size_can_be_drawn() {
    for workers in [0, 1, 50] {
        for columns in (1..200).step_by(13) {
            for height in 1..60 {
                drawn(&state(workers), columns, height, true);
                drawn(&state_with_handlers(workers), columns, height, true);
            }
        }
    }
}
