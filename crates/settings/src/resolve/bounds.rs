//! Limits and timeouts, and what they must be to each other.

use super::taker::Taker;
use super::{Facts, size};
use crate::given::Given;
use crate::kind::numbers::size_text;
use crate::origin::Origin;
use crate::settings::{Limits, Settings, Timeouts};
use crate::table::limits as l;
use crate::table::timeouts as t;

pub(super) fn limits(taker: &Taker<'_>) -> Limits {
    let max_header_bytes = size(taker.take(&l::MAX_HEADER_BYTES).value);
    Limits {
        max_header_bytes,
        max_headers: size(taker.take(&l::MAX_HEADERS).value),
        max_uri: max_uri(taker, max_header_bytes),
        max_body: taker.take(&l::MAX_BODY).value,
        max_connections: size(taker.take(&l::MAX_CONNECTIONS).value),
        max_requests_per_connection: taker.take(&l::MAX_REQUESTS_PER_CONNECTION).value,
        max_queue: size(taker.take(&l::MAX_QUEUE).value),
        body_memory: size(taker.take(&l::BODY_MEMORY).value),
        response_memory: size(taker.take(&l::RESPONSE_MEMORY).value),
        response_spool: taker.take(&l::RESPONSE_SPOOL).value,
        max_response_header_bytes: size(taker.take(&l::MAX_RESPONSE_HEADER_BYTES).value),
    }
}

/// A target that fills the head leaves no room for a version and a Host. Only a written one can be wrong: the
/// default follows the size of the head.
fn max_uri(taker: &Taker<'_>, max_header_bytes: usize) -> usize {
    let max_uri = taker.take(&l::MAX_URI);
    let bytes = size(max_uri.value);
    if max_uri.origin == Origin::Default {
        return bytes.min(max_header_bytes / 2);
    }
    if bytes >= max_header_bytes {
        let head = size_text(max_header_bytes as u64);
        taker.conflict(
            &l::MAX_URI.about,
            format!("must be less than limits.max_header_bytes, which is {head}"),
        );
    }
    bytes
}

pub(super) fn timeouts(taker: &Taker<'_>) -> Timeouts {
    let body_min_rate = taker.take(&t::BODY_MIN_RATE).value;
    let body_grace = taker.take(&t::BODY_GRACE);
    if body_min_rate.is_none() && body_grace.origin != Origin::Default {
        taker.warn("timeouts.body_grace has no effect, because timeouts.body_min_rate is off".to_owned());
    }
    Timeouts {
        header_timeout: taker.take(&t::HEADER_TIMEOUT).value,
        body_min_rate,
        body_grace: body_grace.value,
        keep_alive_timeout: taker.take(&t::KEEP_ALIVE_TIMEOUT).value,
        send_timeout: taker.take(&t::SEND_TIMEOUT).value,
        queue_timeout: taker.take(&t::QUEUE_TIMEOUT).value,
        worker_timeout: taker.take(&t::WORKER_TIMEOUT).value,
        worker_boot_timeout: taker.take(&t::WORKER_BOOT_TIMEOUT).value,
        shutdown_timeout: taker.take(&t::SHUTDOWN_TIMEOUT).value,
    }
}

/// Warns of bounds that this machine cannot honour.
pub(super) fn warn(taker: &Taker<'_>, settings: &Settings, facts: &Facts) {
    let connections = settings.limits.max_connections;
    if let Some(files) = facts.machine.open_files.filter(|files| *files < connections as u64) {
        taker.warn(format!(
            "limits.max_connections is {connections}, but only {files} files may be open; raise the limit (ulimit -n)"
        ));
    }
}

/// Every limit at its default.
impl Default for Limits {
    fn default() -> Limits {
        limits(&Taker::new(&Given::default()))
    }
}

/// Every timeout at its default.
impl Default for Timeouts {
    fn default() -> Timeouts {
        timeouts(&Taker::new(&Given::default()))
    }
}
