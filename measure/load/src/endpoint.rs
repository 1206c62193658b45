//! The targets of requests. Names are resolved once, before the run, so that name servers are not part of the
//! measurement.

use std::cell::Cell;
use std::io;
use std::net::{SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{CertificateError, ClientConfig};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use crate::prepare::url;
use crate::scenario::{ConnectTo, Origin, Transport};
use crate::spoken::{Heard, Listening, Spoken};
use crate::stream::{Socket, Stream};

/// The progress of the TLS handshake of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Handshake {
    /// Not begun, or no TLS.
    #[default]
    None,
    /// Not complete: in progress, or failed.
    Begun,
    /// Complete, after this time.
    Complete(Duration),
}

/// An origin with everything needed to connect to it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: Address,
    name: String,
    pub(crate) tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

#[derive(Debug)]
pub(crate) enum Address {
    /// Tried in turn, starting with the address that worked last.
    Tcp(Vec<SocketAddr>, AtomicUsize),
    Unix(PathBuf),
}

impl Endpoint {
    /// Prepares one endpoint per origin.
    ///
    /// # Errors
    /// A name cannot be resolved, or there are no trusted certificates.
    pub(crate) fn all(origins: &[Origin], transport: &Transport) -> Result<Vec<Endpoint>, String> {
        let tls = match origins.iter().any(|origin| origin.tls) {
            true => Some(crate::tls::config(transport)?),
            false => None,
        };
        origins.iter().map(|origin| Endpoint::new(origin, transport, tls.as_ref())).collect()
    }

    fn new(
        origin: &Origin,
        transport: &Transport,
        tls: Option<&Arc<ClientConfig>>,
    ) -> Result<Endpoint, String> {
        let address = match &transport.to {
            Some(ConnectTo::Tcp(address)) => Address::Tcp(vec![*address], AtomicUsize::new(0)),
            Some(ConnectTo::Unix(path)) => Address::Unix(path.clone()),
            None => Address::Tcp(look_up(origin)?, AtomicUsize::new(0)),
        };
        let name = match &address {
            Address::Unix(path) => format!("unix:{}", path.display()),
            Address::Tcp(addresses, _) if transport.to.is_some() => addresses[0].to_string(),
            Address::Tcp(..) => url(origin),
        };
        let tls = match tls.filter(|_| origin.tls) {
            None => None,
            Some(tls) => {
                let server = ServerName::try_from(origin.host_without_zone().to_owned());
                let server = server
                    .map_err(|_| format!("{}: this is not a valid server name for TLS", url(origin)))?;
                Some((tls.clone(), server))
            }
        };
        Ok(Endpoint { address, name, tls })
    }

    /// Opens a connection. `handshake` shows the progress of TLS, even if this future is dropped after a time-out.
    ///
    /// # Errors
    /// The reason as text.
    pub(crate) async fn open(&self, handshake: &Cell<Handshake>) -> Result<Stream, String> {
        let opened = match &self.address {
            Address::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix),
            Address::Tcp(addresses, good) => open_tcp(addresses, good).await.map(Socket::Tcp),
        };
        let refused = |error: io::Error| format!("cannot connect to {}: {}", self.name, describe(&error));
        let socket = opened.map_err(refused)?;
        let Some((tls, server)) = &self.tls else { return Ok(Stream::Plain(socket)) };
        let begin = Instant::now();
        handshake.set(Handshake::Begun);
        let heard = Heard::default();
        let socket = Listening::new(socket, heard.clone());
        match TlsConnector::from(tls.clone()).connect(server.clone(), socket).await {
            Ok(stream) => {
                handshake.set(Handshake::Complete(begin.elapsed()));
                Ok(Stream::Tls(Box::new(stream)))
            }
            Err(error) => Err(self.not_tls(heard.get()).unwrap_or_else(|| self.tls_failed(&error))),
        }
    }

    /// Returns the sentence about a port that has answered a handshake in another protocol.
    fn not_tls(&self, spoken: Option<Spoken>) -> Option<String> {
        let hint = match spoken? {
            Spoken::Tls => return None,
            Spoken::Http1 | Spoken::Http2 => {
                let rest = self.name.strip_prefix("https://").unwrap_or(&self.name);
                format!(": this port speaks http; use http://{rest}")
            }
            Spoken::Other => String::new(),
        };
        Some(format!("{}the answer is not TLS{hint}", self.tls_failure()))
    }

    /// Returns the sentence about a connection that was not open in time. `handshake`: how far it got.
    pub(crate) fn late(&self, handshake: Handshake, quic: bool) -> String {
        match handshake {
            Handshake::Begun if quic => self.silent(),
            Handshake::Begun => format!(
                "{}the port accepts connections, but the handshake was not complete in time (--connect-timeout): does it speak https?",
                self.tls_failure()
            ),
            _ => format!("no connection to {} in time (--connect-timeout)", self.name),
        }
    }

    /// Returns the sentence about a failed handshake.
    pub(crate) fn tls_failed(&self, error: &io::Error) -> String {
        use CertificateError::{Expired, ExpiredContext, NotValidForName, NotValidForNameContext};
        let hint = match trust::certificate_error(error) {
            None => "",
            // Naming the file would not help.
            Some(Expired | ExpiredContext { .. } | NotValidForName | NotValidForNameContext { .. }) => {
                "; trust every certificate if that does not matter"
            }
            Some(_) => "; name the file of a certificate to trust, or trust every certificate",
        };
        format!("{}{}{hint}", self.tls_failure(), describe(error))
    }

    /// Returns the beginning of the text about a failed handshake.
    fn tls_failure(&self) -> String {
        format!("TLS with {} failed: ", self.name)
    }

    /// Returns the sentence about a server that is not heard over UDP.
    pub(crate) fn silent(&self) -> String {
        format!("cannot connect to {}: no response over UDP; is HTTP/3 on at the server?", self.name)
    }

    /// Returns only the reason of a failed handshake.
    pub(crate) fn reason<'a>(&self, text: &'a str) -> &'a str {
        let text = text.strip_prefix(&self.tls_failure()).unwrap_or(text);
        text.split("; ").next().unwrap_or(text)
    }

    /// Returns the name for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

async fn open_tcp(addresses: &[SocketAddr], good: &AtomicUsize) -> io::Result<TcpStream> {
    let stream = match addresses {
        [one] => TcpStream::connect(one).await?,
        _ => {
            let mut in_turn = addresses.to_vec();
            in_turn.rotate_left(good.load(Ordering::Relaxed));
            let stream = net::connect_tcp(&in_turn).await?;
            let connected = stream.peer_addr()?;
            let index = addresses.iter().position(|address| *address == connected);
            good.store(index.unwrap_or_default(), Ordering::Relaxed);
            stream
        }
    };
    // Requests are written whole, so waiting for more data gains nothing.
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn look_up(origin: &Origin) -> Result<Vec<SocketAddr>, String> {
    if let Some((address, zone)) = origin.host.split_once('%') {
        return in_zone(origin, address, zone).map(|address| vec![address]);
    }
    let found = (origin.host.as_str(), origin.port).to_socket_addrs();
    let addresses: Vec<SocketAddr> =
        found.map_err(|error| format!("{}: cannot resolve the name: {error}", url(origin)))?.collect();
    match addresses.is_empty() {
        true => Err(format!("{}: the name has no address", url(origin))),
        false => Ok(addresses),
    }
}

/// Returns an IPv6 address with a zone. The system resolves only zones of link-local addresses, so such an
/// address serves to find the zone's number.
fn in_zone(origin: &Origin, address: &str, zone: &str) -> Result<SocketAddr, String> {
    let known = (format!("fe80::1%{zone}").as_str(), origin.port).to_socket_addrs();
    let scope = known.ok().into_iter().flatten().find_map(|found| match found {
        SocketAddr::V6(found) => Some(found.scope_id()),
        SocketAddr::V4(_) => None,
    });
    let scope =
        scope.ok_or_else(|| format!("{}: this machine has no network interface {zone}", url(origin)))?;
    let address =
        address.parse().map_err(|_| format!("{}: {address} is not an IPv6 address", url(origin)))?;
    Ok(SocketAddr::V6(SocketAddrV6::new(address, origin.port, 0, scope)))
}

/// Returns the system's error text, with advice where the remedy is not obvious.
pub(crate) fn describe(error: &io::Error) -> String {
    let text = error.to_string();
    let plain = text.split(" (os error").next().unwrap_or(&text).to_owned();
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::ADDRNOTAVAIL) => format!(
            "{plain}: this machine has no free ports (some 28,000 connections to one address; a closed one keeps its port for a \
             minute); use fewer connections, keep-alive, or a wider net.ipv4.ip_local_port_range"
        ),
        Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => {
            format!("{plain}: raise the limit of open files (ulimit -n), or use fewer connections")
        }
        _ => plain,
    }
}
