//! The listening side.

use crate::bind::{SocketFile, bind};
use crate::gate::Gate;
use crate::provider::Provider;
use crate::routes::{Told, answer};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use settings::ControlAddress;
use stats::History;
use std::cell::RefCell;
use std::convert::Infallible;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

/// Connections served at a time at each address; more wait in the backlog.
const MAX_CONNECTIONS: usize = 32;
/// From accepting a connection to the end of its one answer.
const DEADLINE: Duration = Duration::from_secs(10);
/// Pause after a failure to accept: descriptors may be short for a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Bytes of a token that the server makes up.
const TOKEN_BYTES: usize = 16;

/// Sockets and ports that listen. Dropping it, or the future of [`Server::run`], removes the sockets' files.
#[derive(Debug, Default)]
pub struct Server {
    unix: Vec<(UnixListener, SocketFile)>,
    ports: Vec<Port>,
    token: Option<Token>,
}

#[derive(Debug)]
struct Port {
    listener: TcpListener,
    host: String,
    address: SocketAddr,
}

#[derive(Debug)]
struct Token {
    text: String,
    made_up: bool,
}

impl Server {
    /// A server that listens nowhere yet. Its ports want `token` to be shown; without one they want a token that is made up.
    pub fn new(token: Option<String>) -> Server {
        let token = token.map(|text| Token { text, made_up: false });
        Server { token, ..Server::default() }
    }

    /// Listens on a socket, usable by the owner only (0600), whose missing directory is created (0700); or on a port. Needs no
    /// runtime.
    ///
    /// # Errors
    /// `AddrInUse` when a living server answers there; `AlreadyExists` when there is a file that is not a socket;
    /// `InvalidInput` when the path is too long for a socket; and whatever the system says. The text names the address.
    pub fn listen(&mut self, address: &ControlAddress) -> io::Result<()> {
        match address {
            ControlAddress::Unix(path) => self.unix.push(bind(path)?),
            ControlAddress::Tcp { host, port } => {
                let named = |error: io::Error| {
                    io::Error::new(error.kind(), format!("control port {address}: {}", in_words(&error)))
                };
                let listener = TcpListener::bind((host.as_str(), *port)).map_err(named)?;
                let bound = listener.local_addr().map_err(named)?;
                if self.token.is_none() {
                    self.token = Some(Token { text: random_token().map_err(named)?, made_up: true });
                }
                self.ports.push(Port { listener, host: host.clone(), address: bound });
            }
        }
        Ok(())
    }

    /// Whether it listens anywhere.
    pub fn listens(&self) -> bool {
        !self.unix.is_empty() || !self.ports.is_empty()
    }

    /// Where the ports are, with those that the system chose.
    pub fn ports(&self) -> impl Iterator<Item = ControlAddress> {
        self.ports
            .iter()
            .map(|port| ControlAddress::Tcp { host: port.host.clone(), port: port.address.port() })
    }

    /// Addresses of the dashboard for people: with the token if it was made up, since they cannot know it otherwise. It stands
    /// behind a `#`, which browsers keep to themselves.
    pub fn dashboards(&self) -> impl Iterator<Item = String> {
        let made_up = self.token.as_ref().filter(|token| token.made_up);
        let token = made_up.map(|token| format!("#token={}", token.text)).unwrap_or_default();
        self.ports.iter().map(move |port| format!("http://{}/dashboard{token}", reachable(port.address)))
    }

    /// Whether the token was made up, so that nobody knows it who has not been told.
    pub fn made_up_its_token(&self) -> bool {
        self.token.as_ref().is_some_and(|token| token.made_up)
    }

    /// The files of its sockets.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.unix.iter().map(|(_, file)| file.path())
    }

    /// Answers with what `provider` tells, until the future is dropped, and keeps its last hour. For a `LocalSet` or
    /// `LocalRuntime`.
    ///
    /// `provider` is asked once for each request; it should leave what takes long (PSS) to `spawn_blocking`.
    ///
    /// # Errors
    /// When a socket cannot be registered with the runtime.
    pub async fn run(self, provider: impl Provider + 'static) -> io::Result<Infallible> {
        let Server { unix, ports, token } = self;
        let told = Rc::new(Told { provider, history: RefCell::new(History::default()) });
        let mut tasks: JoinSet<Infallible> = JoinSet::new();
        // The files go when this future is dropped, not when a task gets to it.
        let mut files = Vec::new();
        for (listener, file) in unix {
            files.push(file);
            listener.set_nonblocking(true)?;
            let listener = tokio::net::UnixListener::from_std(listener)?;
            let accept = async move || listener.accept().await.map(|(stream, _)| stream);
            tasks.spawn_local(accept_all(accept, Rc::clone(&told), None));
        }
        for port in ports {
            port.listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(port.listener)?;
            let token = token.as_ref().map(|token| token.text.as_str()).unwrap_or_default();
            let gate = Gate::new(&port.host, port.address.ip(), token);
            let accept = async move || listener.accept().await.map(|(stream, _)| stream);
            tasks.spawn_local(accept_all(accept, Rc::clone(&told), Some(Rc::new(gate))));
        }
        sample(&told).await
    }
}

async fn accept_all<S, P>(
    accept: impl AsyncFn() -> io::Result<S>,
    told: Rc<Told<P>>,
    gate: Option<Rc<Gate>>,
) -> Infallible
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    P: Provider + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if connections.len() >= MAX_CONNECTIONS {
            connections.join_next().await;
        }
        match accept().await {
            Ok(stream) => {
                connections.spawn_local(serve(stream, Rc::clone(&told), gate.clone()));
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn serve<S, P>(stream: S, told: Rc<Told<P>>, gate: Option<Rc<Gate>>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    P: Provider + 'static,
{
    let service = service_fn(move |request| {
        let (told, gate) = (Rc::clone(&told), gate.clone());
        async move { Ok::<_, Infallible>(answer(request, &*told, gate.as_deref()).await) }
    });
    let connection = http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service);
    // A client that sends nonsense or goes away has seen the end of it; there is nobody left to tell.
    let _ = tokio::time::timeout(DEADLINE, connection).await;
}

/// Adds a step to the history every now and then, for ever.
async fn sample<P: Provider>(told: &Told<P>) -> io::Result<Infallible> {
    let mut clock = tokio::time::interval(History::STEP);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        let picture = told.provider.stats().await;
        told.history.borrow_mut().add(picture, Instant::now());
    }
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "another program listens there; stop it or set `control` to another port (0 lets the system choose)".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address".to_owned(),
        _ => error.to_string(),
    }
}

/// Where a browser on this machine finds a port: all interfaces have no address of their own.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// 128 bits in hexadecimal.
fn random_token() -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_tokens_are_long_and_never_the_same() {
        let (one, other) = (random_token().unwrap(), random_token().unwrap());
        assert_eq!(one.len(), 2 * TOKEN_BYTES);
        assert_ne!(one, other);
    }

    #[test]
    fn a_port_of_the_systems_choice_is_told_with_a_link() {
        let mut server = Server::new(None);
        server.listen(&"tcp://127.0.0.1:0".parse().unwrap()).unwrap();
        let port = server.ports[0].address.port();
        assert_ne!(port, 0);
        assert_eq!(
            server.ports().map(|port| port.to_string()).collect::<Vec<_>>(),
            [format!("tcp://127.0.0.1:{port}")]
        );
        let link = server.dashboards().next().unwrap();
        assert!(link.starts_with(&format!("http://127.0.0.1:{port}/dashboard#token=")), "{link}");
        let mut told = Server::new(Some("secret".to_owned()));
        told.listen(&"tcp://0.0.0.0:0".parse().unwrap()).unwrap();
        let link = told.dashboards().next().unwrap();
        assert!(link.starts_with("http://127.0.0.1:") && !link.contains("secret"), "{link}");
    }

    #[test]
    fn a_port_that_is_taken_says_so() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp://{}", taken.local_addr().unwrap());
        let error = Server::new(None).listen(&address.parse().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(
            error.to_string().starts_with(&format!("control port {address}: another program")),
            "{error}"
        );
    }
}
