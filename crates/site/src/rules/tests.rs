//! Table-driven tests: small sites with their `static.json`, and what each path gets. The behaviours are those of the buildpack's
//! own sites, with other data; then what goes beyond it.

mod beyond;
mod buildpack;
mod messages;
mod properties;

use handler::Fields;

use super::walk::{Found, walk};
use super::{Asked, Kind, Parsed, Rules, Tree, explain};

/// A site: its rules, its files and its environment.
struct Site {
    parsed: Parsed,
    files: Vec<String>,
}

impl Tree for Site {
    fn kind(&self, path: &str) -> Kind {
        if path.split('/').any(|segment| segment.starts_with('.') && segment != ".well-known") {
            return Kind::Hidden;
        }
        let folder = format!("{}/", path.trim_end_matches('/'));
        if self.files.iter().any(|file| file == path) {
            Kind::File
        } else if self.files.iter().any(|file| file.starts_with(&folder)) {
            Kind::Directory
        } else {
            Kind::Missing
        }
    }
}

impl Site {
    fn new(json: &str, files: &str) -> Site {
        Site::with(json, files, &[])
    }

    /// Files are separated by blanks.
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

    /// What a plain request over http for a path gets.
    fn get(&self, path: &str) -> String {
        self.ask(path, |_| {})
    }

    /// What a request gets, in short: `gate …`, `file …`, `move …`, `proxy …`, `redirect …`, `403`, `404`.
    fn ask(&self, path: &str, change: impl FnOnce(&mut Asked<'_>)) -> String {
        let fields = Fields::default();
        let mut asked = asked(path, &fields);
        change(&mut asked);
        let rules = self.rules();
        if let Some(redirect) = rules.gate(&asked) {
            return format!("gate {} {}", redirect.status, String::from_utf8(redirect.location).unwrap());
        }
        // Every walk can be explained.
        assert!(!explain(rules, &asked, self).answer().is_empty());
        let (step, found) = walk(rules, path, self);
        match (found, step) {
            (Found::File(path), _) => format!("file {path}"),
            (Found::Listing(path), _) => format!("list {path}"),
            (Found::Move(path), _) => format!("move {path}"),
            (Found::Proxy(id), _) => {
                format!("proxy {id} {}", String::from_utf8(rules.upstream_target(id, &asked)).unwrap())
            }
            (Found::Redirect(id), super::Step::Redirect { captures, .. }) => {
                let redirect = rules.redirect(id, &captures, &asked);
                format!("redirect {} {}", redirect.status, String::from_utf8(redirect.location).unwrap())
            }
            (Found::Forbidden, _) => "403".to_owned(),
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

    /// `path | expected`, a line each.
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

/// A plain request over http.
fn asked<'a>(path: &'a str, fields: &'a Fields) -> Asked<'a> {
    Asked {
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
