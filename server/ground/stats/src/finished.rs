//! A request that has ended, with the facts that the statistics record.

use std::sync::Arc;
use wire::used::{Remarks, Used};

/// A request that has ended. Times are in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Finished<'a> {
    /// The status of the final response; 0 if none was sent because the client had left (counted as 499).
    pub status: u16,
    /// The body bytes sent.
    pub body_bytes: u64,
    /// The wait for a worker; `None` if none was needed (a file, an invalid request).
    pub queue_us: Option<u32>,
    /// The time in the app; `None` if the app was not involved.
    pub app_us: Option<u32>,
    /// Whether the request is one of those that were chosen at random to be measured. Workers measure slow ones, too.
    pub sampled: bool,
    /// The processor time within the app's time; `None` if it was not measured.
    pub cpu_us: Option<u32>,
    /// The app's wait for Ruby's global lock; `None` if it was not measured, or cannot be.
    pub gvl_us: Option<u32>,
    /// The time from the first byte of the request to the last of the response.
    pub total_us: u64,
    /// The time from the end of the app's work to the last byte of the response.
    pub sending_us: u32,
    /// The measurements of the worker, apart from times.
    pub used: Used,
    /// Remarks about it, with the places in the app.
    pub remarks: Option<&'a Remarks<Option<Arc<str>>>>,
    /// Whether a cache would have answered it; `None` if it is not `sampled`, or could not be kept.
    pub would_hit: Option<bool>,
    /// The route. The path of a request becomes one only if the response is not 400, 404 or 405, and if there is one.
    pub route: RouteOf<'a>,
    /// Whether the cache has answered it.
    pub cached: bool,
    /// Whether the app or the server has failed.
    pub failed: bool,
    /// Set if the connection was taken over. The request is counted as such; its total time, which is that of
    /// a session, is not recorded.
    pub hijacked: bool,
}

/// The route of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteOf<'a> {
    /// The app has named it.
    Named(&'a str),
    /// The app has not. The route is the method, and the path without its ids.
    Path { method: &'a [u8], path: &'a [u8] },
    /// The app was not asked.
    Kind(RouteKind),
}

impl Default for RouteOf<'_> {
    fn default() -> Self {
        RouteOf::Kind(RouteKind::Server)
    }
}

/// Routes that are always there: the requests that have none of the app.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteKind {
    /// Files of a site or of the app's public folder.
    File,
    /// Handlers on mruby.
    Handler,
    /// Origins of a proxied site.
    Proxy,
    /// The server itself: redirects, health, maintenance, refusals, requests that cannot be read.
    Server,
    /// Paths that the app does not know: the response was 400, 404 or 405, or none.
    NotFound,
    /// Routes that have given way to others.
    Other,
}

impl RouteKind {
    pub(crate) const ALL: [RouteKind; 6] = [
        RouteKind::File,
        RouteKind::Handler,
        RouteKind::Proxy,
        RouteKind::Server,
        RouteKind::NotFound,
        RouteKind::Other,
    ];

    /// Returns the name, in parentheses, which no route of an app has.
    pub fn name(self) -> &'static str {
        match self {
            RouteKind::File => "(file)",
            RouteKind::Handler => "(handler)",
            RouteKind::Proxy => "(proxy)",
            RouteKind::Server => "(server)",
            RouteKind::NotFound => "(not found)",
            RouteKind::Other => "(other)",
        }
    }
}
