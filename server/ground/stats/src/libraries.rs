//! How well the libraries of an app work with requests on fibers, as the template has determined after
//! loading the app.

use serde::{Deserialize, Serialize};

/// The effect on the other fibers of a thread while a library waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WithFibers {
    /// Requests would be mixed up, so the app does not start with fibers.
    Forbids,
    /// The thread stops with all of its fibers.
    Stops,
    /// Requests wait for one another.
    Slows,
    /// The other fibers run.
    Waits,
}

impl WithFibers {
    /// Returns the words for a table.
    pub fn words(self) -> &'static str {
        match self {
            WithFibers::Forbids => "forbids fibers",
            WithFibers::Stops => "stops the thread",
            WithFibers::Slows => "slows",
            WithFibers::Waits => "waits",
        }
    }
}

/// A library that the app has loaded. Ruby itself counts as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Library {
    /// The name, with a version if that matters.
    pub name: String,
    pub with_fibers: WithFibers,
    /// The reason, and the remedy.
    pub text: String,
}

impl Library {
    /// Parses the fact that a template sends: verdict, name and text, separated by tabs.
    pub fn from_fact(fact: &str) -> Option<Library> {
        let mut words = fact.splitn(3, '\t');
        let with_fibers = match words.next()? {
            "forbids" => WithFibers::Forbids,
            "stops" => WithFibers::Stops,
            "slows" => WithFibers::Slows,
            "waits" => WithFibers::Waits,
            _ => return None,
        };
        Some(Library { with_fibers, name: words.next()?.to_owned(), text: words.next()?.to_owned() })
    }

    /// Returns the warning that a server with fibers logs at its start.
    pub fn warning(&self) -> Option<String> {
        match self.with_fibers {
            WithFibers::Stops => Some(format!("fibers: {} {}", self.name, self.text)),
            WithFibers::Forbids | WithFibers::Slows => Some(self.text.clone()),
            WithFibers::Waits => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_read() {
        let sqlite = Library::from_fact("stops\tsqlite3\treads files\twith the thread").unwrap();
        assert_eq!(sqlite.warning().unwrap(), "fibers: sqlite3 reads files\twith the thread");
        let redis = Library::from_fact("waits\tredis\tothers run").unwrap();
        assert_eq!((redis.with_fibers, redis.warning()), (WithFibers::Waits, None));
        let pool = Library::from_fact("slows\tActive Record\tits pool has 5 connections").unwrap();
        assert_eq!(pool.warning().unwrap(), "its pool has 5 connections");
        for wrong in ["", "stops", "stops\tx", "sings\tx\ty"] {
            assert_eq!(Library::from_fact(wrong), None, "{wrong:?}");
        }
    }
}
