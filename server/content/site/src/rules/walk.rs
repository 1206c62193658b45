//! Follows steps through the files of a site like the file engine does, but only to describe the result.

use super::{FileAction, RuleStep, Rules};

/// A site's files, as the rules see them.
pub trait FileTree {
    /// Returns the kind of `path` (decoded, below the root, begins with `/`).
    fn kind(&self, path: &str) -> FileKind;
}

/// The kind of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    File,
    Directory,
    /// Nothing, or an entry that is never served.
    Missing,
    /// A dot file, which is not served.
    Hidden,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StepResult {
    /// This file, with status 200.
    File(String),
    Listing(String),
    /// 301 to this path.
    Move(String),
    /// 403: a directory without an index.
    Forbidden,
    /// An index into the proxies.
    Proxy(usize),
    /// An index into the redirects.
    Redirect(usize),
    /// 404, or the app.
    Missing,
}

/// Returns the result of a step; `None` if the next one has to be tried.
pub(super) fn look(rules: &Rules, step: &RuleStep, tree: &dyn FileTree) -> Option<StepResult> {
    let moved = |action: &FileAction, found: StepResult| match action {
        FileAction::Serve => found,
        FileAction::MoveTo(path) => StepResult::Move(path.clone()),
    };
    match step {
        RuleStep::File { path, action, .. } => {
            (tree.kind(path) == FileKind::File).then(|| moved(action, StepResult::File(path.clone())))
        }
        RuleStep::Target { path, .. } => {
            (tree.kind(path) == FileKind::File).then(|| StepResult::File(path.clone()))
        }
        RuleStep::Directory { path, action, forbidden, .. } => {
            if tree.kind(path) != FileKind::Directory {
                return None;
            }
            if let Some(index) = index_of(rules, path, tree) {
                Some(moved(action, StepResult::File(index)))
            } else if rules.directory_listing {
                Some(moved(action, StepResult::Listing(path.clone())))
            } else {
                forbidden.then(|| moved(action, StepResult::Forbidden))
            }
        }
        RuleStep::Proxy { id, .. } => Some(StepResult::Proxy(*id)),
        RuleStep::Redirect { id, .. } => Some(StepResult::Redirect(*id)),
        RuleStep::Missing { .. } => Some(StepResult::Missing),
    }
}

/// Returns the first index file of a directory.
pub(super) fn index_of(rules: &Rules, directory: &str, tree: &dyn FileTree) -> Option<String> {
    let below = directory.trim_end_matches('/');
    rules.index.iter().map(|name| format!("{below}/{name}")).find(|path| tree.kind(path) == FileKind::File)
}

/// Returns the step that applies, and its result.
pub(super) fn walk(rules: &Rules, path: &str, tree: &dyn FileTree) -> (RuleStep, StepResult) {
    let mut last = None;
    for step in rules.steps(path) {
        if let Some(found) = look(rules, &step, tree) {
            return (step, found);
        }
        last = Some(step);
    }
    let from = super::RuleRef { kind: super::RuleKind::End, line: None };
    (last.unwrap_or(RuleStep::Missing { rule: from }), StepResult::Missing)
}
