//! QUIC endpoints (RFC 9000) for several threads on one port.
//!
//! Why quinn: it is the maintained implementation on rustls, with GSO, GRO, Retry and migration. Why not one
//! endpoint for all threads: one thread serves a connection from start to end, as everywhere in the server.
//!
//! Contract:
//! 1. Each thread has its own socket (`SO_REUSEPORT`). The kernel chooses a socket by the addresses of a
//!    packet, so the packets of a client that changes its address may reach another thread's socket. The
//!    first byte of a connection's ids is the number of its thread, and a packet that arrives elsewhere is
//!    handed over ([`Steering`]).
//! 2. The queue of a handover is limited. Further packets are dropped, as the network may drop them.
//! 3. This crate does not know HTTP.
#![forbid(unsafe_code)]

mod endpoint;
mod port;
mod session;
mod socket;
mod steering;

pub use endpoint::{Keys, QuicBounds, SEND_WINDOW, SMALL_WINDOW, UNI_STREAMS, endpoint, server_config};
pub use port::{Port, PortSocket};
pub use quinn;
pub use session::{HandshakeData, TlsError, client_config};
pub use steering::{PacketMailbox, Steering};
