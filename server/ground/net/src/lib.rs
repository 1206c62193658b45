//! Byte streams and their deadlines.
//!
//! Why: clients and upstreams use the same kinds of sockets, plain or with TLS. Reading, writing and waiting
//! are implemented once for both sides; protocols build on [`Transport`].
//!
//! Contract:
//! 1. This crate does not know HTTP or any other application protocol.
//! 2. No call blocks. `WouldBlock` means: wait for `poll_readable` or `poll_writable`.
//! 3. A stream and its [`Timer`] belong to one thread and its tokio runtime.
#![forbid(unsafe_code)]

mod backoff;
mod connect;
mod connection;
pub mod descriptors;
pub mod memory;
mod output;
pub mod proxy_protocol;
mod socket;
mod stream;
mod subnet;
pub mod task;
mod timers;
mod tls;
mod transport;
mod tunnel;
mod unread;

pub use backoff::backoff;
pub use connect::{connect_tcp, dial};
pub use connection::{Connection, Listener};
pub use output::Output;
pub use stream::Stream;
pub use subnet::Subnet;
pub use sys::socket::Delivery;
pub use timers::{Lane, Timer, Timers};
pub use tls::TlsStream;
pub use transport::Transport;
pub use tunnel::{TunnelEnd, tunnel_end};
pub use unread::Unread;

/// The limit of unsent bytes in the system per client, until the client has shown that it reads. With a
/// larger limit, a client that reads nothing would cost megabytes, and a slow one would make room for the
/// next write only once in minutes.
pub const UNSENT: u32 = 128 << 10;
