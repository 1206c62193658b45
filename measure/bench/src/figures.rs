//! Statistics of a histogram, in milliseconds.

use load::{Histogram, Outcome};
use serde::{Deserialize, Serialize};

/// Statistics of a distribution, in milliseconds; all 0 if it is empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub mean: f64,
    pub stddev: f64,
    /// Coefficient of variation: `stddev` over `mean`.
    pub cv: f64,
    pub min: f64,
    pub p50: f64,
    pub p75: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Figures {
    pub fn of(histogram: &Histogram) -> Figures {
        if histogram.is_empty() {
            return Figures::default();
        }
        let at = |percentile| percentile_ms(histogram, percentile);
        let (mean, stddev) = (histogram.mean() / 1e3, histogram.stdev() / 1e3);
        Figures {
            mean,
            stddev,
            cv: if mean > 0.0 { stddev / mean } else { 0.0 },
            min: ms(histogram.min()),
            p50: at(50.0),
            p75: at(75.0),
            p90: at(90.0),
            p95: at(95.0),
            p99: at(99.0),
            p999: at(99.9),
            max: at(100.0),
        }
    }
}

/// Returns a percentile in milliseconds. The histogram returns the upper end of a bucket, which may exceed the maximum.
pub(crate) fn percentile_ms(histogram: &Histogram, percentile: f64) -> f64 {
    ms(histogram.value_at_percentile(percentile).min(histogram.max()))
}

pub(crate) fn ms(us: u64) -> f64 {
    us as f64 / 1e3
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// Successful responses.
    pub requests: u64,
    pub errors: u64,
    pub seconds: f64,
    /// Successful responses per second.
    pub rate_per_s: f64,
    pub latency_ms: Figures,
    pub service_ms: Figures,
    /// Closed models: latencies as users who do not wait for each other would have seen them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected_ms: Option<Figures>,
    /// TLS handshakes; `None` without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<HandshakeFigures>,
    /// Journeys, if the run had them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journeys: Option<JourneyFigures>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct JourneyFigures {
    pub complete: u64,
    /// Ended by a failed request.
    pub failed: u64,
    /// Complete ones per second.
    pub per_s: f64,
    /// From the first request to the last response, pauses included.
    pub time_ms: Figures,
}

impl JourneyFigures {
    pub fn of(outcome: &Outcome) -> Option<JourneyFigures> {
        let all = outcome.journeys.as_ref()?;
        Some(JourneyFigures {
            complete: all.ok,
            failed: all.errors,
            per_s: per_second(all.ok, outcome.seconds),
            time_ms: Figures::of(&all.latency),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct HandshakeFigures {
    /// Successful handshakes: `full` and `resumed`.
    pub count: u64,
    pub full: u64,
    pub resumed: u64,
    pub failed: u64,
    /// Handshakes of the counted part per second: the rate of new connections, not the server's capacity.
    pub per_s: f64,
    pub time_ms: Figures,
}

impl HandshakeFigures {
    pub fn of(outcome: &Outcome) -> Option<HandshakeFigures> {
        let all = outcome.handshakes.as_ref()?;
        Some(HandshakeFigures {
            count: all.complete(),
            full: all.full,
            resumed: all.resumed,
            failed: all.failures(),
            per_s: per_second(all.counted, outcome.seconds),
            time_ms: Figures::of(&all.took),
        })
    }

    /// Returns the numbers of each kind as text.
    pub fn kinds(&self) -> String {
        let show = |count: u64| report::Unit::Count.show(count as f64);
        match (self.full, self.resumed) {
            (_, 0) => "all full".to_owned(),
            (0, _) => "all resumed".to_owned(),
            (full, resumed) => format!("{} full, {} resumed", show(full), show(resumed)),
        }
    }

    /// Returns the durations as text.
    pub fn times(&self) -> String {
        let time = |ms: f64| report::Unit::Milliseconds.show(ms);
        let took = &self.time_ms;
        format!("p50 {}, p95 {}, max {}", time(took.p50), time(took.p95), time(took.max))
    }
}

impl Summary {
    pub fn of(outcome: &Outcome) -> Summary {
        Summary {
            requests: outcome.ok,
            errors: outcome.errors.total(),
            seconds: outcome.seconds,
            rate_per_s: per_second(outcome.ok, outcome.seconds),
            latency_ms: Figures::of(&outcome.latency),
            service_ms: Figures::of(&outcome.service),
            corrected_ms: outcome.corrected.as_ref().map(Figures::of),
            handshakes: HandshakeFigures::of(outcome),
            journeys: JourneyFigures::of(outcome),
        }
    }
}

/// Returns a rate per second; 0 if `seconds` is 0.
pub(crate) fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_a_distribution() {
        let mut histogram = Histogram::default();
        for us in 1..=1_000 {
            histogram.record(us * 10).unwrap();
        }
        let figures = Figures::of(&histogram);
        for (found, wanted) in
            [(figures.p50, 5.0), (figures.p99, 9.9), (figures.max, 10.0), (figures.mean, 5.005)]
        {
            assert!((found - wanted).abs() < 0.01 * wanted, "{found} {wanted}");
        }
        assert!((figures.cv - 0.577).abs() < 0.01);
        assert_eq!(Figures::of(&Histogram::default()), Figures::default());
        assert!(figures.p999 <= figures.max);
    }

    #[test]
    fn no_rate_without_time() {
        assert_eq!(per_second(5, 0.0), 0.0);
        assert_eq!(per_second(5, 2.0), 2.5);
    }
}
