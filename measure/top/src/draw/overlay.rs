//! Overlays: help, and the backtrace of a request.

use super::rows;
use crate::number::time;
use crate::state::{Backtrace, Overlay, State};
use crate::theme::Theme;
use crate::view::View;
use control::by_route;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Block, Clear, Paragraph, Widget, Wrap};
use stats::InFlight;

const HELP: &str = "\
All rates (/s) and response times are those of the last interval. Memory is PSS: the private memory of the processes, \
plus their share of shared pages. 100 % CPU of a worker is one CPU.

  q, Esc, Ctrl-C  quit                   s      sort the workers
  ↑ ↓ Home End    select a request       p      pause, resume
  Enter           its Ruby backtrace     + -    change the interval
  r               what the routes take   Ctrl-L redraw
  Ctrl-Z          suspend

worker 0:3 is thread 3 of worker 0. total is the time from the first byte of the request to the last of the response, queue the time \
in the queue, app the time in Ruby.";

pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, theme: Theme) {
    match &state.overlay {
        Overlay::Nothing => {}
        Overlay::Help => {
            boxed(buffer, area, ("Help", "any key closes"), Text::raw(HELP), 0, theme);
        }
        Overlay::Routes => {
            let (routes, seconds) = state.view.as_ref().map(View::routes).unwrap_or_default();
            // The box has two columns of its own, and margins.
            let width = usize::from(area.width - 2 * (area.width / 20)).saturating_sub(2);
            let text = match routes.is_empty() {
                true => Text::raw("No requests in the last interval, or stats.routes is 0."),
                false => Text::raw(by_route::lines(&routes, seconds, width).join("\n")),
            };
            boxed(
                buffer,
                area,
                ("Routes, ms and counts per request", "firebrick routes shows more · any key closes"),
                text,
                0,
                theme,
            );
        }
        Overlay::Trace { request, found, scroll } => {
            let dir = state.view.as_ref().map(|view| view.server().dir.clone()).unwrap_or_default();
            let text = match found {
                Backtrace::Pending => Text::raw("Waiting for the worker …"),
                Backtrace::Unavailable(why) => Text::raw(why.clone()),
                Backtrace::Lines(lines) => frames(lines, &dir, theme),
            };
            boxed(buffer, area, (&title(request), "Enter refreshes · Esc closes"), text, *scroll, theme);
        }
    }
}

fn title(request: &InFlight) -> String {
    let position = match (request.worker, request.thread) {
        (Some(worker), Some(thread)) => format!(" · worker {worker}, thread {thread}"),
        _ => String::new(),
    };
    format!("{} {} · {}{position}", request.method, request.path, time(request.age_ms))
}

/// Formats a backtrace, innermost call first. The app's own lines are highlighted and shown without the app's folder.
fn frames(lines: &[String], dir: &str, theme: Theme) -> Text<'static> {
    let inside = format!("{}/", dir.trim_end_matches('/'));
    // Ruby reports the rackup file relative to the app's folder.
    let relative = |line: &str| !line.starts_with(['/', '<', '(']);
    let own =
        |line: &str| line.strip_prefix(&inside).or_else(|| relative(line).then_some(line)).map(str::to_owned);
    let lines = lines.iter().map(|line| match own(line) {
        Some(own) => Line::from(vec![Span::raw("▶ "), Span::styled(own, theme.strong())]),
        None => Line::from(vec![Span::raw("  "), Span::styled(line.clone(), theme.faint())]),
    });
    Text::from(lines.collect::<Vec<_>>())
}

/// Draws a box as high as the text needs.
fn boxed(
    buffer: &mut Buffer,
    area: Rect,
    (title, keys): (&str, &str),
    text: Text<'_>,
    scroll: usize,
    theme: Theme,
) {
    let margin = (area.width / 20, area.height / 8);
    let width = area.width - 2 * margin.0;
    let inside = usize::from(width.saturating_sub(2)).max(1);
    // Lines are wrapped between words, so a long one may need one more row.
    let needed = |line: &Line<'_>| line.width().div_ceil(inside).max(1) + usize::from(line.width() > inside);
    let height = u16::try_from(text.lines.iter().map(needed).sum::<usize>() + 2).unwrap_or(u16::MAX);
    let height = height.min(area.height - 2 * margin.1);
    let area = Rect { x: area.x + margin.0, width, ..rows(area, margin.1, height) };
    Clear.render(area, buffer);
    let most = usize::from(area.width.saturating_sub(6));
    let title: String = if title.chars().count() > most {
        title.chars().take(most).chain(['…']).collect()
    } else {
        title.to_owned()
    };
    let block = Block::bordered()
        .border_style(theme.heading())
        .title(Span::styled(format!(" {title} "), theme.strong()))
        .title_bottom(Span::styled(format!(" {keys} "), theme.faint()));
    let paragraph = Paragraph::new(text)
        .wrap(Wrap { trim: false })
        .scroll((u16::try_from(scroll).unwrap_or(u16::MAX), 0));
    paragraph.block(block).render(area, buffer);
}
