//! Handlers on mruby: limits, and the `[routes]` table.

use std::path::PathBuf;

use super::ResolveContext;
use crate::error::Error;
use crate::nearest::nearest;
use crate::raw::Raw;
use crate::settings::{HandlerLimits, Mruby, Route};
use crate::table::mruby;
use crate::table::section::Section;
use crate::table::taker::Taker;
use crate::written::{Route as GivenRoute, Written};

pub(super) fn mruby(taker: &Taker<'_>, facts: &ResolveContext) -> Mruby {
    // The option was read together with the file's name; this only records it as a choice.
    taker.take(&mruby::MRUBY);
    let heap = taker.take(&mruby::HEAP).value;
    let limits = HandlerLimits::take(taker);
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
    // Longest path first, because the first match wins.
    routes.sort_by_key(|route| std::cmp::Reverse(route.path.len()));
    Mruby { heap, routes }
}

fn route(
    taker: &Taker<'_>,
    facts: &ResolveContext,
    given: &GivenRoute,
    defaults: &HandlerLimits,
) -> Option<Route> {
    if !is_path(&given.path) {
        let expected = "expected a path that begins with / such as \"/api\", without query and escapes";
        refuse(taker, given, &given.written, expected.to_owned());
        return None;
    }
    let mut limits = defaults.clone();
    let mut handlers = None;
    for (key, written) in &given.keys {
        if key == "mruby" {
            handlers = Some(files(taker, given, written, facts));
            continue;
        }
        match limits.set(key, &written.raw) {
            Some(Ok(())) => {}
            Some(Err(expected)) => taker.refuse(Error {
                origin: written.origin.clone(),
                written: format!("routes.{:?}.{key} = {}", given.path, written.raw),
                problem: format!("expected {expected}"),
                nearest: None,
            }),
            None => taker.refuse(Error {
                origin: written.origin.clone(),
                written: format!("routes.{:?}.{key}", given.path),
                problem: "unknown key".to_owned(),
                nearest: nearest(key, route_keys()).map(str::to_owned),
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

/// Returns the keys of a route: its handlers, and the limits that it may override.
fn route_keys() -> impl Iterator<Item = &'static str> {
    let limits = HandlerLimits::OPTIONS.iter().filter_map(|entry| entry.about().key.strip_prefix("mruby."));
    ["mruby"].into_iter().chain(limits)
}

/// Returns the handler files; relative paths belong to the server's directory.
fn files(taker: &Taker<'_>, given: &GivenRoute, written: &Written, facts: &ResolveContext) -> Vec<PathBuf> {
    let one = std::slice::from_ref(&written.raw);
    let parts = if let Raw::List(parts) = &written.raw { parts } else { one };
    let mut files = Vec::new();
    let expected = "expected the path of a handler such as \"api.rb\", or a list of them";
    if parts.is_empty() {
        refuse(taker, given, written, expected.to_owned());
    }
    for part in parts {
        let file = part.text().filter(|text| !text.is_empty()).map(|text| facts.base.join(text));
        match file.map(|file| file.components().collect::<PathBuf>()) {
            Some(file) if file.is_file() => files.push(file),
            Some(file) => refuse(
                taker,
                given,
                written,
                format!("expected a file that exists, {} is not one", file.display()),
            ),
            None => refuse(taker, given, written, expected.to_owned()),
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
