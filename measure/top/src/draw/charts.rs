//! Curves of the recent samples, and the response times of the last interval.

use super::{line, rows};
use crate::number::{significant, time};
use crate::state::{CurvePoint, State};
use crate::theme::Theme;
use crate::view::View;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Span;
use ratatui::widgets::{Block, RenderDirection, Sparkline, Widget};
use stats::DurationSummary;

/// The border, headings, and three rows of times.
pub(super) const LEAST_ROWS: u16 = 6;
/// Columns of the table of times, including the border.
const TIMES: u16 = 44;
/// Screens of at least this width show a second curve.
const WIDE: u16 = 130;

/// Returns the rows for curves and times on a screen of this height.
pub(super) fn rows_in(height: u16) -> u16 {
    match height {
        0..=31 => LEAST_ROWS,
        32..=47 => 9,
        _ => 12,
    }
}

pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, view: &View, theme: Theme, curves: bool) {
    if !curves {
        return times(buffer, area, view, theme);
    }
    let [left, right] =
        area.layout(&Layout::horizontal([Constraint::Min(10), Constraint::Length(TIMES.min(area.width))]));
    times(buffer, right, view, theme);
    let rate = view.rate().map_or_else(|| "…".to_owned(), significant);
    let peak = |value: fn(&CurvePoint) -> f64| state.curve.iter().map(value).fold(0.0, f64::max);
    let requests = ("Requests/s", rate, significant(peak(|curve| curve.rate)));
    if area.width < WIDE {
        return curve(buffer, left, requests, state, |curve| curve.rate, theme);
    }
    let [one, other] = left.layout(&Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]));
    curve(buffer, one, requests, state, |curve| curve.rate, theme);
    let p95 = view.between.as_ref().map_or_else(|| "…".to_owned(), |between| time(between.total_ms.p95));
    let times = ("Response time p95", p95, time(peak(|curve| curve.p95)));
    curve(buffer, other, times, state, |curve| curve.p95, theme);
}

/// Draws a curve with the newest value at the right, scaled to the largest visible value.
fn curve(
    buffer: &mut Buffer,
    area: Rect,
    (title, now, peak): (&str, String, String),
    state: &State,
    value: fn(&CurvePoint) -> f64,
    theme: Theme,
) {
    let inner = block(buffer, area, title, theme);
    let figures =
        vec![Span::styled(now, theme.strong()), Span::styled(format!("  peak {peak}"), theme.faint())];
    line(buffer, inner, figures);
    // The sparkline takes integers; a thousandth is finer than any screen.
    let newest_first = state.curve.iter().rev().map(|curve| (value(curve) * 1_000.0).max(0.0) as u64);
    Sparkline::default()
        .data(newest_first)
        .direction(RenderDirection::RightToLeft)
        .style(theme.bar())
        .render(rows(inner, 1, inner.height), buffer);
}

fn times(buffer: &mut Buffer, area: Rect, view: &View, theme: Theme) {
    let inner = block(buffer, area, "Response time, ms", theme);
    let heading = format!("{:<6}{:>7}{:>7}{:>7}{:>7}{:>8}", "", "mean", "p50", "p95", "p99", "max");
    line(buffer, inner, vec![Span::styled(heading, theme.faint())]);
    let Some(between) = &view.between else { return };
    let all = [("total", &between.total_ms), ("queue", &between.queue_ms), ("app", &between.app_ms)];
    let shown = &all[..if view.has_app() { 3 } else { 1 }];
    for (row, (name, summary)) in (1..).zip(shown) {
        let style = if row == 1 { theme.strong() } else { ratatui::style::Style::new() };
        line(
            buffer,
            rows(inner, row, 1),
            vec![Span::styled(format!("{name:<6}"), theme.faint()), Span::styled(figures(summary), style)],
        );
    }
}

fn figures(times: &DurationSummary) -> String {
    if times.count == 0 {
        return format!("{:>7}{:>7}{:>7}{:>7}{:>8}", "–", "–", "–", "–", "–");
    }
    let [mean, p50, p95, p99, max] =
        [times.mean, times.p50, times.p95, times.p99, times.max].map(significant);
    format!("{mean:>7}{p50:>7}{p95:>7}{p99:>7}{max:>8}")
}

/// Draws a frame with a title; returns the area inside.
fn block(buffer: &mut Buffer, area: Rect, title: &str, theme: Theme) -> Rect {
    let block = Block::bordered()
        .border_style(theme.faint())
        .title(Span::styled(format!(" {title} "), theme.heading()));
    let inner = block.inner(area);
    block.render(area, buffer);
    inner
}
