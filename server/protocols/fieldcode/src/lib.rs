//! Contains the code that HTTP versions share. For HTTP/2 (RFC 7541) and HTTP/3 (RFC 9204): prefix integers,
//! the Huffman code, the check of a field section as a request (RFC 9113 section 8.3, RFC 9114 section 4.3),
//! and flood limits. For all versions: character classes and limits on heads.
//!
//! Contract:
//! 1. Bytes in, values out. No I/O, no clock.
//! 2. A message is checked once, by the same rules for both versions. Nothing that HTTP/1 refuses is accepted
//!    in another version.
//! 3. Memory is bounded by the limits while a section is decoded, not only afterwards.
#![forbid(unsafe_code)]

mod budget;
mod huffman;
mod integer;
mod limits;
mod name;
mod priority;
mod request;
mod section;
#[cfg(test)]
mod section_tests;
pub mod syntax;

pub use budget::{DataFrames, Flood, FloodBudget, HEADS, REFUSED};
pub use huffman::{huffman_decode, huffman_encode, huffman_len};
pub use integer::{IntegerError, decode_integer, encode_integer};
pub use limits::{Expect, HeadLimits};
pub use name::{Name, is_field_value};
pub use priority::Priority;
pub use request::{RequestHead, SectionRefusal};
pub use section::{Bomb, Section};
