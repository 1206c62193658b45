//! HTTP/2 for servers (RFC 9113): one connection, without I/O.
//!
//! Contract:
//! 1. Pure: bytes and times in, events and bytes out.
//! 2. What a client can make the server keep or do is bounded, whatever frames it sends.
#![forbid(unsafe_code)]
