//! The ordered list of what may answer a path.

use std::fmt;

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
    /// Without either: 403 when `forbidden`, else the next step.
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
        })
    }
}
