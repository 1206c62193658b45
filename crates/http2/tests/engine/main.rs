//! The engine against frames made by hand, random bytes, and the client of the `h2` crate.

mod floods;
mod frames;
mod oracle;
mod responses;
mod splits;
mod support;
