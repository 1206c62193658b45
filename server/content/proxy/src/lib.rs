//! Implements a reverse proxy as a handler.
//!
//! Why: another program may serve a site's `/api`. Its responses are checked as strictly as clients'
//! requests, so that none of its bytes can end up in another client's response.
//!
//! Contract:
//! 1. [`Upstreams`] is shared by all threads: configuration, the origins' health, counters. A [`Proxy`]
//!    belongs to one thread and owns its connections; nothing in it is `Send`.
//! 2. Bodies stream in both directions at the slower side's pace. Small responses are sent in one piece.
//! 3. A request is sent again only if the origin cannot have acted on any of it.
//! 4. A connection is reused only if request and response have ended where their framing says, and nothing
//!    follows the response.
//! 5. Hop-by-hop fields end here (RFC 9110 section 7.6.1); both directions are framed anew. `Via` is extended
//!    (section 7.6.3), and a request that has passed the same proxy before gets 508.
//! 6. A failure is a [`handler::Failure`]: of the response, or as the error of its body.
#![forbid(unsafe_code)]

mod body;
mod client;
mod config;
mod connect;
mod conversation;
mod forwarded;
mod health;
mod holds;
mod local;
mod origin;
mod pool;
mod proxy;
mod receiver;
mod request_head;
mod resolve;
mod sender;
#[cfg(test)]
mod testing;
mod tls;
mod tunnel;
mod upstreams;
mod via;

pub use client::ProxyClient;
pub use config::{ProxyConfig, Trusts};
pub use handler::proxying::{Balance, Health, HostPolicy, Via};
pub use health::check_health;
pub use holds::make_room;
pub use origin::Origin;
pub use proxy::Proxy;
pub use upstreams::{OriginCounts, Upstreams};
