//! Static sites: the rules of `static.json`, and the files they lead to.
//!
//! [`rules`] decide in pure code which file, redirect or origin a path leads to; [`Site`] asks them and answers with files;
//! [`PublicFiles`] answers for the `public` directory of an app.
//!
//! Contract:
//! 1. A [`Site`] and [`PublicFiles`] belong to one thread; [`rules::Rules`] are shared and never change.
//! 2. Nothing outside of the root is read or shown.
//! 3. What somebody else answers (an origin, the app) is named in [`Answer`]; nothing here knows them.
#![forbid(unsafe_code)]

pub mod auth;
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
pub use explain::{Question, explain};
pub use files::store::Bounds;
pub use public::{PublicFile, PublicFiles};
pub use site::{After, Answer, Forwarding, Plan, Site};
