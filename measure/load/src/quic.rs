//! QUIC connections. Each has its own socket, like those of different clients.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use quic::quinn::{self, Connection, ConnectionError, EndpointConfig, TokioRuntime, TransportConfig, VarInt};
use quic::{HandshakeData, TlsError};

use crate::endpoint::{Address, Endpoint, Handshake, describe};
use crate::stream::Negotiated;
use crate::udp::{Socket, SocketEvents};

/// Flow control windows large enough that no response waits for a window update.
const STREAM_WINDOW: u32 = 16 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;
/// The most streams of a server: its control stream, two of QPACK, and some of unknown types.
const UNI_STREAMS: u32 = 16;
/// The time to wait for one of several addresses before trying the next.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connection whose handshake is complete.
#[derive(Debug, Clone)]
pub(crate) struct Quic {
    pub connection: Connection,
    pub seen: Arc<SocketEvents>,
}

impl Quic {
    /// Returns the encryption.
    pub(crate) fn tls(&self) -> Option<Negotiated> {
        let settled = self.connection.handshake_data()?.downcast::<HandshakeData>().ok()?;
        Some(Negotiated { suite: format!("TLSv1.3 {:?}", settled.suite?), resumed: settled.resumed })
    }

    /// Returns the reason why the connection has ended.
    pub(crate) fn reason(&self) -> Option<String> {
        Some(explain(&self.connection.close_reason()?, &self.seen))
    }
}

/// Opens a connection to an origin.
///
/// # Errors
/// The reason as text.
pub(crate) async fn open(target: &Endpoint, handshake: &Cell<Handshake>) -> Result<Quic, String> {
    let (Address::Tcp(addresses, good), Some((tls, server))) = (&target.address, &target.tls) else {
        return Err(format!("{}: HTTP/3 needs https and UDP", target.name()));
    };
    let name = server.to_str();
    let first = good.load(Ordering::Relaxed);
    let mut last = String::new();
    for turn in 0..addresses.len() {
        let index = (first + turn) % addresses.len();
        let attempt = one(target, addresses[index], tls, &name, handshake);
        // UDP packets often vanish without an error.
        let opened = match turn + 1 < addresses.len() {
            true => tokio::time::timeout(PATIENCE, attempt).await.unwrap_or_else(|_| Err(target.silent())),
            false => attempt.await,
        };
        match opened {
            Ok(quic) => {
                good.store(index, Ordering::Relaxed);
                return Ok(quic);
            }
            Err(why) => last = why,
        }
    }
    Err(last)
}

async fn one(
    target: &Endpoint,
    address: SocketAddr,
    tls: &Arc<rustls::ClientConfig>,
    name: &str,
    handshake: &Cell<Handshake>,
) -> Result<Quic, String> {
    let refused = |why: &str| format!("cannot connect to {}: {why}", target.name());
    let seen = Arc::<SocketEvents>::default();
    let socket = Socket::connect(address, seen.clone()).map_err(|error| refused(&describe(&error)))?;
    let (mut config, failure) = quic::client_config(tls.clone())?;
    config.transport_config(Arc::new(transport()));
    let endpoint = quinn::Endpoint::new_with_abstract_socket(
        EndpointConfig::default(),
        None,
        Arc::new(socket),
        Arc::new(TokioRuntime),
    );
    let endpoint = endpoint.map_err(|error| refused(&describe(&error)))?;
    let begin = Instant::now();
    handshake.set(Handshake::Begun);
    let connecting = endpoint.connect_with(config, address, name).map_err(|why| refused(&why.to_string()))?;
    let connected = tokio::select! {
        connected = connecting => connected,
        () = seen.refused() => Err(ConnectionError::Reset),
    };
    match connected {
        Ok(connection) => {
            handshake.set(Handshake::Complete(begin.elapsed()));
            Ok(Quic { connection, seen })
        }
        Err(error) => Err(failed(target, &error, &failure, &seen, handshake)),
    }
}

/// Returns why there is no connection.
fn failed(
    target: &Endpoint,
    error: &ConnectionError,
    failure: &TlsError,
    seen: &SocketEvents,
    handshake: &Cell<Handshake>,
) -> String {
    if seen.is_refused() {
        // The failure has nothing to do with TLS.
        handshake.set(Handshake::None);
        return format!(
            "cannot connect to {}: nothing listens on the UDP port; is HTTP/3 on at the server?",
            target.name()
        );
    }
    let no_protocol = || format!("{} does not speak HTTP/3: it did not agree to h3 (ALPN)", target.name());
    /// TLS's no_application_protocol in QUIC's form (RFC 9001 section 4.8).
    const NO_PROTOCOL: u64 = 0x178;
    match (failure.get(), error) {
        (Some(rustls::Error::NoApplicationProtocol), _) => no_protocol(),
        (Some(why), _) => target.tls_failed(&io::Error::other(why.clone())),
        (None, ConnectionError::ConnectionClosed(close)) if u64::from(close.error_code) == NO_PROTOCOL => {
            no_protocol()
        }
        (None, error) => format!("cannot connect to {}: {}", target.name(), explain(error, seen)),
    }
}

/// Returns the reason for the end of a connection as text.
fn explain(error: &ConnectionError, seen: &SocketEvents) -> String {
    if seen.is_refused() {
        return "nothing listens on the UDP port any more".to_owned();
    }
    match error {
        ConnectionError::ApplicationClosed(close) => {
            let code = h3::error::Code::from(close.error_code.into_inner());
            let why = String::from_utf8_lossy(&close.reason);
            match why.is_empty() {
                true => format!("the server closed the connection: {code}"),
                false => format!("the server closed the connection: {code} ({why})"),
            }
        }
        ConnectionError::TimedOut => "no packet arrived for too long".to_owned(),
        error => error.to_string(),
    }
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(UNI_STREAMS))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .send_window(u64::from(CONNECTION_WINDOW))
        // Users may pause; the server decides.
        .max_idle_timeout(None)
        .datagram_receive_buffer_size(None);
    transport
}
