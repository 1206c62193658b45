//! Conditions under which a run fails, for use in CI: `p99>200ms`, `errors%>1`.

use crate::inputs::{amount, rate};

/// A condition under which a run counts as failed.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The text without blanks.
    pub text: String,
    /// The value to compare.
    pub metric: Metric,
    pub operator: Operator,
    /// The limit: microseconds for times, per second for rates, percent for percentages, else a count.
    pub limit: f64,
}

/// The value of a run that a condition compares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Metric {
    /// A time in one of the views.
    Time(View, Figure),
    /// Failed requests.
    Errors,
    /// Failed requests in percent of all requests.
    ErrorShare,
    /// Requests without a complete response in time.
    Timeouts,
    /// Successful responses per second.
    Rate,
    /// Successful responses.
    Requests,
    /// Responses of a replay that differ from the recorded ones.
    Differences,
}

/// A histogram of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    /// Times from the intended send time.
    Latency,
    /// Times from the actual send time.
    Service,
    /// Times as users who do not wait for each other would have seen them.
    Corrected,
    /// Times to open a connection.
    Connect,
}

/// A value of a histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Figure {
    /// A percentile, 0 to 100.
    Percentile(f64),
    Max,
    Mean,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `>`
    Above,
    /// `>=`
    AtLeast,
    /// `<`
    Below,
    /// `<=`
    AtMost,
}

impl Operator {
    /// Returns whether `figure` compares to `limit` this way.
    pub fn holds(self, figure: f64, limit: f64) -> bool {
        match self {
            Operator::Above => figure > limit,
            Operator::AtLeast => figure >= limit,
            Operator::Below => figure < limit,
            Operator::AtMost => figure <= limit,
        }
    }
}

/// Parses a condition such as `p99>200ms`, `service.p95 >= 1s`, `errors%>0.1`, `rate<500/s`.
///
/// # Errors
/// A description of what is expected.
pub fn condition(text: &str) -> Result<Condition, String> {
    let tidy: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let at = tidy.find(['<', '>']).ok_or_else(|| {
        format!("{text:?} compares nothing: expected a figure, an operator (> >= < <=) and a limit, such as p99>200ms")
    })?;
    let (name, rest) = tidy.split_at(at);
    let (operator, limit) = operator(rest);
    let metric = metric(name)?;
    let limit = limit_of(metric, limit).map_err(|why| format!("{tidy:?}: {why}"))?;
    Ok(Condition { metric, operator, limit, text: tidy })
}

fn operator(text: &str) -> (Operator, &str) {
    let table =
        [(">=", Operator::AtLeast), ("<=", Operator::AtMost), (">", Operator::Above), ("<", Operator::Below)];
    let found =
        table.into_iter().find_map(|(sign, operator)| text.strip_prefix(sign).map(|rest| (operator, rest)));
    // The caller has found a `<` or `>` here.
    found.unwrap_or((Operator::Above, text))
}

fn metric(name: &str) -> Result<Metric, String> {
    let (view, figure_name) = match name.split_once('.') {
        Some(("service", rest)) => (View::Service, rest),
        Some(("corrected", rest)) => (View::Corrected, rest),
        Some(("connect", rest)) => (View::Connect, rest),
        Some(("latency", rest)) => (View::Latency, rest),
        _ => (View::Latency, name),
    };
    if let Some(figure) = figure(figure_name) {
        return Ok(Metric::Time(view, figure));
    }
    Ok(match name {
        "errors" => Metric::Errors,
        "errors%" => Metric::ErrorShare,
        "timeouts" => Metric::Timeouts,
        "differences" => Metric::Differences,
        "rate" => Metric::Rate,
        "requests" => Metric::Requests,
        _ => {
            return Err(format!(
                "{name:?} is not a value of a run: expected p50, p90, p95, p99, p999, max or mean (also service.p99, corrected.p99, \
                 connect.p99), errors, errors%, timeouts, rate or requests"
            ));
        }
    })
}

/// Parses `p99`, `p99.9` and `p999` (which is 99.9), `max`, `mean`.
fn figure(name: &str) -> Option<Figure> {
    match name {
        "max" => return Some(Figure::Max),
        "mean" | "avg" => return Some(Figure::Mean),
        _ => {}
    }
    let digits = name.strip_prefix('p')?;
    let number = text::number(digits)?;
    let whole = digits.len() > 2 && !digits.contains('.') && digits != "100";
    if whole && !digits.starts_with('9') {
        // p101 is a typing error rather than 10.1.
        return None;
    }
    let percentile = if whole { number / 10f64.powi(i32::try_from(digits.len()).ok()? - 2) } else { number };
    (percentile <= 100.0).then_some(Figure::Percentile(percentile))
}

fn limit_of(metric: Metric, text: &str) -> Result<f64, String> {
    match metric {
        Metric::Time(..) => {
            if text::number(text).is_some() {
                return Err(format!("{text} has no unit; expected a time such as {text}ms"));
            }
            amount::duration(text).map(|limit| limit.as_secs_f64() * 1e6)
        }
        Metric::Rate if text::number(text) == Some(0.0) => Ok(0.0),
        Metric::Rate => rate::rate(text),
        Metric::ErrorShare => {
            share(text).ok_or_else(|| format!("{text:?} is not a percentage: expected 0 to 100, such as 0.1"))
        }
        Metric::Errors if text.ends_with('%') => Err("write a percentage of errors as errors%>1".to_owned()),
        Metric::Errors | Metric::Timeouts | Metric::Requests | Metric::Differences => match text {
            "0" => Ok(0.0),
            _ => amount::count(text).map(|count| count as f64),
        },
    }
}

fn share(text: &str) -> Option<f64> {
    text::number(text.strip_suffix('%').unwrap_or(text)).filter(|share| *share <= 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> (Metric, Operator, f64) {
        let found = condition(text).unwrap();
        (found.metric, found.operator, found.limit)
    }

    fn percentile(p: f64) -> Metric {
        Metric::Time(View::Latency, Figure::Percentile(p))
    }

    #[test]
    fn conditions() {
        assert_eq!(read("p99>200ms"), (percentile(99.0), Operator::Above, 200_000.0));
        assert_eq!(read(" p999 >= 1s "), (percentile(99.9), Operator::AtLeast, 1e6));
        assert_eq!(read("p99.9>1s"), (percentile(99.9), Operator::Above, 1e6));
        assert_eq!(read("p9999>1s"), (percentile(99.99), Operator::Above, 1e6));
        assert_eq!(read("p100>1s"), (percentile(100.0), Operator::Above, 1e6));
        assert_eq!(
            read("service.p95>5ms"),
            (Metric::Time(View::Service, Figure::Percentile(95.0)), Operator::Above, 5_000.0)
        );
        assert_eq!(read("max>3s"), (Metric::Time(View::Latency, Figure::Max), Operator::Above, 3e6));
        assert_eq!(read("errors>0"), (Metric::Errors, Operator::Above, 0.0));
        assert_eq!(read("errors%>0.1"), (Metric::ErrorShare, Operator::Above, 0.1));
        assert_eq!(read("errors%>1%"), (Metric::ErrorShare, Operator::Above, 1.0));
        assert_eq!(read("rate<500/s"), (Metric::Rate, Operator::Below, 500.0));
        assert_eq!(read("rate<600/min"), (Metric::Rate, Operator::Below, 10.0));
        assert_eq!(read("requests<=10k"), (Metric::Requests, Operator::AtMost, 10_000.0));
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, why) in [
            ("p99", "p99>200ms"),
            ("p99>200", "200ms"),
            ("p99=1s", "compares nothing"),
            ("speed>1", "service.p99"),
            ("p101.5>1s", "not a value"),
            ("errors>1%", "errors%>1"),
            ("errors%>101", "percentage"),
            ("rate<fast", "rate"),
            ("p99>>1s", "duration"),
        ] {
            let found = condition(text).unwrap_err();
            assert!(found.contains(why), "{text}: {found}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_accepted_or_rejected(text in "(p|service\\.|errors%?)?[p0-9.]{0,6}[<>]?=?.{0,10}") {
            if let Ok(found) = condition(&text) {
                prop_assert!(found.limit.is_finite() && found.limit >= 0.0);
            }
        }
    }
}
