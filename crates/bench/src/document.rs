//! What `--json` writes and `--merge` reads.

use std::path::Path;

use load::Outcome;
use serde::{Deserialize, Serialize};
use stats::ServerSnapshot;

use crate::figures::Summary;
use crate::told::Told;

const KIND: &str = "firebrick bench";
const VERSION: u32 = 1;

/// A run that is over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Document {
    /// Always `firebrick bench`.
    pub kind: String,
    /// Of this format.
    pub version: u32,
    /// What it was called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What was asked.
    pub plan: Told,
    /// What it came to; follows from `outcome`.
    pub summary: Summary,
    /// Everything that was seen.
    pub outcome: Outcome,
    /// The server's own figures, when it was asked.
    pub server: Option<Server>,
    /// Of how many runs this is the sum.
    #[serde(default = "one")]
    pub runs: usize,
}

/// A Firebrick before and after the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Server {
    pub before: ServerSnapshot,
    pub after: ServerSnapshot,
}

fn one() -> usize {
    1
}

impl Document {
    pub fn new(name: Option<String>, plan: Told, outcome: Outcome, server: Option<Server>) -> Document {
        Document {
            kind: KIND.to_owned(),
            version: VERSION,
            name,
            plan,
            summary: Summary::of(&outcome),
            outcome,
            server,
            runs: 1,
        }
    }

    /// The JSON, with a line's end.
    pub fn to_json(&self) -> Result<String, String> {
        let text = serde_json::to_string(self)
            .map_err(|why| format!("the result cannot be written as JSON: {why}"))?;
        Ok(text + "\n")
    }

    /// Reads a file of `--json`; `name` is for the mistakes.
    pub fn parse(name: &str, text: &str) -> Result<Document, String> {
        let wrong = |why: String| format!("{name} is not a result of `firebrick bench --json`: {why}");
        let value: serde_json::Value = serde_json::from_str(text).map_err(|why| wrong(why.to_string()))?;
        match value.get("kind").and_then(serde_json::Value::as_str) {
            Some(KIND) => {}
            Some(other) => return Err(wrong(format!("it is one of `{other}`"))),
            None => return Err(wrong("it does not say what it is".to_owned())),
        }
        match value.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            Some(version) => {
                return Err(wrong(format!(
                    "it has version {version} of the format, this Firebrick reads {VERSION}"
                )));
            }
            None => return Err(wrong("it does not say which version of the format it has".to_owned())),
        }
        serde_json::from_value(value).map_err(|why| wrong(why.to_string()))
    }

    /// Adds another run of the same kind.
    pub fn merge(&mut self, other: Document) {
        if self.plan.whom() != other.plan.whom() {
            for url in other.plan.urls {
                if !self.plan.urls.contains(&url) {
                    self.plan.urls.push(url);
                }
            }
            self.plan.url_count = self.plan.urls.len().max(self.plan.url_count).max(other.plan.url_count);
        }
        self.plan.traffic.join(self.runs, &other.plan.traffic, other.runs);
        self.plan.connections += other.plan.connections;
        self.plan.threads += other.plan.threads;
        self.outcome.merge(other.outcome);
        self.summary = Summary::of(&self.outcome);
        self.server = match (self.server.take(), other.server) {
            (Some(one), Some(two)) => Some(longest(one, two)),
            (one, two) => one.or(two),
        };
        self.runs += other.runs;
    }
}

/// From the first look at the server to the last one.
fn longest(one: Server, two: Server) -> Server {
    Server {
        before: if one.before.taken_at <= two.before.taken_at { one.before } else { two.before },
        after: if one.after.taken_at >= two.after.taken_at { one.after } else { two.after },
    }
}

/// Reads and joins files.
///
/// # Errors
/// Every file that cannot be taken, with the reason.
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
    joined.ok_or_else(|| vec!["--merge: no file is named".to_owned()])
}

fn read(file: &Path) -> Result<Document, String> {
    let text = std::fs::read_to_string(file).map_err(|why| format!("{}: {why}", file.display()))?;
    Document::parse(&file.display().to_string(), &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{document, outcome, told};

    #[test]
    fn what_is_written_is_read() {
        let text = document().to_json().unwrap();
        let read = Document::parse("a.json", &text).unwrap();
        assert_eq!(read.summary, document().summary);
        assert_eq!(read.plan, told());
        assert_eq!(read.to_json().unwrap(), text);
    }

    #[test]
    fn others_are_refused_with_the_reason() {
        let text = document().to_json().unwrap();
        for (text, why) in [
            ("hello".to_owned(), "a.json is not a result"),
            ("{}".to_owned(), "does not say what it is"),
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
    fn joined_runs_are_added_up() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["a.json", "b.json"].map(|name| dir.path().join(name));
        for file in &files {
            std::fs::write(file, document().to_json().unwrap()).unwrap();
        }
        let sum = joined(&files).unwrap();
        assert_eq!((sum.runs, sum.plan.connections, sum.outcome.ok), (2, 20, 2_000));
        assert_eq!(sum.summary.latency_ms.p50, document().summary.latency_ms.p50);
        assert_eq!(sum.summary.rate_per_s, 2.0 * document().summary.rate_per_s);
        assert_eq!(sum.plan.whom(), told().whom());
        assert_eq!(outcome().sent * 2, sum.outcome.sent);
        assert_eq!(sum.plan.sentence(), told().sentence().replacen("10 users", "20 users", 1));
        let missing = joined(&[dir.path().join("c.json"), files[0].clone()]).unwrap_err();
        assert!(missing.len() == 1 && missing[0].contains("c.json"), "{missing:?}");
    }
}
