//! Walking the steps of the rules: the first thing that is there answers.

use super::{Site, is_read};
use crate::files::document::Document;
use crate::files::path::{SitePath, has_hidden_name};
use crate::files::root::Glance;
use crate::files::store::Found;
use crate::rules::{Answer, Step};
use handler::Request;
use std::rc::Rc;

/// What was looked for in vain, and what it was instead of a file.
pub(super) type Before = Vec<(Box<str>, Glance)>;

/// What a walk through the steps found.
pub(super) enum Outcome {
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
    /// The first step that answers. `before` gets what was looked for in vain.
    pub(super) fn first(&self, request: &Request, path: &SitePath, before: &mut Before) -> Outcome {
        let files = (is_read(request) || !self.before_app) && !path.has_encoded_slash();
        for step in self.rules.steps(path.as_str()) {
            let outcome = match step {
                Step::File { path, answer, .. } if files => self.file(request, &path, answer, before),
                Step::Target { path, .. } if files => self.file(request, &path, Answer::Serve, before),
                Step::Directory { path, answer, forbidden, .. } if files => {
                    self.directory(request, &path, answer, forbidden, before)
                }
                Step::File { .. } | Step::Target { .. } | Step::Directory { .. } => None,
                Step::Proxy { id, .. } => Some(Outcome::Proxy(id)),
                Step::Redirect { id, captures, .. } => Some(Outcome::Redirect(id, captures)),
                Step::Missing { .. } => Some(Outcome::Missing),
            };
            if let Some(outcome) = outcome {
                return outcome;
            }
        }
        Outcome::Missing
    }

    fn file(&self, request: &Request, path: &str, answer: Answer, before: &mut Before) -> Option<Outcome> {
        let below = self.shown(path)?;
        match self.find(request, below) {
            Found::File(document) => Some(match answer {
                Answer::Serve => Outcome::File(document),
                Answer::MoveTo(to) => Outcome::MoveTo(to),
            }),
            found => trouble(found, below, before),
        }
    }

    fn directory(
        &self,
        request: &Request,
        path: &str,
        answer: Answer,
        forbidden: bool,
        before: &mut Before,
    ) -> Option<Outcome> {
        let below = match path {
            "/" => ".",
            path => self.shown(path)?,
        };
        if before.iter().any(|(path, was)| **path == *below && *was == Glance::Missing) {
            return None;
        }
        match self.find(request, below) {
            Found::Directory => {}
            Found::File(_) => return None,
            found => return trouble(found, below, before),
        }
        for index in self.rules.index() {
            let file = if below == "." { index.clone() } else { format!("{below}/{index}") };
            match self.find(request, &file) {
                Found::File(document) => {
                    return Some(match answer {
                        Answer::Serve => Outcome::File(document),
                        Answer::MoveTo(to) => Outcome::MoveTo(to),
                    });
                }
                found => {
                    if let Some(outcome) = trouble(found, &file, before) {
                        return Some(outcome);
                    }
                }
            }
        }
        if self.rules.directory_listing() {
            return Some(match answer {
                Answer::Serve => Outcome::Listing(below.to_owned()),
                Answer::MoveTo(to) => Outcome::MoveTo(to),
            });
        }
        before.push((below.into(), Glance::Directory));
        forbidden.then(|| match answer {
            Answer::Serve => Outcome::Forbidden,
            Answer::MoveTo(to) => Outcome::MoveTo(to),
        })
    }

    pub(super) fn find(&self, request: &Request, below: &str) -> Found {
        self.responder.store.find(below, request.arrived, request.received)
    }

    /// The path below the root of a name that may be shown.
    fn shown<'p>(&self, path: &'p str) -> Option<&'p str> {
        let below = path.strip_prefix('/').unwrap_or(path);
        let shown =
            !below.is_empty() && !has_hidden_name(below) && !self.private.iter().any(|name| name == below);
        shown.then_some(below)
    }
}

/// What a find that found no file means; `None`: the next step.
fn trouble(found: Found, below: &str, before: &mut Before) -> Option<Outcome> {
    match found {
        Found::Forbidden => Some(Outcome::Forbidden),
        Found::Trouble(error) => Some(Outcome::Failed(format!("{below}: {error}"))),
        Found::Directory => {
            before.push((below.into(), Glance::Directory));
            None
        }
        Found::File(_) | Found::Missing => {
            before.push((below.into(), Glance::Missing));
            None
        }
    }
}
