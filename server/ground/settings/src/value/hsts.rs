//! `Strict-Transport-Security` (RFC 6797): tells browsers to use only https for a time.

use std::fmt;
use std::str::FromStr;

use text::OrMistake;

use crate::nearest::nearest;
use text::Mistake;

/// The value of the header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hsts {
    /// Seconds.
    pub max_age: u64,
    /// Whether subdomains are covered, too.
    pub subdomains: bool,
    /// Whether browsers may ship the host in their list (<https://hstspreload.org>).
    pub preload: bool,
}

/// The shortest time in seconds that the browsers' list accepts: a year.
const PRELOADED: u64 = 365 * 86_400;

/// Writes the value of the header field.
impl fmt::Display for Hsts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "max-age={}", self.max_age)?;
        f.write_str(if self.subdomains { "; includeSubDomains" } else { "" })?;
        f.write_str(if self.preload { "; preload" } else { "" })
    }
}

impl FromStr for Hsts {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Hsts, Mistake> {
        let mut parts = text.split([';', ',']).map(str::trim).filter(|part| !part.is_empty());
        let max_age = age(parts.next().unwrap_or_default())?;
        let mut hsts = Hsts { max_age, subdomains: false, preload: false };
        for part in parts {
            match part.to_ascii_lowercase().as_str() {
                "includesubdomains" => hsts.subdomains = true,
                "preload" => hsts.preload = true,
                other => {
                    let near = nearest(other, ["includeSubDomains", "preload"]);
                    return Err(
                        Mistake::expected("only includeSubDomains and preload behind the time").near(near)
                    );
                }
            }
        }
        if hsts.preload && (!hsts.subdomains || max_age < PRELOADED) {
            return Err(Mistake::expected(
                "at least 365d and includeSubDomains with preload: the list of browsers takes nothing else",
            ));
        }
        Ok(hsts)
    }
}

/// Reads a span of time, with or without `max-age=`; a bare number is seconds.
fn age(text: &str) -> Result<u64, Mistake> {
    let age = text::span::parse(text.strip_prefix("max-age=").unwrap_or(text))?;
    // Longer than ten years is a typing mistake.
    let is_sound = age.subsec_nanos() == 0 && age.as_secs() <= 3_650 * 86_400;
    is_sound.then_some(age.as_secs()).or_mistake()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_and_read() {
        for (text, header) in [
            ("365d", "max-age=31536000"),
            ("0", "max-age=0"),
            ("52w", "max-age=31449600"),
            ("max-age=600; includeSubDomains", "max-age=600; includeSubDomains"),
            ("730d, includesubdomains, preload", "max-age=63072000; includeSubDomains; preload"),
        ] {
            let hsts: Hsts = text.parse().unwrap();
            assert_eq!(hsts.to_string(), header);
            assert_eq!(header.parse(), Ok(hsts));
        }
        for text in [
            "",
            "true",
            "1y",
            "365d; preload",
            "1d; includeSubDomains; preload",
            "1d; sub",
            "99999999999999999999d",
        ] {
            assert!(text.parse::<Hsts>().is_err(), "{text}");
        }
    }
}
