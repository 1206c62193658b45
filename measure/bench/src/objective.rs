//! The objectives of `--find`: `p95<200ms`, `mean<=50ms`, `errors<0.1%`.
//!
//! Pure. A failed request counts as slower than every limit, so that a server that refuses its load does not look fast.

use std::time::Duration;

use load::inputs::condition::{Condition, Figure, Metric, Operator, View, condition};

/// The share of failed requests that an objective about the mean allows, if there is none about errors: failures have no time of their own.
const FAILURES: f64 = 0.01;

/// The order of `--find`: the objectives that the rate has to hold, and the time of the search.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// At least one.
    pub objectives: Vec<Objective>,
    /// The time for the whole search.
    pub within: Duration,
    /// The first rate, per second; `None`: by the time that one user waits.
    pub start: Option<f64>,
}

/// A limit that the load must stay within.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Objective {
    /// The text without blanks.
    pub text: String,
    pub goal: Goal,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Goal {
    /// All but this share of the requests, 0 to 1, get a good response within `limit_us`.
    Quantile { beyond: f64, limit_us: f64 },
    /// The mean of the response times.
    Mean { limit_us: f64 },
    /// The share of failed requests, 0 to 1.
    Errors { share: f64 },
}

impl Goal {
    /// Returns the limit in microseconds, if it is one of time.
    pub fn limit_us(self) -> Option<f64> {
        match self {
            Goal::Quantile { limit_us, .. } | Goal::Mean { limit_us } => Some(limit_us),
            Goal::Errors { .. } => None,
        }
    }
}

/// Parses one objective.
///
/// # Errors
/// The mistake, and what is expected.
pub(crate) fn objective(text: &str) -> Result<Objective, String> {
    let tidy: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    // Here a share is the usual limit, so its sign may stand where people write it.
    let read = match tidy.strip_prefix("errors<") {
        Some(limit) => condition(&format!("errors%<{limit}")),
        None => condition(&tidy),
    };
    let Condition { metric, operator, limit, .. } = read?;
    if !matches!(operator, Operator::Below | Operator::AtMost) {
        return Err(format!("{tidy:?} has no upper limit: expected an objective such as p95<200ms"));
    }
    let goal = match metric {
        Metric::Time(View::Latency, figure) => time(figure, limit, &tidy)?,
        Metric::Time(..) => {
            return Err(format!(
                "{tidy:?}: the times of an objective count from when a request was due: expected p95<200ms"
            ));
        }
        Metric::ErrorShare => Goal::Errors { share: limit / 100.0 },
        Metric::Errors | Metric::Timeouts | Metric::Rate | Metric::Requests | Metric::Differences => {
            return Err(format!(
                "{tidy:?} is not an objective of --find: expected a time such as p95<200ms or mean<50ms, or errors<0.1%"
            ));
        }
    };
    Ok(Objective { text: tidy, goal })
}

fn time(figure: Figure, limit_us: f64, text: &str) -> Result<Goal, String> {
    if limit_us <= 0.0 {
        return Err(format!("{text:?}: no response takes less than nothing: expected a limit such as 200ms"));
    }
    match figure {
        Figure::Mean => Ok(Goal::Mean { limit_us }),
        Figure::Percentile(percentile) if percentile > 0.0 && percentile < 100.0 => {
            Ok(Goal::Quantile { beyond: 1.0 - percentile / 100.0, limit_us })
        }
        Figure::Percentile(_) | Figure::Max => Err(format!(
            "{text:?}: the slowest request is a matter of chance: expected a percentile such as p99 or p999"
        )),
    }
}

/// Adds a limit of failures to objectives that would not notice them.
pub(crate) fn complete(mut objectives: Vec<Objective>) -> Vec<Objective> {
    if objectives.iter().all(|objective| matches!(objective.goal, Goal::Mean { .. }))
        && !objectives.is_empty()
    {
        objectives.push(Objective { text: "errors<1%".to_owned(), goal: Goal::Errors { share: FAILURES } });
    }
    objectives
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn objectives() {
        for (text, goal) in [
            ("p95<200ms", Goal::Quantile { beyond: 0.05, limit_us: 200_000.0 }),
            (" p99 <= 1s ", Goal::Quantile { beyond: 0.01, limit_us: 1e6 }),
            ("p50<5ms", Goal::Quantile { beyond: 0.5, limit_us: 5_000.0 }),
            ("mean<50ms", Goal::Mean { limit_us: 50_000.0 }),
            ("errors<0.1%", Goal::Errors { share: 0.001 }),
            ("errors%<1", Goal::Errors { share: 0.01 }),
            ("errors<=0%", Goal::Errors { share: 0.0 }),
        ] {
            let found = objective(text).unwrap().goal;
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
            let same = match (found, goal) {
                (Goal::Quantile { beyond: a, limit_us: x }, Goal::Quantile { beyond: b, limit_us: y }) => {
                    near(a, b) && x == y
                }
                (Goal::Mean { limit_us: x }, Goal::Mean { limit_us: y }) => x == y,
                (Goal::Errors { share: a }, Goal::Errors { share: b }) => near(a, b),
                _ => false,
            };
            assert!(same, "{text}: {found:?}");
        }
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, why) in [
            ("p95>200ms", "no upper limit"),
            ("p95", "p99>200ms"),
            ("p95<200", "200ms"),
            ("max<1s", "p999"),
            ("p100<1s", "p999"),
            ("p95<0ms", "200ms"),
            ("service.p95<1s", "when a request was due"),
            ("rate<5/s", "errors<0.1%"),
            ("errors<101%", "percentage"),
            ("speed<1", "not a value"),
        ] {
            let found = objective(text).unwrap_err();
            assert!(found.contains(why), "{text}: {found}");
        }
    }

    #[test]
    fn a_mean_alone_does_not_hide_failures() {
        let all = |texts: &[&str]| complete(texts.iter().map(|text| objective(text).unwrap()).collect());
        assert_eq!(all(&["mean<5ms"]).last().unwrap().goal, Goal::Errors { share: FAILURES });
        assert_eq!(all(&["mean<5ms", "errors<5%"]).len(), 2);
        assert_eq!(all(&["mean<5ms", "p95<5ms"]).len(), 2);
    }

    proptest! {
        #[test]
        fn any_text_is_accepted_or_rejected(text in "(p|mean|errors%?|max)?[0-9.]{0,5}[<>]?=?.{0,8}") {
            if let Ok(found) = objective(&text) {
                prop_assert!(found.goal.limit_us().is_none_or(|limit| limit.is_finite() && limit > 0.0));
            }
        }
    }
}
