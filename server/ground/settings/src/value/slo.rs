//! The objective of response times: `p95 < 200ms`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use text::{Mistake, span};

use super::threads::Threads;
use super::workers::Workers;

/// A service level objective: a share of the responses begins within a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slo {
    /// The percentage of the responses: 50, 95 or 99.
    pub percentile: u8,
    /// From [`Slo::SHORTEST`] to [`Slo::LONGEST`].
    pub time: Duration,
}

impl Slo {
    pub const SHORTEST: Duration = Duration::from_millis(1);
    pub const LONGEST: Duration = Duration::from_secs(3600);
    /// The percentiles that can be written.
    const PERCENTILES: [u8; 3] = [50, 95, 99];

    /// Returns the share of responses that may take longer, from 0 to 1.
    pub fn allowed(self) -> f64 {
        1.0 - f64::from(self.percentile) / 100.0
    }
}

impl FromStr for Slo {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Slo, Mistake> {
        let Some((percentile, time)) = text.split_once('<') else { return Err(Mistake::default()) };
        let percentile = percentile.trim().to_ascii_lowercase();
        let known = Slo::PERCENTILES.into_iter().find(|known| percentile == format!("p{known}"));
        let time = span::parse(time.trim())?;
        if !(Slo::SHORTEST..=Slo::LONGEST).contains(&time) {
            let bounds = [Slo::SHORTEST, Slo::LONGEST].map(span::exact);
            return Err(Mistake::expected(format!("a time from {} to {}", bounds[0], bounds[1])));
        }
        let Some(percentile) = known else {
            return Err(Mistake::expected("p50, p95 or p99 before the <"));
        };
        Ok(Slo { percentile, time })
    }
}

/// Writes `p95 < 200ms`.
impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{} < {}", self.percentile, span::exact(self.time))
    }
}

/// An objective with the bounds of the shape that follows it: the workers of the default pool, and the requests
/// that each of them serves at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapeRule {
    pub slo: Slo,
    /// The number of workers; [`Settings::workers_at_start`](crate::Settings::workers_at_start) of them are started.
    pub workers: Workers,
    /// The number of threads in use in each worker. With fibers this has no effect.
    pub threads: Threads,
    /// The number of threads in use at the start, within `threads`.
    pub start: u16,
    /// Whether the next start begins with what this one has learnt.
    pub keep: bool,
}

impl ShapeRule {
    /// The largest number of threads in use, if the settings name none.
    pub const THREADS: u16 = 64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_percentile_and_a_time() {
        let slo = |percentile, ms| Ok(Slo { percentile, time: Duration::from_millis(ms) });
        assert_eq!("p95 < 200ms".parse(), slo(95, 200));
        assert_eq!("P50<1s".parse(), slo(50, 1000));
        assert_eq!(" p99  <  1.5 s ".parse(), slo(99, 1500));
        for wrong in ["", "p95", "200ms", "p95 > 200ms", "p95 <", "p95 << 2s", "p95 < fast", "p95 < 2s < 3s"]
        {
            assert!(wrong.parse::<Slo>().is_err(), "{wrong}");
        }
        let expected = |text: &str| text.parse::<Slo>().unwrap_err().explain("");
        for wrong in ["p90 < 1s", "95 < 1s", "p < 1s", "< 1s"] {
            assert!(expected(wrong).contains("p50, p95 or p99"), "{wrong}: {}", expected(wrong));
        }
        for wrong in ["p95 < 0", "p95 < 500us", "p95 < 2h"] {
            assert!(expected(wrong).contains("from 1ms to 1h"), "{wrong}: {}", expected(wrong));
        }
    }

    #[test]
    fn the_allowed_share_is_the_rest() {
        let allowed = |percentile| Slo { percentile, time: Slo::SHORTEST }.allowed();
        for (percentile, share) in [(50, 0.5), (95, 0.05), (99, 0.01)] {
            assert!((allowed(percentile) - share).abs() < 1e-9);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,40}") {
            if let Ok(slo) = text.parse::<Slo>() {
                prop_assert_eq!(slo.to_string().parse(), Ok(slo));
            }
        }

        #[test]
        fn what_is_written_is_read_again(at in 0usize..3, ms in 1u64..3_600_000) {
            let slo = Slo { percentile: Slo::PERCENTILES[at], time: Duration::from_millis(ms) };
            prop_assert_eq!(slo.to_string().parse(), Ok(slo));
        }
    }
}
