//! Explains which rule applies to a path, and why, for `firebrick explain`.

use std::fmt;

use super::walk::{FileKind, FileTree, StepResult, look};
use super::{ProxyOrigin, RequestView, RuleKind, RuleRef, RuleStep, Rules};

/// The steps tried for a request and the result, as text.
#[derive(Debug, Clone)]
pub struct Explanation {
    path: String,
    steps: Vec<String>,
    response: String,
    headers: Vec<(String, String)>,
}

impl Explanation {
    /// The steps tried, in order: one line each, without a number.
    pub fn steps(&self) -> &[String] {
        &self.steps
    }

    /// The response in one line, beginning with its status, as far as the rules determine it.
    pub fn response(&self) -> &str {
        &self.response
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.path)?;
        for (number, line) in self.steps.iter().enumerate() {
            writeln!(f, "{:>3}. {line}", number + 1)?;
        }
        writeln!(f, "\nresponse: {}", self.response)?;
        if self.headers.is_empty() {
            return writeln!(f, "headers by rules: none");
        }
        writeln!(f, "headers by rules:")?;
        let width = self.headers.iter().map(|(field, _)| field.chars().count()).max().unwrap_or(0).min(60);
        self.headers.iter().try_for_each(|(field, from)| writeln!(f, "  {field:width$}  from {from}"))
    }
}

/// Follows the rules for one request.
pub fn explain(rules: &Rules, request: &RequestView<'_>, tree: &dyn FileTree) -> Explanation {
    let mut explanation = Explanation {
        path: printable(request.path),
        steps: Vec::new(),
        response: String::new(),
        headers: Vec::new(),
    };
    let file = explanation.walk(rules, request, tree);
    explanation.headers(rules, request.path, file.as_deref());
    explanation
}

impl Explanation {
    /// Fills in the steps and the result. Returns the file that is served.
    fn walk<'a>(
        &mut self,
        rules: &'a Rules,
        request: &RequestView<'a>,
        tree: &dyn FileTree,
    ) -> Option<String> {
        let mut request = *request;
        let moved = self.gate(rules, &mut request);
        let file = self.behind_gate(rules, &request, tree);
        let Some(moved) = moved else { return file };
        self.response = format!("{moved}; then: {}", self.response);
        None
    }

    /// Follows the steps after the redirects of `https_only` and `canonical_host`.
    fn behind_gate(
        &mut self,
        rules: &Rules,
        request: &RequestView<'_>,
        tree: &dyn FileTree,
    ) -> Option<String> {
        if let Some(auth) = &rules.basic_auth {
            let file = auth.htpasswd_path.as_deref().unwrap_or(".htpasswd");
            let user = auth
                .user
                .as_ref()
                .map(|(name, _)| format!(" and the user {name} of BASIC_AUTH_USERNAME"))
                .unwrap_or_default();
            self.steps.push(format!("basic_auth: 401 without a password; users of {file}{user}"));
        }
        if tree.kind(request.path) == FileKind::Hidden {
            self.steps.push(
                "the path: a name that begins with a dot is never served (except .well-known)".to_owned(),
            );
            self.missing(rules, tree);
            return None;
        }
        for step in rules.steps(request.path) {
            match look(rules, &step, tree) {
                None => self.steps.push(format!(
                    "{}: {}",
                    subject(rules, request.path, &step),
                    absent(&step, tree)
                )),
                Some(found) => return self.found(rules, request, tree, &step, found),
            }
        }
        None
    }

    /// Applies `https_only` and `canonical_host`. Returns the first redirect, then continues as if the client
    /// had followed all of them.
    fn gate<'a>(&mut self, rules: &'a Rules, request: &mut RequestView<'a>) -> Option<String> {
        let mut first = None;
        let host = rules.canonical_host.as_deref().unwrap_or_default();
        let https = (RuleKind::HttpsOnly, rules.https_only, rules.spans.https_only);
        let canonical = (RuleKind::CanonicalHost, !host.is_empty(), rules.spans.canonical_host);
        for (rule, on, at) in [https, canonical] {
            if !on {
                continue;
            }
            let cite = cite(rules, RuleRef { kind: rule, line: Some(at.line) });
            let is_https = rule == RuleKind::HttpsOnly;
            let taken = super::gate::gate(rules, request).filter(|(_, from)| from.kind == rule);
            let Some((redirect, _)) = taken else {
                let why = if is_https { "uses https".to_owned() } else { format!("is for {host}") };
                self.steps.push(format!("{cite}: passes, the request {why}"));
                continue;
            };
            let why = if is_https { "uses http".to_owned() } else { format!("is not for {host}") };
            let to = moved(redirect.status, &redirect.location);
            self.steps.push(format!("{cite}: the request {why}: {to}"));
            first.get_or_insert(to);
            if is_https {
                request.https = true;
                request.forwarded_proto = Some(b"https");
                if !rules.compat && !host.is_empty() {
                    // The redirect for `https_only` also leads to the canonical host.
                    request.host = host.as_bytes();
                }
            } else {
                request.host = host.as_bytes();
            }
        }
        first
    }

    fn found(
        &mut self,
        rules: &Rules,
        request: &RequestView<'_>,
        tree: &dyn FileTree,
        step: &RuleStep,
        found: StepResult,
    ) -> Option<String> {
        let subject = subject(rules, request.path, step);
        let mut file = None;
        let (outcome, response) = match found {
            StepResult::File(path) => {
                let own = matches!(step, RuleStep::File { path: request, .. } | RuleStep::Target { path: request, .. } if *request == path);
                let outcome =
                    if own { "found".to_owned() } else { format!("found, with {}", printable(&path)) };
                let response = format!("200, the file {}", printable(&path));
                file = Some(path);
                (outcome, response)
            }
            StepResult::Listing(path) => {
                ("found, without an index file".to_owned(), format!("200, a listing of {}", printable(&path)))
            }
            StepResult::Move(to) => {
                let mut location = super::escape::encoded(&to, false);
                super::gate::add_query(&mut location, request.query);
                ("found, under another address".to_owned(), moved(301, &location))
            }
            StepResult::Forbidden => ("found, without an index file".to_owned(), "403".to_owned()),
            StepResult::Proxy(id) => {
                let host = |origin: &ProxyOrigin| {
                    origin
                        .url
                        .strip_suffix(&*origin.base)
                        .unwrap_or(&origin.url)
                        .trim_end_matches(':')
                        .to_owned()
                };
                let origins: Vec<String> = rules.proxies[id].origins.iter().map(host).collect();
                let target = rules.upstream_target(id, request);
                let target = String::from_utf8_lossy(&target);
                let response = format!("from {}, target {target}", origins.join(" or "));
                ("the path is below the prefix".to_owned(), printable(&response))
            }
            StepResult::Redirect(id) => {
                let captures = match step {
                    RuleStep::Redirect { captures, .. } => captures.as_slice(),
                    _ => &[],
                };
                let redirect = rules.redirect(id, captures, request);
                ("the path matches".to_owned(), moved(redirect.status, &redirect.location))
            }
            StepResult::Missing => {
                self.steps.push(format!("{subject}: {}", missing_reason(step)));
                self.missing(rules, tree);
                return None;
            }
        };
        self.steps.push(format!("{subject}: {outcome}"));
        self.response = response;
        file
    }

    fn missing(&mut self, rules: &Rules, tree: &dyn FileTree) {
        let default = (!rules.compat).then_some("/404.html");
        let page = rules.error_page.as_deref().or(default).filter(|page| tree.kind(page) == FileKind::File);
        self.response = match page {
            Some(page) => format!("404, with the page {page} (in front of an app: the app responds)"),
            None => "404 (in front of an app: the app responds)".to_owned(),
        };
    }

    fn headers(&mut self, rules: &Rules, path: &str, file: Option<&str>) {
        for (name, value, rule) in rules.header_lines(path) {
            let from = format!("headers {:?}{}", rule.key, line_suffix(rules, Some(rule.at.line)));
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

/// Formats ` (static.json:12)`.
fn line_suffix(rules: &Rules, line: Option<u32>) -> String {
    line.map(|line| format!(" ({}:{line})", rules.name())).unwrap_or_default()
}

fn cite(rules: &Rules, from: RuleRef) -> String {
    format!("{}{}", from.kind, line_suffix(rules, from.line))
}

/// Describes the target of a step, and its rule.
fn subject(rules: &Rules, path: &str, step: &RuleStep) -> String {
    let from = step.rule();
    let by = match from.kind {
        RuleKind::Path | RuleKind::End => String::new(),
        _ => format!(", by {}", cite(rules, from)),
    };
    let keyed = |kind: &str, key: &str| format!("{kind} {key:?}{}", line_suffix(rules, from.line));
    let route = || {
        let route = rules.routes.iter().find(|route| route.glob.matches(path));
        keyed("routes", route.map_or("", |route| &route.key))
    };
    match step {
        RuleStep::File { path, .. } => format!("the file {}{by}", printable(path)),
        RuleStep::Directory { path, .. } => format!("the directory {}{by}", printable(path)),
        RuleStep::Proxy { id, .. } => keyed("proxies", &rules.proxies[*id].prefix),
        RuleStep::Redirect { id, .. } => keyed("redirects", &rules.redirects[*id].key),
        RuleStep::Target { path, .. } if from.kind == RuleKind::Spa => {
            format!("the file {}{by}", printable(path))
        }
        RuleStep::Target { path, .. } => format!("{}: its target {}", route(), printable(path)),
        RuleStep::Missing { .. } if from.kind == RuleKind::Route => route(),
        RuleStep::Missing { .. } if from.kind == RuleKind::End => "proxies, redirects, routes".to_owned(),
        RuleStep::Missing { .. } => cite(rules, from),
    }
}

fn absent(step: &RuleStep, tree: &dyn FileTree) -> &'static str {
    match step {
        RuleStep::Directory { path, .. } if tree.kind(path) == FileKind::Directory => {
            "found, but it has no index file"
        }
        RuleStep::File { path, .. } | RuleStep::Target { path, .. }
            if tree.kind(path) == FileKind::Directory =>
        {
            "it is a directory, not a file"
        }
        _ => "not found",
    }
}

fn missing_reason(step: &RuleStep) -> &'static str {
    match step.rule().kind {
        RuleKind::Route => "the path matches, but the target does not exist",
        RuleKind::CleanUrls => {
            "a path that ends in .html is a file or 404: proxies, redirects and routes are skipped"
        }
        _ => "no match",
    }
}

/// Replaces control characters, which could move a terminal's cursor.
fn printable(path: &str) -> String {
    path.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
