//! The PROXY protocol, versions 1 and 2, on the receiving side: a header before the first byte of a connection says who
//! the client of a proxy in front is. Specification: <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>.
//!
//! Contract:
//! 1. [`parse`] is pure. For every header, all of its strict prefixes are [`Parsed::Incomplete`], and bytes behind it
//!    change nothing.
//! 2. [`receive`] takes no byte behind the header from the socket, so TLS or HTTP begin where they should.
//! 3. The header is read once for each connection. Whether its sender is trusted, and for how long to wait, is decided by
//!    the caller. There is no guessing: a connection that does not begin with a header is an error.

mod crc32c;
mod one;
mod parse;
mod receive;
mod two;

pub use parse::{Accepted, Ends, Header, Malformed, Parsed, parse};
pub use receive::{Failure, Socket, receive};

#[cfg(test)]
mod tests;
