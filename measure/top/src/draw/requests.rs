//! Requests in flight, slowest first; one is selected.

use super::{line, rows};
use crate::number::time;
use crate::state::State;
use crate::theme::Theme;
use crate::view::View;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;
use stats::{InFlight, RequestPhase};

pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, view: &View, theme: Theme, live: bool) {
    let heading = format!(
        "{:>10}{:>11}  {:<9}{:<8}{}",
        "age", "in queue", "state", "worker", "requests in flight, slowest first"
    );
    line(buffer, area, vec![Span::styled(heading, theme.heading())]);
    let requests = &view.sample.requests;
    if requests.is_empty() {
        return line(
            buffer,
            rows(area, 1, 1),
            vec![Span::styled("         –  no requests in flight", theme.faint())],
        );
    }
    let room = usize::from(area.height.saturating_sub(1));
    let full = requests.len() > room;
    let shown = if full { room.saturating_sub(1) } else { requests.len() };
    // The selected request is always visible.
    let first = if live { (state.selected + 1).saturating_sub(shown) } else { 0 };
    for (row, (index, request)) in (1..).zip(requests.iter().enumerate().skip(first).take(shown)) {
        let here = rows(area, row, 1);
        line(buffer, here, vec![Span::raw(text(request))]);
        if live && index == state.selected {
            buffer.set_style(here, theme.selected());
        }
    }
    if full && room > 0 {
        let below = requests.len() - first - shown;
        let text =
            format!("         … {} more{}", requests.len() - shown, if below == 0 { " above" } else { "" });
        line(buffer, rows(area, area.height - 1, 1), vec![Span::styled(text, theme.faint())]);
    }
}

fn text(request: &InFlight) -> String {
    let worker = match (request.worker, request.thread) {
        (Some(worker), Some(thread)) => format!("{worker}:{thread}"),
        (Some(worker), None) => worker.to_string(),
        _ => "–".to_owned(),
    };
    format!(
        "{:>10}{:>11}  {:<9}{worker:<8}{} {}",
        time(request.age_ms),
        time(request.queue_ms),
        phase(request.state),
        request.method,
        request.path
    )
}

pub(super) fn phase(phase: RequestPhase) -> &'static str {
    match phase {
        RequestPhase::Queued => "queued",
        RequestPhase::App => "app",
        RequestPhase::Sending => "sending",
    }
}
