//! Decides by a collector's response whether to retry (OTLP specification, "OTLP/HTTP response"). Pure.

use std::time::{Duration, SystemTime};

/// The number of attempts before a batch is dropped.
const ATTEMPTS: u32 = 5;
/// The first pause. Each further one is twice as long.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause, even if the collector asks for more.
const LONGEST: Duration = Duration::from_secs(300);

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CollectorAnswer {
    Accepted,
    /// The same batch may succeed later; after the given time, if the collector names one.
    Later {
        why: String,
        after: Option<Duration>,
    },
    /// A retry cannot succeed.
    Refused(String),
}

impl CollectorAnswer {
    /// Interprets a status and its `Retry-After`.
    pub(crate) fn of(status: u16, retry_after: Option<&[u8]>, now: SystemTime) -> CollectorAnswer {
        match status {
            200..300 => CollectorAnswer::Accepted,
            429 | 502 | 503 | 504 => CollectorAnswer::Later {
                why: format!("the collector answered {status}"),
                after: retry_after.and_then(|value| wait(value, now)),
            },
            _ => CollectorAnswer::Refused(format!("the collector answered {status}")),
        }
    }
}

/// Parses seconds or an HTTP date (RFC 9110 section 10.2.3).
fn wait(value: &[u8], now: SystemTime) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?.trim();
    match text.parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text).ok()?.duration_since(now).ok(),
    }
}

/// Returns the pause after the failed attempt of this number (from 1), or `None` to give up. `spread`, between
/// 0 and 1, keeps many servers from retrying at the same moment.
pub(crate) fn pause(attempt: u32, after: Option<Duration>, spread: f64) -> Option<Duration> {
    if attempt >= ATTEMPTS {
        return None;
    }
    let own = net::backoff(FIRST, attempt - 1, LONGEST).mul_f64(0.8 + 0.4 * spread.clamp(0.0, 1.0));
    Some(after.map_or(own, |after| after.max(Duration::from_millis(100))).min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_those_of_the_specification() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777 - 90);
        let of = |status, value: Option<&str>| CollectorAnswer::of(status, value.map(str::as_bytes), now);
        assert_eq!((of(200, None), of(204, None)), (CollectorAnswer::Accepted, CollectorAnswer::Accepted));
        for status in [429, 502, 503, 504] {
            let CollectorAnswer::Later { after, .. } = of(status, Some("7")) else { panic!("{status}") };
            assert_eq!(after, Some(Duration::from_secs(7)));
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            assert!(matches!(of(status, Some("7")), CollectorAnswer::Refused(_)), "{status}");
        }
        let after = |value| match of(503, Some(value)) {
            CollectorAnswer::Later { after, .. } => after,
            other => panic!("{other:?}"),
        };
        assert_eq!(after("Sun, 06 Nov 1994 08:49:37 GMT"), Some(Duration::from_secs(90)));
        assert_eq!((after("soon"), after("Sun, 06 Nov 1993 08:49:37 GMT")), (None, None));
    }

    #[test]
    fn waits_grow_and_end() {
        let waits: Vec<f64> =
            (1..9).map_while(|attempt| pause(attempt, None, 0.5)).map(|wait| wait.as_secs_f64()).collect();
        assert_eq!(waits, [1.0, 2.0, 4.0, 8.0]);
        assert!(pause(1, None, 0.0) < pause(1, None, 1.0));
        assert_eq!(pause(2, Some(Duration::from_secs(30)), 0.3), Some(Duration::from_secs(30)));
        assert_eq!(pause(1, Some(Duration::ZERO), 0.3), Some(Duration::from_millis(100)), "never at once");
        assert_eq!(pause(1, Some(Duration::from_secs(1 << 40)), 0.3), Some(LONGEST));
        assert_eq!(pause(5, Some(Duration::from_secs(1)), 0.3), None);
    }
}
