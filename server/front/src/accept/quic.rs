//! Accepts QUIC connections, admits or refuses them, and hands them to HTTP/3.
//!
//! Contract:
//! 1. A client with an unverified address gets a handshake only while few are in progress, in total and for
//!    its address, and while there is room. Otherwise it first has to prove that it receives packets at its
//!    address (Retry, RFC 9000 section 8.1.2). See [`QuicHandshakes`]. A connection counts from its first
//!    packet. It can displace another one once its address is proved; until then it is displaced before all
//!    others.
//! 2. Changed TLS parameters (files, authorities) apply to connections that begin later.
//! 3. When the future is dropped, no new connection begins and open ones continue. The caller should then
//!    refuse new clients ([`Acceptor::refuse_quic`]): without a reply, a client retries until its time-out
//!    instead of falling back to TCP.

use super::acceptor::{Acceptor, canonical};
use super::admission::Room;
use super::quic_handshakes::{Judgement, QuicHandshakes};
use crate::tls::variables;
use ::quic::quinn::{self, Connection, Endpoint, Incoming};
use ::quic::{HandshakeData, Keys, PortSocket, QuicBounds, SEND_WINDOW, endpoint, server_config};
use ::tls::HandshakeRefusal;
use handler::{Peer, PeerAddr, Session};
use http::Arrival;
use net::Subnet;
use net::task::spawn_local;
use rustls::pki_types::CertificateDer;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// H3_EXCESSIVE_LOAD (RFC 9114 section 8.1).
const EXCESSIVE_LOAD: u32 = 0x107;
/// Idle time-out of a connection without any packet.
const SILENCE: Duration = Duration::from_secs(30);
/// Bytes that a client may send ahead on a stream. The window of a connection is smaller (`http::three`).
const STREAM_WINDOW: u32 = 1 << 20;

/// Accepts on a thread's part of a port until the future is dropped.
///
/// # Errors
/// The socket cannot be used, or the TLS parameters of the address do not allow QUIC.
pub(crate) async fn accept(
    acceptor: Rc<Acceptor>,
    port: PortSocket,
    local: SocketAddr,
    mut rules: watch::Receiver<Arc<::tls::Endpoint>>,
) -> io::Result<()> {
    let PortSocket { socket, mailbox, keys } = port;
    let first = rules.borrow_and_update().clone();
    let config = configuration(&acceptor, &first, &keys).map_err(io::Error::other)?;
    let endpoint = endpoint(socket, mailbox, config, &keys)?;
    acceptor.quic.borrow_mut().push(endpoint.clone());
    let https_port = acceptor.settings.get().https.https_port.unwrap_or(local.port());
    let alt_svc = format!("h3=\":{https_port}\"; ma=86400").into_bytes();
    acceptor.alt_svc.borrow_mut().insert(local, alt_svc.into());
    let handshakes = Rc::default();
    loop {
        tokio::select! {
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => admit(&acceptor, incoming, local, &handshakes, rules.borrow().clone()),
                None => return Ok(()),
            },
            Ok(()) = rules.changed() => {
                let changed = rules.borrow_and_update().clone();
                match configuration(&acceptor, &changed, &keys) {
                    Ok(config) => endpoint.set_server_config(Some(config)),
                    Err(why) => acceptor.log(&format!("HTTP/3 keeps its rules: {why}")),
                }
            }
        }
    }
}

impl Acceptor {
    /// Refuses new QUIC connections from now on. No other code may accept connections any more.
    pub(crate) fn refuse_quic(&self) {
        for endpoint in self.quic.borrow().iter() {
            spawn_local(refuse(endpoint.clone()));
        }
    }
}

/// Refuses all new connections (CONNECTION_REFUSED). Returns when the endpoint is closed.
async fn refuse(endpoint: Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        incoming.refuse();
    }
}

fn configuration(
    acceptor: &Acceptor,
    rules: &Arc<::tls::Endpoint>,
    keys: &Keys,
) -> Result<quinn::ServerConfig, String> {
    let settings = acceptor.settings.get();
    let bounds = QuicBounds {
        streams: u32::try_from(settings.limits.http2_streams).unwrap_or(u32::MAX),
        stream_window: STREAM_WINDOW,
        send_window: SEND_WINDOW,
        idle: SILENCE,
    };
    server_config(rules.quic()?, &bounds, keys)
}

fn admit(
    acceptor: &Rc<Acceptor>,
    incoming: Incoming,
    local: SocketAddr,
    handshakes: &Rc<QuicHandshakes>,
    rules: Arc<::tls::Endpoint>,
) {
    let (address, proved) =
        (incoming.remote_address().ip().to_canonical(), incoming.remote_address_validated());
    let subnet = Subnet::of(Some(address));
    let judgement = handshakes.judge(subnet, proved);
    let max = acceptor.settings.get().limits.max_connections;
    let (mut admitted, room) = acceptor.tally.count(max);
    if judgement == Judgement::Retry || (room != Room::Free && !proved) {
        // Fails only for a client that has just proved its address.
        let _ = incoming.retry();
        return;
    }
    let refused = judgement == Judgement::Refuse || room == Room::Overfull;
    if refused || (proved && !acceptor.count_address(&mut admitted, Some(address))) {
        acceptor.recorder.handshake_failed(HandshakeRefusal::Displaced.name());
        return incoming.refuse();
    }
    if judgement == Judgement::Replace {
        acceptor.context.displace_quic_handshake();
    }
    let handshake = handshakes.begin(subnet, proved);
    let arrival = acceptor.context.arrive_by_quic(subnet, proved);
    let acceptor = acceptor.clone();
    spawn_local(async move {
        let is_free = || acceptor.admission.is_within(max);
        if room == Room::Full && !arrival.by_server(Box::pin(acceptor.make_room(is_free))).await {
            acceptor.recorder.handshake_failed(HandshakeRefusal::Displaced.name());
            return incoming.refuse();
        }
        let connection = arrival.perform(Box::pin(shake(&acceptor, incoming, &arrival))).await;
        drop((handshake, arrival));
        let Some(connection) = connection else {
            return acceptor.recorder.handshake_failed(HandshakeRefusal::Displaced.name());
        };
        let Some(connection) = connection else { return };
        if !acceptor.count_address(&mut admitted, Some(address)) {
            return connection
                .close(EXCESSIVE_LOAD.into(), b"the address has max_connections_per_address open");
        }
        let counted = acceptor.recorder.connection();
        let Some(peer) = peer(&acceptor, &connection, local, &rules) else {
            return connection.close(0u32.into(), b"");
        };
        let context = acceptor.context.clone();
        drop(acceptor);
        http::three::serve(connection, Rc::new(peer), context).await;
        drop((admitted, counted));
    });
}

/// Performs the handshake and counts the outcome.
async fn shake(acceptor: &Acceptor, incoming: Incoming, arrival: &Arrival) -> Option<Connection> {
    arrival.by_server(acceptor.handshakes.turn()).await;
    let limit = acceptor.settings.get().timeouts.handshake;
    let refusal = match incoming.accept() {
        Ok(connecting) => match tokio::time::timeout(limit, connecting).await {
            Ok(Ok(connection)) => return Some(connection),
            Ok(Err(_)) => HandshakeRefusal::Closed,
            Err(_) => HandshakeRefusal::Timeout,
        },
        Err(_) => HandshakeRefusal::Closed,
    };
    acceptor.recorder.handshake_failed(refusal.name());
    None
}

/// Returns both addresses of a connection and the result of its handshake; `None` if the client's certificate
/// has expired.
fn peer(
    acceptor: &Acceptor,
    connection: &Connection,
    local: SocketAddr,
    rules: &::tls::Endpoint,
) -> Option<Peer> {
    let settled = connection.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok())?;
    let identity =
        connection.peer_identity().and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    let client = identity.as_ref().and_then(|chain| chain.first()).map(AsRef::as_ref);
    let name = settled.server_name.as_deref();
    let session = ::tls::TlsSession::over_quic(name, client, settled.suite, settled.resumed);
    let Some(session) = session else {
        acceptor.recorder.handshake_failed(HandshakeRefusal::ClientCertificate.name());
        return None;
    };
    let (version, cipher) = (session.version.name(), session.cipher);
    acceptor.recorder.handshake(&stats::Handshake { version, cipher, resumed: session.resumed });
    let variables = if rules.asks_clients() { variables::of(&session) } else { Vec::new() };
    let remote = canonical(connection.remote_address());
    Some(Peer {
        remote: PeerAddr::Inet(remote),
        remote_text: remote.ip().to_string().into(),
        local: PeerAddr::Inet(local),
        tls: true,
        session: Some(Box::new(Session { version, cipher, variables, ..Session::default() })),
    })
}
