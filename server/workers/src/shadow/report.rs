//! The list of differences, for people.

use super::parts::STATUS;
use super::routes::ShadowedRoute;
use stats::{ReleaseDifference, ShadowReport};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The differences that the text of a step lists; all are kept.
const LISTED: usize = 10;

/// Returns the differences of all routes, the worst first.
pub(super) fn differences(routes: &BTreeMap<Arc<str>, ShadowedRoute>) -> Vec<ReleaseDifference> {
    let mut all = Vec::new();
    for (route, shadowed) in routes {
        all.extend(shadowed.differences().map(|found| ReleaseDifference {
            route: route.to_string(),
            part: found.difference.part.clone(),
            old: found.difference.old.clone(),
            new: found.difference.new.clone(),
            worse: found.difference.is_worse(),
            seen: found.rounds,
            examples: found.examples.clone(),
        }));
    }
    all.sort_by_key(|one: &ReleaseDifference| {
        (!one.worse, one.part != STATUS, one.new.is_some(), one.old.is_none(), one.part.starts_with("HTML"))
    });
    all
}

/// Returns what the shadow has shown. `once`: routes that have failed once and not again; `figures`: what the figures say.
pub(super) fn text(report: &ShadowReport, once: &[(&str, u64)], figures: Option<&str>) -> String {
    let count = report.differences.len();
    let found = if count == 0 { "no difference".to_owned() } else { counted(count as u64, "difference") };
    let probes = report.probes.join(", ");
    let mut text = match (report.requests, probes.as_str()) {
        (0, "") => "no request of a client could be compared, and no probe path".to_owned(),
        (0, _) => format!(
            "no request of a client could be compared; the verdict is from the probes ({probes}): {found}"
        ),
        (requests, _) => {
            format!(
                "{} compared on {}: {found}",
                counted(requests, "request"),
                counted(report.routes, "route")
            )
        }
    };
    if let Some(figures) = figures.filter(|_| report.requests > 0) {
        text += &format!("; {figures}");
    }
    for one in report.differences.iter().take(LISTED) {
        text += &format!("\n  {}", one.line());
    }
    if count > LISTED {
        text += &format!("\n  and {} more: `firebrick reload --differences`", count - LISTED);
    }
    for (route, times) in once {
        let times = if *times == 1 { "once".to_owned() } else { format!("{times} times") };
        text += &format!("\n  {route}: the new code failed {times}, and not when asked again");
    }
    if !report.left_out.is_empty() {
        let routes: Vec<String> =
            report.left_out.iter().take(LISTED).map(|one| format!("{} ({})", one.route, one.why)).collect();
        text += &format!("\n  not compared: {}", routes.join(", "));
    }
    text
}

fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}
