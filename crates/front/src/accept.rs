//! Connections: accepted, admitted or refused, handed to the protocol.

use crate::admission::{Admission, Admitted};
use crate::listen::{Address, Listener, Listening};
use crate::pipeline::Pipeline;
use crate::proxied;
use crate::tls::Encryption;
use crate::tls::handshakes::Handshakes;
use crate::tls::shake::{Secured, shake};
use ::tls::{Endpoint, Refusal};
use handler::{Failure, Peer, PeerAddr};
use http::Context;
use net::{Connection, Listener as TcpListener, Transport, descriptors};
use settings::{Bind, Current};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, UnixListener};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::timeout;

/// What all acceptors share.
pub(crate) struct Acceptor {
    pub(crate) context: Rc<Context<Pipeline>>,
    pub(crate) recorder: stats::Recorder,
    /// The front thread.
    pub(crate) index: u16,
    pub(crate) admission: Arc<Admission>,
    pub(crate) encryption: Arc<Encryption>,
    pub(crate) handshakes: Rc<Handshakes>,
    /// The endpoints of HTTP/3.
    pub(crate) quic: RefCell<Vec<::quic::quinn::Endpoint>>,
    /// What announces HTTP/3, by the addresses where this thread serves it.
    pub(crate) alt_svc: RefCell<HashMap<SocketAddr, Rc<[u8]>>>,
    pub(crate) settings: Current,
    pub(crate) log: Box<dyn Fn(&str)>,
    pub(crate) logged: Cell<Option<std::time::Instant>>,
}

/// How long a client for which there is no room may take for its handshake, and for its requests over HTTP/2.
const REFUSAL: Duration = Duration::from_secs(3);
/// Pause after accept(2) failed, or took one of the last descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// What the connections of an address speak.
enum Accepting {
    Plain(Protocol),
    /// The rules of encryption, which may change. The protocol is agreed on in the handshake (ALPN).
    Encrypted {
        rules: watch::Receiver<Arc<Endpoint>>,
        /// Where HTTP/3 may be served, too.
        address: SocketAddr,
    },
}

impl Accepting {
    /// How a connection that has come now is served.
    fn now(&self, acceptor: &Acceptor) -> Way {
        match self {
            Accepting::Plain(protocol) => Way::Plain(*protocol),
            Accepting::Encrypted { rules, address } => {
                Way::Encrypted(rules.borrow().clone(), acceptor.alt_svc.borrow().get(address).cloned())
            }
        }
    }
}

/// Why there is no room for a connection.
fn no_room(stream: &impl AsRawFd, max: usize) -> String {
    if descriptors::admit_connection(stream) {
        format!("max_connections ({max}) are open, and none of them is idle")
    } else {
        format!("{}, and no connection is idle", descriptors::shortage())
    }
}

/// How one connection is served.
enum Way {
    Plain(Protocol),
    /// With the rules of encryption and what announces HTTP/3.
    Encrypted(Arc<Endpoint>, Option<Rc<[u8]>>),
}

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
    /// HTTP/2 if it begins with its preface (RFC 9113 section 3.3).
    Either,
}

/// What a connection counts in until it ends.
type Counts = (Admitted, stats::Connection);

/// Serves a connection until it ends, in a task of its own. An idle connection costs the size of that task: it holds nothing but
/// what serving needs.
fn serve<S: Transport>(
    stream: S,
    peer: Rc<Peer>,
    context: Rc<Context<Pipeline>>,
    protocol: Protocol,
    counts: Counts,
) {
    let serving: Pin<Box<dyn Future<Output = ()>>> = match protocol {
        Protocol::Http1 => {
            let connection = http::one::Connection::open(stream, &context);
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

/// Accepts on `listener` until the future is dropped.
pub(crate) async fn accept(acceptor: Rc<Acceptor>, listener: Listener) -> io::Result<()> {
    let Listener { address, bind, socket } = listener;
    let socket = match (socket, &address) {
        (Listening::Stream(socket), _) => socket,
        (Listening::Datagrams(port), Address::Tls(address)) => {
            let rules = acceptor.rules(&bind)?;
            return crate::quic::accept(acceptor, port, *address, rules).await;
        }
        (Listening::Datagrams(_), _) => return Err(io::Error::other("HTTP/3 needs TLS")),
    };
    match address {
        Address::Tcp(address) => {
            let protocol = if bind.http2() { Protocol::Either } else { Protocol::Http1 };
            let listener = TcpListener::new(socket.into())?;
            accept_tcp(acceptor, listener, address, &bind, Accepting::Plain(protocol)).await
        }
        Address::Tls(address) => {
            let rules = acceptor.rules(&bind)?;
            let listener = TcpListener::new(socket.into())?;
            accept_tcp(acceptor, listener, address, &bind, Accepting::Encrypted { rules, address }).await
        }
        Address::Unix(_) => accept_unix(acceptor, UnixListener::from_std(socket.into())?).await,
    }
}

async fn accept_tcp(
    acceptor: Rc<Acceptor>,
    listener: TcpListener,
    local: SocketAddr,
    bind: &Arc<Bind>,
    accepting: Accepting,
) -> io::Result<()> {
    let header = proxied::expected(bind);
    loop {
        match listener.accept().await {
            Ok((socket, remote)) => {
                let remote = canonical(remote);
                let stream = Connection::new(socket);
                let short = !descriptors::admit_stream(&stream);
                let peer = Peer {
                    remote: PeerAddr::Inet(remote),
                    remote_text: remote.ip().to_string().into(),
                    local: PeerAddr::Inet(local),
                    tls: matches!(accepting, Accepting::Encrypted { .. }),
                    session: None,
                };
                let way = accepting.now(&acceptor);
                if let Some(accepted) = header {
                    let (acceptor, bind) = (acceptor.clone(), bind.clone());
                    spawn_local(async move {
                        if let Some(peer) =
                            proxied::introduce(&acceptor, &stream, peer, &bind, accepted).await
                        {
                            acceptor.admit_tcp(stream, peer, way);
                        }
                    });
                } else {
                    acceptor.clone().admit_tcp(stream, peer, way);
                }
                if short {
                    acceptor.pause().await;
                }
            }
            Err(e) => acceptor.refused(&e).await,
        }
    }
}

/// A client of IPv4 at a socket of IPv6 is one of IPv4, for everything that sees its address.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

async fn accept_unix(acceptor: Rc<Acceptor>, listener: UnixListener) -> io::Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let short = !descriptors::admit_stream(&stream);
                let peer = Peer {
                    remote: PeerAddr::Unix,
                    remote_text: Box::default(),
                    local: PeerAddr::Unix,
                    tls: false,
                    session: None,
                };
                acceptor.clone().admit(stream, peer, Protocol::Http1);
                if short {
                    acceptor.pause().await;
                }
            }
            Err(e) => acceptor.refused(&e).await,
        }
    }
}

impl Acceptor {
    /// From now on who begins a connection of QUIC is refused. Nothing else must accept any more.
    pub(crate) fn refuse_quic(&self) {
        for endpoint in self.quic.borrow().iter() {
            spawn_local(crate::quic::refuse(endpoint.clone()));
        }
    }

    /// The rules of encryption of an address.
    fn rules(&self, bind: &Bind) -> io::Result<watch::Receiver<Arc<Endpoint>>> {
        let endpoint = self.encryption.endpoint(bind);
        endpoint.ok_or_else(|| io::Error::other("its certificates have not been read"))
    }

    fn admit_tcp(self: Rc<Self>, stream: Connection, peer: Peer, way: Way) {
        match way {
            Way::Plain(protocol) => self.admit(stream, peer, protocol),
            Way::Encrypted(endpoint, alt_svc) => match stream.into_tokio() {
                Ok(stream) => self.admit_encrypted(stream, peer, endpoint, alt_svc),
                Err(error) => self.log(&format!("cannot accept a connection: {error}")),
            },
        }
    }

    /// Counts a connection as open; whether there is room for it, if need be in place of an idle one of this thread.
    fn count(&self, socket: &impl AsRawFd, max: usize) -> (Admitted, bool) {
        let (admitted, room) = self.admission.count(max);
        let descriptors = || descriptors::admit_connection(socket) || proxy::make_room();
        (admitted, (room && descriptors()) || self.make_room())
    }

    fn admit<S: Transport + AsRawFd>(self: Rc<Self>, stream: S, peer: Peer, protocol: Protocol) {
        let max = self.settings.get().limits.max_connections;
        let (admitted, room) = self.count(&stream, max);
        let counted = self.recorder.connection();
        let (context, peer) = (self.context.clone(), Rc::new(peer));
        if room {
            return serve(stream, peer, context, protocol, (admitted, counted));
        }
        spawn_local(async move {
            if Box::pin(self.admission.close_elsewhere(self.index)).await {
                serve(stream, peer, context, protocol, (admitted, counted));
            } else {
                drop(admitted);
                let why = no_room(&stream, max);
                Box::pin(http::one::refuse(stream, peer, context, Failure::busy(why))).await;
                drop(counted);
            }
        });
    }

    /// Admits a connection, performs its handshake, and serves it.
    fn admit_encrypted(
        self: Rc<Self>,
        socket: TcpStream,
        mut peer: Peer,
        endpoint: Arc<Endpoint>,
        alt_svc: Option<Rc<[u8]>>,
    ) {
        let max = self.settings.get().limits.max_connections;
        let (admitted, room) = self.count(&socket, max);
        let counted = self.recorder.connection();
        spawn_local(async move {
            if !room && !Box::pin(self.admission.close_elsewhere(self.index)).await {
                drop(admitted);
                let why = no_room(&socket, max);
                Box::pin(self.refuse_encrypted(socket, peer, endpoint, why)).await;
                drop(counted);
                return;
            }
            let progress = Some(self.handshakes.begin());
            // Boxed: what a handshake needs is gone when the connection is idle.
            let shaken = Box::pin(shake(&self, socket, &peer, endpoint, progress)).await;
            let Some(Secured { stream, session, http2 }) = shaken else { return };
            session.alt_svc.replace(alt_svc);
            peer.session = Some(session);
            let (context, peer) = (self.context.clone(), Rc::new(peer));
            drop(self);
            let protocol = if http2 { Protocol::Http2 } else { Protocol::Http1 };
            serve(stream, peer, context, protocol, (admitted, counted));
        });
    }

    /// Tells a client in its own protocol that there is no room. While many are told, others are only closed: their handshakes
    /// would cost more than the requests of those who are served.
    async fn refuse_encrypted(
        self: Rc<Self>,
        socket: TcpStream,
        mut peer: Peer,
        endpoint: Arc<Endpoint>,
        why: String,
    ) {
        let Some(_refused) = self.handshakes.refuse() else {
            self.recorder.handshake_failed(Refusal::Displaced.name());
            return self.log(&format!("a TLS connection was closed before its handshake: {why}"));
        };
        let shaken = timeout(REFUSAL, shake(&self, socket, &peer, endpoint, None)).await;
        let secured = match shaken {
            Ok(Some(secured)) => secured,
            Ok(None) => return,
            Err(_) => return self.recorder.handshake_failed(Refusal::Timeout.name()),
        };
        let Secured { stream, session, http2 } = secured;
        peer.session = Some(session);
        let (context, peer, failure) = (self.context.clone(), Rc::new(peer), Failure::busy(why));
        if http2 {
            // What is left when the time is over is cut off.
            let _ = timeout(REFUSAL, http::two::refuse(stream, peer, context, failure)).await;
        } else {
            http::one::refuse(stream, peer, context, failure).await;
        }
    }

    /// Closes the connection that has been idle for the longest time, or else the oldest that is not even established.
    pub(crate) fn make_room(&self) -> bool {
        self.context.close_longest_idle() || self.handshakes.displace_oldest()
    }

    /// Waits until some of the connections that end now have closed their sockets: idle ones that were replaced, and those that were
    /// refused. Meanwhile clients wait in the backlog.
    async fn pause(&self) {
        self.log(&format!("connections are accepted slowly: {}", descriptors::shortage()));
        tokio::time::sleep(PAUSE).await;
    }

    async fn refused(&self, error: &io::Error) {
        // A client that gave up before it was accepted is not worth a line; being out of descriptors is.
        if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            self.log(&format!("cannot accept a connection: {error}"));
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Writes at most one line a second: a shortage lasts for a while.
    pub(crate) fn log(&self, what: &str) {
        let now = std::time::Instant::now();
        if self.logged.get().is_none_or(|last| now.duration_since(last) >= Duration::from_secs(1)) {
            self.logged.set(Some(now));
            (self.log)(what);
        }
    }
}
