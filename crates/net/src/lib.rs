//! Byte streams and their deadlines.
//!
//! Why: clients and upstreams are reached by the same sockets, in plain text or by TLS. Reading, writing and waiting are
//! implemented once, for both sides; protocols are implemented on top of [`Transport`].
//!
//! Contract:
//! 1. Nothing here knows HTTP or any other protocol that applications speak.
//! 2. No call blocks. `WouldBlock` means: wait for `poll_readable` or `poll_writable`.
//! 3. A stream and its [`Timer`] belong to one thread and its tokio runtime.
#![forbid(unsafe_code)]

mod cached;
mod connect;
mod connection;
pub mod descriptors;
mod output;
pub mod proxy_protocol;
mod stream;
mod subnet;
mod system;
mod timers;
mod tls;
mod transport;
mod tunnel;

pub use cached::read_cached;
pub use connect::connect_tcp;
pub use connection::{Connection, Listener};
pub use output::Output;
pub use stream::Stream;
pub use subnet::Subnet;
pub use system::{Delivery, UNSENT};
pub use timers::{Lane, Timer, Timers};
pub use tls::Tls;
pub use transport::Transport;
pub use tunnel::{TunnelEnd, tunnel_end};
