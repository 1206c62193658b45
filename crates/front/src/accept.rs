//! Connections: accepted, admitted or refused, handed to the protocol.

use crate::admission::Admission;
use crate::listen::{Address, Listener};
use crate::pipeline::Pipeline;
use crate::proxied;
use crate::tls::Encryption;
use crate::tls::handshakes::Handshakes;
use crate::tls::shake::{Secured, shake};
use ::tls::{Endpoint, Refusal};
use handler::{Failure, Peer, PeerAddr};
use http::Context;
use net::Transport;
use settings::{Bind, Current};
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::watch;
use tokio::task::spawn_local;

/// What all acceptors share.
pub(crate) struct Acceptor {
    pub(crate) context: Rc<Context<Pipeline>>,
    pub(crate) recorder: stats::Recorder,
    /// The front thread.
    pub(crate) index: u16,
    pub(crate) admission: Arc<Admission>,
    pub(crate) encryption: Arc<Encryption>,
    pub(crate) handshakes: Rc<Handshakes>,
    pub(crate) settings: Current,
    pub(crate) log: Box<dyn Fn(&str)>,
    pub(crate) logged: Cell<Option<std::time::Instant>>,
}

/// Pause after accept(2) failed: descriptors may be short for a while.
const PAUSE: Duration = Duration::from_millis(50);

/// The rules under which the connections of an address are encrypted; they may change.
type Endpoints = watch::Receiver<Arc<Endpoint>>;

/// Accepts on `listener` until the future is dropped.
pub(crate) async fn accept(acceptor: Rc<Acceptor>, listener: Listener) -> io::Result<()> {
    let Listener { address, bind, socket } = listener;
    match address {
        Address::Tcp(address) => {
            accept_tcp(acceptor, TcpListener::from_std(socket.into())?, address, &bind, None).await
        }
        Address::Tls(address) => {
            let endpoint = acceptor.encryption.endpoint(&bind);
            let endpoint = endpoint.ok_or_else(|| io::Error::other("its certificates have not been read"))?;
            accept_tcp(acceptor, TcpListener::from_std(socket.into())?, address, &bind, Some(endpoint)).await
        }
        Address::Unix(_) => accept_unix(acceptor, UnixListener::from_std(socket.into())?).await,
    }
}

async fn accept_tcp(
    acceptor: Rc<Acceptor>,
    listener: TcpListener,
    local: SocketAddr,
    bind: &Arc<Bind>,
    endpoint: Option<Endpoints>,
) -> io::Result<()> {
    let header = proxied::expected(bind);
    let http2 = matches!(**bind, Bind::Tcp { http2: true, .. });
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                let peer = Peer {
                    remote: PeerAddr::Inet(remote),
                    remote_text: remote.ip().to_canonical().to_string(),
                    local: PeerAddr::Inet(local),
                    tls: endpoint.is_some(),
                    session: None,
                };
                let endpoint = endpoint.as_ref().map(|endpoint| endpoint.borrow().clone());
                let Some(accepted) = header else {
                    acceptor.clone().admit_tcp(stream, peer, endpoint, http2);
                    continue;
                };
                let (acceptor, bind) = (acceptor.clone(), bind.clone());
                spawn_local(async move {
                    if let Some(peer) = proxied::introduce(&acceptor, &stream, peer, &bind, accepted).await {
                        acceptor.admit_tcp(stream, peer, endpoint, http2);
                    }
                });
            }
            Err(e) => acceptor.refused(&e).await,
        }
    }
}

async fn accept_unix(acceptor: Rc<Acceptor>, listener: UnixListener) -> io::Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let peer = Peer {
                    remote: PeerAddr::Unix,
                    remote_text: String::new(),
                    local: PeerAddr::Unix,
                    tls: false,
                    session: None,
                };
                acceptor.clone().admit(stream, peer, false);
            }
            Err(e) => acceptor.refused(&e).await,
        }
    }
}

impl Acceptor {
    /// `http2`: a client that is not encrypted may begin with the preface of HTTP/2.
    fn admit_tcp(
        self: Rc<Self>,
        stream: TcpStream,
        peer: Peer,
        endpoint: Option<Arc<Endpoint>>,
        http2: bool,
    ) {
        match endpoint {
            None => self.admit(stream, peer, http2),
            Some(endpoint) => self.admit_encrypted(stream, peer, endpoint),
        }
    }

    /// `http2`: the client may begin with the preface of HTTP/2.
    fn admit<S: Transport>(self: Rc<Self>, stream: S, peer: Peer, http2: bool) {
        let max = self.settings.get().limits.max_connections;
        let (admitted, room) = self.admission.count(max);
        let room = room || self.make_room();
        let counted = self.recorder.connection();
        let (context, peer) = (self.context.clone(), Rc::new(peer));
        if room {
            // An idle connection costs the size of this task: it holds nothing but what serving needs.
            spawn_local(async move {
                if http2 {
                    Box::pin(http::serve_either(stream, peer, context)).await;
                } else {
                    http::one::serve(stream, peer, context).await;
                }
                drop((admitted, counted));
            });
            return;
        }
        spawn_local(async move {
            if Box::pin(self.admission.close_elsewhere(self.index)).await {
                if http2 {
                    Box::pin(http::serve_either(stream, peer, context)).await;
                } else {
                    http::one::serve(stream, peer, context).await;
                }
                drop(admitted);
            } else {
                drop(admitted);
                let why = format!("max_connections ({max}) are open, and none of them is idle");
                Box::pin(http::one::refuse(stream, peer, context, Failure::busy(why))).await;
            }
            drop(counted);
        });
    }

    /// Admits a connection, performs its handshake, and serves it. One for which there is no room is closed: telling the client
    /// why would take a handshake.
    fn admit_encrypted(self: Rc<Self>, socket: TcpStream, mut peer: Peer, endpoint: Arc<Endpoint>) {
        let max = self.settings.get().limits.max_connections;
        let (admitted, room) = self.admission.count(max);
        let room = room || self.make_room();
        let counted = self.recorder.connection();
        spawn_local(async move {
            if !room && !Box::pin(self.admission.close_elsewhere(self.index)).await {
                self.recorder.handshake_failed(Refusal::Displaced.name());
                self.log(&format!(
                    "503 for a TLS connection: max_connections ({max}) are open, and none of them is idle"
                ));
                return;
            }
            // Boxed: what a handshake needs is gone when the connection is idle.
            let Some(secured) = Box::pin(shake(&self, socket, &peer, endpoint)).await else { return };
            let Secured { stream, session, http2 } = secured;
            peer.session = Some(session);
            let (context, peer) = (self.context.clone(), Rc::new(peer));
            drop(self);
            if http2 {
                Box::pin(http::two::serve(stream, Vec::new(), peer, context)).await;
            } else {
                http::one::serve(stream, peer, context).await;
            }
            drop((admitted, counted));
        });
    }

    /// Closes the connection that has been idle for the longest time, or else the oldest that is not even established.
    fn make_room(&self) -> bool {
        self.context.close_longest_idle() || self.handshakes.displace_oldest()
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
