//! The values that all acceptors of a front thread share.

use super::admission::{Admission, Tally};
use super::handshakes::Handshakes;
use crate::pipeline::Pipeline;
use crate::tls::Encryption;
use ::tls::Endpoint;
use http::{Context, Rank};
use net::descriptors;
use net::memory;
use rustix::io::Errno;
use settings::{Bind, Current};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The pause after accept(2) failed or took one of the last descriptors.
const PAUSE: Duration = Duration::from_millis(100);

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

impl Acceptor {
    /// Watches the TLS parameters of an address.
    pub(super) fn rules(&self, bind: &Bind) -> io::Result<watch::Receiver<Arc<Endpoint>>> {
        let endpoint = self.encryption.endpoint(bind);
        endpoint.ok_or_else(|| io::Error::other("its certificates have not been read"))
    }

    /// Waits until some of the connections that are ending have closed their sockets (displaced idle ones,
    /// refused ones). Meanwhile new clients wait in the backlog.
    pub(super) async fn pause(&self) {
        self.log(&format!("connections are accepted slowly: {}", descriptors::shortage()));
        tokio::time::sleep(PAUSE).await;
    }

    /// Makes room while memory is full: closes a connection that waits for a request, or for the rest of one,
    /// in favour of the new one. Without such a connection, new clients wait in the backlog for a moment.
    #[cold]
    pub(super) async fn relieve(&self) {
        if [Rank::Unproved, Rank::Idle].into_iter().any(|rank| self.displace(rank)) {
            return;
        }
        self.log(&format!("connections are accepted slowly: {}", memory::figures().describe()));
        tokio::time::sleep(PAUSE).await;
    }

    /// Waits a moment after accept(2) has failed. Without descriptors, makes room for the client: the reserve can be used up by connections to origins.
    pub(super) async fn refused(&self, error: &io::Error) {
        // A client that gave up before it was accepted is not worth a line. A shortage of descriptors is.
        if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
            return;
        }
        self.log(&format!("cannot accept a connection: {error}"));
        let is_short = [Errno::MFILE, Errno::NFILE]
            .iter()
            .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()));
        if is_short && !proxy::make_room() {
            self.displace(Rank::Unproved);
        }
        // Also after room was made: sockets close in a moment.
        tokio::time::sleep(PAUSE).await;
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

/// Converts an IPv4 address mapped to IPv6 to plain IPv4, for limits, logs and the app.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
