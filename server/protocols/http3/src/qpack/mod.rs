//! Implements QPACK (RFC 9204) without a dynamic table: sections refer to the static table, or contain their
//! fields in full.

mod decode;
mod encode;
mod table;

pub(crate) use decode::decode;
pub use encode::{Encoder, ResponseSection};
