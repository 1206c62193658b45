//! Rate limits: how many requests per client, or in total, are admitted in a period.

use std::fmt;
use std::time::Duration;

use text::{Mistake, OrMistake};

use super::proxies::Cidr;

/// A limit of the `[rate_limits]` table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Letters, digits, `-` and `_`; unique among the limits.
    pub name: String,
    /// The sustained rate.
    pub rate: RequestRate,
    /// Requests that are admitted at once after a pause; at least 1.
    pub burst: u32,
    /// Path prefixes whose requests count, without a trailing slash; the root is empty.
    pub paths: Vec<String>,
    /// Methods whose requests count; empty: all.
    pub methods: Vec<String>,
    pub key: RateKey,
    /// Clients without a limit.
    pub except: Vec<Cidr>,
    /// Whether all servers share one count in Redis.
    pub shared: bool,
    /// Whether requests over the limit are counted but still admitted.
    pub dry_run: bool,
}

impl fmt::Display for RateLimit {
    /// Writes the limit as `firebrick check` and `explain` show it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RateLimit { name, rate, burst, key, .. } = self;
        write!(f, "{name}: {rate} by {key}, {burst} at once")?;
        if !self.methods.is_empty() {
            write!(f, ", {}", self.methods.join(" "))?;
        }
        if self.paths.iter().all(|path| !path.is_empty()) {
            write!(f, ", {}", self.paths.join(" "))?;
        }
        if self.shared {
            f.write_str(", shared by all servers")?;
        }
        if self.dry_run {
            f.write_str(", counted only (dry_run)")?;
        }
        Ok(())
    }
}

/// A number of requests in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestRate {
    /// Requests; at least 1.
    pub count: u32,
    /// From a second to a day, and at least a microsecond per request.
    pub period: Duration,
}

impl RequestRate {
    /// The most requests in a period.
    const MOST: u32 = 1_000_000;
    /// Reads `100/s`, `5/m`, `1000/h`, `10/30s`.
    pub(crate) fn parse(text: &str) -> Result<RequestRate, Mistake> {
        let rate = text::rate::parse(text)?;
        let period = rate.period.filter(|seconds| *seconds <= 86_400).or_mistake()?;
        let is_sound =
            rate.count.fract() == 0.0 && (1.0..=f64::from(RequestRate::MOST)).contains(&rate.count);
        is_sound
            .then(|| RequestRate { count: rate.count as u32, period: Duration::from_secs(period) })
            .or_mistake()
    }

    /// The form that [`RequestRate::parse`] expects.
    pub(crate) const EXPECTED: &'static str = "a number of requests, at most 1000000, and a period of at most a day, such as \"100/s\", \"5/m\", \"1000/h\" or \"10/30s\"";
}

impl fmt::Display for RequestRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::rate::exact(self.count.into(), self.period.as_secs()))
    }
}

/// The key by which requests are counted together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RateKey {
    /// The client's address; for IPv6 its 64-bit network, because one client owns all of it.
    #[default]
    Address,
    /// The value of this header field, whose name is in lower case; requests without the field are not limited.
    Header(String),
    /// One count for all requests.
    All,
}

impl fmt::Display for RateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RateKey::Address => f.write_str("address"),
            RateKey::Header(name) => write!(f, "header:{name}"),
            RateKey::All => f.write_str("all"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_are_written_as_people_say_them() {
        let read = |text| RequestRate::parse(text).ok().map(|rate| (rate.count, rate.period.as_secs()));
        assert_eq!(read("100/s"), Some((100, 1)));
        assert_eq!(read("5 / m"), Some((5, 60)));
        assert_eq!(read("1000/h"), Some((1000, 3_600)));
        assert_eq!(read("10/30s"), Some((10, 30)));
        assert_eq!(read("1000000/1d"), Some((1_000_000, 86_400)));
        for wrong in
            ["", "100", "/s", "100/", "0/s", "1000001/s", "-1/s", "+1/s", "1.5/s", "100/x", "100/0s", "1/2d"]
        {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(count in 1u32..=1_000_000, seconds in 1u64..=86_400) {
            let rate = RequestRate { count, period: Duration::from_secs(seconds) };
            prop_assert_eq!(RequestRate::parse(&rate.to_string()), Ok(rate));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,20}") {
            let _ = RequestRate::parse(&text);
        }
    }
}
