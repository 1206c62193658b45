//! Steps followed through the files of a site, as the file engine does it, but only to say what would happen.

use super::{Answer, Kind, Rules, Step, Tree};

/// What answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// This file, with status 200.
    File(String),
    /// The list of a directory's files.
    Listing(String),
    /// 301 to this path.
    Move(String),
    /// 403: a directory without index.
    Forbidden,
    /// This proxy.
    Proxy(usize),
    /// This redirect.
    Redirect(usize),
    /// 404, or the app.
    Missing,
}

/// What a step answers; `None` when it leaves that to the next one.
pub(super) fn look(rules: &Rules, step: &Step, tree: &dyn Tree) -> Option<Found> {
    let moved = |answer: &Answer, found: Found| match answer {
        Answer::Serve => found,
        Answer::MoveTo(path) => Found::Move(path.clone()),
    };
    match step {
        Step::File { path, answer, .. } => {
            (tree.kind(path) == Kind::File).then(|| moved(answer, Found::File(path.clone())))
        }
        Step::Target { path, .. } => (tree.kind(path) == Kind::File).then(|| Found::File(path.clone())),
        Step::Directory { path, answer, forbidden, .. } => {
            if tree.kind(path) != Kind::Directory {
                return None;
            }
            if let Some(index) = index_of(rules, path, tree) {
                Some(moved(answer, Found::File(index)))
            } else if rules.directory_listing {
                Some(moved(answer, Found::Listing(path.clone())))
            } else {
                forbidden.then(|| moved(answer, Found::Forbidden))
            }
        }
        Step::Proxy { id, .. } => Some(Found::Proxy(*id)),
        Step::Redirect { id, .. } => Some(Found::Redirect(*id)),
        Step::Missing { .. } => Some(Found::Missing),
    }
}

/// The first index file of a directory.
pub(super) fn index_of(rules: &Rules, directory: &str, tree: &dyn Tree) -> Option<String> {
    let below = directory.trim_end_matches('/');
    rules.index.iter().map(|name| format!("{below}/{name}")).find(|path| tree.kind(path) == Kind::File)
}

/// The step that answers, and what.
pub(super) fn walk(rules: &Rules, path: &str, tree: &dyn Tree) -> (Step, Found) {
    let mut last = None;
    for step in rules.steps(path) {
        if let Some(found) = look(rules, &step, tree) {
            return (step, found);
        }
        last = Some(step);
    }
    let because = super::Because { rule: super::Rule::End, line: None };
    (last.unwrap_or(Step::Missing { because }), Found::Missing)
}
