//! Parsers of flags and files, giving the parts of a [`crate::Scenario`].
//!
//! Contract: pure. Nothing here opens a file or a connection. An error describes what is expected, with an
//! example. The caller adds the flag's name in front; parsers of files add `file:line` themselves.

pub mod access_log;
pub mod amount;
pub mod condition;
pub mod journey_file;
mod log_line;
pub mod rate;
pub mod recorded;
pub mod statuses;
pub mod url;
pub mod urls_file;
mod variables;

pub use amount::{count, duration, size, think};
pub use rate::{rate, stages};
pub use statuses::statuses;
pub use url::{ParsedUrl, url};
