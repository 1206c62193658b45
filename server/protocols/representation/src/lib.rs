//! The representations of a resource, as HTTP selects and sends them: content codings, conditions, ranges.
//!
//! Why: files, responses of an app and kept responses are encoded, validated and cut by the same rules (RFC
//! 9110 sections 8, 12, 13, 14). This crate has the rules once, without a file system, a cache or a protocol.
//!
//! Contract: no I/O, except that an [`coding::EncodedStream`] reads the files of the body that it encodes.
#![forbid(unsafe_code)]

pub mod byteranges;
pub mod coding;
pub mod conditions;
pub mod date;
pub mod media_type;
#[cfg(test)]
mod testing;
