//! Implements HTTP/1.0 and HTTP/1.1 syntax (RFC 9112): a codec for servers and clients.
//!
//! Why: the same rules check requests of clients and responses of origins. Ambiguous input is refused on both
//! sides, so no code behind this crate has to ask where a message ends.
//!
//! Contract:
//! 1. Bytes in, values or bytes out. No I/O, no clock, no runtime.
//! 2. Parsers are resumable: any split of the same bytes gives the same result, and checked bytes are not read again.
//! 3. Request and response heads share one line scanner and one framing check.
//! 4. Header fields set by a handler cannot change the framing of the output.
#![forbid(unsafe_code)]

pub mod chunked;
mod encode_request;
mod encode_response;
mod field;
mod framing;
mod lines;
mod precoded;
mod request_head;
#[cfg(test)]
mod request_head_tests;
mod response_head;
#[cfg(test)]
mod response_head_tests;
mod target;
mod write;

pub use encode_request::{RequestEncoder, body_framing, upgrade_offer};
pub use encode_response::{
    ConnectionField, Delimiter, FramingPlan, declared_length, encode_head, encode_interim, fields_are_clean,
    plan,
};
pub use field::lists;
pub use fieldcode::{Expect, HeadLimits, syntax};
pub use framing::Framing;
pub use precoded::decoded;
pub use request_head::{RequestHead, RequestParser, judge_request_head};
pub use response_head::{ResponseHead, ResponseParser, judge_response_head};
pub use syntax::is_token;
pub use target::RequestLine;
pub use write::{chunk_size, decimal, field as write_field};
