//! The receiving side of the PROXY protocol, versions 1 and 2: a header before the first byte of a connection
//! names the client of a proxy in front. Specification:
//! <https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>.
//!
//! Contract:
//! 1. [`parse`] is pure. For every header, all of its strict prefixes are [`ParsedHeader::Incomplete`], and bytes
//!    after it do not change the result.
//! 2. [`receive`] takes no byte after the header from the socket, so that TLS or HTTP begins at the right place.
//! 3. The header is read once per connection. The caller decides whether to trust the sender and how long to
//!    wait. Nothing is guessed: a connection that does not begin with a header is an error.

mod crc32c;
mod header;
mod one;
mod parse;
mod receive;
mod two;

pub use header::{Ends, ParsedHeader, ProxyHeader};
pub use parse::{Accepted, MalformedHeader, parse};
pub use receive::{HeaderFailure, Socket, receive};

#[cfg(test)]
mod tests;
