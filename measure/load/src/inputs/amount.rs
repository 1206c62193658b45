//! Counts, durations and sizes of flags, with their messages; the grammar is that of [`text`].

use std::time::Duration;

use text::size::Letter;

use crate::scenario::Think;

/// Longest accepted duration: 365 days.
const LONGEST: Duration = Duration::from_secs(31_536_000);

/// Parses a duration: `60s`, `1m30s`, `500ms`, `1.5h`; a bare number is seconds; siege's `1M`, `2H`, `30S` too.
///
/// # Errors
/// A description of what is expected.
pub fn duration(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "30s, 500ms, 1m30s or 2h; a bare number is seconds";
    // Siege's M is a minute; elsewhere it may be a month.
    let duration =
        text::span::parse(&text.to_lowercase()).map_err(|why| why.about(text, "a duration", EXPECTED))?;
    if duration > LONGEST { Err(format!("{text:?} is more than a year")) } else { Ok(duration) }
}

/// Parses a count: `600`, `10_000`, `10k`, `1M`.
///
/// # Errors
/// A description of what is expected.
pub fn count(text: &str) -> Result<u64, String> {
    const EXPECTED: &str = "a whole number of at least 1, such as 600, 10k or 1M";
    let within = |count: u64| {
        if (1..=1_000_000_000_000_000).contains(&count) { Ok(count) } else { Err(text::Mistake::default()) }
    };
    text::count::parse(text).and_then(within).map_err(|why| why.about(text, "a count", EXPECTED))
}

/// Parses a size in bytes: `512`, `64KiB`, `10MB`. A `k` alone is 1000 bytes.
///
/// # Errors
/// A description of what is expected.
pub fn size(text: &str) -> Result<u64, String> {
    const EXPECTED: &str = "bytes, or a number with KB, MB, GB, KiB, MiB or GiB, such as 64KiB";
    text::size::parse(text, Letter::Decimal).map_err(|why| why.about(text, "a size", EXPECTED))
}

/// Parses `2s`, or `0..2s` for a random time up to 2 s.
///
/// # Errors
/// A description of what is expected.
pub fn think(text: &str) -> Result<Think, String> {
    let Some((from, to)) = text.split_once("..") else {
        return duration(text).map(|time| if time.is_zero() { Think::None } else { Think::Fixed(time) });
    };
    if !from.is_empty() && !duration(from)?.is_zero() {
        return Err(format!("{text:?}: a random pause starts at 0: expected 0..{to}"));
    }
    duration(to).map(Think::UpTo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_siege_too() {
        let texts = ["90", "90s", "1m30s", "1M 30S", "0.025H"];
        assert_eq!(texts.map(duration), [(); 5].map(|()| Ok(Duration::from_secs(90))));
        let wrong = |text: &str| duration(text).unwrap_err();
        assert_eq!(
            wrong("1m30"),
            "\"1m30\" is not a duration: expected 30s, 500ms, 1m30s or 2h; a bare number is seconds; did you mean \"1m30s\"?"
        );
        assert!(
            wrong("soon").contains("1m30s")
                && wrong("-1s").starts_with("\"-1s\"")
                && wrong("400d").contains("a year")
        );
    }

    #[test]
    fn counts_and_sizes_are_within_their_bounds() {
        assert_eq!(["1", "1.5k", "1M"].map(count), [Ok(1), Ok(1_500), Ok(1_000_000)]);
        for text in ["0", "1.5", "2e15", "1G"] {
            assert!(count(text).unwrap_err().contains("10k or 1M"), "{text}");
        }
        assert_eq!(["0", "1k", "64KiB", "1.5 kB"].map(size), [Ok(0), Ok(1_000), Ok(65_536), Ok(1_500)]);
        assert!(size("10 apples").unwrap_err().contains("64KiB"));
    }
}
