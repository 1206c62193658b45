//! Small grammars that every part of the program reads: percent-encoded text and tokens.
//!
//! Why: each part had its own copy, and the copies differed in what they did with a stray `%`.

#![forbid(unsafe_code)]

pub mod percent;
mod token;

pub use token::{alphanumeric_and, is_token, is_token_byte, token_len};
