//! Tests the engine against hand-made frames, random bytes, and the client of the `h2` crate.

#![allow(clippy::unwrap_used, reason = "all of this is test code")]

mod floods;
mod frames;
mod oracle;
mod responses;
mod splits;
mod support;
