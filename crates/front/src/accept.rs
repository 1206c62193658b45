//! Connections: accepted, admitted or refused, handed to the protocol.

use crate::admission::Admission;
use crate::listen::{Address, Listener};
use crate::pipeline::Pipeline;
use handler::{Failure, Peer, PeerAddr};
use http::Context;
use net::Transport;
use settings::Current;
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::task::spawn_local;

/// What all acceptors share.
pub(crate) struct Acceptor {
    pub(crate) context: Rc<Context<Pipeline>>,
    pub(crate) recorder: stats::Recorder,
    /// The front thread.
    pub(crate) index: u16,
    pub(crate) admission: Arc<Admission>,
    pub(crate) settings: Current,
    pub(crate) log: Box<dyn Fn(&str)>,
    pub(crate) logged: Cell<Option<std::time::Instant>>,
}

/// Pause after accept(2) failed: descriptors may be short for a while.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts on `listener` until the future is dropped.
pub(crate) async fn accept(acceptor: Rc<Acceptor>, listener: Listener) -> io::Result<()> {
    match listener.address {
        Address::Tcp(address) => {
            let socket = TcpListener::from_std(listener.socket.into())?;
            accept_tcp(acceptor, socket, address, listener.http2).await
        }
        Address::Unix(path) => {
            accept_unix(acceptor, UnixListener::from_std(listener.socket.into())?, path).await
        }
    }
}

async fn accept_tcp(
    acceptor: Rc<Acceptor>,
    listener: TcpListener,
    local: SocketAddr,
    http2: bool,
) -> io::Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                let peer = Peer {
                    remote: PeerAddr::Inet(remote),
                    remote_text: remote.ip().to_canonical().to_string(),
                    local: PeerAddr::Inet(local),
                    tls: false,
                };
                acceptor.clone().admit(stream, peer, http2);
            }
            Err(e) => acceptor.refused(&e).await,
        }
    }
}

async fn accept_unix(acceptor: Rc<Acceptor>, listener: UnixListener, _path: PathBuf) -> io::Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let peer = Peer {
                    remote: PeerAddr::Unix,
                    remote_text: String::new(),
                    local: PeerAddr::Unix,
                    tls: false,
                };
                acceptor.clone().admit(stream, peer, false);
            }
            Err(e) => acceptor.refused(&e).await,
        }
    }
}

impl Acceptor {
    /// `http2`: the client may begin with the preface of HTTP/2.
    fn admit<S: Transport>(self: Rc<Self>, stream: S, peer: Peer, http2: bool) {
        let max = self.settings.get().limits.max_connections;
        let (admitted, room) = self.admission.count(max);
        let room = room || self.context.close_longest_idle();
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

    async fn refused(&self, error: &io::Error) {
        // A client that gave up before it was accepted is not worth a line; being out of descriptors is.
        if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            self.log(&format!("cannot accept a connection: {error}"));
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Writes at most one line a second: a shortage lasts for a while.
    fn log(&self, what: &str) {
        let now = std::time::Instant::now();
        if self.logged.get().is_none_or(|last| now.duration_since(last) >= Duration::from_secs(1)) {
            self.logged.set(Some(now));
            (self.log)(what);
        }
    }
}
