//! Serves static sites: the rules of `static.json`, and the files they lead to.
//!
//! [`rules`] decides without I/O which file, redirect or origin a path leads to. [`Site`] follows the rules
//! and serves files. [`PublicFiles`] serves the files that an app's middleware would.
//!
//! Contract:
//! 1. A [`Site`] and [`PublicFiles`] belong to one thread; [`rules::Rules`] are shared and immutable.
//! 2. Nothing outside the root of a site is read or shown. Links in the directories of an app are followed,
//!    as the app would.
//! 3. Requests for an origin or the app are returned to the caller as a [`SiteResult`]; this crate depends on neither.
#![forbid(unsafe_code)]

mod disk;
mod explain;
mod files;
mod links;
pub mod listing;
pub mod media_type;
mod page;
mod public;
pub mod rules;
mod site;
#[cfg(test)]
mod testing;

pub use disk::Disk;
pub use explain::{ExplainRequest, explain};
pub use files::store::CacheBounds;
pub use links::{broken_links, refused_links};
pub use public::{AppFiles, FilesNote, PublicFile, PublicFiles, Wanted};
pub use site::{Forwarding, ResponseEdits, Site, SiteConfig, SiteResult};
