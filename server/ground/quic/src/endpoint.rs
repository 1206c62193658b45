//! Endpoints and their limits.

use crate::session;
use crate::socket::SteeredSocket;
use crate::steering::PacketMailbox;
use aws_lc_rs::{hkdf, hmac};
use quinn::{
    Endpoint, EndpointConfig, IdleTimeout, Runtime, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

/// Bytes that a client may send ahead on a connection on which no body is being read: heads, and the
/// beginning of a body.
pub const SMALL_WINDOW: u32 = 128 << 10;
/// The most bytes that are buffered for a client until it acknowledges them.
pub const SEND_WINDOW: u32 = 2 << 20;
/// The largest number of bytes that arrive before a connection is accepted, for one connection, and for all connections of an endpoint.
const FIRST_BYTES: u64 = 16 << 10;
const ALL_FIRST_BYTES: u64 = 8 << 20;

/// Pings in the idle time of a connection.
const PINGS: u32 = 3;

/// The limits of a connection.
#[derive(Debug, Clone)]
pub struct QuicBounds {
    /// The number of simultaneous requests.
    pub streams: u32,
    /// Bytes that a client may send on a stream before they are consumed.
    pub stream_window: u32,
    /// Bytes that are buffered for a client until it acknowledges them, per connection.
    pub send_window: u32,
    /// Idle time-out of a connection without any packet.
    pub idle: Duration,
}

/// The keys that all endpoints of a port share.
#[derive(Clone)]
pub struct Keys {
    token: [u8; 32],
    reset: [u8; 32],
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The keys are secret.
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

impl Keys {
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> io::Result<Keys> {
        let mut keys = Keys { token: [0; 32], reset: [0; 32] };
        for key in [&mut keys.token, &mut keys.reset] {
            aws_lc_rs::rand::fill(key).map_err(|_| io::Error::other("the system has no random numbers"))?;
        }
        Ok(keys)
    }
}

/// Unidirectional streams of a client: control, two of QPACK, and some of unknown types.
pub const UNI_STREAMS: u32 = 16;

/// Returns the server's configuration for connections that begin from now on. `crypto` announces its protocols (ALPN).
///
/// # Errors
/// `crypto` has no AES-128-GCM, which protects the first packets (RFC 9001 section 5.2).
pub fn server_config(
    crypto: Arc<rustls::ServerConfig>,
    bounds: &QuicBounds,
    keys: &Keys,
) -> Result<ServerConfig, String> {
    let crypto = session::Server::new(crypto)?;
    let mut transport = TransportConfig::default();
    let idle = IdleTimeout::try_from(bounds.idle).map_err(|_| "an idle time that is too long".to_owned())?;
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(bounds.streams))
        .max_concurrent_uni_streams(VarInt::from_u32(UNI_STREAMS))
        .stream_receive_window(VarInt::from_u32(bounds.stream_window))
        .receive_window(VarInt::from_u32(SMALL_WINDOW))
        .send_window(u64::from(bounds.send_window))
        .max_idle_timeout(Some(idle))
        // Both sides of QUIC give up a connection without any packets, usually after half a minute, and neither a slow app nor a client that reads
        // slowly sends any. A frame of HTTP/3 needs room in a window, which such a client may leave closed; a ping needs none.
        .keep_alive_interval(Some(bounds.idle / PINGS))
        // Datagrams (RFC 9221) are not used.
        .datagram_receive_buffer_size(None);
    let token = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&keys.token);
    let mut config = ServerConfig::new(Arc::new(crypto), Arc::new(token));
    config.transport_config(Arc::new(transport)).migration(true);
    config.incoming_buffer_size(FIRST_BYTES).incoming_buffer_size_total(ALL_FIRST_BYTES);
    Ok(config)
}

/// Creates the endpoint of a thread. Must be called on the thread's runtime. Connections are refused as long
/// as there is no server configuration (`Endpoint::set_server_config`).
///
/// # Errors
/// The socket cannot be used.
pub fn endpoint(
    socket: UdpSocket,
    mailbox: PacketMailbox,
    config: ServerConfig,
    keys: &Keys,
) -> io::Result<Endpoint> {
    let runtime = Arc::new(TokioRuntime);
    let mut endpoint = EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &keys.reset)));
    let ids = mailbox.ids();
    endpoint.supported_versions(session::VERSIONS.to_vec());
    endpoint.cid_generator(move || Box::new(ids.clone()));
    let socket = SteeredSocket::new(runtime.wrap_udp_socket(socket)?, mailbox);
    Endpoint::new_with_abstract_socket(endpoint, Some(config), Arc::new(socket), runtime)
}
