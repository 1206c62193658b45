//! Follows the steps of the rules: the first existing file, directory, proxy or redirect is the result.

use super::{Site, is_read};
use crate::files::document::Document;
use crate::files::path::{SitePath, has_hidden_name};
use crate::files::root::Stat;
use crate::files::store::Lookup;
use crate::rules::{FileAction, RuleStep};
use handler::Request;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How often a link that leads out of the root is logged.
const REFUSED_EVERY: Duration = Duration::from_secs(600);

/// Paths that were looked up but are not files, and the kind of each.
pub(super) type Misses = Vec<(Box<str>, Stat)>;

/// The result of a walk through the steps.
pub(super) enum WalkResult {
    File(Rc<Document>),
    MoveTo(String),
    Listing(String),
    Proxy(usize),
    Redirect(usize, Vec<String>),
    Forbidden,
    Missing,
    Failed(String),
}

impl Site {
    /// Returns the result of the first step that applies. Files that were not found are added to `misses`.
    pub(super) fn first(&self, request: &Request, path: &SitePath, misses: &mut Misses) -> WalkResult {
        let files = (is_read(request) || !self.before_app) && !path.has_encoded_slash();
        for step in self.rules.steps(path.as_str()) {
            let outcome = match step {
                RuleStep::File { path, action, .. } if files => self.file(request, &path, action, misses),
                RuleStep::Target { path, .. } if files => {
                    self.file(request, &path, FileAction::Serve, misses)
                }
                RuleStep::Directory { path, action, forbidden, .. } if files => {
                    self.directory(request, &path, action, forbidden, misses)
                }
                RuleStep::File { .. } | RuleStep::Target { .. } | RuleStep::Directory { .. } => None,
                RuleStep::Proxy { id, .. } => Some(WalkResult::Proxy(id)),
                RuleStep::Redirect { id, captures, .. } => Some(WalkResult::Redirect(id, captures)),
                RuleStep::Missing { .. } => Some(WalkResult::Missing),
            };
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
        WalkResult::Missing
    }

    fn file(
        &self,
        request: &Request,
        path: &str,
        action: FileAction,
        misses: &mut Misses,
    ) -> Option<WalkResult> {
        let below = self.shown(path)?;
        match self.find(request, below) {
            Lookup::File(document) => Some(match action {
                FileAction::Serve => WalkResult::File(document),
                FileAction::MoveTo(to) => WalkResult::MoveTo(to),
            }),
            found => on_miss(found, below, misses),
        }
    }

    fn directory(
        &self,
        request: &Request,
        path: &str,
        action: FileAction,
        forbidden: bool,
        misses: &mut Misses,
    ) -> Option<WalkResult> {
        let below = match path {
            "/" => ".",
            path => self.shown(path)?,
        };
        if misses.iter().any(|(path, was)| **path == *below && *was == Stat::Missing) {
            return None;
        }
        match self.find(request, below) {
            Lookup::Directory => {}
            Lookup::File(_) => return None,
            found => return on_miss(found, below, misses),
        }
        for index in self.rules.index() {
            let file = if below == "." { index.clone() } else { format!("{below}/{index}") };
            match self.find(request, &file) {
                Lookup::File(document) => {
                    return Some(match action {
                        FileAction::Serve => WalkResult::File(document),
                        FileAction::MoveTo(to) => WalkResult::MoveTo(to),
                    });
                }
                found => {
                    if let Some(outcome) = on_miss(found, &file, misses) {
                        return Some(outcome);
                    }
                }
            }
        }
        if self.rules.directory_listing() {
            return Some(match action {
                FileAction::Serve => WalkResult::Listing(below.to_owned()),
                FileAction::MoveTo(to) => WalkResult::MoveTo(to),
            });
        }
        misses.push((below.into(), Stat::Directory));
        forbidden.then(|| match action {
            FileAction::Serve => WalkResult::Forbidden,
            FileAction::MoveTo(to) => WalkResult::MoveTo(to),
        })
    }

    pub(super) fn find(&self, request: &Request, below: &str) -> Lookup {
        let found = self.responder.store.find(below, request.arrived, request.received);
        if matches!(found, Lookup::LeadsOut) {
            self.refused(below, request.arrived);
        }
        found
    }

    /// Logs a link that is not followed, a few times an hour.
    fn refused(&self, below: &str, now: Instant) {
        let lately = |then: Instant| now.saturating_duration_since(then) < REFUSED_EVERY;
        if !self.refused.get().is_some_and(lately) {
            self.refused.set(Some(now));
            let root = self.responder.store.root.path().join(below);
            (self.log_error)(&format!(
                "{}: a symbolic link leads out of the site's folder, so this is not served; put a copy there, or make \
                 a folder that holds both the root",
                root.display()
            ));
        }
    }

    /// Returns the path below the root, if all its names may be shown.
    fn shown<'p>(&self, path: &'p str) -> Option<&'p str> {
        let below = path.strip_prefix('/').unwrap_or(path);
        let shown =
            !below.is_empty() && !has_hidden_name(below) && !self.private.iter().any(|name| name == below);
        shown.then_some(below)
    }
}

/// Returns the result for a path that is not a file; `None`: try the next step.
fn on_miss(found: Lookup, below: &str, misses: &mut Misses) -> Option<WalkResult> {
    match found {
        Lookup::Forbidden => Some(WalkResult::Forbidden),
        Lookup::Failed(error) => Some(WalkResult::Failed(format!("{below}: {error}"))),
        Lookup::Directory => {
            misses.push((below.into(), Stat::Directory));
            None
        }
        Lookup::File(_) | Lookup::LeadsOut | Lookup::Missing => {
            misses.push((below.into(), Stat::Missing));
            None
        }
    }
}
