//! A reverse proxy as a handler.
//!
//! Why: a site's `/api` is another program's work. What that program says is judged as strictly as what clients say, so
//! that nothing it does can end up in another client's response.
//!
//! Contract:
//! 1. [`Upstreams`] is what all threads share: configuration, the origins' health, counters. A [`Proxy`] belongs to one thread
//!    and owns its connections; nothing in it is `Send`.
//! 2. Bodies stream in both directions under the slower side's pace; small responses come in one piece.
//! 3. A request is sent a second time only when nothing of it can have been acted on.
//! 4. A connection is used again only if request and response have ended where their framing says, and nothing has come
//!    behind the response.
//! 5. Hop-by-hop fields end here (RFC 9110 section 7.6.1); both directions are framed anew. `Via` is not added,
//!    which RFC 9110 section 7.6.3 asks for in requests: as with nginx, since some servers answer worse when they see it.
//! 6. A failure is a [`handler::Failure`] that is told to the `failed` callback with its reason, and answered with its status.
#![forbid(unsafe_code)]

mod body;
mod client;
mod config;
mod connect;
mod conversation;
mod forwarded;
mod health;
mod origin;
mod pool;
mod proxy;
mod receiver;
mod request_head;
mod resolve;
mod response_head;
mod sender;
mod stream;
#[cfg(test)]
mod testing;
mod tls;
mod tunnel;
mod upstreams;

pub use client::Client;
pub use config::{Balance, Config, Health, HostPolicy, Trusts};
pub use health::check_health;
pub use origin::Origin;
pub use proxy::{OnFailure, Proxy};
pub use response_head::judge_response_head;
pub use upstreams::{OriginCounts, Upstreams};
