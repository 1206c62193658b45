//! How long a response is fresh, and how old it is (RFC 9111 section 4.2).

use crate::directives::{ResponseDirectives, seconds};
use handler::Fields;
use representation::date;
use std::time::{Duration, SystemTime};

/// How long a response is fresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// The origin said it.
    Explicit(Duration),
    /// Derived from Last-Modified (section 4.2.2).
    Heuristic(Duration),
    /// Neither a lifetime nor a validator: stale at once.
    Unknown,
}

impl Lifetime {
    pub(crate) fn duration(self) -> Duration {
        match self {
            Lifetime::Explicit(duration) | Lifetime::Heuristic(duration) => duration,
            Lifetime::Unknown => Duration::ZERO,
        }
    }
}

/// The heuristic lifetime is the time since Last-Modified divided by this number (section 4.2.2).
const HEURISTIC_PARTS: u32 = 10;

/// Returns the lifetime of a response that arrived at `now`. `targeted`: the directives are those of
/// CDN-Cache-Control, which also overrides Expires. `heuristic`: the longest lifetime if the response states
/// none.
pub(crate) fn lifetime(
    status: u16,
    fields: &Fields,
    directives: &ResponseDirectives,
    targeted: bool,
    heuristic: Duration,
    now: SystemTime,
) -> Lifetime {
    if let Some(seconds) = directives.s_maxage.or(directives.max_age) {
        return Lifetime::Explicit(Duration::from_secs(seconds));
    }
    let date = fields.get("date").and_then(date::parse).unwrap_or(now);
    if !targeted && fields.get("expires").is_some() {
        return Lifetime::Explicit(expires(fields).map_or(Duration::ZERO, |at| since(at, date)));
    }
    let may = heuristic > Duration::ZERO && (is_heuristic(status) || directives.public);
    let modified = fields.get("last-modified").and_then(date::parse).filter(|_| may);
    match modified {
        // Pragma is HTTP/1.0's no-cache (section 5.4).
        Some(modified) if !fields.lists("pragma", "no-cache") => {
            Lifetime::Heuristic((since(date, modified) / HEURISTIC_PARTS).min(heuristic))
        }
        _ => Lifetime::Unknown,
    }
}

/// Returns whether responses with this status may be kept without an explicit lifetime (RFC 9110 section 15.1).
fn is_heuristic(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Returns the value of the only Expires field; `None` if it cannot be read, which means "already expired"
/// (RFC 9111 section 5.3).
fn expires(fields: &Fields) -> Option<SystemTime> {
    let mut values = fields.all("expires");
    let only = values.next().filter(|_| values.next().is_none())?;
    date::parse(only)
}

fn since(later: SystemTime, earlier: SystemTime) -> Duration {
    later.duration_since(earlier).unwrap_or(Duration::ZERO)
}

/// Returns the age of a response when it arrived (section 4.2.3). `took`: the time between request and response.
pub(crate) fn initial_age(fields: &Fields, arrived: SystemTime, took: Duration) -> Duration {
    let apparent =
        fields.get("date").and_then(date::parse).map_or(Duration::ZERO, |date| since(arrived, date));
    let told = fields.get("age").map(first).and_then(seconds).unwrap_or(0);
    apparent.max(Duration::from_secs(told) + took)
}

/// Returns the first member of a list: the value that the first sender wrote.
fn first(value: &[u8]) -> &[u8] {
    value.split(|&byte| byte == b',').next().unwrap_or_default().trim_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000)
    }

    fn at(seconds: i64) -> String {
        let now = 1_800_000_000_i64 + seconds;
        date::format(UNIX_EPOCH + Duration::from_secs(now as u64))
    }

    fn of(status: u16, all: &[(&str, &str)]) -> Lifetime {
        let mut fields = Fields::default();
        all.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
        let directives = ResponseDirectives::of(&fields);
        lifetime(status, &fields, &directives, false, Duration::from_secs(100), now())
    }

    fn seconds_of(lifetime: Lifetime) -> u64 {
        lifetime.duration().as_secs()
    }

    #[test]
    fn shared_before_private_before_expires() {
        let expires = at(30);
        let all = [("Cache-Control", "s-maxage=10, max-age=20"), ("Expires", &expires)];
        assert_eq!((seconds_of(of(200, &all)), seconds_of(of(200, &all[1..]))), (10, 30));
        assert_eq!(seconds_of(of(200, &[("Cache-Control", "max-age=20"), all[1]])), 20);
    }

    #[test]
    fn expires_counts_from_date_and_must_be_a_date() {
        let (date, expires) = (at(-50), at(10));
        assert_eq!(seconds_of(of(200, &[("Date", &date), ("Expires", &expires)])), 60);
        for wrong in ["0", "never", &at(-5)] {
            assert_eq!(of(200, &[("Expires", wrong)]), Lifetime::Explicit(Duration::ZERO), "{wrong}");
        }
        assert_eq!(
            of(200, &[("Expires", &expires), ("Expires", &expires)]),
            Lifetime::Explicit(Duration::ZERO)
        );
    }

    #[test]
    fn the_heuristic_is_a_tenth_and_bounded() {
        let (recent, old) = (at(-300), at(-1_000_000));
        assert_eq!(of(200, &[("Last-Modified", &recent)]), Lifetime::Heuristic(Duration::from_secs(30)));
        assert_eq!(of(404, &[("Last-Modified", &old)]), Lifetime::Heuristic(Duration::from_secs(100)));
        assert_eq!(of(500, &[("Last-Modified", &old)]), Lifetime::Unknown);
        assert_eq!(seconds_of(of(599, &[("Last-Modified", &old), ("Cache-Control", "public")])), 100);
        assert_eq!(of(200, &[("Last-Modified", &old), ("Pragma", "no-cache")]), Lifetime::Unknown);
        assert_eq!(of(200, &[]), Lifetime::Unknown);
    }

    #[test]
    fn the_age_is_the_larger_of_what_is_told_and_what_is_seen() {
        let age = |all: &[(&str, &str)]| {
            let mut fields = Fields::default();
            all.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
            initial_age(&fields, now(), Duration::from_secs(2)).as_secs()
        };
        let date = at(-40);
        assert_eq!(age(&[]), 2);
        assert_eq!((age(&[("Age", "10")]), age(&[("Age", "10"), ("Date", &date)])), (12, 40));
        assert_eq!((age(&[("Age", "7200, 0")]), age(&[("Age", "0, 7200")])), (7202, 2));
        assert_eq!(
            (age(&[("Age", "7200"), ("Age", "0")]), age(&[("Age", "-5")]), age(&[("Age", "1.5")])),
            (7202, 2, 2)
        );
    }
}
