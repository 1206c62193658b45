//! Which rule answers a path, and why: what `firebrick explain` prints.

use std::fmt;

use super::walk::{Found, look};
use super::{Asked, Because, Origin, Rule, Rules, Step};

/// The files of a site, as far as rules ask for them.
pub trait Tree {
    /// What there is at `path` (decoded, below the root, begins with `/`).
    fn kind(&self, path: &str) -> Kind;
}

/// What there is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Nothing, or something that is never served.
    Missing,
    /// A dot file, which is not served.
    Hidden,
}

/// A walk through the rules, for people.
#[derive(Debug, Clone)]
pub struct Explanation {
    path: String,
    looked: Vec<String>,
    answer: String,
    headers: Vec<(String, String)>,
}

impl Explanation {
    /// What was looked at, in order: a line each, without its number.
    pub fn looked_at(&self) -> &[String] {
        &self.looked
    }

    /// The answer in one line: its status first, as far as the rules know it.
    pub fn answer(&self) -> &str {
        &self.answer
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.path)?;
        for (number, line) in self.looked.iter().enumerate() {
            writeln!(f, "{:>3}. {line}", number + 1)?;
        }
        writeln!(f, "\nanswer: {}", self.answer)?;
        if self.headers.is_empty() {
            return writeln!(f, "headers by rules: none");
        }
        writeln!(f, "headers by rules:")?;
        let width = self.headers.iter().map(|(field, _)| field.chars().count()).max().unwrap_or(0).min(60);
        self.headers.iter().try_for_each(|(field, from)| writeln!(f, "  {field:width$}  from {from}"))
    }
}

/// Walks through the rules for one request.
pub fn explain(rules: &Rules, asked: &Asked<'_>, tree: &dyn Tree) -> Explanation {
    let mut explanation = Explanation {
        path: printable(asked.path),
        looked: Vec::new(),
        answer: String::new(),
        headers: Vec::new(),
    };
    let file = explanation.walk(rules, asked, tree);
    explanation.headers(rules, asked.path, file.as_deref());
    explanation
}

impl Explanation {
    /// Fills in what was looked at and the answer; gives the file that answers.
    fn walk<'a>(&mut self, rules: &'a Rules, asked: &Asked<'a>, tree: &dyn Tree) -> Option<String> {
        let mut asked = *asked;
        let moved = self.gate(rules, &mut asked);
        let file = self.behind_gate(rules, &asked, tree);
        let Some(moved) = moved else { return file };
        self.answer = format!("{moved}; there: {}", self.answer);
        None
    }

    /// What comes once the redirects in front of everything have been followed.
    fn behind_gate(&mut self, rules: &Rules, asked: &Asked<'_>, tree: &dyn Tree) -> Option<String> {
        if let Some(auth) = &rules.basic_auth {
            let file = auth.htpasswd_path.as_deref().unwrap_or(".htpasswd");
            let user = auth
                .user
                .as_ref()
                .map(|(name, _)| format!(" and the user {name} of BASIC_AUTH_USERNAME"))
                .unwrap_or_default();
            self.looked.push(format!("basic_auth: 401 without a password; users of {file}{user}"));
        }
        if tree.kind(asked.path) == Kind::Hidden {
            self.looked.push(
                "the path: a name that begins with a dot is never served (but for .well-known)".to_owned(),
            );
            self.missing(rules, tree);
            return None;
        }
        for step in rules.steps(asked.path) {
            match look(rules, &step, tree) {
                None => self.looked.push(format!(
                    "{}: {}",
                    subject(rules, asked.path, &step),
                    absent(&step, tree)
                )),
                Some(found) => return self.found(rules, asked, tree, &step, found),
            }
        }
        None
    }

    /// The redirects in front of everything. Gives the first, and follows them, so that the rest can be explained all the same.
    fn gate<'a>(&mut self, rules: &'a Rules, asked: &mut Asked<'a>) -> Option<String> {
        let mut first = None;
        let host = rules.canonical_host.as_deref().unwrap_or_default();
        let https = (Rule::HttpsOnly, rules.https_only, rules.places.https_only);
        let canonical = (Rule::CanonicalHost, !host.is_empty(), rules.places.canonical_host);
        for (rule, on, at) in [https, canonical] {
            if !on {
                continue;
            }
            let cite = cite(rules, Because { rule, line: Some(at.line) });
            let is_https = rule == Rule::HttpsOnly;
            let taken = super::gate::gate(rules, asked).filter(|(_, because)| because.rule == rule);
            let Some((redirect, _)) = taken else {
                let why = if is_https { "came by https".to_owned() } else { format!("is for {host}") };
                self.looked.push(format!("{cite}: passes, the request {why}"));
                continue;
            };
            let why = if is_https { "came by http".to_owned() } else { format!("is not for {host}") };
            let to = moved(redirect.status, &redirect.location);
            self.looked.push(format!("{cite}: the request {why}: {to}"));
            first.get_or_insert(to);
            if is_https {
                asked.https = true;
                asked.forwarded_proto = Some(b"https");
            } else {
                asked.host = host.as_bytes();
            }
        }
        first
    }

    fn found(
        &mut self,
        rules: &Rules,
        asked: &Asked<'_>,
        tree: &dyn Tree,
        step: &Step,
        found: Found,
    ) -> Option<String> {
        let subject = subject(rules, asked.path, step);
        let mut file = None;
        let (outcome, answer) = match found {
            Found::File(path) => {
                let own = matches!(step, Step::File { path: asked, .. } | Step::Target { path: asked, .. } if *asked == path);
                let outcome = if own {
                    "it is there".to_owned()
                } else {
                    format!("it is there, with {}", printable(&path))
                };
                let answer = format!("200, the file {}", printable(&path));
                file = Some(path);
                (outcome, answer)
            }
            Found::Listing(path) => (
                "it is there, without an index file".to_owned(),
                format!("200, a list of the files in {}", printable(&path)),
            ),
            Found::Move(to) => {
                let mut location = super::escape::encoded(&to, false);
                super::gate::add_query(&mut location, asked.query);
                ("it is there, and has another address".to_owned(), moved(301, &location))
            }
            Found::Forbidden => ("it is there, without an index file".to_owned(), "403".to_owned()),
            Found::Proxy(id) => {
                let host = |origin: &Origin| {
                    origin
                        .url
                        .strip_suffix(&*origin.base)
                        .unwrap_or(&origin.url)
                        .trim_end_matches(':')
                        .to_owned()
                };
                let origins: Vec<String> = rules.proxies[id].origins.iter().map(host).collect();
                let target = rules.upstream_target(id, asked);
                let target = String::from_utf8_lossy(&target);
                let answer = format!("from {}, asked for {target}", origins.join(" or "));
                ("the path is below the prefix".to_owned(), printable(&answer))
            }
            Found::Redirect(id) => {
                let captures = match step {
                    Step::Redirect { captures, .. } => captures.as_slice(),
                    _ => &[],
                };
                let redirect = rules.redirect(id, captures, asked);
                ("the path matches".to_owned(), moved(redirect.status, &redirect.location))
            }
            Found::Missing => {
                self.looked.push(format!("{subject}: {}", missing_because(step)));
                self.missing(rules, tree);
                return None;
            }
        };
        self.looked.push(format!("{subject}: {outcome}"));
        self.answer = answer;
        file
    }

    fn missing(&mut self, rules: &Rules, tree: &dyn Tree) {
        let default = (!rules.compat).then_some("/404.html");
        let page = rules.error_page.as_deref().or(default).filter(|page| tree.kind(page) == Kind::File);
        self.answer = match page {
            Some(page) => format!("404, with the page {page} (in front of an app: the app answers)"),
            None => "404 (in front of an app: the app answers)".to_owned(),
        };
    }

    fn headers(&mut self, rules: &Rules, path: &str, file: Option<&str>) {
        for (name, value, rule) in rules.header_lines(path) {
            let from = format!("headers {:?}{}", rule.key, place(rules, Some(rule.at.line)));
            self.headers.push((format!("{name}: {value}"), from));
        }
        let set =
            self.headers.iter().any(|(field, _)| field.to_ascii_lowercase().starts_with("cache-control:"));
        if let Some(value) = file.and_then(|file| rules.cache_control(file)).filter(|_| !set) {
            self.headers.push((format!("Cache-Control: {value}"), "fingerprinted_assets".to_owned()));
        }
    }
}

fn moved(status: u16, location: &[u8]) -> String {
    format!("{status} to {}", String::from_utf8_lossy(location))
}

/// ` (static.json:12)`
fn place(rules: &Rules, line: Option<u32>) -> String {
    line.map(|line| format!(" ({}:{line})", rules.name())).unwrap_or_default()
}

fn cite(rules: &Rules, because: Because) -> String {
    format!("{}{}", because.rule, place(rules, because.line))
}

/// What a step looks at, and the rule that sends it there.
fn subject(rules: &Rules, path: &str, step: &Step) -> String {
    let because = step.because();
    let by = match because.rule {
        Rule::Path | Rule::End => String::new(),
        _ => format!(", by {}", cite(rules, because)),
    };
    let keyed = |kind: &str, key: &str| format!("{kind} {key:?}{}", place(rules, because.line));
    let route = || {
        let route = rules.routes.iter().find(|route| route.glob.matches(path));
        keyed("routes", route.map_or("", |route| &route.key))
    };
    match step {
        Step::File { path, .. } => format!("the file {}{by}", printable(path)),
        Step::Directory { path, .. } => format!("the folder {}{by}", printable(path)),
        Step::Proxy { id, .. } => keyed("proxies", &rules.proxies[*id].prefix),
        Step::Redirect { id, .. } => keyed("redirects", &rules.redirects[*id].key),
        Step::Target { path, .. } => format!("{}: its target {}", route(), printable(path)),
        Step::Missing { .. } if because.rule == Rule::Route => route(),
        Step::Missing { .. } if because.rule == Rule::End => "proxies, redirects, routes".to_owned(),
        Step::Missing { .. } => cite(rules, because),
    }
}

fn absent(step: &Step, tree: &dyn Tree) -> &'static str {
    match step {
        Step::Directory { path, .. } if tree.kind(path) == Kind::Directory => {
            "it is there, but has no index file"
        }
        Step::File { path, .. } | Step::Target { path, .. } if tree.kind(path) == Kind::Directory => {
            "it is a folder, no file"
        }
        _ => "not there",
    }
}

fn missing_because(step: &Step) -> &'static str {
    match step.because().rule {
        Rule::Route => "the path matches, but there is no target to send",
        Rule::CleanUrls => {
            "a path that ends in .html is a file or nothing: no proxy, redirect or route is asked"
        }
        _ => "none matches",
    }
}

/// A path that cannot move a terminal's cursor.
fn printable(path: &str) -> String {
    path.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
