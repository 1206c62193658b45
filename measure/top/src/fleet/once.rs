//! `--once`: waits until every server has answered twice or failed, and prints everything as text or JSON.

use super::model::{Fleet, View};
use super::patience;
use super::poll::{self, Pace, PollResult};
use super::screen::{self, Screen};
use super::target::List;
use crate::Failure;
use crate::once::{columns, lines};
use crate::options::Options;
use crate::theme::Theme;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::{Value, json};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

pub(crate) fn run(list: List, token: Option<String>, options: &Options) -> Result<(), Failure> {
    let reports = poll::start(list, token, Pace::new(options.interval));
    let mut fleet = Fleet::new(options.interval, Instant::now());
    let wrong = gather(&mut fleet, &reports, options.interval);
    let view = fleet.view(Instant::now());
    if view.servers.is_empty() {
        return Err(Failure::Run(wrong.unwrap_or_else(|| "the list names no server".to_owned())));
    }
    let text = if options.json {
        format!("{:#}\n", to_json(&view, options.interval))
    } else {
        text(&view, options.interval, columns())
    };
    output::print(text);
    match view.totals.up {
        0 => Err(Failure::Run("no server answered".to_owned())),
        _ => Ok(()),
    }
}

/// Processes reports until everything that can be known in time is known. Returns the message about the list.
fn gather(fleet: &mut Fleet, reports: &Receiver<PollResult>, interval: Duration) -> Option<String> {
    let began = Instant::now();
    let most = interval + 2 * patience(interval) + Duration::from_secs(1);
    let mut wrong = None;
    loop {
        match reports.recv_timeout(most.saturating_sub(began.elapsed())) {
            Ok(PollResult::List(text)) => wrong = Some(text.clone()).filter(|text| !text.is_empty()),
            Ok(report) => apply(fleet, report),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return wrong,
        }
        if let Some(text) = &wrong {
            fleet.list(text.clone());
        }
        let (answered, all) = fleet.answered();
        // A name that cannot be resolved causes no other reports.
        if (all > 0 && answered == all && began.elapsed() >= interval) || (all == 0 && wrong.is_some()) {
            return wrong;
        }
    }
}

/// Applies a report to the fleet.
pub(super) fn apply(fleet: &mut Fleet, report: PollResult) {
    match report {
        PollResult::Joined(address) => fleet.joined(address, Instant::now()),
        PollResult::Left(address) => fleet.left(&address, Instant::now()),
        PollResult::Sampled(address, at, answer) => fleet.sampled(&address, at, answer),
        PollResult::List(text) => fleet.list(text),
    }
}

/// Returns the JSON that docs/top.md describes.
pub(super) fn to_json(view: &View, interval: Duration) -> Value {
    json!({
        "kind": "firebrick fleet",
        "version": 1,
        "interval_s": interval.as_secs_f64(),
        "totals": view.totals,
        "versions": view.versions,
        "generations": view.generations,
        "notices": view.notices,
        "servers": view.servers,
    })
}

/// Returns the screen as text, as high as needed, without colours and keys.
fn text(view: &View, interval: Duration, columns: u16) -> String {
    let screen = Screen::new(interval);
    let rows = screen::rows_for(view);
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
    let area = buffer.area;
    screen::body(&mut buffer, area, &screen, view, Theme::new(false), false);
    lines(&buffer)
}
