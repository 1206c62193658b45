//! Where requests go: names are looked up once, before the run, so that a run measures servers and not name servers.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::plan::{Origin, Place, Transport};
use crate::prepare::url;
use crate::stream::{Socket, Stream};

/// An origin, ready to be connected to.
#[derive(Debug)]
pub(crate) struct Target {
    route: Route,
    name: String,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

#[derive(Debug)]
enum Route {
    /// Tried one after the other, beginning with the one that answered last.
    Tcp(Vec<SocketAddr>, AtomicUsize),
    Unix(PathBuf),
}

impl Target {
    /// One for each origin.
    ///
    /// # Errors
    /// A name is not known, or there are no certificates to verify by.
    pub(crate) fn all(origins: &[Origin], transport: &Transport) -> Result<Vec<Target>, String> {
        let tls = match origins.iter().any(|origin| origin.tls) {
            true => Some(crate::tls::config(transport)?),
            false => None,
        };
        origins.iter().map(|origin| Target::new(origin, transport, tls.as_ref())).collect()
    }

    fn new(
        origin: &Origin,
        transport: &Transport,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Target, String> {
        let route = match &transport.to {
            Some(Place::Tcp(address)) => Route::Tcp(vec![*address], AtomicUsize::new(0)),
            Some(Place::Unix(path)) => Route::Unix(path.clone()),
            None => Route::Tcp(look_up(origin)?, AtomicUsize::new(0)),
        };
        let name = match &route {
            Route::Unix(path) => format!("unix:{}", path.display()),
            Route::Tcp(addresses, _) if transport.to.is_some() => addresses[0].to_string(),
            Route::Tcp(..) => url(origin),
        };
        let tls = match tls.filter(|_| origin.tls) {
            None => None,
            Some(tls) => {
                let server = ServerName::try_from(origin.host.clone());
                let server =
                    server.map_err(|_| format!("{}: no certificate can have this name", url(origin)))?;
                Some((tls.clone(), server))
            }
        };
        Ok(Target { route, name, tls })
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// Why not, for people.
    pub(crate) async fn open(&self) -> Result<Stream, String> {
        let opened = match &self.route {
            Route::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix),
            Route::Tcp(addresses, good) => open_tcp(addresses, good).await.map(Socket::Tcp),
        };
        let refused = |error: io::Error| format!("no connection to {}: {}", self.name, describe(&error));
        let socket = opened.map_err(refused)?;
        let Some((tls, server)) = &self.tls else { return Ok(Stream::Plain(socket)) };
        let stream = TlsConnector::from(tls.clone()).connect(server.clone(), socket).await;
        stream.map(|stream| Stream::Tls(Box::new(stream))).map_err(|error| self.tls_failed(&error))
    }

    fn tls_failed(&self, error: &io::Error) -> String {
        use CertificateError::{Expired, ExpiredContext, NotValidForName, NotValidForNameContext};
        let hint = match trust::refused(error) {
            None => "",
            // Naming it does not help.
            Some(Expired | ExpiredContext { .. } | NotValidForName | NotValidForNameContext { .. }) => {
                "; have every certificate believed if that does not matter"
            }
            Some(_) => {
                "; name the file of the certificate that is to be believed, or have every certificate believed"
            }
        };
        format!("no TLS with {}: {}{hint}", self.name, describe(error))
    }

    /// For people.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

async fn open_tcp(addresses: &[SocketAddr], good: &AtomicUsize) -> io::Result<TcpStream> {
    let first = good.load(Ordering::Relaxed);
    let mut last = None;
    for turn in 0..addresses.len() {
        let index = (first + turn) % addresses.len();
        match TcpStream::connect(addresses[index]).await {
            Ok(stream) => {
                good.store(index, Ordering::Relaxed);
                // Requests are written whole: nothing is gained by waiting for more.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
}

fn look_up(origin: &Origin) -> Result<Vec<SocketAddr>, String> {
    let found = (origin.host.as_str(), origin.port).to_socket_addrs();
    let addresses: Vec<SocketAddr> =
        found.map_err(|error| format!("{}: the name is not known: {error}", url(origin)))?.collect();
    match addresses.is_empty() {
        true => Err(format!("{}: the name has no address", url(origin))),
        false => Ok(addresses),
    }
}

/// What the system says, and what to do about it where that is not plain.
pub(crate) fn describe(error: &io::Error) -> String {
    let text = error.to_string();
    let plain = text.split(" (os error").next().unwrap_or(&text).to_owned();
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::ADDRNOTAVAIL) => format!(
            "{plain}: this machine's ports are used up (some 28,000 connections to one address; a closed one keeps its port for a \
             minute); use fewer connections, keep-alive, or a wider net.ipv4.ip_local_port_range"
        ),
        Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
            format!("{plain}: raise the limit of open files (ulimit -n), or use fewer connections")
        }
        _ => plain,
    }
}
