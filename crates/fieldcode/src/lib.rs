//! What the header compressions of HTTP/2 (RFC 7541) and HTTP/3 (RFC 9204) share: prefix integers, the Huffman code, and the
//! judging of a field section as a request (RFC 9113 section 8.3, RFC 9114 section 4.3). And what all versions share: character
//! classes, bounds on heads. And what both of them let a client do before it is a flood.
//!
//! Contract:
//! 1. Pure: bytes in, values out. No I/O, no clock.
//! 2. A message is judged once, by the same rules for both versions; nothing that HTTP/1 refuses comes in by another version.
//! 3. Memory is bounded by the limits while a section is decoded, not afterwards.
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

pub use budget::{Budget, DataFrames, Flood, HEADS, REFUSED};
pub use huffman::{huffman_decode, huffman_encode, huffman_len};
pub use integer::{IntegerError, decode_integer, encode_integer};
pub use limits::{Expect, HeadLimits};
pub use name::{Name, is_field_value};
pub use priority::Priority;
pub use request::{Refusal, RequestHead};
pub use section::{Bomb, Section};
