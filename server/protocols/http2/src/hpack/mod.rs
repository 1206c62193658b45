//! Implements header compression (RFC 7541).

mod decoder;
mod encoder;
mod static_table;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use decoder::{DecodeError, Decoder};
pub(crate) use encoder::Encoder;
