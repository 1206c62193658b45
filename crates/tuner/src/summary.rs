//! What is said under the table, for people: what the app is, what to run and why, what to write where.

use planner::{Recommendation, Shape};

use crate::table::{figure, size};
use crate::verdict::{Verdict, lines_for};

/// All paragraphs.
pub(crate) fn text(verdict: &Verdict, width: usize) -> String {
    let mut out = String::new();
    section(&mut out, "Mind", &verdict.remarks, width);
    section(&mut out, "What the app is", &verdict.nature.words, width);
    section(&mut out, "The other servers", &verdict.others, width);
    out.push_str(&recommended(&verdict.recommendation, verdict.pool.as_deref(), width));
    out
}

/// The fitted laws of threads and processes, with how far they are to be believed.
pub(crate) fn laws(verdict: &Verdict) -> Vec<String> {
    let nature = &verdict.nature;
    let laws = [("threads", nature.threads_law), ("processes", nature.processes_law)];
    laws.into_iter()
        .filter_map(|(what, law)| law.map(|law| (what, law)))
        .map(|(what, law)| {
            let end = match (law.knee(), law.peak()) {
                (Some(knee), Some(peak)) if peak.is_finite() => format!(
                    "it hardly grows beyond {knee} and is largest at about {}", figure(peak.round())
                ),
                (Some(knee), _) => format!("it hardly grows beyond {knee}"),
                (None, _) => "no end of it is in sight".to_owned(),
            };
            let percent = |share: f64| format!("{} %", figure(share * 100.0));
            format!(
                "With more {what}: {end} (Universal Scalability Law: {} requests/s each, {} one at a time, between {} and {} when a point is left out; κ {:.2e}; it explains {:.0} % of {} points).",
                figure(law.lambda), percent(law.sigma), percent(law.sigma_bounds.0), percent(law.sigma_bounds.1), law.kappa, (law.fit * 100.0).max(0.0), law.points
            )
        })
        .collect()
}

fn recommended(recommendation: &Recommendation, pool: Option<&str>, width: usize) -> String {
    let mut out = String::new();
    let Some(best) = &recommendation.best else {
        section(&mut out, "Nothing fits", &recommendation.reasons, width);
        section(&mut out, "Out of the question", &rejected(recommendation), width);
        return out;
    };
    let memory = if best.pss_bytes > 0.0 { format!(", {}", size(best.pss_bytes)) } else { String::new() };
    let p95 = if best.latency_ms.p95 > 0.0 {
        format!(", p95 {} ms", figure(best.latency_ms.p95))
    } else {
        String::new()
    };
    let how = if best.measured { "" } else { " (predicted, not measured)" };
    let title = format!(
        "Recommended: {} {}{how}: {} requests/s{p95}{memory}",
        best.shape,
        in_words(best.shape),
        figure(best.rate_per_s)
    );
    let reasons: Vec<String> =
        recommendation.reasons.iter().cloned().chain(pool.map(str::to_owned)).collect();
    section(&mut out, &title, &reasons, width);
    let runners_up: Vec<String> = recommendation.runners_up.iter().map(|one| one.words.clone()).collect();
    section(&mut out, "Also worth a thought", &runners_up, width);
    section(&mut out, "Out of the question", &rejected(recommendation), width);
    out.push('\n');
    for (place, lines) in lines_for(best.shape) {
        out.push_str(&format!("{:<16}", format!("{place}:")));
        out.push_str(&lines.replace('\n', &format!("\n{:16}", "")));
        out.push('\n');
    }
    out
}

fn in_words(shape: Shape) -> String {
    let count =
        |number: u32, one: &str, many: &str| format!("{number} {}", if number == 1 { one } else { many });
    format!(
        "({} with {})",
        count(shape.processes, "worker", "workers"),
        count(shape.threads, "thread", "threads each")
    )
}

/// The first few of those that do not fit; shapes with the same reason stand together.
pub(crate) fn rejected(recommendation: &Recommendation) -> Vec<String> {
    const SHOWN: usize = 4;
    let mut said: Vec<String> = recommendation
        .rejected
        .iter()
        .take(SHOWN)
        .map(|one| {
            // A crash carries its log, which the table has shown.
            format!("{}: {}", one.shape, one.why.lines().next().unwrap_or_default())
        })
        .collect();
    if recommendation.rejected.len() > SHOWN {
        said.push(format!("and {} more", recommendation.rejected.len() - SHOWN));
    }
    said
}

fn section(out: &mut String, title: &str, lines: &[String], width: usize) {
    if lines.is_empty() {
        return;
    }
    out.push_str(&format!("\n{title}\n"));
    for line in lines {
        out.push_str(&wrapped(line, width));
    }
}

/// A line of a list, broken at blanks.
fn wrapped(text: &str, width: usize) -> String {
    let width = width.clamp(40, 110) - 4;
    let (mut out, mut used) = (String::from("  - "), 0);
    for word in text.split_whitespace() {
        let long = word.chars().count();
        if used > 0 && used + 1 + long > width {
            out.push_str("\n    ");
            used = 0;
        }
        if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += long;
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_broken_at_blanks() {
        let said = wrapped(&"word ".repeat(40), 60);
        assert!(said.lines().all(|line| line.len() <= 60), "{said}");
        assert!(said.starts_with("  - word") && said.contains("\n    word"));
    }

    proptest! {
        #[test]
        fn no_word_is_lost(text in "[a-z ]{0,200}", width in 0_usize..200) {
            let words: Vec<&str> = text.split_whitespace().collect();
            let said = wrapped(&text, width);
            prop_assert_eq!(said.split_whitespace().skip(1).collect::<Vec<_>>(), words);
        }
    }
}
