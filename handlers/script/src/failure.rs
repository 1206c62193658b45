//! The failures of this crate, each created in one place.

use handler::Failure;
use std::borrow::Cow;
use std::time::Duration;

/// The handler raised, could not be loaded, or returned something that is not a response (500).
pub(crate) fn handler(why: impl Into<Cow<'static, str>>) -> Failure {
    Failure::server(500, why)
}

/// `mruby.max_tasks` are running (503); the client may retry.
pub(crate) fn too_many_tasks(max_tasks: usize) -> Failure {
    Failure::busy(format!("mruby.max_tasks ({max_tasks}) are running"))
}

/// The handler did not respond in time (504).
pub(crate) fn deadline(limit: Duration) -> Failure {
    let why = format!("the handler did not respond within mruby.deadline ({} s)", limit.as_secs_f64());
    Failure::app(504, why)
}

/// The client disconnected before the response began (499).
pub(crate) fn client_gone() -> Failure {
    Failure::client_gone("the client disconnected")
}

/// The client disconnected before the response was complete, or closed its sending side and then read nothing
/// for too long.
pub(crate) fn client_gone_during_response() -> Failure {
    Failure::client_gone("the client disconnected before the response was complete")
}

/// The request's body is larger than handlers accept (413).
pub(crate) fn body_too_large(length: u64, max_body: usize) -> Failure {
    let why = format!("the body has {length} bytes, more than mruby.max_body ({max_body})");
    Failure::client(413, why)
}

/// The handler passed the request on in an impossible way (502).
pub(crate) fn bad_delegation(why: impl Into<Cow<'static, str>>) -> Failure {
    Failure::app(502, why)
}

/// Another server did not respond within the timeout of `http_request` (504).
pub(crate) fn request_timeout(limit: Duration) -> Failure {
    Failure::app(504, format!("http_request: no response within {} s", limit.as_secs_f64()))
}
