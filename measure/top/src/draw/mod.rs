//! The screen, from top to bottom: server, curves and times, queue and machine, workers, requests in flight, keys.
//!
//! Contract: any area can be drawn, however small. If space is short, the least important parts are left out first, and lists show how many items
//! are hidden.

mod charts;
mod facts;
mod head;
mod overlay;
mod requests;
mod services;
mod workers;

use crate::state::State;
use crate::theme::Theme;
use crate::view::View;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget, Wrap};

/// The smallest screen in columns and rows; a smaller one shows a message.
pub(crate) const LEAST: (u16, u16) = (60, 16);

/// Draws a message if the screen is too small; returns whether it is.
pub(crate) fn too_small(buffer: &mut Buffer, area: Rect) -> bool {
    let small = area.width < LEAST.0 || area.height < LEAST.1;
    if small {
        let text = format!(
            "This terminal is {}x{}; firebrick top needs {}x{}. Make it larger, or use firebrick top --once. q quits.",
            area.width, area.height, LEAST.0, LEAST.1
        );
        Paragraph::new(text).wrap(Wrap { trim: true }).render(area, buffer);
    }
    small
}

/// Draws the live screen.
pub(crate) fn screen(buffer: &mut Buffer, state: &State, theme: Theme, address: &str) {
    let area = buffer.area;
    if too_small(buffer, area) {
        return;
    }
    let (above, foot) = (rows(area, 0, area.height - 1), rows(area, area.height - 1, 1));
    match &state.view {
        Some(view) => body(buffer, above, state, view, theme, true, address),
        None => match &state.unreachable {
            Some((_, why)) => line(buffer, rows(above, 0, 1), vec![Span::styled(why.clone(), theme.alarm())]),
            None => line(buffer, rows(above, 0, 1), vec![Span::raw(format!("Connecting to {address} …"))]),
        },
    }
    line(buffer, foot, keys(state, theme));
    overlay::draw(buffer, above, state, theme);
}

/// Draws the same without curves and keys, for `--once`.
pub(crate) fn page(buffer: &mut Buffer, state: &State, theme: Theme, address: &str) {
    if let Some(view) = &state.view {
        body(buffer, buffer.area, state, view, theme, false, address);
    }
}

/// Returns the rows that [`page`] needs to show everything.
pub(crate) fn rows_for(view: &View) -> u16 {
    let lists =
        if view.has_app() { 4 + view.server().workers.len() + view.sample.requests.len().max(1) } else { 0 };
    let facts = facts::lines(view, Theme::new(false), 0, usize::MAX).len();
    u16::try_from(lists + facts).unwrap_or(u16::MAX - 100) + head::ROWS + charts::LEAST_ROWS
}

fn body(
    buffer: &mut Buffer,
    area: Rect,
    state: &State,
    view: &View,
    theme: Theme,
    live: bool,
    address: &str,
) {
    let mut used = head::draw(buffer, area, state, view, theme, live, address);
    let charts = if live { charts::rows_in(area.height) } else { charts::LEAST_ROWS };
    charts::draw(buffer, rows(area, used, charts), state, view, theme, live);
    used += charts;
    let facts = facts::lines(view, theme, area.width, services_in(area.height, live));
    for spans in facts {
        line(buffer, rows(area, used, 1), spans);
        used += 1;
    }
    if !view.has_app() {
        return;
    }
    let left = area.height.saturating_sub(used);
    let (for_workers, for_requests) = shares(left, view);
    workers::draw(buffer, rows(area, used, for_workers), state, view, theme);
    used += for_workers;
    requests::draw(buffer, rows(area, used, for_requests), state, view, theme, live);
}

/// Returns the most rows for services.
fn services_in(height: u16, live: bool) -> usize {
    match height {
        _ if !live => usize::MAX,
        0..40 => 2,
        _ => 8,
    }
}

/// Returns the rows for workers and for requests, including headings. If both do not fit, each gets half, or the rows that the other leaves.
fn shares(left: u16, view: &View) -> (u16, u16) {
    let rows = |count: usize| u16::try_from(count + 1).unwrap_or(u16::MAX);
    let for_requests = rows(view.sample.requests.len().max(1)).min(left / 2);
    let workers = rows(view.server().workers.len()).min(left - for_requests);
    (workers, left - workers)
}

fn keys(state: &State, theme: Theme) -> Vec<Span<'static>> {
    let has_app = state.view.as_ref().is_some_and(View::has_app);
    let mut keys = vec![("q", "quit".to_owned())];
    if has_app {
        keys.push(("↑↓", "select".to_owned()));
        keys.push(("Enter", "Ruby".to_owned()));
        keys.push(("s", format!("by {}", state.sort.name())));
        keys.push(("r", "routes".to_owned()));
    }
    keys.push(("p", if state.paused { "resume" } else { "pause" }.to_owned()));
    keys.push(("+-", "time".to_owned()));
    keys.push(("?", "help".to_owned()));
    keys_line(&keys, theme)
}

/// Returns keys and their effects for the last line.
pub(crate) fn keys_line(keys: &[(&str, String)], theme: Theme) -> Vec<Span<'static>> {
    let pairs = keys.iter().flat_map(|(key, what)| {
        [Span::styled(format!(" {key}"), theme.strong()), Span::styled(format!(" {what} "), theme.faint())]
    });
    pairs.collect()
}

/// Returns `count` rows of `area` from row `first`, cut to `area`.
pub(crate) fn rows(area: Rect, first: u16, count: u16) -> Rect {
    let first = first.min(area.height);
    Rect { y: area.y + first, height: count.min(area.height - first), ..area }
}

/// Draws one line of text at the top of `area`.
pub(crate) fn line(buffer: &mut Buffer, area: Rect, spans: Vec<Span<'_>>) {
    if area.height > 0 {
        buffer.set_line(area.x, area.y, &Line::from(spans), area.width);
    }
}

/// Draws one line of text aligned to the right edge of `area`.
pub(crate) fn line_right(buffer: &mut Buffer, area: Rect, spans: Vec<Span<'_>>) {
    let line = Line::from(spans);
    let width = u16::try_from(line.width()).unwrap_or(u16::MAX).min(area.width);
    if area.height > 0 {
        buffer.set_line(area.x + area.width - width, area.y, &line, width);
    }
}

/// The name of a figure or of a line.
fn name(text: &str, theme: Theme) -> Span<'static> {
    Span::styled(format!("{text} "), theme.faint())
}

/// Returns a bar of `width` cells, filled to the fraction `part`.
fn bar(width: usize, part: f64, full: Style, empty: Style) -> [Span<'static>; 2] {
    let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
    let cells = (part * width as f64).round() as usize;
    // A value above 0 is always visible.
    let cells = if part > 0.0 { cells.max(1) } else { cells }.min(width);
    [Span::styled("█".repeat(cells), full), Span::styled("░".repeat(width - cells), empty)]
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
