//! Computes the ordered steps that may serve a path.

use std::fmt;

use super::source::SourceSpan;
use super::{Route, Rules, TrailingSlash};

/// The steps for a path, in order; the first that applies serves it. Never empty: the last one always applies
/// ([`RuleStep::Proxy`], [`RuleStep::Redirect`] or [`RuleStep::Missing`]).
pub type RuleSteps = Vec<RuleStep>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleStep {
    /// The regular file `path`, if it exists.
    File {
        /// Below the root; begins with `/`, never ends with it.
        path: String,
        action: FileAction,
        rule: RuleRef,
    },
    /// The directory `path`, if it exists: its index file, else its listing if `directory_listing` is on.
    /// Without either: 403 if `forbidden` (after the redirect, if `action` is one), else the next step.
    Directory {
        /// Below the root; begins with `/`, and ends with it only if it is the root.
        path: String,
        action: FileAction,
        /// A directory without an index ends the walk with 403, as in nginx (`compat`).
        forbidden: bool,
        rule: RuleRef,
    },
    /// The proxy `Rules::proxies()[id]`, for any method.
    Proxy {
        /// An index into [`super::Rules::proxies`].
        id: usize,
        rule: RuleRef,
    },
    /// `Rules::redirect(id, captures, request)`, for any method.
    Redirect {
        /// For [`super::Rules::redirect`].
        id: usize,
        /// The text that the `*` and `**` of the key matched, in order.
        captures: Vec<String>,
        rule: RuleRef,
    },
    /// A route's target: the regular file `path` with status 200, if it exists; else the next step.
    Target {
        /// Below the root; begins with `/`.
        path: String,
        rule: RuleRef,
    },
    /// 404 with the error page, or the request goes to the app.
    Missing { rule: RuleRef },
}

/// The action for an existing file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileAction {
    Serve,
    /// 301 to this path (decoded, begins with one `/`): percent-encode it and keep the query.
    MoveTo(String),
}

/// The rule that a step comes from, and its line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleRef {
    pub kind: RuleKind,
    /// The line in `static.json`, from 1; `None` for rules that apply without being written.
    pub line: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    /// The path itself.
    Path,
    CleanUrls,
    TrailingSlash,
    Proxy,
    Redirect,
    Route,
    /// `site.spa` of the server's settings.
    Spa,
    /// No rule is left.
    End,
    HttpsOnly,
    CanonicalHost,
}

impl fmt::Display for RuleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RuleKind::Path => "path",
            RuleKind::CleanUrls => "clean_urls",
            RuleKind::TrailingSlash => "trailing_slash",
            RuleKind::Proxy => "proxies",
            RuleKind::Redirect => "redirects",
            RuleKind::Route => "routes",
            RuleKind::Spa => "site.spa",
            RuleKind::End => "end",
            RuleKind::HttpsOnly => "https_only",
            RuleKind::CanonicalHost => "canonical_host",
        })
    }
}

impl RuleRef {
    fn at(kind: RuleKind, place: SourceSpan) -> RuleRef {
        RuleRef { kind, line: Some(place.line).filter(|&line| line > 0) }
    }

    fn unwritten(kind: RuleKind) -> RuleRef {
        RuleRef { kind, line: None }
    }
}

impl RuleStep {
    pub fn rule(&self) -> RuleRef {
        match self {
            RuleStep::File { rule, .. }
            | RuleStep::Directory { rule, .. }
            | RuleStep::Proxy { rule, .. }
            | RuleStep::Redirect { rule, .. }
            | RuleStep::Target { rule, .. }
            | RuleStep::Missing { rule } => *rule,
        }
    }
}

/// Returns the steps for `path`, in order.
pub(super) fn steps(rules: &Rules, path: &str) -> RuleSteps {
    let mut steps = RuleSteps::with_capacity(5);
    if rules.clean_urls && path.ends_with(".html") {
        let rule = RuleRef::at(RuleKind::CleanUrls, rules.spans.clean_urls);
        let action = FileAction::Serve;
        steps.push(RuleStep::File {
            path: path.to_owned(),
            action,
            rule: RuleRef::unwritten(RuleKind::Path),
        });
        steps.push(RuleStep::Missing { rule });
        return steps;
    }
    let route = rules.routes.iter().find(|route| route.glob.matches(path));
    files(rules, path, rules.clean_urls || route.is_none(), &mut steps);
    let last = proxy(rules, path).or_else(|| redirect(rules, path));
    match (last, route) {
        (Some(last), _) => steps.push(last),
        (None, Some(route)) => target(route, &mut steps),
        (None, None) => {
            if rules.spa && is_page(path) {
                let indexes = rules.index.iter().map(|index| RuleStep::Target {
                    path: format!("/{index}"),
                    rule: RuleRef::unwritten(RuleKind::Spa),
                });
                steps.extend(indexes);
            }
            steps.push(RuleStep::Missing { rule: RuleRef::unwritten(RuleKind::End) });
        }
    }
    steps
}

/// Whether a path names a page of an app of one page, and not a file of it, such as a script, that is missing.
fn is_page(path: &str) -> bool {
    !path.contains("/.") && !path.rsplit('/').next().is_some_and(|name| name.contains('.'))
}

/// Adds the files that a path may name, in the order given by `clean_urls` and `trailing_slash`.
fn files(rules: &Rules, path: &str, directories: bool, steps: &mut RuleSteps) {
    let named = RuleRef::unwritten(RuleKind::Path);
    let clean = RuleRef::at(RuleKind::CleanUrls, rules.spans.clean_urls);
    let slash = RuleRef::at(RuleKind::TrailingSlash, rules.spans.trailing_slash);
    let bare = path.trim_end_matches('/');
    let file = |path: String, action, rule| RuleStep::File { path, action, rule };
    let directory = |action, rule| RuleStep::Directory {
        path: if bare.is_empty() { "/".to_owned() } else { bare.to_owned() },
        action,
        forbidden: rules.compat,
        rule,
    };
    let page = || rules.clean_urls.then(|| format!("{bare}.html"));
    if bare.is_empty() {
        steps.extend(directories.then(|| directory(FileAction::Serve, named)));
        return;
    }
    let with_slash = || FileAction::MoveTo(format!("{bare}/"));
    let without = || FileAction::MoveTo(bare.to_owned());
    match (rules.trailing_slash, path.ends_with('/')) {
        (TrailingSlash::Keep, false) => {
            steps.extend(page().map(|page| file(page, FileAction::Serve, clean)));
            steps.push(file(bare.to_owned(), FileAction::Serve, named));
            steps.extend(directories.then(|| directory(with_slash(), named)));
        }
        (TrailingSlash::Keep, true) => steps.extend(directories.then(|| directory(FileAction::Serve, named))),
        (TrailingSlash::Never, false) => {
            steps.extend(page().map(|page| file(page, FileAction::Serve, clean)));
            steps.push(file(bare.to_owned(), FileAction::Serve, named));
            steps.extend(directories.then(|| directory(FileAction::Serve, slash)));
        }
        (TrailingSlash::Never, true) => {
            steps.extend(page().map(|page| file(page, without(), slash)));
            steps.push(file(bare.to_owned(), without(), slash));
            steps.extend(directories.then(|| directory(without(), slash)));
        }
        (TrailingSlash::Always, false) => {
            steps.extend(page().map(|page| file(page, with_slash(), slash)));
            steps.push(file(bare.to_owned(), FileAction::Serve, named));
            steps.extend(directories.then(|| directory(with_slash(), named)));
        }
        (TrailingSlash::Always, true) => {
            steps.extend(directories.then(|| directory(FileAction::Serve, named)));
            steps.extend(page().map(|page| file(page, FileAction::Serve, slash)));
        }
    }
}

fn proxy(rules: &Rules, path: &str) -> Option<RuleStep> {
    let id = *rules.proxy_order.iter().find(|&&id| rules.proxies[id].matches(path, rules.compat))?;
    Some(RuleStep::Proxy { id, rule: RuleRef::at(RuleKind::Proxy, rules.proxies[id].at) })
}

/// Returns the redirect for exactly that path, else the first matching glob in file order.
fn redirect(rules: &Rules, path: &str) -> Option<RuleStep> {
    let found = |id: usize, captures| {
        let rule = RuleRef::at(RuleKind::Redirect, rules.redirects[id].at);
        Some(RuleStep::Redirect { id, captures, rule })
    };
    if let Some(&id) = rules.exact_redirects.get(path) {
        return found(id, Vec::new());
    }
    rules.redirects.iter().enumerate().find_map(|(id, rule)| found(id, rule.glob.as_ref()?.captures(path)?))
}

fn target(route: &Route, steps: &mut RuleSteps) {
    let rule = RuleRef::at(RuleKind::Route, route.at);
    if !route.target.ends_with('/') {
        steps.push(RuleStep::Target { path: route.target.clone(), rule });
    }
    steps.push(RuleStep::Missing { rule });
}
