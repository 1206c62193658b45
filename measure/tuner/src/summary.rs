//! The summary below the table: the app's profile, the recommendation with reasons, the configuration to use.

use planner::{Recommendation, Shape};
use text::people;

use crate::figures::{figure, size};
use crate::verdict::{Verdict, lines_for};

pub(crate) fn text(verdict: &Verdict, width: usize) -> String {
    let mut out = String::new();
    section(&mut out, "Remarks", &verdict.remarks, width);
    section(&mut out, "Application profile", &verdict.profile.words, width);
    section(&mut out, "Fibers", &verdict.fibers.words, width);
    section(&mut out, "Other servers", &verdict.others, width);
    out.push_str(&recommended(verdict, width));
    out
}

/// Returns the fitted scalability laws of threads and processes, with their quality.
pub(crate) fn laws(verdict: &Verdict) -> Vec<String> {
    let profile = &verdict.profile;
    let laws = [("threads", profile.threads_law), ("processes", profile.processes_law)];
    laws.into_iter()
        .filter_map(|(what, law)| law.map(|law| (what, law)))
        .map(|(what, law)| {
            let end = match (law.knee(), law.peak()) {
                (Some(knee), Some(peak)) if peak.is_finite() => format!(
                    "throughput hardly grows beyond {knee} and peaks at about {}", figure(peak.round())
                ),
                (Some(knee), _) => format!("throughput hardly grows beyond {knee}"),
                (None, _) => "no limit is visible".to_owned(),
            };
            let percent = |share: f64| format!("{} %", figure(share * 100.0));
            format!(
                "With more {what}: {end} (Universal Scalability Law: {} requests/s each, contention {} (between {} and {} with any one point left out), coherency κ {:.2e}; explains {:.0} % of the variance of {} points).",
                figure(law.lambda), percent(law.sigma), percent(law.sigma_bounds.0), percent(law.sigma_bounds.1), law.kappa, (law.fit * 100.0).max(0.0), law.points
            )
        })
        .collect()
}

/// Returns the title of a summary without a recommendation.
pub(crate) fn nothing(verdict: &Verdict) -> &'static str {
    if verdict.disturbed { "No recommendation" } else { "Nothing fits" }
}

fn recommended(verdict: &Verdict, width: usize) -> String {
    let (recommendation, pool) = (&verdict.recommendation, verdict.pool.as_deref());
    let mut out = String::new();
    let Some(best) = &recommendation.best else {
        section(&mut out, nothing(verdict), &recommendation.reasons, width);
        section(&mut out, "Rejected", &rejected(recommendation), width);
        return out;
    };
    let memory = if best.pss_bytes > 0.0 { format!(", {}", size(best.pss_bytes)) } else { String::new() };
    let p95 = if best.latency_ms.p95 > 0.0 {
        format!(", p95 {} ms", figure(best.latency_ms.p95))
    } else {
        String::new()
    };
    let title = format!(
        "Recommended: {} {}: {} requests/s{p95}{memory}",
        best.shape,
        in_words(best.shape),
        figure(best.rate_per_s)
    );
    let reasons: Vec<String> =
        recommendation.reasons.iter().cloned().chain(pool.map(str::to_owned)).collect();
    section(&mut out, &title, &reasons, width);
    let runners_up: Vec<String> = recommendation.runners_up.iter().map(|one| one.words.clone()).collect();
    section(&mut out, "Alternatives", &runners_up, width);
    section(&mut out, "Rejected", &rejected(recommendation), width);
    out.push('\n');
    for (file, lines) in lines_for(best.shape) {
        out.push_str(&format!("{:<16}", format!("{file}:")));
        out.push_str(&lines.replace('\n', &format!("\n{:16}", "")));
        out.push('\n');
    }
    out
}

fn in_words(shape: Shape) -> String {
    let count =
        |number: u32, one: &str, many: &str| format!("{number} {}", if number == 1 { one } else { many });
    let fibers = match shape.fibers {
        0 => String::new(),
        fibers => format!(", and {fibers} fibers in each thread"),
    };
    format!(
        "({} with {}{fibers})",
        count(shape.processes, "worker", "workers"),
        count(shape.threads, "thread", "threads each")
    )
}

/// Returns the first few rejected shapes, with reasons.
pub(crate) fn rejected(recommendation: &Recommendation) -> Vec<String> {
    const SHOWN: usize = 4;
    let mut lines: Vec<String> = recommendation
        .rejected
        .iter()
        .take(SHOWN)
        .map(|one| {
            // The table has shown the log of a crash.
            format!("{}: {}", one.shape, one.why.lines().next().unwrap_or_default())
        })
        .collect();
    if recommendation.rejected.len() > SHOWN {
        lines.push(format!("and {} more", recommendation.rejected.len() - SHOWN));
    }
    lines
}

fn section(out: &mut String, title: &str, lines: &[String], width: usize) {
    if lines.is_empty() {
        return;
    }
    out.push_str(&format!("\n{title}\n"));
    for line in lines {
        out.push_str(&people::wrapped(&format!("  - {line}"), width.clamp(40, 110), 2));
        out.push('\n');
    }
}
