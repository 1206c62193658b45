//! Implements HTTP/2 for servers (RFC 9113): one connection, without I/O.
//!
//! Contract:
//! 1. No I/O: bytes and times in, events and bytes out.
//! 2. The memory and work that a client can cause are bounded, whatever frames it sends.
//! 3. Any split of the same bytes gives the same events; only the data of a DATA frame may come in more pieces.
#![forbid(unsafe_code)]

mod connection;
mod control;
mod deadlines;
mod discard;
mod error;
mod event;
mod frame;
mod headers;
mod hpack;
mod kept;
mod limits;
mod receive;
mod repeat;
mod respond;
mod schedule;
mod streams;

pub use connection::Connection;
pub use error::{ConnectionError, ErrorCode};
pub use event::{Event, StreamId};
pub use fieldcode::Flood;
pub use limits::Limits;
