//! Hands over a control server to another program: its listening sockets, and the notice that the other
//! program has taken over.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use tokio::sync::watch;

/// The files that another program has taken over; `None` until then.
pub(crate) type HandedOverFiles = Option<Vec<PathBuf>>;

/// A listening socket of a control server.
#[derive(Debug)]
pub enum Listening {
    Unix {
        path: PathBuf,
        /// Whether systemd opened the socket and owns its file.
        activated: bool,
    },
    Tcp {
        address: SocketAddr,
        /// Whether the system chose the port.
        chosen: bool,
        /// Whether systemd opened the socket.
        activated: bool,
    },
}

/// Holds the sockets of a running server for a handover.
#[derive(Debug)]
pub struct SocketHandover {
    sockets: Vec<(Listening, OwnedFd)>,
    token: Option<String>,
    taken: watch::Sender<HandedOverFiles>,
}

impl SocketHandover {
    /// `token` is the generated token. `taken` receives the files that the other program has taken over.
    pub(crate) fn new(
        sockets: Vec<(Listening, OwnedFd)>,
        token: Option<String>,
        taken: watch::Sender<HandedOverFiles>,
    ) -> SocketHandover {
        SocketHandover { sockets, token, taken }
    }

    pub fn sockets(&self) -> impl Iterator<Item = (&Listening, &OwnedFd)> {
        self.sockets.iter().map(|(listening, socket)| (listening, socket))
    }

    /// Returns the token, if the server has generated it.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Stops accepting, and waits until that is done. Open connections continue. `files` belong to the other
    /// program and stay.
    pub async fn taken_over(&mut self, files: Vec<PathBuf>) {
        self.sockets.clear();
        self.taken.send_replace(Some(files));
        self.taken.closed().await;
    }
}

/// Waits until another program has taken over. Returns its files.
pub(crate) async fn wait(mut taken: watch::Receiver<HandedOverFiles>) -> Vec<PathBuf> {
    match taken.wait_for(Option::is_some).await {
        Ok(files) => files.clone().unwrap_or_default(),
        Err(_) => std::future::pending().await,
    }
}
