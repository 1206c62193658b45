//! Connections in: accepted, counted, handed to the protocol.

use crate::listen::{Address, Listener};
use crate::pipeline::Pipeline;
use handler::{Peer, PeerAddr};
use http::{Context, Transport};
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::spawn_local;

/// What all acceptors share.
pub(crate) struct Acceptor {
    pub(crate) context: Rc<Context<Pipeline>>,
    pub(crate) recorder: stats::Recorder,
    pub(crate) open: Arc<AtomicUsize>,
    pub(crate) max_connections: usize,
    pub(crate) complain: Box<dyn Fn(&str)>,
    pub(crate) complained: Cell<Option<std::time::Instant>>,
}

/// A connection counts as open until this is dropped.
struct Place {
    open: Arc<AtomicUsize>,
    _counted: stats::Connection,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Pause after the system refused a connection: descriptors may be short for a while.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a connection that is one too many may take to read its 503.
const FAREWELL: Duration = Duration::from_secs(1);

/// Accepts on `listener` until the future is dropped.
pub(crate) async fn accept(acceptor: Rc<Acceptor>, listener: Listener) -> io::Result<()> {
    match listener.address {
        Address::Tcp(address) => {
            accept_tcp(acceptor, TcpListener::from_std(listener.socket.into())?, address).await
        }
        Address::Unix(path) => {
            accept_unix(acceptor, UnixListener::from_std(listener.socket.into())?, path).await
        }
    }
}

async fn accept_tcp(acceptor: Rc<Acceptor>, listener: TcpListener, local: SocketAddr) -> io::Result<()> {
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                let peer = Peer {
                    remote: PeerAddr::Inet(remote),
                    remote_text: remote.ip().to_canonical().to_string(),
                    local: PeerAddr::Inet(local),
                    tls: false,
                };
                acceptor.clone().admit(stream, peer);
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
                acceptor.clone().admit(stream, peer);
            }
            Err(e) => acceptor.refused(&e).await,
        }
    }
}

impl Acceptor {
    fn admit<S>(self: Rc<Self>, stream: S, peer: Peer)
    where
        S: Transport + AsyncRead + AsyncWrite + Unpin + 'static,
    {
        match self.place() {
            Some(place) => {
                spawn_local(async move {
                    http::h1::serve(stream, Rc::new(peer), self.context.clone()).await;
                    drop(place);
                });
            }
            None => {
                spawn_local(turn_away(stream));
            }
        }
    }

    fn place(&self) -> Option<Place> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.max_connections {
            self.open.fetch_sub(1, Ordering::Relaxed);
            self.recorder.failed(stats::Fault::Server);
            self.complain("max_connections are open; new ones are answered with 503");
            return None;
        }
        Some(Place { open: self.open.clone(), _counted: self.recorder.connection() })
    }

    async fn refused(&self, error: &io::Error) {
        // A client that gave up before it was accepted is no news; being out of descriptors is.
        if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            self.complain(&format!("cannot accept a connection: {error}"));
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// At most one such line a second: what is full stays full for a while.
    fn complain(&self, what: &str) {
        let now = std::time::Instant::now();
        if self.complained.get().is_none_or(|last| now.duration_since(last) >= Duration::from_secs(1)) {
            self.complained.set(Some(now));
            (self.complain)(what);
        }
    }
}

/// Tells a client that it is one too many. Waiting a little for it to read that, because closing at once would reset
/// the connection and take the answer away.
async fn turn_away(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let text = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\
                Content-Length: 24\r\n\r\n503 Service Unavailable\n";
    let farewell = async {
        stream.write_all(text.as_bytes()).await?;
        stream.shutdown().await?;
        let mut sink = [0; 1024];
        while stream.read(&mut sink).await? > 0 {}
        io::Result::Ok(())
    };
    // Whether it was read is the client's affair.
    let _ = tokio::time::timeout(FAREWELL, farewell).await;
}
