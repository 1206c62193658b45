//! Certificates that are obtained and renewed without anybody asking (ACME, RFC 8555), and those of development.
#![forbid(unsafe_code)]

pub mod local;
