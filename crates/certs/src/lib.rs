//! Certificates that are obtained and renewed without anybody asking (ACME, RFC 8555).
#![forbid(unsafe_code)]
