//! Static sites: the rules of `static.json`, and the files they lead to.
#![forbid(unsafe_code)]

pub mod auth;
pub mod byteranges;
pub mod coding;
pub mod listing;
pub mod media_type;
pub mod rules;
