//! A shared cache of responses (RFC 9111) in front of an app or an origin.
//!
//! Why: a page costs an app milliseconds of Ruby, and the cache microseconds. When a thousand clients request
//! the same page at the same moment, the app gets one request.
//!
//! The way of a request: [`Cache::serve`](service) looks up its [`key`] and selects the variant ([`vary`]);
//! [`reuse`] decides how the kept response may be used, and [`respond`] sends it. Otherwise the request goes
//! to the origin, alone or as the leader of a [`flight`] that others wait for, and [`storable`] decides
//! whether the response is kept.
//!
//! Contract:
//! 1. Rules are pure: [`directives`], [`freshness`], [`reuse`], [`storable`], [`vary`], [`key`] take fields
//!    and times and return decisions.
//! 2. A response that may hold one client's data is never kept for another client: see [`storable`].
//! 3. One [`Store`] is shared by all front threads. Its sizes are exact: fields, body, encoded forms and
//!    bookkeeping of each entry.
//! 4. A response that is invalidated or purged while it is being generated is not kept.
#![forbid(unsafe_code)]

mod counts;
mod directives;
mod disk;
mod flight;
mod forecast;
mod freshness;
pub mod fuzzing;
mod gather;
#[cfg(test)]
mod histories;
mod inheritance;
mod key;
mod policy;
mod purge;
#[cfg(test)]
mod races;
mod removals;
mod resource;
mod respond;
mod reuse;
mod service;
mod status;
mod storable;
mod store;
mod stored;
mod summary;
mod targeted;
#[cfg(test)]
mod testing;
mod vary;

pub use counts::{Counts, RouteCount};
pub use forecast::Forecast;
pub use policy::Policy;
pub use purge::Purge;
pub use service::{Cache, Origin};
pub use store::{DiskFigures, Kept, Listed, Store};
