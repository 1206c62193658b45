//! Types whose values are lists or pairs, read by the modules of [`crate::value`].

use std::path::{Path, PathBuf};
use std::str::FromStr;

use text::{OrMistake, digits};

use super::{Completion, Mistake, ValueKind, texts};
use crate::raw::Raw;
use crate::value::anchored;
use crate::value::bind::Bind;
use crate::value::control::ControlAddress;
use crate::value::proxies::{Cidr, TrustedProxies};
use crate::value::queue::Fair;
use crate::value::refork::ReforkAfter;
use crate::value::slo::Slo;
use crate::value::step::Step;
use crate::value::threads::Threads;
use crate::value::workers::Workers;

pub(crate) struct Binds;

impl ValueKind<Vec<Bind>> for Binds {
    fn read(&self, raw: &Raw) -> Result<Vec<Bind>, Mistake> {
        // Does not use `parts`: a comma may be part of a socket's path.
        let one = std::slice::from_ref(raw);
        let parts = if let Raw::List(parts) = raw { parts } else { one };
        parts
            .iter()
            .filter(|part| **part != Raw::Word(String::new()))
            .map(|part| part.text().or_mistake()?.parse())
            .collect()
    }

    fn anchor(&self, binds: Vec<Bind>, base: &Path) -> Vec<Bind> {
        binds.into_iter().map(|bind| bind.based_at(base)).collect()
    }

    fn expected(&self) -> String {
        "\"tcp://HOST:PORT\", \"unix://PATH\", \"HOST:PORT\" or \"/PATH\"".to_owned()
    }

    fn is_list(&self) -> bool {
        true
    }
}

/// By what clients are told apart.
pub(crate) struct Fairness;

impl ValueKind<Fair> for Fairness {
    fn read(&self, raw: &Raw) -> Result<Fair, Mistake> {
        Fair::parse(raw.text().or_mistake()?)
    }

    fn expected(&self) -> String {
        Fair::EXPECTED.to_owned()
    }

    fn words(&self) -> Vec<&'static str> {
        vec!["address", "off", "host"]
    }
}

/// Requests until the next refork, per generation.
pub(crate) struct Generations;

impl ValueKind<ReforkAfter> for Generations {
    fn read(&self, raw: &Raw) -> Result<ReforkAfter, Mistake> {
        ReforkAfter::read(raw)
    }

    fn expected(&self) -> String {
        "a number of requests, a list of them such as [1000, 10000] (0 at its end ends reforking), or \"off\""
            .to_owned()
    }

    fn is_list(&self) -> bool {
        true
    }
}

pub(crate) struct ControlAddresses;

/// One part of the value of [`ControlAddresses`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ControlPart {
    /// The path derived from the app's directory.
    Auto,
    /// Turns that path off.
    Off,
    /// An explicit address.
    At(ControlAddress),
}

impl ValueKind<Vec<ControlPart>> for ControlAddresses {
    fn read(&self, raw: &Raw) -> Result<Vec<ControlPart>, Mistake> {
        // As with `Binds`, a comma may be part of a path.
        let one = std::slice::from_ref(raw);
        let parts = if let Raw::List(parts) = raw { parts } else { one };
        let read = |part: &Raw| match part {
            Raw::Switch(false) => Ok(ControlPart::Off),
            part => match part.text().or_mistake()? {
                "auto" => Ok(ControlPart::Auto),
                "off" => Ok(ControlPart::Off),
                text => text.parse().map(ControlPart::At),
            },
        };
        parts.iter().map(read).collect()
    }

    fn anchor(&self, parts: Vec<ControlPart>, base: &Path) -> Vec<ControlPart> {
        let anchored = |part| match part {
            ControlPart::At(address) => ControlPart::At(address.based_at(base)),
            word => word,
        };
        parts.into_iter().map(anchored).collect()
    }

    fn expected(&self) -> String {
        "the path of a socket, \"tcp://HOST:PORT\", \"auto\" or \"off\"".to_owned()
    }

    fn words(&self) -> Vec<&'static str> {
        vec!["auto", "off"]
    }

    fn completion(&self) -> Completion {
        Completion::File
    }

    fn is_list(&self) -> bool {
        true
    }
}

/// Reads a value that is written as text or as a plain number.
fn text_or_number<T: FromStr<Err = Mistake>>(raw: &Raw) -> Result<T, Mistake> {
    match raw {
        Raw::Word(text) | Raw::Text(text) => text.parse(),
        Raw::Integer(number) => number.to_string().parse(),
        _ => Err(Mistake::default()),
    }
}

/// `MIN:MAX`, or one number for both.
pub(crate) struct ThreadRange;

impl ValueKind<Threads> for ThreadRange {
    fn read(&self, raw: &Raw) -> Result<Threads, Mistake> {
        match raw {
            Raw::Word(text) => text_or_number(&Raw::Word(from_one(text))),
            _ => text_or_number(raw),
        }
    }

    fn expected(&self) -> String {
        format!("\"MIN:MAX\" or a number of threads, from 1 to {}", Threads::MOST)
    }
}

/// Raises a minimum of 0 to 1. Flags and variables use Puma's form, where 0 means "start threads as needed";
/// here there is always one.
fn from_one(text: &str) -> String {
    match text.split_once(':') {
        Some((min, max)) if digits(min) == Some(0) => format!("1:{max}"),
        _ => text.to_owned(),
    }
}

/// `MIN:MAX`, or one number for both.
pub(crate) struct WorkerRange;

impl ValueKind<Workers> for WorkerRange {
    fn read(&self, raw: &Raw) -> Result<Workers, Mistake> {
        match raw {
            // 0 is Puma's single mode, with one serving process.
            Raw::Word(text) if digits(text) == Some(0) => Ok(Workers::exactly(1)),
            Raw::Word(text) => text_or_number(&Raw::Word(from_one(text))),
            _ => text_or_number(raw),
        }
    }

    fn expected(&self) -> String {
        format!("\"MIN:MAX\" or a number of workers, from 1 to {}", Workers::MOST)
    }
}

/// An objective of response times.
pub(crate) struct Objectives;

impl ValueKind<Slo> for Objectives {
    fn read(&self, raw: &Raw) -> Result<Slo, Mistake> {
        raw.text().or_mistake()?.parse()
    }

    fn expected(&self) -> String {
        "\"p50 < TIME\", \"p95 < TIME\" or \"p99 < TIME\", such as \"p95 < 200ms\"".to_owned()
    }
}

pub(crate) struct Steps;

impl ValueKind<Step> for Steps {
    fn read(&self, raw: &Raw) -> Result<Step, Mistake> {
        text_or_number(raw)
    }

    fn expected(&self) -> String {
        format!("a number of workers from 1 to {}, or a percentage of them such as \"25%\"", Step::MOST)
    }
}

/// Networks, `unix` or `none`.
pub(crate) struct Proxies;

impl ValueKind<TrustedProxies> for Proxies {
    fn read(&self, raw: &Raw) -> Result<TrustedProxies, Mistake> {
        let parts = raw.parts();
        let words: Vec<&str> = parts.iter().map(|part| part.text().or_mistake()).collect::<Result<_, _>>()?;
        TrustedProxies::parse(&words)
    }

    fn expected(&self) -> String {
        "a list of networks such as \"10.0.0.0/8\" or \"::1\", and \"unix\", or only \"none\"".to_owned()
    }

    fn words(&self) -> Vec<&'static str> {
        vec!["none", "unix"]
    }

    fn is_list(&self) -> bool {
        true
    }
}

/// Addresses and networks.
pub(crate) struct Networks;

impl ValueKind<Vec<Cidr>> for Networks {
    fn read(&self, raw: &Raw) -> Result<Vec<Cidr>, Mistake> {
        let parts = raw.parts();
        parts.iter().map(|part| part.text().or_mistake()?.parse()).collect()
    }

    fn expected(&self) -> String {
        "a list of addresses and networks such as \"192.0.2.7\" or \"10.0.0.0/8\"".to_owned()
    }

    fn is_list(&self) -> bool {
        true
    }
}

/// Reads a list of texts that are all usable.
fn texts_that(raw: &Raw, is_usable: impl Fn(&str) -> bool) -> Result<Vec<String>, Mistake> {
    let one = |part: &Raw| part.text().filter(|text| is_usable(text)).map(str::to_owned).or_mistake();
    raw.parts().iter().map(one).collect()
}

fn has_star_only_at_end(text: &str) -> bool {
    !text.strip_suffix('*').unwrap_or(text).contains('*')
}

/// Origins of pages (RFC 6454), without a trailing slash; `*` is any.
pub(crate) struct Origins;

impl ValueKind<Vec<String>> for Origins {
    fn read(&self, raw: &Raw) -> Result<Vec<String>, Mistake> {
        texts_that(raw, |text| {
            let host = text.strip_prefix("https://").or(text.strip_prefix("http://"));
            let is_host = |host: &str| {
                !host.is_empty()
                    && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:[]_".contains(&byte))
            };
            text == "*" || host.is_some_and(is_host)
        })
    }

    fn expected(&self) -> String {
        "a list of origins such as \"https://shop.example\", or \"*\"".to_owned()
    }

    fn is_list(&self) -> bool {
        true
    }
}

/// Names of streams of the hub, each with `*` at its end or none.
pub(crate) struct StreamNames;

impl ValueKind<Vec<String>> for StreamNames {
    fn read(&self, raw: &Raw) -> Result<Vec<String>, Mistake> {
        // A star elsewhere is more likely a mistake than a part of a name.
        texts_that(raw, |text| !text.is_empty() && has_star_only_at_end(text))
    }

    fn expected(&self) -> String {
        "a list of names of streams such as \"news\", with * only at an end as in \"chat/*\"".to_owned()
    }

    fn is_list(&self) -> bool {
        true
    }
}

pub(crate) struct RequestPaths;

impl ValueKind<Vec<String>> for RequestPaths {
    fn read(&self, raw: &Raw) -> Result<Vec<String>, Mistake> {
        texts_that(raw, |text| text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic()))
    }

    fn expected(&self) -> String {
        "a list of request paths, each beginning with / such as \"/up\"".to_owned()
    }

    fn is_list(&self) -> bool {
        true
    }
}

/// Request paths that include all paths below them. They are stored without a trailing slash (the root is
/// empty) and without duplicates.
pub(crate) struct PathPrefixes;

impl ValueKind<Vec<String>> for PathPrefixes {
    fn read(&self, raw: &Raw) -> Result<Vec<String>, Mistake> {
        // An empty word of a flag or variable overrides a value from a weaker source.
        if matches!(raw, Raw::List(parts) if parts.is_empty()) {
            return Err(Mistake::default());
        }
        let mut prefixes: Vec<String> = Vec::new();
        for path in RequestPaths.read(raw)? {
            if path.contains(['?', '#', '*']) {
                return Err(Mistake::default());
            }
            let prefix = path.trim_end_matches('/');
            if !prefixes.iter().any(|known| known == prefix) {
                prefixes.push(prefix.to_owned());
            }
        }
        Ok(prefixes)
    }

    fn expected(&self) -> String {
        "a list of paths, each beginning with / such as \"/events\", without * and query".to_owned()
    }

    fn is_list(&self) -> bool {
        true
    }
}

/// Request paths; a final `*` matches everything below.
pub(crate) struct RequestPatterns;

impl ValueKind<Vec<String>> for RequestPatterns {
    fn read(&self, raw: &Raw) -> Result<Vec<String>, Mistake> {
        let paths = RequestPaths.read(raw)?;
        if paths.iter().all(|path| has_star_only_at_end(path)) { Ok(paths) } else { Err(Mistake::default()) }
    }

    fn expected(&self) -> String {
        "a list of request paths such as \"/up\" or \"/.well-known/*\", * at the end only".to_owned()
    }

    fn is_list(&self) -> bool {
        true
    }
}

pub(crate) struct Paths;

impl ValueKind<Vec<PathBuf>> for Paths {
    fn read(&self, raw: &Raw) -> Result<Vec<PathBuf>, Mistake> {
        // Does not use `parts`: a comma may be part of a path.
        let one = std::slice::from_ref(raw);
        let parts = if let Raw::List(parts) = raw { parts } else { one };
        let written = parts.iter().filter(|part| **part != Raw::Word(String::new()));
        written.map(|part| texts::Path(Completion::File).read(part)).collect()
    }

    fn anchor(&self, paths: Vec<PathBuf>, base: &Path) -> Vec<PathBuf> {
        paths.iter().map(|path| anchored(path, base)).collect()
    }

    fn expected(&self) -> String {
        "the path of a file, or a list of them".to_owned()
    }

    fn completion(&self) -> Completion {
        Completion::File
    }

    fn is_list(&self) -> bool {
        true
    }
}
