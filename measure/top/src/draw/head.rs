//! The first two lines: the server, and whether the data is current.

use super::{line, line_right, rows};
use crate::number::{interval, span};
use crate::state::State;
use crate::theme::Theme;
use crate::view::View;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;
use std::time::{Duration, Instant};

pub(super) const ROWS: u16 = 2;
/// How long a restart of the server is shown.
const RESTART_SHOWN: Duration = Duration::from_secs(30);

/// Draws the lines; returns the number of rows used.
pub(super) fn draw(
    buffer: &mut Buffer,
    area: Rect,
    state: &State,
    view: &View,
    theme: Theme,
    live: bool,
    address: &str,
) -> u16 {
    let server = view.server();
    let first = rows(area, 0, 1);
    let up = span(Duration::from_secs_f64(server.uptime().clamp(0.0, 1e12)));
    let name = format!("Firebrick {}", server.version);
    let process = format!("  pid {} · up {up}", server.pid);
    let room = usize::from(area.width).saturating_sub(name.chars().count() + 2 + process.chars().count());
    let dir = Span::raw(format!("  {}", tail(&server.dir, room)));
    line(buffer, first, vec![Span::styled(name, theme.strong()), dir]);
    line_right(buffer, first, vec![Span::raw(process)]);
    let second = rows(area, 1, 1);
    if let Some((since, why)) = &state.unreachable {
        let text = format!("No response for {}: {why}; retrying", span(since.elapsed()));
        line(buffer, second, vec![Span::styled(text, theme.alarm())]);
        return ROWS;
    }
    let serves = if view.has_app() {
        let ruby = &server.ruby;
        let workers = server.workers.len();
        let plural = if workers == 1 { "worker" } else { "workers" };
        format!(
            "{} {} · Rack {} · {} · {workers} {plural}",
            ruby.engine, ruby.version, server.rack, server.environment
        )
    } else if server.handlers.is_some() {
        "handlers on mruby".to_owned()
    } else {
        "static site".to_owned()
    };
    line(buffer, second, vec![Span::styled(serves, theme.faint())]);
    line_right(buffer, second, right(state, view, theme, live, address));
    ROWS
}

fn right(state: &State, view: &View, theme: Theme, live: bool, address: &str) -> Vec<Span<'static>> {
    if let Some(at) = state.restarted.filter(|at| at.elapsed() < RESTART_SHOWN) {
        let text = format!("  server restarted {} ago", span(Instant::now().saturating_duration_since(at)));
        return vec![Span::styled(text, theme.warning())];
    }
    if state.paused {
        return vec![Span::styled("  PAUSED: p resumes", theme.warning())];
    }
    let shown = view.between.as_ref().map_or(state.interval, |between| {
        Duration::from_millis((between.seconds * 10.0).round() as u64 * 100)
    });
    let text = if live {
        format!("  every {}", interval(state.interval))
    } else {
        format!("  {address}, {}", interval(shown))
    };
    vec![Span::styled(text, theme.faint())]
}

/// Returns the end of a path, which is more informative, if the whole path does not fit.
fn tail(path: &str, room: usize) -> String {
    let count = path.chars().count();
    if count <= room {
        return path.to_owned();
    }
    let kept: String = path.chars().skip(count - room.saturating_sub(1).min(count)).collect();
    format!("…{kept}")
}
