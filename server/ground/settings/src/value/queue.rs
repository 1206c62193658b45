//! The queue: which requests count for one client, and the classes of requests.

use std::fmt;

use text::{Mistake, OrMistake};

/// The settings of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// By what clients take turns in the default pool.
    pub fair: Fair,
    /// The classes in the order of the file, in all pools. Requests that belong to none are in a class
    /// named [`QueueClass::DEFAULT`].
    pub classes: Vec<QueueClass>,
    /// The weight of the class of those requests.
    pub default_weight: u32,
}

/// By what the clients of waiting requests are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Fair {
    /// Not at all: requests are served in order of arrival.
    Off,
    /// By the client's address; in IPv6 by its 64-bit network.
    #[default]
    Address,
    /// By the value of this header field, whose name is in lower case; a request without it, by address.
    Header(String),
    /// By the value of this cookie; a request without it, by address.
    Cookie(String),
    /// By the host that the request is for.
    Host,
}

impl Fair {
    /// The form that [`Fair::parse`] expects.
    pub(crate) const EXPECTED: &'static str = "\"address\", \"off\", \"host\", a header such as \"header:X-Tenant\", or a cookie such as \"cookie:tenant\"";

    pub(crate) fn parse(text: &str) -> Result<Fair, Mistake> {
        let (kind, name) =
            text.split_once(':').map_or((text, None), |(kind, name)| (kind, Some(name.trim())));
        let name = name.filter(|name| name.len() <= 256 && text::is_token(name.as_bytes()));
        match (kind, name) {
            ("off", None) if text == kind => Ok(Fair::Off),
            ("address", None) if text == kind => Ok(Fair::Address),
            ("host", None) if text == kind => Ok(Fair::Host),
            ("header", Some(name)) => Ok(Fair::Header(name.to_ascii_lowercase())),
            ("cookie", Some(name)) => Ok(Fair::Cookie(name.to_owned())),
            _ => None.or_mistake(),
        }
    }
}

impl fmt::Display for Fair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fair::Off => f.write_str("off"),
            Fair::Address => f.write_str("address"),
            Fair::Header(name) => write!(f, "header:{name}"),
            Fair::Cookie(name) => write!(f, "cookie:{name}"),
            Fair::Host => f.write_str("host"),
        }
    }
}

/// A class of requests of the `[queue.classes]` table. All conditions that are set must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueClass {
    /// Letters, digits, `-` and `_`; unique among the classes.
    pub name: String,
    /// The share of the seats compared with other classes. 0 is the last lane: the class is served only while no
    /// request of another class waits.
    pub weight: u32,
    /// Path prefixes without a trailing slash, one of which the path has; empty: any path.
    pub paths: Vec<String>,
    /// A header field that the request has.
    pub header: Option<NamedValue>,
    /// A cookie that the request has.
    pub cookie: Option<NamedValue>,
    /// Whether the request is that of a known crawler, by its `User-Agent`.
    pub crawlers: bool,
}

impl QueueClass {
    /// The name of the class of all requests that belong to no other.
    pub const DEFAULT: &str = "default";
    /// The most classes beside the default one.
    pub const MOST: usize = 16;
    /// The largest weight.
    pub(crate) const HEAVIEST: u64 = 1_000;
}

/// A name, and the value that it must have; without one, any value will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedValue {
    pub name: String,
    pub value: Option<String>,
}

impl fmt::Display for QueueClass {
    /// Writes the class as `firebrick check` shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.weight {
            0 => write!(f, "{}: last lane", self.name)?,
            weight => write!(f, "{}: weight {weight}", self.name)?,
        }
        if !self.paths.is_empty() {
            let shown = |path: &String| if path.is_empty() { "/".to_owned() } else { path.clone() };
            write!(f, ", {}", self.paths.iter().map(shown).collect::<Vec<_>>().join(" "))?;
        }
        for (what, separator, named) in [("header", ": ", &self.header), ("cookie", "=", &self.cookie)] {
            match named {
                Some(NamedValue { name, value: Some(value) }) => {
                    write!(f, ", {what} {name}{separator}{value}")?
                }
                Some(NamedValue { name, value: None }) => write!(f, ", {what} {name}")?,
                None => {}
            }
        }
        if self.crawlers { f.write_str(", crawlers") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn clients_are_told_apart_by_one_thing() {
        for text in ["off", "address", "host", "header:x-tenant", "cookie:tenant"] {
            assert_eq!(Fair::parse(text).map(|fair| fair.to_string()), Ok(text.to_owned()));
        }
        assert_eq!(Fair::parse("header: X-Tenant"), Ok(Fair::Header("x-tenant".to_owned())));
        for wrong in [
            "",
            "ip",
            "header",
            "header:",
            "header:a b",
            "cookie:",
            "cookie:a=b",
            "address:1",
            "off:",
            "host:x",
        ] {
            assert!(Fair::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,20}") {
            if let Ok(fair) = Fair::parse(&text) {
                prop_assert_eq!(Fair::parse(&fair.to_string()), Ok(fair));
            }
        }
    }
}
