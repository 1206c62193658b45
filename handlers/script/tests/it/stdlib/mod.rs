//! The standard library of handlers, on a real VM: rows of Ruby and their results.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

mod codec;
mod core;
mod files;
mod json;
mod regexp;
mod text;
mod vm;
