//! The listening side.

use crate::bind::{SocketFile, bind};
use crate::provider::Provider;
use crate::routes::answer;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

/// Connections served at a time; more wait in the backlog.
const MAX_CONNECTIONS: usize = 32;
/// From accepting a connection to the end of its one answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// Pause after a failure to accept: descriptors may be short for a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// A control socket that listens. Dropping it, or the future of [`Server::run`], removes its file.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    file: SocketFile,
}

impl Server {
    /// Listens on `path`; usable by the owner only (0600). A missing directory is created (0700). Needs no runtime.
    ///
    /// # Errors
    /// `AddrInUse` when a living server answers there; `AlreadyExists` when there is a file that is not a socket;
    /// `InvalidInput` when the path is too long for a socket; and whatever the system says. The text names the path.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Server> {
        let (listener, file) = bind(path.as_ref())?;
        Ok(Server { listener, file })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Answers with what `provider` tells, until the future is dropped. For a `LocalSet` or `LocalRuntime`.
    ///
    /// `provider` is asked once for each request; it should leave what takes long (PSS) to `spawn_blocking`.
    ///
    /// # Errors
    /// When the socket cannot be registered with the runtime.
    pub async fn run(self, provider: impl Provider + 'static) -> io::Result<Infallible> {
        let Server { listener, file: _file } = self;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let provider = Rc::new(provider);
        let mut connections = JoinSet::new();
        loop {
            while connections.try_join_next().is_some() {}
            if connections.len() >= MAX_CONNECTIONS {
                connections.join_next().await;
            }
            match listener.accept().await {
                Ok((stream, _)) => {
                    connections.spawn_local(serve(stream, Rc::clone(&provider)));
                }
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
    }
}

async fn serve<P: Provider>(stream: UnixStream, provider: Rc<P>) {
    let service = service_fn(move |request| {
        let provider = Rc::clone(&provider);
        async move { Ok::<_, Infallible>(answer(&request, &*provider).await) }
    });
    let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
    // A client that sends nonsense or goes away has seen the end of it; there is nobody left to tell.
    let _ = tokio::time::timeout(DEADLINE, connection).await;
}
