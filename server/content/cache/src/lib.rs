//! A shared cache of responses (RFC 9111) in front of an app or an origin.
//!
//! Why: a page of an app costs milliseconds of Ruby, and a kept one microseconds. A thousand clients that ask for the same page at the same moment
//! are one request for the app.
//!
//! The way of a request: [`Cache::serve`](service) looks for its [`key`], picks the variant ([`vary`]) and asks [`reuse`] for what may be done with it.
//! A kept response is sent by [`respond`]. Otherwise the request goes to the origin, alone or as the one that the others wait for ([`flight`]), and
//! [`storable`] decides about the response.
//!
//! Contract:
//! 1. Rules are pure: [`directives`], [`freshness`], [`reuse`], [`storable`], [`vary`], [`key`] take fields and times and return decisions.
//! 2. What may hold data of one client is never kept for another: see [`storable`].
//! 3. One [`Store`] is shared by all front threads. Its sizes are exact: fields, body, encoded forms and bookkeeping of each entry.
//! 4. A response that is invalidated or purged while it is being generated is not kept.
#![forbid(unsafe_code)]

mod counts;
mod directives;
mod disk;
mod flight;
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
pub use policy::Policy;
pub use purge::Purge;
pub use service::{Cache, Origin};
pub use store::{DiskFigures, Kept, Listed, Store};
