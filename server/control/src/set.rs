//! `firebrick set`: sends a change of settings to the running server, and prints the changes.
//!
//! Contract: the exit code is 0 if the server carried the order out, else 1. A change that is refused, or only
//! tried (`--dry-run`), changes nothing.

use crate::changes::{ChangeRecord, ChangeReport, ChangedValue, ChangesReport, SetOrder, UndoOrder};
use crate::client::{ControlClient, ask, order, show};
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A command of `firebrick set`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetAction {
    /// Show the changes in force.
    Show,
    /// Show the last changes, and how they ended.
    History,
    Set(SetOrder),
    Undo(UndoOrder),
}

/// Runs `firebrick set` for the server in `dir`.
pub fn set_command(dir: &Path, client: &ControlClient, action: &SetAction, json: bool) -> ExitCode {
    show(match action {
        SetAction::Show => ask(dir, client, "/settings", json, |report: ChangesReport| {
            in_force(&report).unwrap_or_else(|| "no setting is changed\n".to_owned())
        }),
        SetAction::History => ask(dir, client, "/settings", json, |report: ChangesReport| history(&report)),
        SetAction::Set(set) => changed(dir, client, "/settings", set, json),
        SetAction::Undo(undo) => changed(dir, client, "/settings/undo", undo, json),
    })
}

fn changed(
    dir: &Path,
    client: &ControlClient,
    target: &str,
    wish: &impl Serialize,
    json: bool,
) -> Result<String, String> {
    let report: ChangeReport = order(dir, client, target, wish)?;
    if json {
        return Ok(format!("{}\n", serde_json::to_string_pretty(&report).unwrap_or_default()));
    }
    Ok(described(&report))
}

/// Returns the changes in force of the running server, a line for each, for `firebrick check` and `explain`.
/// `None` without a server or a change.
pub fn changes_in_force(client: &ControlClient) -> Option<String> {
    in_force(&serde_json::from_str(&client.get("/settings").ok()?).ok()?)
}

fn in_force(report: &ChangesReport) -> Option<String> {
    let lines: Vec<String> = report
        .changes
        .iter()
        .filter(|change| change.end.is_none())
        .map(|change| line(change, true))
        .collect();
    (!lines.is_empty()).then(|| lines.concat())
}

fn history(report: &ChangesReport) -> String {
    if report.changes.is_empty() {
        return "no setting has been changed\n".to_owned();
    }
    report.changes.iter().map(|change| line(change, false)).collect()
}

/// Describes a change in a line for each of its settings; `brief`: as one that is in force.
fn line(change: &ChangeRecord, brief: bool) -> String {
    let mut text = String::new();
    for value in &change.values {
        let ChangedValue { key, old, new, .. } = value;
        // Writing to a String cannot fail.
        let _ = match brief {
            true => writeln!(text, "{:>4}  {key} = {new}  {}{}", change.number, change.text, rest(change)),
            false => {
                let ended = change.end.as_ref().map_or_else(
                    || format!("in force{}", rest(change)),
                    |end| format!("{} {} ago", end.how, text::people::span(since(end.at_ms))),
                );
                writeln!(text, "{:>4}  {key}: {old} -> {new}  {}; {ended}", change.number, change.text)
            }
        };
    }
    text
}

fn rest(change: &ChangeRecord) -> String {
    let Some(until) = change.until_ms else { return String::new() };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let left = Duration::from_millis(until).saturating_sub(now);
    format!(" ({} more)", text::people::span(left))
}

fn since(at_ms: u64) -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_millis(at_ms))
}

fn described(report: &ChangeReport) -> String {
    let ChangeReport { dry_run, change, restored, warnings } = report;
    let mut text = String::new();
    let values = if change.end.is_some() { restored } else { &change.values };
    for ChangedValue { key, old, old_source, new } in values {
        let _ = writeln!(text, "{key}: {old} ({old_source}) -> {new}");
    }
    for warning in warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    let number = change.number;
    let _ = match (&change.end, dry_run) {
        (None, true) => writeln!(text, "nothing has changed (--dry-run): it would take effect at once"),
        (Some(_), true) => writeln!(text, "nothing has changed (--dry-run): change {number} would be undone"),
        (Some(_), false) => writeln!(text, "change {number} is undone"),
        (None, false) => writeln!(
            text,
            "change {number} is in force{}: firebrick set --undo {number} takes it back",
            rest(change)
        ),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::ChangeEnd;

    fn record(end: Option<ChangeEnd>) -> ChangeRecord {
        let value = ChangedValue {
            key: "limits.max_body".to_owned(),
            old: "1GiB".to_owned(),
            old_source: "default".to_owned(),
            new: "20MiB".to_owned(),
        };
        ChangeRecord {
            number: 3,
            at_ms: 0,
            by: "root".to_owned(),
            why: None,
            until_ms: None,
            values: vec![value],
            end,
            text: "set by root at noon".to_owned(),
        }
    }

    #[test]
    fn changes_are_described() {
        let end = ChangeEnd { at_ms: 0, how: "undone by amy".to_owned() };
        let both = ChangesReport { changes: vec![record(None), record(Some(end.clone()))] };
        assert_eq!(in_force(&both).unwrap(), "   3  limits.max_body = 20MiB  set by root at noon\n");
        assert!(
            history(&both).contains("limits.max_body: 1GiB -> 20MiB  set by root at noon; undone by amy ")
        );
        assert_eq!(in_force(&ChangesReport::default()), None);
        assert_eq!(history(&ChangesReport::default()), "no setting has been changed\n");
        let mut report = ChangeReport {
            dry_run: true,
            change: record(None),
            restored: Vec::new(),
            warnings: vec!["odd".to_owned()],
        };
        let text = described(&report);
        assert!(
            text.starts_with("limits.max_body: 1GiB (default) -> 20MiB\nwarning: odd\nnothing has changed")
        );
        report.dry_run = false;
        assert!(described(&report).ends_with("change 3 is in force: firebrick set --undo 3 takes it back\n"));
        report.change = record(Some(end));
        assert!(described(&report).ends_with("change 3 is undone\n"));
    }
}
