//! Small grammars that every part of the program reads and writes: percent-encoded text, tokens, and the
//! values of settings and flags: counts, sizes, spans of time, rates, switches.
//!
//! Why: each part had its own copy, and the copies treated a stray `%`, `1m30s` or `50m` differently.

#![forbid(unsafe_code)]

pub mod count;
mod hash;
mod hex;
mod masked;
mod mistake;
mod number;
pub mod people;
pub mod percent;
pub mod rate;
pub mod route;
pub mod secret;
pub mod size;
pub mod span;
pub mod switch;
mod token;
pub mod url;

pub use hash::fnv1a;
pub use hex::{from_hex, hex};
pub use masked::{MASK, masked};
pub use mistake::{Mistake, OrMistake};
pub use number::{digits, number};
pub use token::{alphanumeric_and, is_token, is_token_byte, token_len};
