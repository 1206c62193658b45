//! Admits or refuses accepted connections, and hands them to the protocol.
//!
//! Contract:
//! 1. A connection counts as open from the start (`admission`), also while it waits for a PROXY header or
//!    performs its handshake.
//! 2. A client beyond the limit gets 503 in its own protocol, or 429 if its address has too many connections.
//!    While many clients are being refused, further TLS clients are closed without a response. Before the
//!    PROXY header, nothing is sent.
//! 3. The client's address is that of the PROXY header if there is one.

use super::acceptor::Acceptor;
use super::admission::{Admitted, Room};
use super::proxied;
use super::shake::{Secured, shake};
use crate::pipeline::Pipeline;
use ::tls::{Endpoint, HandshakeRefusal};
use handler::{Failure, Fault, Peer, PeerAddr};
use http::{Arrival, Context, Rank};
use net::proxy_protocol::Accepted;
use net::task::spawn_local;
use net::{Connection, Subnet, Transport, TunnelEnd, descriptors};
use settings::Bind;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// Time-out for the handshake of a refused client, and for its requests over HTTP/2.
const REFUSAL: Duration = Duration::from_secs(3);

/// Explains why there is no room for a connection.
fn no_room(stream: &impl AsRawFd, max: usize) -> String {
    if descriptors::admit_connection(stream) {
        format!("max_connections ({max}) are open, and none of them is idle")
    } else {
        format!("{}, and no connection is idle", descriptors::shortage())
    }
}

/// Explains why an address can open no more connections.
fn too_many(subnet: Subnet, most: usize) -> String {
    format!("{subnet} has {most} connections open (limits.max_connections_per_address)")
}

/// How to serve a connection.
pub(crate) enum ConnectionSecurity {
    Plain(Protocol),
    /// With the TLS parameters, and the `Alt-Svc` value that announces HTTP/3.
    Encrypted(Arc<Endpoint>, Option<Rc<[u8]>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    /// HTTP/2 if the connection begins with its preface (RFC 9113 section 3.3), else HTTP/1.
    Either,
}

/// Guards that count a connection until it ends.
type Counts = (Admitted, stats::OpenConnection);

/// Serves a connection until it ends, in its own task. The size of that task is the cost of an idle
/// connection, so it holds only what serving needs.
fn serve<S: Transport>(
    stream: S,
    peer: Rc<Peer>,
    context: Rc<Context<Pipeline>>,
    protocol: Protocol,
    counts: Counts,
) {
    let serving: Pin<Box<dyn Future<Output = ()>>> = match protocol {
        Protocol::Http1 => {
            let connection = http::one::Connection::open(stream, Subnet::of(peer.remote.ip()), &context);
            spawn_local(connection.serve(peer, context, counts));
            return;
        }
        Protocol::Http2 => Box::pin(http::two::serve(stream, Vec::new(), peer, context)),
        Protocol::Either => Box::pin(http::serve_either(stream, peer, context)),
    };
    spawn_local(async move {
        serving.await;
        drop(counts);
    });
}

impl Acceptor {
    pub(crate) fn admit_tcp(self: Rc<Self>, stream: Connection, peer: Peer, security: ConnectionSecurity) {
        match security {
            ConnectionSecurity::Plain(protocol) => self.admit(stream, peer, protocol),
            ConnectionSecurity::Encrypted(endpoint, alt_svc) => {
                if let Some(stream) = self.registered(stream) {
                    self.admit_encrypted(stream, peer, endpoint, alt_svc);
                }
            }
        }
    }

    /// Converts the socket to the type that TLS needs.
    fn registered(&self, stream: Connection) -> Option<TcpStream> {
        stream.into_tokio().map_err(|error| self.log(&format!("cannot accept a connection: {error}"))).ok()
    }

    /// Counts a connection as open. Returns whether there is room for it, if necessary in place of an
    /// unproven connection of this thread. `address`: the client's address, if known.
    fn count(&self, socket: &impl AsRawFd, address: Option<IpAddr>) -> (Counts, Room) {
        let (admitted, mut room) = self.tally.count(self.settings.get().limits.max_connections);
        let mut counts = (admitted, self.recorder.connection());
        if !self.count_address(&mut counts.0, address) {
            return (counts, Room::OfAddress);
        }
        if room == Room::Free && !descriptors::admit_connection(socket) && !proxy::make_room() {
            room = Room::Full;
        }
        if room == Room::Full && self.displace(Rank::Unproved) {
            room = Room::Free;
        }
        (counts, room)
    }

    /// Whether there is room for a connection that is already counted.
    fn is_free(&self, socket: &impl AsRawFd, max: usize) -> bool {
        self.admission.is_within(max) && descriptors::admit_connection(socket)
    }

    /// Counts a connection with the others of its client's address, if they have a limit. Returns `false` at
    /// the limit. Trusted proxies have no limit, because they forward many clients.
    pub(crate) fn count_address(&self, admitted: &mut Admitted, address: Option<IpAddr>) -> bool {
        let settings = self.settings.get();
        let Some((most, address)) = settings.limits.max_connections_per_address.zip(address) else {
            return true;
        };
        if settings.rack.trusted_proxies.trusts(Some(address)) {
            return true;
        }
        let subnet = Subnet::of(Some(address));
        let counted = admitted.count_address(subnet, most);
        if !counted {
            self.recorder.refused_address();
            self.log(&format!("a connection from {address} was refused: {}", too_many(subnet, most)));
        }
        counted
    }

    /// Finds room for a connection, or returns the failure to refuse it with.
    async fn find_room(&self, socket: &impl AsRawFd, peer: &Peer, room: Room) -> Result<(), Failure> {
        let limits = &self.settings.get().limits;
        let max = limits.max_connections;
        match room {
            Room::Free => Ok(()),
            Room::Full if Box::pin(self.make_room(|| self.is_free(socket, max))).await => Ok(()),
            Room::Full | Room::Overfull => Err(Failure::busy(no_room(socket, max))),
            Room::OfAddress => {
                let most = limits.max_connections_per_address.unwrap_or_default();
                let why = too_many(Subnet::of(peer.remote.ip()), most);
                Err(Failure { status: 429, fault: Fault::Client, ..Failure::busy(why) })
            }
        }
    }

    /// Admits or refuses a connection without TLS.
    pub(crate) fn admit<S: Transport + AsRawFd>(self: Rc<Self>, stream: S, peer: Peer, protocol: Protocol) {
        let (counts, room) = self.count(&stream, peer.remote.ip());
        self.admit_counted(stream, peer, protocol, counts, room);
    }

    /// Serves a tunnel that another program has opened, also beyond the limits: its client was let in. `ahead`: bytes that were read from it.
    pub(crate) fn resume(&self, connection: OwnedFd, peer: Peer, ahead: Vec<u8>, io: Box<dyn TunnelEnd>) {
        let (context, address) = (self.context.clone(), Subnet::of(peer.remote.ip()));
        match peer.remote {
            PeerAddr::Inet(_) => {
                let stream = Connection::new(connection);
                let (counts, _) = self.count(&stream, peer.remote.ip());
                spawn_local(async move {
                    http::one::resume(stream, address, context, &ahead, io).await;
                    drop(counts);
                });
            }
            PeerAddr::Unix => {
                let stream = match UnixStream::from_std(connection.into()) {
                    Ok(stream) => stream,
                    Err(error) => return self.log(&format!("cannot go on with a connection: {error}")),
                };
                let (counts, _) = self.count(&stream, None);
                spawn_local(async move {
                    http::one::resume(stream, address, context, &ahead, io).await;
                    drop(counts);
                });
            }
        }
    }

    /// Serves or refuses a connection that is already counted.
    fn admit_counted<S: Transport + AsRawFd>(
        self: Rc<Self>,
        stream: S,
        peer: Peer,
        protocol: Protocol,
        counts: Counts,
        room: Room,
    ) {
        let context = self.context.clone();
        if room == Room::Free {
            return serve(stream, Rc::new(peer), context, protocol, counts);
        }
        spawn_local(async move {
            match self.find_room(&stream, &peer, room).await {
                Ok(()) => serve(stream, Rc::new(peer), context, protocol, counts),
                Err(failure) => {
                    let (admitted, counted) = counts;
                    drop(admitted);
                    Box::pin(http::one::refuse(stream, Rc::new(peer), context, failure)).await;
                    drop(counted);
                }
            }
        });
    }

    /// Admits a connection from a proxy, and serves it once the PROXY header has named the client.
    pub(crate) fn await_header(
        self: Rc<Self>,
        stream: Connection,
        peer: Peer,
        bind: Arc<Bind>,
        accepted: Accepted,
        security: ConnectionSecurity,
    ) {
        let max = self.settings.get().limits.max_connections;
        let (mut counts, room) = self.count(&stream, None);
        let arrival = self.context.arrive(Subnet::of(peer.remote.ip()));
        spawn_local(async move {
            let found = match room {
                Room::Free => true,
                Room::Full => {
                    let is_free = || self.is_free(&stream, max);
                    arrival.by_server(Box::pin(self.make_room(is_free))).await
                }
                Room::Overfull | Room::OfAddress => false,
            };
            if !found {
                // The client is not known yet, so no response can be sent.
                let (remote, why) = (&peer.remote_text, no_room(&stream, max));
                return self.log(&format!("a connection from {remote} to {bind} was closed: {why}"));
            }
            let peer = proxied::introduce(&self, &stream, peer, &bind, accepted, &arrival).await;
            let Some(peer) = peer else { return };
            let room = match self.count_address(&mut counts.0, peer.remote.ip()) {
                true => Room::Free,
                false => Room::OfAddress,
            };
            match security {
                ConnectionSecurity::Plain(protocol) => {
                    drop(arrival);
                    self.admit_counted(stream, peer, protocol, counts, room);
                }
                ConnectionSecurity::Encrypted(endpoint, alt_svc) => {
                    if let Some(stream) = self.registered(stream) {
                        self.secure(stream, peer, endpoint, alt_svc, arrival, counts, room).await;
                    }
                }
            }
        });
    }

    /// Admits a TLS connection, performs the handshake and serves it.
    fn admit_encrypted(
        self: Rc<Self>,
        socket: TcpStream,
        peer: Peer,
        endpoint: Arc<Endpoint>,
        alt_svc: Option<Rc<[u8]>>,
    ) {
        let (counts, room) = self.count(&socket, peer.remote.ip());
        // Registered here rather than in the task, because many connections may be accepted before the first
        // task is polled.
        let arrival = self.context.arrive(Subnet::of(peer.remote.ip()));
        spawn_local(self.secure(socket, peer, endpoint, alt_svc, arrival, counts, room));
    }

    /// Performs the handshake of a counted connection, and serves or refuses it.
    #[expect(clippy::too_many_arguments, reason = "all of it describes one connection")]
    async fn secure(
        self: Rc<Self>,
        socket: TcpStream,
        mut peer: Peer,
        endpoint: Arc<Endpoint>,
        alt_svc: Option<Rc<[u8]>>,
        arrival: Arrival,
        counts: Counts,
        room: Room,
    ) {
        if let Err(failure) = arrival.by_server(self.find_room(&socket, &peer, room)).await {
            let (admitted, counted) = counts;
            drop((admitted, arrival));
            Box::pin(self.refuse_encrypted(socket, peer, endpoint, failure)).await;
            drop(counted);
            return;
        }
        // Boxed, so that an idle connection does not keep the memory of its handshake.
        let shaken = Box::pin(shake(&self, socket, &peer, endpoint, Some(arrival))).await;
        let Some(Secured { stream, session, http2 }) = shaken else { return };
        session.alt_svc.replace(alt_svc);
        peer.session = Some(session);
        let (context, peer) = (self.context.clone(), Rc::new(peer));
        drop(self);
        let protocol = if http2 { Protocol::Http2 } else { Protocol::Http1 };
        serve(stream, peer, context, protocol, counts);
    }

    /// Refuses a client in its own protocol. While many clients are being refused, others are closed at once:
    /// their handshakes would cost more than the requests of the clients that are served.
    async fn refuse_encrypted(
        self: Rc<Self>,
        socket: TcpStream,
        mut peer: Peer,
        endpoint: Arc<Endpoint>,
        failure: Failure,
    ) {
        let Some(_refused) = self.handshakes.refuse() else {
            self.recorder.handshake_failed(HandshakeRefusal::Displaced.name());
            let why = &failure.reason;
            return self.log(&format!("a TLS connection was closed before its handshake: {why}"));
        };
        let shaken = timeout(REFUSAL, shake(&self, socket, &peer, endpoint, None)).await;
        let secured = match shaken {
            Ok(Some(secured)) => secured,
            Ok(None) => return,
            Err(_) => return self.recorder.handshake_failed(HandshakeRefusal::Timeout.name()),
        };
        let Secured { stream, session, http2 } = secured;
        peer.session = Some(session);
        let (context, peer) = (self.context.clone(), Rc::new(peer));
        if http2 {
            // The connection is cut when the time is over.
            let _ = timeout(REFUSAL, http::two::refuse(stream, peer, context, failure)).await;
        } else {
            http::one::refuse(stream, peer, context, failure).await;
        }
    }
}
