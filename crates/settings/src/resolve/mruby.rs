//! Handlers on mruby: limits, and the `[routes]` table.

use std::path::PathBuf;
use std::time::Duration;

use super::taker::Taker;
use super::{Facts, size};
use crate::error::Error;
use crate::given::{Route as GivenRoute, Written};
use crate::kind::Kind;
use crate::nearest::nearest;
use crate::raw::Raw;
use crate::settings::{HandlerLimits, Mruby, Route};
use crate::table::entry::Entry;
use crate::table::mruby;

/// What a route may say.
const ROUTE_KEYS: [&str; 7] =
    ["mruby", "request_heap", "step_time", "deadline", "max_tasks", "max_body", "reproxy"];

pub(super) fn mruby(taker: &Taker<'_>, facts: &Facts) -> Mruby {
    // It was read with the name of the file; here it only joins the choices.
    taker.take(&mruby::MRUBY);
    let heap = size(taker.take(&mruby::HEAP).value);
    let limits = HandlerLimits {
        request_heap: size(taker.take(&mruby::REQUEST_HEAP).value),
        step_time: taker.take(&mruby::STEP_TIME).value,
        deadline: taker.take(&mruby::DEADLINE).value,
        max_tasks: size(taker.take(&mruby::MAX_TASKS).value),
        max_body: size(taker.take(&mruby::MAX_BODY).value),
        reproxy: taker.take(&mruby::REPROXY).value,
    };
    let mut routes: Vec<Route> = Vec::new();
    if let Some(file) = &facts.handler {
        routes.push(Route { path: String::new(), handlers: vec![file.clone()], limits: limits.clone() });
    }
    for given in &facts.routes {
        if let Some(route) = route(taker, facts, given, &limits) {
            if routes.iter().any(|other| other.path == route.path) {
                refuse(taker, given, &given.written, "this route is there twice".to_owned());
            }
            routes.push(route);
        }
    }
    // The longest path first: the first that fits is the right one.
    routes.sort_by_key(|route| std::cmp::Reverse(route.path.len()));
    Mruby { heap, routes }
}

fn route(taker: &Taker<'_>, facts: &Facts, given: &GivenRoute, defaults: &HandlerLimits) -> Option<Route> {
    if !is_path(&given.path) {
        let expected = "expected a path that begins with / such as \"/api\", without query and escapes";
        refuse(taker, given, &given.written, expected.to_owned());
        return None;
    }
    let mut limits = defaults.clone();
    let mut handlers = None;
    for (key, written) in &given.keys {
        let read = Reader { taker, given, written };
        match key.as_str() {
            "mruby" => handlers = Some(files(&read, facts)),
            "request_heap" => read.put(&mruby::REQUEST_HEAP, |value| limits.request_heap = size(value)),
            "step_time" => read.put(&mruby::STEP_TIME, |value| limits.step_time = value),
            "deadline" => read.put(&mruby::DEADLINE, |value: Option<Duration>| limits.deadline = value),
            "max_tasks" => read.put(&mruby::MAX_TASKS, |value| limits.max_tasks = size(value)),
            "max_body" => read.put(&mruby::MAX_BODY, |value| limits.max_body = size(value)),
            "reproxy" => read.put(&mruby::REPROXY, |value| limits.reproxy = value),
            _ => taker.refuse(Error {
                origin: written.origin.clone(),
                written: format!("routes.{:?}.{key}", given.path),
                problem: "unknown key".to_owned(),
                nearest: nearest(key, ROUTE_KEYS).map(str::to_owned),
            }),
        }
    }
    let Some(handlers) = handlers else {
        refuse(
            taker,
            given,
            &given.written,
            "expected mruby = \"handler.rb\", or a list of such files".to_owned(),
        );
        return None;
    };
    Some(Route { path: given.path.trim_end_matches('/').to_owned(), handlers, limits })
}

struct Reader<'a> {
    taker: &'a Taker<'a>,
    given: &'a GivenRoute,
    written: &'a Written,
}

impl Reader<'_> {
    /// Reads the value as the entry of the same name reads it.
    fn put<K: Kind>(&self, entry: &'static Entry<K>, set: impl FnOnce(K::Value)) {
        match entry.kind.read(&self.written.raw) {
            Ok(value) => set(value),
            Err(_) => {
                let key = entry.about.key.trim_start_matches("mruby.");
                self.taker.refuse(Error {
                    origin: self.written.origin.clone(),
                    written: format!("routes.{:?}.{key} = {}", self.given.path, self.written.raw),
                    problem: format!("expected {}", entry.kind.expected()),
                    nearest: None,
                });
            }
        }
    }
}

/// Handler files, which begin in the server's directory.
fn files(read: &Reader<'_>, facts: &Facts) -> Vec<PathBuf> {
    let one = std::slice::from_ref(&read.written.raw);
    let parts = if let Raw::List(parts) = &read.written.raw { parts } else { one };
    let mut files = Vec::new();
    let expected = "expected the path of a handler such as \"api.rb\", or a list of them";
    if parts.is_empty() {
        refuse(read.taker, read.given, read.written, expected.to_owned());
    }
    for part in parts {
        let file = part.text().filter(|text| !text.is_empty()).map(|text| facts.dir.join(text));
        match file.map(|file| file.components().collect::<PathBuf>()) {
            Some(file) if file.is_file() => files.push(file),
            Some(file) => refuse(
                read.taker,
                read.given,
                read.written,
                format!("expected a file that exists, {} is none", file.display()),
            ),
            None => refuse(read.taker, read.given, read.written, expected.to_owned()),
        }
    }
    files
}

fn is_path(path: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'%' | b'"' | b'\\');
    path.starts_with('/') && path.bytes().all(plain) && !path.contains("//")
}

fn refuse(taker: &Taker<'_>, given: &GivenRoute, written: &Written, problem: String) {
    let written_text = match &written.raw {
        Raw::Other(_) => format!("routes.{:?}", given.path),
        raw => format!("routes.{:?} = {raw}", given.path),
    };
    taker.refuse(Error { origin: written.origin.clone(), written: written_text, problem, nearest: None });
}
