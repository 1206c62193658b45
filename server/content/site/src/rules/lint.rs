//! Finds rules without effect, which `firebrick check` reports in addition to [`super::Parsed::notes`].

use super::glob::Glob;
use super::source::SourceSpan;
use super::walk::{StepResult, walk};
use super::{FileKind, FileTree, ProxyRule, Route, RuleNote, RuleStep, Rules};

/// Returns the entries of `rules` that have no effect, given the site's files, in file order. Notes of
/// [`Rules::parse`] (unknown keys, duplicates, unset variables, keys that match no path) are not repeated.
pub fn lint(rules: &Rules, tree: &dyn FileTree) -> Vec<RuleNote> {
    let mut lint = Lint { rules, tree, notes: Vec::new() };
    if lint.root() {
        lint.error_page();
        lint.routes();
        lint.redirects();
    }
    lint.proxies();
    lint.headers();
    lint.notes.sort_by_key(RuleNote::line);
    lint.notes
}

struct Lint<'a> {
    rules: &'a Rules,
    tree: &'a dyn FileTree,
    notes: Vec<RuleNote>,
}

impl Lint<'_> {
    fn note(&mut self, at: SourceSpan, text: String) {
        self.notes.push(match &self.rules.source {
            Some(source) if at.line > 0 => source.note(at, text),
            _ => RuleNote::general(self.rules.name(), text),
        });
    }

    /// Returns whether the root exists. Without it, rules about files cannot be checked.
    fn root(&mut self) -> bool {
        let there = self.tree.kind("/") == FileKind::Directory;
        if !there {
            let root = self.rules.root.as_deref().unwrap_or("public_html/");
            self.note(self.rules.spans.root, format!("root: the directory {root:?} does not exist"));
        }
        there
    }

    fn error_page(&mut self) {
        if let Some(page) = &self.rules.error_page
            && self.tree.kind(page) != FileKind::File
        {
            let why = if self.tree.kind(page) == FileKind::Hidden {
                "a dot file is never served"
            } else {
                "there is no such file below the root"
            };
            self.note(self.rules.spans.error_page, format!("error_page {page:?}: {why}"));
        }
    }

    fn routes(&mut self) {
        for (index, route) in self.rules.routes.iter().enumerate() {
            if let Some(earlier) =
                self.rules.routes[..index].iter().find(|earlier| earlier.glob.covers(&route.glob))
            {
                let text = format!(
                    "routes {:?} is never reached: routes {:?} in line {} comes first and matches all its paths",
                    route.key, earlier.key, earlier.at.line
                );
                self.note(route.at, text);
            } else if let Some(proxy) = covering_proxy(self.rules, &route.glob) {
                let text = format!(
                    "routes {:?}: its target is never served: proxies {:?} in line {} comes first",
                    route.key, proxy.prefix, proxy.line
                );
                self.note(route.at, text);
            } else if self.rules.clean_urls && route.key.ends_with(".html") {
                let text = format!(
                    "routes {:?} is never reached: with clean_urls a path that ends in .html is a file or 404",
                    route.key
                );
                self.note(route.at, text);
            }
            self.target(route);
        }
    }

    fn target(&mut self, route: &Route) {
        // A target that ends with a slash is the documented way to respond with 404.
        if route.target.ends_with('/') {
            return;
        }
        let why = match self.tree.kind(&route.target) {
            FileKind::File => return,
            FileKind::Directory => {
                "is a directory, so the route ends in 404 (write a / at its end if that is meant)"
            }
            FileKind::Missing => "does not exist, so the route ends in 404",
            FileKind::Hidden => "is a dot file, which is never served, so the route ends in 404",
        };
        self.note(route.target_at, format!("routes {:?}: its target {:?} {why}", route.key, route.target));
    }

    fn redirects(&mut self) {
        for (id, rule) in self.rules.redirects.iter().enumerate() {
            let why = match &rule.glob {
                None => self.shadow(id, &rule.key),
                Some(glob) => {
                    let earlier = self.rules.redirects[..id]
                        .iter()
                        .find(|other| other.glob.as_ref().is_some_and(|other| other.covers(glob)));
                    match (earlier, covering_proxy(self.rules, glob)) {
                        (Some(earlier), _) => Some(format!(
                            "redirects {:?} in line {} comes first and matches all its paths",
                            earlier.key, earlier.at.line
                        )),
                        (None, Some(proxy)) => {
                            Some(format!("proxies {:?} in line {} comes first", proxy.prefix, proxy.line))
                        }
                        (None, None) if self.rules.clean_urls && rule.key.ends_with(".html") => {
                            Some(CLEAN.to_owned())
                        }
                        (None, None) => None,
                    }
                }
            };
            if let Some(why) = why {
                self.note(rule.at, format!("redirects {:?} is never reached: {why}", rule.key));
            } else if rule.location.fixed() == Some(rule.key.as_str()) && !rule.keep_query {
                self.note(rule.at, format!("redirects {:?} leads to itself", rule.key));
            }
        }
    }

    /// Returns the reason if another rule takes precedence over the redirect of exactly this path.
    fn shadow(&self, id: usize, path: &str) -> Option<String> {
        if !path.starts_with('/') {
            return None;
        }
        if self.tree.kind(path) == FileKind::Hidden {
            return Some("a name that begins with a dot gets 404".to_owned());
        }
        let (step, found) = walk(self.rules, path, self.tree);
        match found {
            StepResult::Redirect(other) if other == id => None,
            StepResult::File(file) => Some(format!("the file {file} comes first")),
            StepResult::Listing(folder) => Some(format!("the directory {folder} comes first")),
            StepResult::Move(_) | StepResult::Forbidden => match step {
                RuleStep::File { path, .. } => Some(format!("the file {path} comes first")),
                RuleStep::Directory { path, .. } => Some(format!("the directory {path} comes first")),
                _ => None,
            },
            StepResult::Proxy(proxy) => {
                let proxy = &self.rules.proxies[proxy];
                Some(format!("proxies {:?} in line {} comes first", proxy.prefix, proxy.line))
            }
            StepResult::Missing => Some(CLEAN.to_owned()),
            StepResult::Redirect(_) => None,
        }
    }

    fn proxies(&mut self) {
        for rule in &self.rules.proxies {
            let hidden = |segment: &str| segment.starts_with('.') && segment != ".well-known";
            if rule.prefix.split('/').any(hidden) {
                let text = format!(
                    "proxies {:?} is never reached: a name that begins with a dot gets 404",
                    rule.prefix
                );
                self.note(rule.at, text);
            }
        }
    }

    fn headers(&mut self) {
        let rules = &self.rules.headers;
        for (index, rule) in rules.iter().enumerate() {
            let later: Vec<_> =
                rules[index + 1..].iter().filter(|later| later.glob.covers(&rule.glob)).collect();
            if !self.rules.merge_headers {
                if let Some(later) = later.last() {
                    let merge = if self.rules.compat { "" } else { ", or set \"header_rules\": \"merge\"" };
                    let text = format!(
                        "headers {:?} is never used: headers {:?} in line {} comes later and replaces it; put it after that one{merge}",
                        rule.key, later.key, later.at.line
                    );
                    self.note(rule.at, text);
                }
                continue;
            }
            for (name, _, at) in &rule.fields {
                let replaced = later
                    .iter()
                    .rev()
                    .find(|later| later.fields.iter().any(|(other, ..)| other.eq_ignore_ascii_case(name)));
                if let Some(later) = replaced {
                    let text = format!(
                        "headers {:?}: {name} is never used: headers {:?} in line {} comes later",
                        rule.key, later.key, later.at.line
                    );
                    self.note(*at, text);
                }
            }
        }
    }
}

const CLEAN: &str = "with clean_urls a path that ends in .html is a file or 404";

/// Returns a proxy that matches every path of a glob.
fn covering_proxy<'a>(rules: &'a Rules, glob: &Glob) -> Option<&'a ProxyRule> {
    rules.proxies.iter().find(|proxy| {
        let prefix = proxy.prefix.as_str();
        let whole =
            if rules.compat { format!("{prefix}**") } else { format!("{}/**", prefix.trim_end_matches('/')) };
        prefix.starts_with('/') && !prefix.contains('*') && Glob::new(&whole).covers(glob)
    })
}
