//! Evaluation of the --fail-if conditions.

use load::inputs::condition::{Condition, Figure, Metric, View};
use load::recorded::Compared;
use load::{Histogram, Outcome};
use report::Unit;

use crate::figures::per_second;

/// Returns a line for each condition that holds, which fails the run, and for each that cannot be evaluated.
pub(crate) fn met(conditions: &[Condition], outcome: &Outcome) -> Vec<String> {
    conditions.iter().filter_map(|condition| verdict(condition, outcome)).collect()
}

fn verdict(condition: &Condition, outcome: &Outcome) -> Option<String> {
    let text = &condition.text;
    let Some(found) = figure(condition.metric, outcome) else {
        return Some(format!("{text}: no value, because {}", missing(condition.metric)));
    };
    line(condition, found)
}

/// Returns a line if the condition holds for this value.
pub(crate) fn line(condition: &Condition, found: f64) -> Option<String> {
    let holds = condition.operator.holds(found, condition.limit);
    holds.then(|| format!("{}: it is {}", condition.text, shown(condition.metric, found)))
}

fn figure(metric: Metric, outcome: &Outcome) -> Option<f64> {
    let errors = outcome.errors.total();
    let all = outcome.ok + errors;
    match metric {
        Metric::Time(view, figure) => time(view, figure, outcome),
        Metric::Errors => Some(errors as f64),
        Metric::ErrorShare => (all > 0).then(|| 100.0 * errors as f64 / all as f64),
        Metric::Timeouts => {
            Some((outcome.errors.timeout + outcome.errors.connect_timeout + outcome.errors.cut_off) as f64)
        }
        Metric::Rate => Some(per_second(outcome.ok, outcome.seconds)),
        Metric::Requests => Some(outcome.ok as f64),
        Metric::Differences if outcome.compared.is_empty() => None,
        Metric::Differences => Some(outcome.compared.iter().map(Compared::differences).sum::<u64>() as f64),
    }
}

fn time(view: View, figure: Figure, outcome: &Outcome) -> Option<f64> {
    let histogram = match view {
        View::Latency => &outcome.latency,
        View::Service => &outcome.service,
        View::Corrected => outcome.corrected.as_ref()?,
        View::Connect => &outcome.connect,
    };
    if histogram.is_empty() { None } else { Some(of(histogram, figure)) }
}

/// Returns a figure of a histogram that is not empty, in microseconds.
pub(crate) fn of(histogram: &Histogram, figure: Figure) -> f64 {
    match figure {
        Figure::Percentile(percentile) => {
            histogram.value_at_percentile(percentile).min(histogram.max()) as f64
        }
        Figure::Max => histogram.max() as f64,
        Figure::Mean => histogram.mean(),
    }
}

fn missing(metric: Metric) -> &'static str {
    match metric {
        Metric::Time(View::Corrected, _) => "only the closed model has it",
        Metric::Time(View::Connect, _) => "no connection was opened in the counted part",
        Metric::Differences => "only the replay of a recording has it",
        _ => "there was no successful response",
    }
}

fn shown(metric: Metric, found: f64) -> String {
    match metric {
        Metric::Time(..) => Unit::Milliseconds.show(found / 1e3),
        Metric::ErrorShare => format!("{} %", Unit::Number.show(found)),
        Metric::Rate => Unit::PerSecond.show(found),
        Metric::Errors | Metric::Timeouts | Metric::Requests | Metric::Differences => Unit::Count.show(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{nothing, outcome};
    use load::inputs::condition::condition;

    fn verdicts(texts: &[&str], outcome: &Outcome) -> Vec<String> {
        let conditions: Vec<Condition> = texts.iter().map(|text| condition(text).unwrap()).collect();
        met(&conditions, outcome)
    }

    #[test]
    fn conditions_that_hold_are_shown_with_the_value() {
        let all = [
            "p50>499ms",
            "p50>501ms",
            "max>=1s",
            "mean<1s",
            "errors>2",
            "errors>3",
            "errors%>0.2",
            "rate<501/s",
            "requests<1k",
            "timeouts>0",
        ];
        assert_eq!(
            verdicts(&all, &outcome()),
            vec![
                "p50>499ms: it is 500 ms",
                "max>=1s: it is 1 s",
                "mean<1s: it is 501 ms",
                "errors>2: it is 3",
                "errors%>0.2: it is 0.299 %",
                "rate<501/s: it is 500/s"
            ]
        );
    }

    #[test]
    fn a_condition_without_a_value_fails() {
        let found = verdicts(&["p99>1s", "connect.p99>1s", "errors%>50"], &nothing());
        assert!(
            found[0].contains("no successful response") && found[1].contains("no connection"),
            "{found:?}"
        );
        assert_eq!(found[2], "errors%>50: it is 100 %");
        let open = Outcome { corrected: None, ..outcome() };
        assert!(verdicts(&["corrected.p99>1s"], &open)[0].contains("only the closed model"));
    }
}
