//! The orders to interrupt service, as they travel: a pause, and maintenance; and the state that an upgrade hands over.
//!
//! Contract:
//! 1. An order is a JSON object; an unknown field is an error. The command and the server check an order with
//!    the same functions, and their errors name the field, its value and what was expected.
//! 2. Fields missing from an order have defaults: of [`PauseOrder`] here, of [`MaintenanceOrder`] in the
//!    settings of the server.
//! 3. [`Interruptions::read`] reverses [`Interruptions::write`].

use crate::changes::ChangeList;
use serde::{Deserialize, Serialize};
use settings::Cidr;
use std::time::Duration;

/// The time of a pause, by default.
pub const PAUSE: Duration = Duration::from_secs(60);
/// The longest time of a pause.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// The most requests that wait for the end of a pause, by default.
pub const MOST_WAITING: u64 = 1000;
/// The limit of that number. Each takes a connection, or a stream, and some kilobytes.
const WAITING_LIMIT: u64 = 100_000;
/// The largest page of a maintenance in bytes.
pub const LARGEST_PAGE: u64 = 512 << 10;
/// The longest message of a maintenance in characters.
const LONGEST_MESSAGE: usize = 1000;
/// The most paths, or networks, of an order.
const MOST_ENTRIES: usize = 100;

/// An order to hold the requests for the app.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PauseOrder {
    /// The time after which the pause ends by itself, such as `60s`.
    #[serde(rename = "for", skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The most requests that wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// The paths whose requests wait, with those below them; empty: all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
}

/// A checked [`PauseOrder`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedPause {
    pub time: Duration,
    pub max: usize,
    /// Without a trailing slash.
    pub paths: Vec<String>,
}

/// An order to answer requests with a page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaintenanceOrder {
    /// The page: HTML.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<String>,
    /// The time for `Retry-After`, such as `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<String>,
    /// A text for the server's own page, and for JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Addresses and networks whose requests are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
    /// Paths that are served, with those below them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_paths: Option<Vec<String>>,
}

/// A checked [`MaintenanceOrder`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Maintenance {
    pub page: Option<String>,
    pub retry_after: Option<Duration>,
    pub message: Option<String>,
    pub allow: Option<Vec<Cidr>>,
    /// Without a trailing slash.
    pub allow_paths: Option<Vec<String>>,
}

impl PauseOrder {
    /// # Errors
    /// A value is invalid; the text names it.
    pub fn check(&self) -> Result<CheckedPause, String> {
        let time = match &self.time {
            None => PAUSE,
            Some(text) => {
                let expected = || format!("for: {text}: expected a time such as 30s or 2m, from 1s to 10m");
                let time = settings::period(text).map_err(|_| expected())?;
                let may = (Duration::from_secs(1)..=LONGEST_PAUSE).contains(&time);
                may.then_some(time).ok_or_else(expected)?
            }
        };
        let max = self.max.unwrap_or(MOST_WAITING);
        if !(1..=WAITING_LIMIT).contains(&max) {
            return Err(format!("max: {max}: expected a number from 1 to {WAITING_LIMIT}"));
        }
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        Ok(CheckedPause { time, max, paths: prefixes("paths", &self.paths)? })
    }
}

impl MaintenanceOrder {
    /// # Errors
    /// A value is invalid; the text names it.
    pub fn check(&self) -> Result<Maintenance, String> {
        let retry_after = match &self.retry_after {
            None => None,
            Some(text) => {
                let expected =
                    || format!("retry_after: {text}: expected a time such as 90s or 10m, from 1s to 1d");
                let time = settings::period(text).map_err(|_| expected())?;
                Some(Some(time).filter(|time| time.as_secs() > 0).ok_or_else(expected)?)
            }
        };
        if let Some(page) = &self.page {
            is_page(page.len() as u64).map_err(|why| format!("page: {why}"))?;
        }
        if let Some(message) = &self.message {
            is_message(message)?;
        }
        let allow = self.allow.as_ref().map(|texts| networks(texts)).transpose()?;
        let allow_paths =
            self.allow_paths.as_ref().map(|paths| prefixes("allow_paths", paths)).transpose()?;
        Ok(Maintenance {
            page: self.page.clone(),
            retry_after,
            message: self.message.clone(),
            allow,
            allow_paths,
        })
    }
}

/// Checks the length of a page in bytes.
///
/// # Errors
/// It is too large, or empty.
pub fn is_page(length: u64) -> Result<(), String> {
    match length {
        0 => Err("the page is empty".to_owned()),
        1..=LARGEST_PAGE => Ok(()),
        _ => Err(format!("the page has {length} bytes, and a page may have {} KiB", LARGEST_PAGE >> 10)),
    }
}

fn is_message(message: &str) -> Result<(), String> {
    let length = message.chars().count();
    if length > LONGEST_MESSAGE {
        return Err(format!("message: expected at most {LONGEST_MESSAGE} characters, not {length}"));
    }
    if message.contains(|letter: char| letter.is_control() && letter != '\n') {
        return Err("message: expected text without control characters".to_owned());
    }
    Ok(())
}

fn networks(texts: &[String]) -> Result<Vec<Cidr>, String> {
    few("allow", texts)?;
    let read = |text: &String| {
        text.parse().map_err(|_| {
            format!("allow: {text}: expected an address or a network such as 192.0.2.7 or 10.0.0.0/8")
        })
    };
    texts.iter().map(read).collect()
}

/// Returns paths without a trailing slash. The root is empty.
fn prefixes(field: &str, paths: &[String]) -> Result<Vec<String>, String> {
    few(field, paths)?;
    let read = |path: &String| {
        let valid = path.starts_with('/')
            && path.bytes().all(|byte| byte.is_ascii_graphic())
            && !path.contains(['?', '#', '*']);
        let expected = || format!("{field}: {path}: expected a path such as /orders, without * and query");
        valid.then(|| path.trim_end_matches('/').to_owned()).ok_or_else(expected)
    };
    paths.iter().map(read).collect()
}

fn few(field: &str, entries: &[String]) -> Result<(), String> {
    let many = || format!("{field}: expected at most {MOST_ENTRIES} entries, not {}", entries.len());
    (entries.len() <= MOST_ENTRIES).then_some(()).ok_or_else(many)
}

/// Why an order was not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrderError {
    /// A value of the order, or of the settings that complete it, is invalid.
    Invalid(String),
    /// The server is in no state for it.
    Conflict(String),
}

/// The interruptions and the changes of settings in force, for the program that takes over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interruptions {
    pub pause: Option<PauseInForce>,
    pub maintenance: Option<MaintenanceInForce>,
    /// The changes of settings, also those that have ended.
    pub changes: ChangeList,
}

/// A pause in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PauseInForce {
    pub remaining_ms: u64,
    pub max: usize,
    pub paths: Vec<String>,
}

/// A maintenance in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MaintenanceInForce {
    /// The page; `None`: the server's own.
    pub page: Option<String>,
    pub retry_after_s: u64,
    pub message: Option<String>,
    pub allow: Vec<String>,
    pub allow_paths: Vec<String>,
    pub ready: bool,
    /// Seconds since the epoch.
    pub since_s: u64,
    /// The file that switched maintenance on; `None` if a command did.
    pub file: Option<std::path::PathBuf>,
}

impl Interruptions {
    pub fn is_empty(&self) -> bool {
        self.pause.is_none() && self.maintenance.is_none() && self.changes.is_empty()
    }

    pub fn write(&self) -> Vec<u8> {
        // Plain fields can always be written.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// # Errors
    /// The bytes were not written by [`Interruptions::write`].
    pub fn read(bytes: &[u8]) -> Result<Interruptions, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pause(json: &str) -> Result<CheckedPause, String> {
        serde_json::from_str::<PauseOrder>(json).map_err(|error| error.to_string())?.check()
    }

    fn maintenance(json: &str) -> Result<Maintenance, String> {
        serde_json::from_str::<MaintenanceOrder>(json).map_err(|error| error.to_string())?.check()
    }

    #[test]
    fn a_pause_has_defaults_and_bounds() {
        assert_eq!(pause("{}"), Ok(CheckedPause { time: PAUSE, max: 1000, paths: Vec::new() }));
        let all = pause(r#"{"for":"2m","max":7,"paths":["/orders/","/"]}"#).unwrap();
        assert_eq!(
            (all.time.as_secs(), all.max, all.paths),
            (120, 7, vec!["/orders".to_owned(), String::new()])
        );
        for (json, field) in [
            (r#"{"for":"0s"}"#, "for: 0s: expected a time"),
            (r#"{"for":"11m"}"#, "for: 11m: expected a time"),
            (r#"{"for":"soon"}"#, "for: soon: expected a time"),
            (r#"{"max":0}"#, "max: 0: expected a number"),
            (r#"{"max":100001}"#, "max: 100001"),
            (r#"{"paths":["orders"]}"#, "paths: orders: expected a path"),
            (r#"{"paths":["/a*"]}"#, "paths: /a*"),
            (r#"{"time":"1s"}"#, "unknown field `time`"),
        ] {
            let why = pause(json).unwrap_err();
            assert!(why.starts_with(field), "{json}: {why}");
        }
    }

    #[test]
    fn a_maintenance_names_what_is_wrong() {
        assert_eq!(maintenance("{}"), Ok(Maintenance::default()));
        let all = maintenance(r#"{"retry_after":"10m","allow":["10.0.0.0/8","::1"],"allow_paths":["/up"]}"#)
            .unwrap();
        assert_eq!((all.retry_after.unwrap().as_secs(), all.allow.unwrap().len()), (600, 2));
        let large = format!(r#"{{"page":"{}"}}"#, "x".repeat(LARGEST_PAGE as usize + 1));
        for (json, field) in [
            (r#"{"retry_after":"0"}"#, "retry_after: 0: expected a time"),
            (r#"{"retry_after":"2d"}"#, "retry_after: 2d"),
            (r#"{"allow":["10.0.0.0/33"]}"#, "allow: 10.0.0.0/33: expected an address"),
            (r#"{"allow":["localhost"]}"#, "allow: localhost"),
            (r#"{"allow_paths":["up"]}"#, "allow_paths: up: expected a path"),
            (r#"{"page":""}"#, "page: the page is empty"),
            (r#"{"message":"a\u0007b"}"#, "message: expected text"),
            (&large, "page: the page has 524289 bytes, and a page may have 512 KiB"),
        ] {
            let why = maintenance(json).unwrap_err();
            assert!(why.starts_with(field), "{field}: {why}");
        }
    }

    proptest! {
        #[test]
        fn any_order_is_read_or_refused(json in "[{}\\[\\]\":,a-z0-9/ ]{0,60}") {
            let _ = pause(&json);
            let _ = maintenance(&json);
            let _ = Interruptions::read(json.as_bytes());
        }

        #[test]
        fn interruptions_survive(max: u16, page: Option<String>, paths: Vec<String>, ready: bool) {
            let interruptions = Interruptions {
                pause: Some(PauseInForce { remaining_ms: 5, max: max.into(), paths: paths.clone() }),
                maintenance: Some(MaintenanceInForce { page, allow_paths: paths, ready, ..Default::default() }),
                changes: ChangeList::default(),
            };
            prop_assert_eq!(Interruptions::read(&interruptions.write()), Ok(interruptions));
        }
    }
}
