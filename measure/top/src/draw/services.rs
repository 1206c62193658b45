//! The services, one line each; services that are not running come first.

use super::name;
use crate::number::{grouped, span};
use crate::theme::Theme;
use ratatui::style::Style;
use ratatui::text::Span;
use stats::{ServiceSnapshot, ServiceState};
use std::time::{Duration, SystemTime};

/// The longest name that is not cut.
const LONGEST_NAME: usize = 24;

/// Returns at most `most` lines; the last one says how many are hidden.
pub(super) fn lines(
    all: &[ServiceSnapshot],
    now: SystemTime,
    theme: Theme,
    most: usize,
) -> Vec<Vec<Span<'static>>> {
    let mut sorted: Vec<&ServiceSnapshot> = all.iter().collect();
    sorted.sort_by_key(|one| one.state == ServiceState::Running);
    let shown = if sorted.len() > most { most.saturating_sub(1) } else { sorted.len() };
    let width = sorted.iter().map(|one| one.name.chars().count()).max().unwrap_or(0).min(LONGEST_NAME);
    let mut lines: Vec<_> = sorted[..shown].iter().map(|one| line(one, now, width, theme)).collect();
    if shown < sorted.len() && most > 0 {
        let text = format!("… {} more", sorted.len() - shown);
        lines.push(vec![name("Service", theme), Span::styled(text, theme.faint())]);
    }
    lines
}

fn line(one: &ServiceSnapshot, now: SystemTime, width: usize, theme: Theme) -> Vec<Span<'static>> {
    let known: String = one.name.chars().take(LONGEST_NAME).collect();
    let runs = one.state == ServiceState::Running;
    let since = span(Duration::from_secs_f64(one.seconds(now).clamp(0.0, 1e12)));
    let state = format!("{:<8} {since:<11}", one.state.name());
    let pid = if one.pid == 0 { String::new() } else { format!("pid {}", one.pid) };
    let restarts = format!("{} restart{}", grouped(one.restarts), if one.restarts == 1 { "" } else { "s" });
    let mut spans = vec![
        name("Service", theme),
        Span::raw(format!("{known:<width$}  ")),
        Span::styled(state, if runs { Style::new() } else { theme.warning() }),
        Span::raw(format!("{pid:<12}{restarts}")),
    ];
    if !one.last_end.is_empty() {
        spans.push(Span::styled(format!("; {}", one.last_end), theme.faint()));
    }
    spans
}
