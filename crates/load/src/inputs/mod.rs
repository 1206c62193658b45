//! What people write and what lies in their files, read into the parts of a [`crate::Plan`].
//!
//! Contract: pure. Nothing here opens a file or a connection; a mistake says what was expected, with an example. Who
//! calls puts the flag in front; readers of files put `file:line` in front themselves.

pub mod access_log;
pub mod amount;
pub mod condition;
mod log_line;
pub mod rate;
pub mod statuses;
pub mod url;
pub mod urls_file;
mod variables;

pub use amount::{count, duration, size};
pub use rate::{rate, stages};
pub use statuses::statuses;
pub use url::{Target, url};
