//! The findings of a reload's shadow, for people and programs.

use crate::when;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// The last shadow that has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShadowReport {
    #[serde(with = "when")]
    pub at: SystemTime,
    /// The result as a sentence.
    pub text: String,
    /// Requests of clients whose copies were compared.
    pub requests: u64,
    /// Requests of the server's own that were compared: the paths of the probe.
    pub probes: Vec<String>,
    /// Routes that were compared.
    pub routes: u64,
    /// Differences between the releases, the worst first.
    pub differences: Vec<ReleaseDifference>,
    /// Routes that were not compared.
    pub left_out: Vec<UncomparedRoute>,
}

/// A part of the responses of a route that the new code has differently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReleaseDifference {
    /// The app's name for the route, or the method and the folded path.
    pub route: String,
    /// The part of the response: `status`, `queries`, `header …`, `cookie …`, `JSON …`, `HTML …`, `length`.
    pub part: String,
    /// Its value in the old code; `None` if the part is missing there.
    pub old: Option<String>,
    /// Its value in the new code; `None` if the part is missing there.
    pub new: Option<String>,
    /// Whether the new code fails or does worse, which ends a reload.
    pub worse: bool,
    /// Compared requests that have shown it.
    pub seen: u64,
    /// Up to two of them: method and target.
    pub examples: Vec<String>,
}

/// A route that was not compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UncomparedRoute {
    /// The method and the folded path.
    pub route: String,
    /// The reason.
    pub why: String,
}

impl ReleaseDifference {
    /// Returns the difference with its route and examples, as a line.
    pub fn line(&self) -> String {
        let requests = if self.seen == 1 { "request" } else { "requests" };
        format!(
            "{}: {} ({} {requests}: {})",
            self.route,
            self.describe(),
            self.seen,
            self.examples.join(", ")
        )
    }

    /// Returns the difference as a sentence without its subject.
    pub fn describe(&self) -> String {
        let part = &self.part;
        let more = |value: &str| if value == "present" { String::new() } else { format!(" ({value})") };
        match (self.old.as_deref(), self.new.as_deref()) {
            (Some(old), Some(new)) => format!("{part} was {old}, is {new}"),
            (Some(old), None) => format!("{part} is missing{}", more(old)),
            (None, Some(new)) => format!("{part} is new{}", more(new)),
            (None, None) => part.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_described() {
        let describe = |old: Option<&str>, new: Option<&str>| {
            let [old, new] = [old, new].map(|value| value.map(str::to_owned));
            let (route, part) = (String::new(), "JSON $.a".to_owned());
            ReleaseDifference { route, part, old, new, worse: false, seen: 1, examples: Vec::new() }
                .describe()
        };
        assert_eq!(describe(Some("string"), Some("null")), "JSON $.a was string, is null");
        assert_eq!(describe(Some("string"), None), "JSON $.a is missing (string)");
        assert_eq!(describe(None, Some("present")), "JSON $.a is new");
    }
}
