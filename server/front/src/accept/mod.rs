//! Connections, from the listening socket to the protocol that serves them.
//!
//! Contract:
//! 1. [`accept`] takes connections from one listener. `admit` counts each one, makes room for it or refuses
//!    it, and starts its protocol; `quic` does the same for HTTP/3. Two steps come before the protocol: the
//!    PROXY header (`proxied`) and the TLS handshake (`shake`).
//! 2. [`Admission`] counts the connections of all threads. [`Acceptor`] is shared by the acceptors of one
//!    thread; [`Handshakes`] lets the handshakes of a thread take turns.
//! 3. A full server closes a connection for a new one: of the own thread, or of another one that runs [`serve_others`].

mod acceptor;
mod admission;
mod admit;
mod handshakes;
mod proxied;
mod quic;
mod quic_handshakes;
mod room;
mod shake;

use crate::listen::{Address, Listener, Listening};
use ::tls::Endpoint;
use acceptor::canonical;
use admit::{ConnectionSecurity, Protocol};
use handler::{Peer, PeerAddr};
use net::memory::{self, Level};
use net::{Connection, Listener as TcpListener, descriptors};
use settings::Bind;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use tokio::net::UnixListener;
use tokio::sync::watch;

pub(crate) use acceptor::Acceptor;
pub(crate) use admission::Admission;
pub(crate) use handshakes::Handshakes;
pub(crate) use room::{drain_arrivals, serve_others};

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
    fn now(&self, acceptor: &Acceptor) -> ConnectionSecurity {
        match self {
            Accepting::Plain(protocol) => ConnectionSecurity::Plain(*protocol),
            Accepting::Encrypted { rules, address } => ConnectionSecurity::Encrypted(
                rules.borrow().clone(),
                acceptor.alt_svc.borrow().get(address).cloned(),
            ),
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
            return quic::accept(acceptor, port, *address, rules).await;
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
                let security = accepting.now(&acceptor);
                match header {
                    Some(accepted) => {
                        acceptor.clone().await_header(stream, peer, bind.clone(), accepted, security);
                    }
                    None => acceptor.clone().admit_tcp(stream, peer, security),
                }
                if short {
                    acceptor.pause().await;
                }
                if memory::level() == Level::Full {
                    acceptor.relieve().await;
                }
            }
            Err(e) => acceptor.refused(&e).await,
        }
    }
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
                if memory::level() == Level::Full {
                    acceptor.relieve().await;
                }
            }
            Err(e) => acceptor.refused(&e).await,
        }
    }
}
