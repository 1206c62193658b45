//! Rules between limits and timeouts.

use super::ResolveContext;
use crate::origin::ValueSource;
use crate::settings::{Limits, Settings, Timeouts};
use crate::table::section::Section;
use crate::table::taker::Taker;
use crate::table::{limits as l, timeouts as t};
use std::time::Duration;

/// Reads the limits. A target as large as the whole head leaves no room for a version and a Host field. Only
/// a written value can break this rule, because the default follows the size of the head.
///
/// In development, and for an attached Ruby process, `predict_wait` is off by default, since a debugger may
/// cause the wait. An attached process is never replaced, because the server did not start it.
pub(super) fn limits(taker: &Taker<'_>, facts: &ResolveContext, development: bool) -> Limits {
    let mut limits = Limits::take(taker);
    if (development || facts.attached) && taker.origin(&l::predict_wait) == ValueSource::Default {
        limits.predict_wait = false;
    }
    if facts.attached {
        (limits.worker_memory, limits.max_requests, limits.max_age) = (None, None, None);
    }
    if taker.origin(&l::max_uri) == ValueSource::Default {
        limits.max_uri = limits.max_uri.min(limits.max_header_bytes / 2);
    } else if limits.max_uri >= limits.max_header_bytes {
        let head = text::size::exact(limits.max_header_bytes as u64);
        taker.conflict(
            &l::max_uri.about,
            format!("must be less than limits.max_header_bytes, which is {head}"),
        );
    }
    limits
}

/// The time, with some reserve, until a whole Kubernetes cluster knows that a pod is shutting down.
const CLUSTER_HEARS: Duration = Duration::from_secs(5);

/// The queue time-out in development, where a debugger may hold the only worker.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

pub(super) fn timeouts(taker: &Taker<'_>, facts: &ResolveContext, development: bool) -> Timeouts {
    let mut timeouts = Timeouts::take(taker);
    if development && taker.origin(&t::queue) == ValueSource::Default {
        timeouts.queue = PATIENCE;
    }
    if facts.attached || (development && taker.origin(&t::worker) == ValueSource::Default) {
        timeouts.worker = None;
    }
    if facts.attached {
        timeouts.lame_duck.get_or_insert(Duration::ZERO);
    }
    if facts.kubernetes {
        timeouts.lame_duck.get_or_insert(CLUSTER_HEARS);
    }
    if timeouts.body_min_rate.is_none() && taker.origin(&t::body_grace) != ValueSource::Default {
        taker.warn("timeouts.body_grace has no effect, because timeouts.body_min_rate is off".to_owned());
    }
    timeouts
}

/// Warns of limits that this machine cannot provide.
pub(super) fn warn(taker: &Taker<'_>, settings: &Settings, facts: &ResolveContext) {
    let connections = settings.limits.max_connections;
    if let Some(files) = facts.machine.open_files.filter(|files| *files < connections as u64) {
        taker.warn(format!(
            "limits.max_connections is {connections}, but only {files} files may be open; raise the limit (ulimit -n)"
        ));
    }
}
