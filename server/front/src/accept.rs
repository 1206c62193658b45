//! Accepts connections one by one, and hands them to `admit`.

use crate::admission::{Admission, Tally};
use crate::admit::{Protocol, Way};
use crate::listen::{Address, Listener, Listening};
use crate::pipeline::Pipeline;
use crate::proxied;
use crate::tls::Encryption;
use crate::tls::handshakes::Handshakes;
use ::tls::Endpoint;
use handler::{Peer, PeerAddr};
use http::Context;
use net::task::spawn_local;
use net::{Connection, Listener as TcpListener, descriptors};
use settings::{Bind, Current};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::watch;

/// The state that all acceptors of a front thread share.
pub(crate) struct Acceptor {
    pub(crate) context: Rc<Context<Pipeline>>,
    pub(crate) recorder: stats::Recorder,
    /// The number of the front thread.
    pub(crate) index: u16,
    pub(crate) admission: Arc<Admission>,
    pub(crate) tally: Arc<Tally>,
    pub(crate) encryption: Arc<Encryption>,
    pub(crate) handshakes: Rc<Handshakes>,
    /// Cloned for each connection that waits for room.
    pub(crate) waiting: Rc<()>,
    pub(crate) quic: RefCell<Vec<::quic::quinn::Endpoint>>,
    /// The `Alt-Svc` values that announce HTTP/3, for the addresses where this thread serves it.
    pub(crate) alt_svc: RefCell<HashMap<SocketAddr, Rc<[u8]>>>,
    pub(crate) settings: Current,
    pub(crate) log: Box<dyn Fn(&str)>,
    pub(crate) logged: Cell<Option<std::time::Instant>>,
}

/// The pause after accept(2) failed or took one of the last descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// The protocol of an address.
enum Accepting {
    Plain(Protocol),
    /// The TLS parameters, which can change. The handshake negotiates the protocol (ALPN).
    Encrypted {
        rules: watch::Receiver<Arc<Endpoint>>,
        /// The address, which may also serve HTTP/3.
        address: SocketAddr,
    },
}

impl Accepting {
    /// Returns how to serve a connection that arrives now.
    fn now(&self, acceptor: &Acceptor) -> Way {
        match self {
            Accepting::Plain(protocol) => Way::Plain(*protocol),
            Accepting::Encrypted { rules, address } => {
                Way::Encrypted(rules.borrow().clone(), acceptor.alt_svc.borrow().get(address).cloned())
            }
        }
    }
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
                match header {
                    Some(accepted) => {
                        acceptor.clone().await_header(stream, peer, bind.clone(), accepted, way);
                    }
                    None => acceptor.clone().admit_tcp(stream, peer, way),
                }
                if short {
                    acceptor.pause().await;
                }
            }
            Err(e) => acceptor.refused(&e).await,
        }
    }
}

/// Converts an IPv4 address mapped to IPv6 to plain IPv4, for limits, logs and the app.
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
    /// Refuses new QUIC connections from now on. No other code may accept any more.
    pub(crate) fn refuse_quic(&self) {
        for endpoint in self.quic.borrow().iter() {
            spawn_local(crate::quic::refuse(endpoint.clone()));
        }
    }

    /// Watches the TLS parameters of an address.
    fn rules(&self, bind: &Bind) -> io::Result<watch::Receiver<Arc<Endpoint>>> {
        let endpoint = self.encryption.endpoint(bind);
        endpoint.ok_or_else(|| io::Error::other("its certificates have not been read"))
    }

    /// Waits until some of the connections that are ending have closed their sockets (displaced idle ones,
    /// refused ones). Meanwhile new clients wait in the backlog.
    async fn pause(&self) {
        self.log(&format!("connections are accepted slowly: {}", descriptors::shortage()));
        tokio::time::sleep(PAUSE).await;
    }

    async fn refused(&self, error: &io::Error) {
        // A client that gave up before it was accepted is not worth a line. A shortage of descriptors is.
        if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            self.log(&format!("cannot accept a connection: {error}"));
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Writes at most one line per second, because a shortage lasts for a while.
    pub(crate) fn log(&self, what: &str) {
        let now = std::time::Instant::now();
        if self.logged.get().is_none_or(|last| now.duration_since(last) >= Duration::from_secs(1)) {
            self.logged.set(Some(now));
            (self.log)(what);
        }
    }
}
