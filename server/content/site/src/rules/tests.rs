//! Table-driven tests: small sites with their `static.json`, and the result for each path. They cover the
//! behaviour of the buildpack's own test sites, with other data, and the features beyond it.

mod beyond;
mod buildpack;
mod messages;
mod properties;

use handler::Fields;

use super::walk::{StepResult, walk};
use super::{FileKind, FileTree, Parsed, RequestView, Rules, explain};

/// A site: its rules, its files and its environment.
struct Site {
    parsed: Parsed,
    files: Vec<String>,
}

impl FileTree for Site {
    fn kind(&self, path: &str) -> FileKind {
        if path.split('/').any(|segment| segment.starts_with('.') && segment != ".well-known") {
            return FileKind::Hidden;
        }
        let folder = format!("{}/", path.trim_end_matches('/'));
        if self.files.iter().any(|file| file == path) {
            FileKind::File
        } else if self.files.iter().any(|file| file.starts_with(&folder)) {
            FileKind::Directory
        } else {
            FileKind::Missing
        }
    }
}

impl Site {
    fn new(json: &str, files: &str) -> Site {
        Site::with(json, files, &[])
    }

    /// `files` are separated by whitespace.
    fn with(json: &str, files: &str, environment: &[(&str, &str)]) -> Site {
        let variable = |name: &str| {
            environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let parsed = Rules::parse("static.json", json, &variable).unwrap_or_else(|mistakes| {
            panic!("{}", mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        });
        Site { parsed, files: files.split_whitespace().map(str::to_owned).collect() }
    }

    fn rules(&self) -> &Rules {
        &self.parsed.rules
    }

    /// Returns the result of a plain request over http.
    fn get(&self, path: &str) -> String {
        self.ask(path, |_| {})
    }

    /// Returns the result of a request, in short: `gate …`, `file …`, `move …`, `proxy …`, `redirect …`, `403`, `404`.
    fn ask(&self, path: &str, change: impl FnOnce(&mut RequestView<'_>)) -> String {
        let fields = Fields::default();
        let mut request = request(path, &fields);
        change(&mut request);
        let rules = self.rules();
        if let Some(redirect) = rules.gate(&request) {
            return format!("gate {} {}", redirect.status, String::from_utf8(redirect.location).unwrap());
        }
        // Every request can be explained.
        assert!(!explain(rules, &request, self).response().is_empty());
        let (step, found) = walk(rules, path, self);
        match (found, step) {
            (StepResult::File(path), _) => format!("file {path}"),
            (StepResult::Listing(path), _) => format!("list {path}"),
            (StepResult::Move(path), _) => format!("move {path}"),
            (StepResult::Proxy(id), _) => {
                format!("proxy {id} {}", String::from_utf8(rules.upstream_target(id, &request)).unwrap())
            }
            (StepResult::Redirect(id), super::RuleStep::Redirect { captures, .. }) => {
                let redirect = rules.redirect(id, &captures, &request);
                format!("redirect {} {}", redirect.status, String::from_utf8(redirect.location).unwrap())
            }
            (StepResult::Forbidden, _) => "403".to_owned(),
            _ => "404".to_owned(),
        }
    }

    fn headers(&self, path: &str) -> String {
        let fields: Vec<String> =
            self.rules().headers(path).iter().map(|(name, value)| format!("{name}: {value}")).collect();
        fields.join("; ")
    }

    fn notes(&self) -> Vec<String> {
        self.parsed.notes.iter().map(ToString::to_string).collect()
    }

    /// Checks lines of `path | expected`.
    fn check(&self, table: &str) {
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (path, expected) = line.split_once('|').unwrap();
            assert_eq!(self.get(path.trim()), expected.trim(), "{line}");
        }
    }

    fn check_headers(&self, table: &str) {
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (path, expected) = line.split_once('|').unwrap();
            assert_eq!(self.headers(path.trim()), expected.trim(), "{line}");
        }
    }
}

/// Returns a plain request over http.
fn request<'a>(path: &'a str, fields: &'a Fields) -> RequestView<'a> {
    RequestView {
        path,
        raw_path: path.as_bytes(),
        query: b"",
        host: b"site.example:8080",
        https: false,
        forwarded_proto: None,
        remote: "192.0.2.1",
        fields,
    }
}

fn mistakes(json: &str) -> Vec<String> {
    let Err(mistakes) = Rules::parse("static.json", json, &|_| None) else { panic!("{json} is accepted") };
    mistakes.iter().map(ToString::to_string).collect()
}
