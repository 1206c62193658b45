//! A response time objective, as text: `p95<200ms`.

use serde::{Deserialize, Serialize};

/// An objective: a percentile of the response time must be below a limit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Slo {
    /// A percentile such as 95 or 99.9; above 0, below 100.
    pub percentile: f64,
    pub under_ms: f64,
}

impl std::str::FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Slo, String> {
        read(text).ok_or_else(|| {
            format!("`{text}` is not a response time objective; expected a percentile and a time with its unit, such as p95<200ms or p99.9<1s")
        })
    }
}

fn read(text: &str) -> Option<Slo> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
    let (percentile, time) = text.split_once("<=").or_else(|| text.split_once('<'))?;
    let percentile = text::number(percentile.strip_prefix('p')?.trim_end_matches('%'))?;
    // Without a unit, milliseconds would be as likely as seconds.
    let under = Some(time)
        .filter(|time| text::number(time).is_none())
        .and_then(|time| text::span::parse(time).ok())?;
    let is_sound = percentile > 0.0 && percentile < 100.0 && !under.is_zero();
    is_sound.then_some(Slo { percentile, under_ms: under.as_secs_f64() * 1_000.0 })
}

impl std::fmt::Display for Slo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "p{} < ", self.percentile)?;
        match self.under_ms {
            ms if ms >= 1_000.0 => write!(f, "{} s", ms / 1_000.0),
            ms => write!(f, "{ms} ms"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_as_text() {
        let slo = |text: &str| text.parse::<Slo>().ok().map(|slo| (slo.percentile, slo.under_ms));
        assert_eq!(slo("p95<200ms"), Some((95.0, 200.0)));
        assert_eq!(slo("P99.9 <= 1.5 s"), Some((99.9, 1_500.0)));
        assert_eq!(slo("p50<1min"), Some((50.0, 60_000.0)));
        for wrong in [
            "",
            "p95",
            "p95<200",
            "95<200ms",
            "p0<1s",
            "p100<1s",
            "p95<0ms",
            "p95<-1ms",
            "p95>1s",
            "pNaN<1s",
            "p95<1e3ms",
            "p95<1..ms",
        ] {
            let error = wrong.parse::<Slo>().unwrap_err();
            assert!(error.contains("p95<200ms"), "{error}");
        }
        assert_eq!(Slo { percentile: 99.9, under_ms: 1_500.0 }.to_string(), "p99.9 < 1.5 s");
    }
}
