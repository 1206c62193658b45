//! The ordered list of what may answer a path.

use std::fmt;

use super::source::Place;
use super::{Route, Rules, TrailingSlash};

/// What may answer a path, in order; the first that is there answers. Never empty: the last one always answers
/// ([`Step::Proxy`], [`Step::Redirect`] or [`Step::Missing`]).
pub type Steps = Vec<Step>;

/// One thing that may answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The regular file `path`, if there is one.
    File {
        /// Path below the root; begins with `/`, never ends with it.
        path: String,
        /// What to do when it is there.
        answer: Answer,
        /// The rule it comes from.
        because: Because,
    },
    /// The directory `path`, if there is one: its index file, else its listing if `directory_listing` is on.
    /// Without either: 403 when `forbidden` (after the move, if `answer` is one), else the next step.
    Directory {
        /// Path below the root; begins with `/`, and ends with it only when it is the root.
        path: String,
        /// What to do when it answers.
        answer: Answer,
        /// A directory that is there but has no index ends the walk with 403, as nginx does (`compat`).
        forbidden: bool,
        /// The rule it comes from.
        because: Because,
    },
    /// The proxy `Rules::proxies()[id]` answers, whatever the method.
    Proxy {
        /// Index into [`super::Rules::proxies`].
        id: usize,
        /// The rule it comes from.
        because: Because,
    },
    /// `Rules::redirect(id, captures, asked)` answers, whatever the method.
    Redirect {
        /// For [`super::Rules::redirect`].
        id: usize,
        /// What the `*` and `**` of its key stood for, in order.
        captures: Vec<String>,
        /// The rule it comes from.
        because: Because,
    },
    /// A route's target: the regular file `path` with status 200, if there is one; else the next step.
    Target {
        /// Path below the root; begins with `/`.
        path: String,
        /// The rule it comes from.
        because: Because,
    },
    /// Nothing: 404 with the error page, or the app's turn.
    Missing {
        /// The rule it comes from.
        because: Because,
    },
}

/// What to do with a file or directory that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Send it.
    Serve,
    /// 301 to this path (decoded, begins with one `/`): percent-encode it and keep the query.
    MoveTo(String),
}

/// Why a step is in the list: a rule, and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Because {
    /// The kind of rule.
    pub rule: Rule,
    /// Line in `static.json`, from 1; `None` for what holds without being written.
    pub line: Option<u32>,
}

/// Kinds of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The path names it.
    Path,
    /// `clean_urls`
    CleanUrls,
    /// `trailing_slash`
    TrailingSlash,
    /// `proxies`
    Proxy,
    /// `redirects`
    Redirect,
    /// `routes`
    Route,
    /// Nothing else answers.
    End,
    /// `https_only`
    HttpsOnly,
    /// `canonical_host`
    CanonicalHost,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Path => "path",
            Rule::CleanUrls => "clean_urls",
            Rule::TrailingSlash => "trailing_slash",
            Rule::Proxy => "proxies",
            Rule::Redirect => "redirects",
            Rule::Route => "routes",
            Rule::End => "end",
            Rule::HttpsOnly => "https_only",
            Rule::CanonicalHost => "canonical_host",
        })
    }
}

impl Because {
    fn at(rule: Rule, place: Place) -> Because {
        Because { rule, line: Some(place.line).filter(|&line| line > 0) }
    }

    fn unwritten(rule: Rule) -> Because {
        Because { rule, line: None }
    }
}

impl Step {
    /// The rule it comes from.
    pub fn because(&self) -> Because {
        match self {
            Step::File { because, .. }
            | Step::Directory { because, .. }
            | Step::Proxy { because, .. }
            | Step::Redirect { because, .. }
            | Step::Target { because, .. }
            | Step::Missing { because } => *because,
        }
    }
}

/// What may answer `path`, in order.
pub(super) fn steps(rules: &Rules, path: &str) -> Steps {
    let mut steps = Steps::with_capacity(5);
    if rules.clean_urls && path.ends_with(".html") {
        let because = Because::at(Rule::CleanUrls, rules.places.clean_urls);
        let answer = Answer::Serve;
        steps.push(Step::File { path: path.to_owned(), answer, because: Because::unwritten(Rule::Path) });
        steps.push(Step::Missing { because });
        return steps;
    }
    let route = rules.routes.iter().find(|route| route.glob.matches(path));
    files(rules, path, rules.clean_urls || route.is_none(), &mut steps);
    let last = proxy(rules, path).or_else(|| redirect(rules, path));
    match (last, route) {
        (Some(last), _) => steps.push(last),
        (None, Some(route)) => target(route, &mut steps),
        (None, None) => steps.push(Step::Missing { because: Because::unwritten(Rule::End) }),
    }
    steps
}

/// The files that a path names, in the order that `clean_urls` and `trailing_slash` give them.
fn files(rules: &Rules, path: &str, directories: bool, steps: &mut Steps) {
    let named = Because::unwritten(Rule::Path);
    let clean = Because::at(Rule::CleanUrls, rules.places.clean_urls);
    let slash = Because::at(Rule::TrailingSlash, rules.places.trailing_slash);
    let bare = path.trim_end_matches('/');
    let file = |path: String, answer, because| Step::File { path, answer, because };
    let directory = |answer, because| Step::Directory {
        path: if bare.is_empty() { "/".to_owned() } else { bare.to_owned() },
        answer,
        forbidden: rules.compat,
        because,
    };
    let page = || rules.clean_urls.then(|| format!("{bare}.html"));
    if bare.is_empty() {
        steps.extend(directories.then(|| directory(Answer::Serve, named)));
        return;
    }
    let with_slash = || Answer::MoveTo(format!("{bare}/"));
    let without = || Answer::MoveTo(bare.to_owned());
    match (rules.trailing_slash, path.ends_with('/')) {
        (TrailingSlash::Keep, false) => {
            steps.extend(page().map(|page| file(page, Answer::Serve, clean)));
            steps.push(file(bare.to_owned(), Answer::Serve, named));
            steps.extend(directories.then(|| directory(with_slash(), named)));
        }
        (TrailingSlash::Keep, true) => steps.extend(directories.then(|| directory(Answer::Serve, named))),
        (TrailingSlash::Never, false) => {
            steps.extend(page().map(|page| file(page, Answer::Serve, clean)));
            steps.push(file(bare.to_owned(), Answer::Serve, named));
            steps.extend(directories.then(|| directory(Answer::Serve, slash)));
        }
        (TrailingSlash::Never, true) => {
            steps.extend(page().map(|page| file(page, without(), slash)));
            steps.push(file(bare.to_owned(), without(), slash));
            steps.extend(directories.then(|| directory(without(), slash)));
        }
        (TrailingSlash::Always, false) => {
            steps.extend(page().map(|page| file(page, with_slash(), slash)));
            steps.push(file(bare.to_owned(), Answer::Serve, named));
            steps.extend(directories.then(|| directory(with_slash(), named)));
        }
        (TrailingSlash::Always, true) => {
            steps.extend(directories.then(|| directory(Answer::Serve, named)));
            steps.extend(page().map(|page| file(page, Answer::Serve, slash)));
        }
    }
}

fn proxy(rules: &Rules, path: &str) -> Option<Step> {
    let id = *rules.proxy_order.iter().find(|&&id| rules.proxies[id].matches(path, rules.compat))?;
    Some(Step::Proxy { id, because: Because::at(Rule::Proxy, rules.proxies[id].at) })
}

/// The redirect of exactly that path, else the first glob in file order.
fn redirect(rules: &Rules, path: &str) -> Option<Step> {
    let found = |id: usize, captures| {
        let because = Because::at(Rule::Redirect, rules.redirects[id].at);
        Some(Step::Redirect { id, captures, because })
    };
    if let Some(&id) = rules.exact_redirects.get(path) {
        return found(id, Vec::new());
    }
    rules.redirects.iter().enumerate().find_map(|(id, rule)| found(id, rule.glob.as_ref()?.captures(path)?))
}

fn target(route: &Route, steps: &mut Steps) {
    let because = Because::at(Rule::Route, route.at);
    if !route.target.ends_with('/') {
        steps.push(Step::Target { path: route.target.clone(), because });
    }
    steps.push(Step::Missing { because });
}
