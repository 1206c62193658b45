//! Rates and ramps: `500/s`, `100..2000/s:30s`, `100/s:10s,200/s:10s`.

use crate::inputs::amount::duration;
use crate::scenario::Stage;

/// The highest accepted rate, per second.
const MOST: f64 = 1e8;

const EXPECTED: &str = "500/s, 375/min or 2k/s; a bare number is per second";

/// Parses a rate in requests per second: `500/s`, `375/min`, `1000/h`, `2k/s`; a bare number is per second.
///
/// # Errors
/// A description of what is expected.
pub fn rate(text: &str) -> Result<f64, String> {
    let refused = |why: text::Mistake| why.about(text, "a rate", EXPECTED);
    match text::rate::parse(text).map_err(refused)?.per_second() {
        0.0 => Err(format!("{text:?}: a rate must be above 0")),
        rate if rate > MOST => Err(refused(text::Mistake::default())),
        rate => Ok(rate),
    }
}

/// Parses the stages of an open model, separated by commas: a rate (`500/s`) or a ramp (`100..2000/s`), then a colon
/// and the duration. Only the last stage may omit the duration: it lasts until the run ends.
///
/// # Errors
/// The wrong stage, and a description of what is expected.
pub fn stages(text: &str) -> Result<Vec<Stage>, String> {
    let parts: Vec<&str> = text.split(',').collect();
    let stages: Vec<Stage> = parts.iter().map(|part| stage(part)).collect::<Result<_, String>>()?;
    let (_, before) =
        stages.split_last().ok_or_else(|| format!("{text:?} is not a rate: expected {EXPECTED}"))?;
    if let Some(at) = before.iter().position(|stage| stage.duration.is_none()) {
        return Err(format!(
            "{:?} has no duration, but is not the last stage: expected {}:10s",
            parts[at].trim(),
            parts[at].trim()
        ));
    }
    if stages.iter().all(|stage| stage.from == 0.0 && stage.to == 0.0) {
        return Err(format!("{text:?}: a rate must be above 0"));
    }
    Ok(stages)
}

fn stage(text: &str) -> Result<Stage, String> {
    let (rates, length) = match text.split_once(':') {
        Some((rates, length)) => (rates, Some(duration(length)?)),
        None => (text, None),
    };
    if length.is_some_and(|length| length.is_zero()) {
        return Err(format!("{:?} has a duration of 0", text.trim()));
    }
    let (from, to) = ends(rates).ok_or_else(|| {
        format!("{:?} is not a rate: expected {EXPECTED}; a ramp is 100..2000/s:30s", rates.trim())
    })?;
    Ok(Stage { from, to, duration: length })
}

/// Returns both ends of `100..2000/s`, whose unit applies to both, or of a constant rate.
fn ends(text: &str) -> Option<(f64, f64)> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let [from, to] = [from, to].map(|end| text::rate::parse(end).ok());
    let (from, to) = (from?, to?);
    let from = text::rate::Rate { period: from.period.or(to.period), ..from }.per_second();
    let to = to.per_second();
    (from <= MOST && to <= MOST).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn of(from: f64, to: f64, seconds: Option<u64>) -> Stage {
        Stage { from, to, duration: seconds.map(Duration::from_secs) }
    }

    #[test]
    fn rates() {
        for (text, wanted) in [
            ("500/s", 500.0),
            ("375/min", 6.25),
            ("500", 500.0),
            ("2k/s", 2_000.0),
            ("3600/h", 1.0),
            ("0.5/s", 0.5),
            (" 5 / m ", 5.0 / 60.0),
        ] {
            assert_eq!(rate(text), Ok(wanted), "{text}");
        }
        for text in ["", "0", "0/s", "-5/s", "500/x", "/s", "500/ms", "k", "1e9/s", "999999999999/s"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn stages_of_a_run() {
        for (text, wanted) in [
            ("500/s", vec![of(500.0, 500.0, None)]),
            ("100..2000/s:30s", vec![of(100.0, 2_000.0, Some(30))]),
            ("60..120/min:1m", vec![of(1.0, 2.0, Some(60))]),
            ("60/min..2/s:1m", vec![of(1.0, 2.0, Some(60))]),
            ("100/s:10s, 200/s:10s", vec![of(100.0, 100.0, Some(10)), of(200.0, 200.0, Some(10))]),
            ("0..50:5,50", vec![of(0.0, 50.0, Some(5)), of(50.0, 50.0, None)]),
        ] {
            assert_eq!(stages(text), Ok(wanted), "{text}");
        }
        assert!(stages("100/s,200/s").unwrap_err().contains("100/s:10s"));
        assert!(stages("100/s:soon").unwrap_err().contains("duration"));
        for text in ["", "0/s", "0/s:1s,0..0/s", "1..", "..5", "1...5", "100/s:0s", "1/s:1s,"] {
            assert!(stages(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_accepted_or_rejected(text in ".{0,30}") {
            if let Ok(stages) = stages(&text) {
                for stage in stages {
                    prop_assert!(stage.from.is_finite() && stage.to.is_finite() && stage.from >= 0.0 && stage.to >= 0.0);
                }
            }
        }
    }
}
