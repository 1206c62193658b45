//! Screens of several sizes, looked at.

use super::*;
use crate::state::{Found, Over, Past};
use crate::view::tests::{request, view, view_with_handlers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::{Duration, Instant};

fn state(workers: u32) -> State {
    let mut state = State::new(Duration::from_secs(2));
    state.past = (0..500).map(|step| Past { rate: f64::from(step % 40), p95: f64::from(step % 7) }).collect();
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
fn eighty_by_twenty_four_has_all_that_matters() {
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
fn handlers_have_two_lines_where_there_are_any() {
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
    let handlers = calm.view.as_mut().unwrap().look.server.handlers.as_mut().unwrap();
    handlers.threads.truncate(1);
    calm.view.as_mut().unwrap().between = None;
    let shown = text(&calm, 80, 24);
    assert!(shown.contains("Handlers 0/s  failed 0/s   Tasks"), "{shown}");
    assert!(shown.contains("Heap ███░░░░░░░ 20.0 MiB of 64.0 MiB   VMs"), "{shown}");
    assert!(!text(&state(3), 80, 24).contains("Handlers"));
}

#[test]
fn a_site_shows_no_worker_parts() {
    let shown = text(&state(0), 80, 24);
    for absent in ["worker", "Queue", "queue", "app ", "flight", "select", "Ruby"] {
        assert!(!shown.contains(absent), "{absent:?} is in\n{shown}");
    }
    assert!(shown.contains("static site") && shown.contains("123"), "{shown}");
}

#[test]
fn lists_that_do_not_fit_say_how_much_is_missing() {
    let mut many = state(50);
    let requests = (0..40).map(|index| request(&format!("/r{index}"), 1_000.0 - f64::from(index), Some(0)));
    many.view.as_mut().unwrap().look.requests = requests.collect();
    let shown = text(&many, 80, 24);
    assert!(shown.contains("… 46 more; s sorts") && shown.contains("… 36 more"), "{shown}");
    many.selected = 39;
    let shown = text(&many, 80, 24);
    assert!(shown.contains("/r39") && !shown.contains("/r0 ") && shown.contains("more above"), "{shown}");
}

#[test]
fn too_small_a_screen_says_so_and_how_large_it_should_be() {
    for (columns, height) in [(59, 24), (80, 15), (40, 8)] {
        let shown = text(&state(3), columns, height).replace('\n', " ");
        assert!(shown.contains(&format!("{columns}x{height}")) && shown.contains("60x16"), "{shown}");
    }
    assert!(text(&state(3), 60, 16).contains("Requests/s"));
}

#[test]
fn nothing_is_coloured_without_colours_and_the_selection_still_shows() {
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
fn a_server_that_is_gone_is_said_over_its_last_figures() {
    let mut gone = state(3);
    gone.gone = Some((Instant::now(), "nothing listens on /run/c.sock".to_owned()));
    let shown = text(&gone, 80, 24);
    assert!(shown.contains("No answer for 0 s: nothing listens on /run/c.sock; trying on"), "{shown}");
    assert!(shown.contains("Response time, ms"), "{shown}");
    let mut anew = state(3);
    anew.anew = Some(Instant::now());
    assert!(text(&anew, 80, 24).contains("another server since 0 s"));
}

#[test]
fn in_a_trace_the_apps_own_lines_stand_out() {
    let mut traced = state(3);
    let lines = vec![
        "/usr/lib/ruby/sleep.rb:1:in `sleep'".to_owned(),
        "/srv/shop/app/slow.rb:7:in `call'".to_owned(),
        "config.ru:3:in `run'".to_owned(),
    ];
    traced.over =
        Over::Trace { request: request("/slow", 5_000.0, Some(0)), found: Found::Lines(lines), scroll: 0 };
    let shown = text(&traced, 80, 24);
    assert!(
        shown.contains("▶ app/slow.rb:7:in `call'") && shown.contains("/usr/lib/ruby/sleep.rb:1"),
        "{shown}"
    );
    assert!(shown.contains("▶ config.ru:3") && shown.contains("Esc closes"), "{shown}");
    assert!(shown.contains("GET /slow · 5.00 s · worker 0, thread 2"), "{shown}");
    traced.over = Over::Help;
    assert!(text(&traced, 80, 24).contains("where it is in Ruby"));
}

#[test]
fn every_size_is_drawn() {
    for workers in [0, 1, 50] {
        for columns in (1..200).step_by(13) {
            for height in 1..60 {
                drawn(&state(workers), columns, height, true);
                drawn(&state_with_handlers(workers), columns, height, true);
            }
        }
    }
}
