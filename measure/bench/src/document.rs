//! The format that `--json` writes and `--merge` reads.

use std::path::Path;

use load::Outcome;
use serde::{Deserialize, Serialize};
use stats::ServerSnapshot;

use crate::description::Description;
use crate::figures::Summary;

const KIND: &str = "firebrick bench";
const VERSION: u32 = 1;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Document {
    /// Always `firebrick bench`.
    pub kind: String,
    pub version: u32,
    /// Title of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The description of the run.
    #[serde(rename = "plan")]
    pub description: Description,
    /// The main results; computed from `outcome`.
    pub summary: Summary,
    /// The complete results.
    pub outcome: Outcome,
    /// The server's own statistics, if requested.
    pub server: Option<Server>,
    /// The number of runs merged into this one.
    #[serde(default = "one")]
    pub runs: usize,
    /// A sentence for each process whose results are lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete: Vec<String>,
}

/// Statistics of a Firebrick server before and after the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Server {
    pub before: ServerSnapshot,
    pub after: ServerSnapshot,
}

fn one() -> usize {
    1
}

impl Document {
    pub fn new(
        name: Option<String>,
        description: Description,
        outcome: Outcome,
        server: Option<Server>,
    ) -> Document {
        Document {
            kind: KIND.to_owned(),
            version: VERSION,
            name,
            description,
            summary: Summary::of(&outcome),
            outcome,
            server,
            runs: 1,
            incomplete: Vec::new(),
        }
    }

    /// Returns the JSON, followed by a newline.
    pub fn to_json(&self) -> Result<String, String> {
        json(self)
    }

    /// Parses a `--json` file; messages call it `name`.
    pub fn parse(name: &str, text: &str) -> Result<Document, String> {
        let wrong = |why: String| format!("{name} is not a result of `firebrick bench --json`: {why}");
        let value: serde_json::Value = serde_json::from_str(text).map_err(|why| wrong(why.to_string()))?;
        match value.get("kind").and_then(serde_json::Value::as_str) {
            Some(KIND) => {}
            Some(other) => return Err(wrong(format!("it is a result of `{other}`"))),
            None => return Err(wrong("it has no kind".to_owned())),
        }
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) => {
                return Err(wrong(format!(
                    "it has version {version} of the format; this Firebrick reads version {VERSION}"
                )));
            }
            None => return Err(wrong("it has no format version".to_owned())),
        }
        // From the text again: a second way of reading would double the code of all types in a document.
        serde_json::from_str(text).map_err(|why| wrong(why.to_string()))
    }

    /// Adds another run.
    pub fn merge(&mut self, other: Document) {
        if self.description.target() != other.description.target() {
            for url in other.description.urls {
                if !self.description.urls.contains(&url) {
                    self.description.urls.push(url);
                }
            }
            self.description.url_count =
                self.description.urls.len().max(self.description.url_count).max(other.description.url_count);
        }
        self.description.traffic.join(self.runs, &other.description.traffic, other.runs);
        self.description.connections += other.description.connections;
        self.description.threads += other.description.threads;
        self.description.join_workers(other.description.workers);
        self.outcome.merge(other.outcome);
        self.summary = Summary::of(&self.outcome);
        self.server = match (self.server.take(), other.server) {
            (Some(one), Some(two)) => Some(longest(one, two)),
            (one, two) => one.or(two),
        };
        self.runs += other.runs;
        self.incomplete.extend(other.incomplete);
    }
}

/// Returns the earliest and the latest of the snapshots.
fn longest(one: Server, two: Server) -> Server {
    Server {
        before: if one.before.taken_at <= two.before.taken_at { one.before } else { two.before },
        after: if one.after.taken_at >= two.after.taken_at { one.after } else { two.after },
    }
}

/// Reads and merges files.
///
/// # Errors
/// The files that cannot be used, each with the reason.
pub(crate) fn joined(files: &[impl AsRef<Path>]) -> Result<Document, Vec<String>> {
    let (mut documents, mut mistakes) = (Vec::new(), Vec::new());
    for file in files {
        match read(file.as_ref()) {
            Ok(document) => documents.push(document),
            Err(why) => mistakes.push(why),
        }
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let joined = documents.into_iter().reduce(|mut sum, next| {
        sum.merge(next);
        sum
    });
    joined.ok_or_else(|| vec!["--merge: no file".to_owned()])
}

fn read(file: &Path) -> Result<Document, String> {
    let text = std::fs::read_to_string(file).map_err(|why| format!("{}: {why}", file.display()))?;
    Document::parse(&file.display().to_string(), &text)
}

/// Returns the JSON of a result, followed by a newline.
pub(crate) fn json(result: &impl Serialize) -> Result<String, String> {
    let text =
        serde_json::to_string(result).map_err(|why| format!("cannot write the result as JSON: {why}"))?;
    Ok(text + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{description, document, outcome};

    #[test]
    fn documents_are_read_back() {
        let text = document().to_json().unwrap();
        let read = Document::parse("a.json", &text).unwrap();
        assert_eq!(read.summary, document().summary);
        assert_eq!(read.description, description());
        assert_eq!(read.to_json().unwrap(), text);
    }

    #[test]
    fn other_files_are_rejected_with_the_reason() {
        let text = document().to_json().unwrap();
        for (text, why) in [
            ("hello".to_owned(), "a.json is not a result"),
            ("{}".to_owned(), "no kind"),
            ("{\"kind\":\"firebrick tune\",\"version\":1}".to_owned(), "`firebrick tune`"),
            (text.replacen("\"version\":1", "\"version\":2", 1), "version 2"),
            (text.replacen("\"outcome\"", "\"outgo\"", 1), "outcome"),
            (text[..text.len() / 2].to_owned(), "a.json is not a result"),
        ] {
            let found = Document::parse("a.json", &text).unwrap_err();
            assert!(found.contains(why), "{found}");
        }
    }

    #[test]
    fn merged_runs_are_added_up() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["a.json", "b.json"].map(|name| dir.path().join(name));
        for file in &files {
            std::fs::write(file, document().to_json().unwrap()).unwrap();
        }
        let sum = joined(&files).unwrap();
        assert_eq!((sum.runs, sum.description.connections, sum.outcome.ok), (2, 20, 2_000));
        assert_eq!(sum.summary.latency_ms.p50, document().summary.latency_ms.p50);
        assert_eq!(sum.summary.rate_per_s, 2.0 * document().summary.rate_per_s);
        assert_eq!(sum.description.target(), description().target());
        assert_eq!(outcome().sent * 2, sum.outcome.sent);
        assert_eq!(sum.description.sentence(), description().sentence().replacen("10 users", "20 users", 1));
        let missing = joined(&[dir.path().join("c.json"), files[0].clone()]).unwrap_err();
        assert!(missing.len() == 1 && missing[0].contains("c.json"), "{missing:?}");
    }
}
