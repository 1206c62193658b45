//! Describes pauses and maintenance for people. Pure.

use stats::{MaintenanceSnapshot, PauseSnapshot, PauseState, Status};
use std::time::{Duration, SystemTime};
use text::people::span;

/// Describes a maintenance: one line, and one for each rule.
pub(crate) fn maintenance(state: &MaintenanceSnapshot, now: SystemTime) -> String {
    if !state.on {
        return "maintenance is off".to_owned();
    }
    let since = state.since.and_then(|since| now.duration_since(since).ok()).unwrap_or_default();
    let mut lines = vec![format!(
        "maintenance is on for {}, by {}: {} requests got the page",
        span(since),
        state.by,
        state.responses
    )];
    let page = if state.own_page { "the server's own" } else { "a file" };
    lines.push(format!("page         {page}, Retry-After: {}", state.retry_after_s));
    if !state.message.is_empty() {
        lines.push(format!("message      {}", state.message));
    }
    if !state.allow.is_empty() {
        lines.push(format!("allow        {}", state.allow.join(", ")));
    }
    if !state.allow_paths.is_empty() {
        let paths: Vec<&str> =
            state.allow_paths.iter().map(|path| if path.is_empty() { "/" } else { path }).collect();
        lines.push(format!("allow paths  {}", paths.join(", ")));
    }
    if !state.ready {
        lines.push("ready        no (maintenance.ready)".to_owned());
    }
    lines.join("\n")
}

/// Returns the lines about interruptions for `firebrick status`; none if there are none.
pub(crate) fn status_lines(status: &Status) -> impl Iterator<Item = String> {
    let pause = &status.pause;
    let paused = (pause.state != PauseState::Off).then(|| match pause.state {
        PauseState::On => format!(
            "pause     {} more: {} waiting, {} in flight",
            span(rest(pause)),
            pause.waiting,
            pause.in_flight
        ),
        _ => format!("pause     {}", pause.summary()),
    });
    let closed = status.maintenance.on.then(|| {
        let text = maintenance(&status.maintenance, status.taken_at);
        format!("service   {}", text.lines().next().unwrap_or_default())
    });
    paused.into_iter().chain(closed)
}

/// Returns the time until a pause ends by itself.
pub(crate) fn rest(pause: &PauseSnapshot) -> Duration {
    Duration::from_secs_f64((pause.remaining_ms / 1e3).clamp(0.0, 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_maintenance_is_described_with_its_rules() {
        let now = SystemTime::now();
        assert_eq!(maintenance(&MaintenanceSnapshot::default(), now), "maintenance is off");
        let on = MaintenanceSnapshot {
            on: true,
            since: now.checked_sub(Duration::from_secs(60)),
            by: "the control socket".to_owned(),
            retry_after_s: 600,
            message: "Back at noon".to_owned(),
            own_page: true,
            allow: vec!["10.0.0.0/8".to_owned(), "::1".to_owned()],
            allow_paths: vec![String::new(), "/up".to_owned()],
            ready: false,
            responses: 7,
        };
        let text = maintenance(&on, now);
        for part in [
            "by the control socket: 7 requests got the page",
            "Retry-After: 600",
            "message      Back at noon",
            "allow        10.0.0.0/8, ::1",
            "allow paths  /, /up",
            "ready        no",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
