//! The app's libraries, and what they do with fibers.

use serde::Serialize;
use serde_json::Value;

/// The behaviour of a library of the app with fibers, as reported by the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Library {
    pub(crate) name: String,
    pub(crate) with_fibers: String,
    pub(crate) text: String,
}

/// Returns the libraries in `/stats`, the worst first; empty if the Ruby cannot serve with fibers.
pub(crate) fn reported(stats: &Value) -> Vec<Library> {
    let all = stats["libraries"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let one = |one: &Value| {
        Some(Library {
            name: text(&one["name"])?,
            with_fibers: text(&one["with_fibers"])?,
            text: text(&one["text"])?,
        })
    };
    all.iter().filter_map(one).collect()
}

impl Library {
    pub(crate) fn forbids(&self) -> bool {
        self.with_fibers == "forbids"
    }

    /// Returns a sentence about a disadvantage with fibers, if there is one.
    pub(crate) fn weakens(&self) -> Option<String> {
        match self.with_fibers.as_str() {
            "stops" => Some(format!("With fibers, {} {}.", self.name, self.text)),
            "slows" => Some(format!("{}.", self.text)),
            _ => None,
        }
    }
}
