//! What another program needs to go on with a control server: its listening sockets, and the word that they are its own now.

use crate::server::Server;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use tokio::sync::watch;

/// The files that another program has taken over; `None` while none has.
pub(crate) type Taken = Option<Vec<PathBuf>>;

/// A socket on which a control server listens.
#[derive(Debug)]
pub enum Listening {
    /// A Unix socket.
    Unix {
        /// Its file.
        path: PathBuf,
        /// It was opened by systemd, and its file is systemd's.
        activated: bool,
    },
    /// A port.
    Tcp {
        /// Where it is.
        address: SocketAddr,
        /// The system chose it.
        chosen: bool,
        /// It was opened by systemd.
        activated: bool,
    },
}

/// Holds the sockets of a server that runs, to hand them over.
#[derive(Debug)]
pub struct Release {
    sockets: Vec<(Listening, OwnedFd)>,
    token: Option<String>,
    taken: watch::Sender<Taken>,
}

impl Release {
    /// Of a server that does not run yet.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub fn of(server: &Server) -> io::Result<Release> {
        Ok(Release { sockets: server.sockets()?, token: server.generated_token(), taken: server.taken() })
    }

    /// The sockets.
    pub fn sockets(&self) -> impl Iterator<Item = (&Listening, &OwnedFd)> {
        self.sockets.iter().map(|(listening, socket)| (listening, socket))
    }

    /// The token, if the server has made it itself.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Ends the server's accepting, and waits until it has ended. Connections go on. `files` stay: they are another program's now.
    pub async fn taken_over(&mut self, files: Vec<PathBuf>) {
        self.sockets.clear();
        self.taken.send_replace(Some(files));
        self.taken.closed().await;
    }
}

/// Waits until another program has taken over; its files.
pub(crate) async fn wait(mut taken: watch::Receiver<Taken>) -> Vec<PathBuf> {
    match taken.wait_for(Option::is_some).await {
        Ok(files) => files.clone().unwrap_or_default(),
        Err(_) => std::future::pending().await,
    }
}
