//! Static sites: the rules of `static.json`, and the files they lead to.
//!
//! [`rules`] decides in pure code which file, redirect or origin a path leads to; [`Site`] follows the rules and serves files;
//! [`PublicFiles`] serves the `public` directory of an app.
//!
//! Contract:
//! 1. A [`Site`] and [`PublicFiles`] belong to one thread; [`rules::Rules`] are shared and immutable.
//! 2. Nothing outside the root is read or shown.
//! 3. Requests for an origin or the app are returned to the caller as an [`Outcome`]; this crate knows neither.
#![forbid(unsafe_code)]

pub mod byteranges;
pub mod coding;
mod disk;
mod explain;
mod files;
pub mod listing;
pub mod media_type;
mod page;
mod public;
mod public_path;
pub mod rules;
mod site;
#[cfg(test)]
mod testing;

pub use disk::Disk;
pub use explain::{ExplainRequest, explain};
pub use files::store::Bounds;
pub use public::{PublicFile, PublicFiles};
pub use site::{Forwarding, Outcome, ResponseEdits, Site, SiteConfig};
