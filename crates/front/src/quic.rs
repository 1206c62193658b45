//! Connections of QUIC: accepted, admitted or refused, handed to HTTP/3.
//!
//! Contract:
//! 1. A client whose address nobody has verified costs a handshake only while few of them are in progress, of all and of its address;
//!    beyond that it first proves that it receives what is sent there (Retry, RFC 9000 section 8.1.2). See [`Beginnings`].
//!    A connection counts, and may take the place of an idle one, when its handshake is complete.
//! 2. Rules that change (files, authorities) count for connections that begin later.
//! 3. When the future is dropped no connection begins any more; those that are open go on. Who tries is to be told ([`refuse`]):
//!    without an answer a client tries for as long as it has patience, instead of turning to TCP.

use crate::accept::{Acceptor, canonical};
use crate::beginnings::{Beginnings, Judgement};
use crate::tls::variables;
use ::quic::quinn::{self, Connection, Endpoint, Incoming};
use ::quic::{Bounds, Keys, PortSocket, Settled, endpoint, server_config};
use ::tls::Refusal;
use handler::{Peer, PeerAddr, Session};
use rustls::pki_types::CertificateDer;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::spawn_local;

/// H3_EXCESSIVE_LOAD (RFC 9114 section 8.1).
const EXCESSIVE_LOAD: u32 = 0x107;
/// A connection without any packet for that long is over.
const SILENCE: Duration = Duration::from_secs(30);
/// Bytes that a client may send ahead on a stream; less on a connection (`http::three`).
const STREAM_WINDOW: u32 = 1 << 20;
/// Bytes kept for a client until it acknowledges them.
const SEND_WINDOW: u32 = 2 << 20;

/// Accepts on a thread's part of a port until the future is dropped.
///
/// # Errors
/// The socket cannot be used, or the rules of the address do not allow QUIC.
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
    let beginnings = Beginnings::new();
    loop {
        tokio::select! {
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => admit(&acceptor, incoming, local, &beginnings, rules.borrow().clone()),
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

/// Refuses all connections that clients begin (CONNECTION_REFUSED). Does not return before the endpoint is closed.
pub(crate) async fn refuse(endpoint: Endpoint) {
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
    let bounds = Bounds {
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
    beginnings: &Rc<Beginnings>,
    rules: Arc<::tls::Endpoint>,
) {
    let (address, proved) =
        (incoming.remote_address().ip().to_canonical(), incoming.remote_address_validated());
    let begun = match beginnings.judge(address, proved) {
        Judgement::Begin(begun) => begun,
        Judgement::Prove => {
            // What has been verified just now cannot be asked again.
            let _ = incoming.retry();
            return;
        }
        Judgement::Refuse => {
            acceptor.recorder.handshake_failed(Refusal::Displaced.name());
            return incoming.refuse();
        }
    };
    let acceptor = acceptor.clone();
    spawn_local(async move {
        // It takes the place of nobody before it has proved anything.
        let connection = tokio::select! {
            biased;
            connection = Box::pin(shake(&acceptor, incoming)) => connection,
            () = begun.displaced() => {
                acceptor.recorder.handshake_failed(Refusal::Displaced.name());
                None
            }
        };
        drop(begun);
        let Some(connection) = connection else { return };
        let max = acceptor.settings.get().limits.max_connections;
        let (admitted, room) = acceptor.admission.count(max);
        if !room
            && !acceptor.make_room()
            && !Box::pin(acceptor.admission.close_elsewhere(acceptor.index)).await
        {
            acceptor.recorder.handshake_failed(Refusal::Displaced.name());
            return connection
                .close(EXCESSIVE_LOAD.into(), b"max_connections are open, and none of them is idle");
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

/// Performs the handshake; what came of it is counted.
async fn shake(acceptor: &Acceptor, incoming: Incoming) -> Option<Connection> {
    acceptor.handshakes.turn().await;
    let limit = acceptor.settings.get().timeouts.handshake;
    let refusal = match incoming.accept() {
        Ok(connecting) => match tokio::time::timeout(limit, connecting).await {
            Ok(Ok(connection)) => return Some(connection),
            Ok(Err(_)) => Refusal::Closed,
            Err(_) => Refusal::Timeout,
        },
        Err(_) => Refusal::Closed,
    };
    acceptor.recorder.handshake_failed(refusal.name());
    None
}

/// Both ends of a connection, and what its handshake has settled; `None` if the client's certificate has expired.
fn peer(
    acceptor: &Acceptor,
    connection: &Connection,
    local: SocketAddr,
    rules: &::tls::Endpoint,
) -> Option<Peer> {
    let settled = connection.handshake_data().and_then(|data| data.downcast::<Settled>().ok())?;
    let identity =
        connection.peer_identity().and_then(|any| any.downcast::<Vec<CertificateDer<'static>>>().ok());
    let client = identity.as_ref().and_then(|chain| chain.first()).map(AsRef::as_ref);
    let name = settled.server_name.as_deref();
    let session = ::tls::Session::over_quic(name, client, settled.suite, settled.resumed);
    let Some(session) = session else {
        acceptor.recorder.handshake_failed(Refusal::ClientCertificate.name());
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
