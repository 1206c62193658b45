//! Listens for clients of the control server and serves them.

use crate::bind::{LocalSocketFile, bind};
use crate::caller::ControlCaller;
use crate::connections::{Connections, ControlPeer, Requested};
use crate::fleet::Fleet;
use crate::gate::Gate;
use crate::handover::{self, HandedOverFiles, Listening, SocketHandover};
use crate::provider::Provider;
use crate::reload::Reply;
use crate::routes::{Respond, Source};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use settings::ControlAddress;
use stats::{History, RecentLoad};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// Time-out from the accept to the end of the request's head.
const HEAD_DEADLINE: Duration = Duration::from_secs(2);
/// Time-out from the accept to the end of the response, unless that comes in parts ([`Reply`]): a reload with a shadow,
/// a recording or a search for leaks may take a day. Each ends by itself, and its blank lines find clients that have gone.
const DEADLINE: Duration = Duration::from_secs(10);
/// Longer than any response takes.
const LONG: Duration = Duration::from_secs(1 << 32);
/// Pause after a failed accept: descriptors may be short for a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Length of a generated token in bytes.
const TOKEN_BYTES: usize = 16;

/// Listening sockets and ports. Dropping this, or the future of [`Server::run`], removes the sockets' files.
#[derive(Debug, Default)]
pub struct Server {
    unix: Vec<(UnixListener, LocalSocketFile)>,
    ports: Vec<Port>,
    token: Option<Token>,
    taken: watch::Sender<HandedOverFiles>,
}

#[derive(Debug)]
struct Port {
    listener: TcpListener,
    host: String,
    address: SocketAddr,
    /// Whether the settings said port 0.
    chosen: bool,
    /// Whether systemd opened the socket.
    activated: bool,
}

#[derive(Debug)]
struct Token {
    text: String,
    generated: bool,
}

impl Server {
    /// Creates a server without sockets. Clients of its ports must send `token`; without one, the server
    /// generates a token.
    pub fn new(token: Option<String>) -> Server {
        let token = token.map(|text| Token { text, generated: false });
        Server { token, ..Server::default() }
    }

    /// Listens on a Unix socket that only the owner can use (0600), in a directory that is created if missing
    /// (0700), or on a port. Needs no runtime.
    ///
    /// # Errors
    /// `AddrInUse` if a running server listens there; `AlreadyExists` if a file is there that is not a
    /// socket; `InvalidInput` if the path is too long for a socket; or another error of the system. The text
    /// names the address.
    pub fn listen(&mut self, address: &ControlAddress) -> io::Result<()> {
        match address {
            ControlAddress::Unix(path) => self.unix.push(bind(path)?),
            ControlAddress::Tcp { host, port } => {
                let named = |error: io::Error| {
                    io::Error::new(error.kind(), format!("control port {address}: {}", in_words(&error)))
                };
                let listener = bind_port(host, *port).map_err(named)?;
                let bound = listener.local_addr().map_err(named)?;
                if self.token.is_none() {
                    self.token = Some(Token { text: random_token().map_err(named)?, generated: true });
                }
                let (chosen, host) = (*port == 0, host.clone());
                self.ports.push(Port { listener, host, address: bound, chosen, activated: false });
            }
        }
        Ok(())
    }

    /// Adopts a socket of `address` on which another program listens. Its file belongs to that program until
    /// [`Server::take_over`]. If the other program had generated a `token`, the ports keep it. `activated`:
    /// systemd opened the socket and keeps its file.
    ///
    /// # Errors
    /// The socket cannot be used, or its file is gone.
    pub fn adopt(
        &mut self,
        address: &ControlAddress,
        socket: OwnedFd,
        token: Option<String>,
        activated: bool,
    ) -> io::Result<()> {
        match address {
            ControlAddress::Unix(path) => {
                self.unix.push((UnixListener::from(socket), LocalSocketFile::borrowed(path, activated)?));
            }
            ControlAddress::Tcp { host, port } => {
                let listener = TcpListener::from(socket);
                let bound = listener.local_addr()?;
                if self.token.is_none() {
                    let text = token.map_or_else(random_token, Ok)?;
                    self.token = Some(Token { text, generated: true });
                }
                let (chosen, host) = (*port == 0, host.clone());
                self.ports.push(Port { listener, host, address: bound, chosen, activated });
            }
        }
        Ok(())
    }

    /// Takes ownership of the adopted sockets and their files.
    ///
    /// # Errors
    /// The system refuses.
    pub fn take_over(&mut self) -> io::Result<()> {
        for (listener, file) in &mut self.unix {
            // Clients ask the kernel for the listening process (SO_PEERCRED), which is the last one to call listen(2).
            listen_again(listener)?;
            file.take_over();
        }
        Ok(())
    }

    /// Returns duplicates of the sockets with their descriptions.
    fn sockets(&self) -> io::Result<Vec<(Listening, OwnedFd)>> {
        let unix = self.unix.iter().map(|(listener, file)| {
            let listening = Listening::Unix { path: file.path().to_owned(), activated: file.is_kept() };
            Ok((listening, listener.try_clone()?.into()))
        });
        let ports = self.ports.iter().map(|port| {
            let Port { address, chosen, activated, .. } = *port;
            let listening = Listening::Tcp { address, chosen, activated };
            Ok((listening, port.listener.try_clone()?.into()))
        });
        unix.chain(ports).collect()
    }

    /// Duplicates the sockets for a handover, before the server runs.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn release(&self) -> io::Result<SocketHandover> {
        let token = self.token.as_ref().filter(|token| token.generated).map(|token| token.text.clone());
        Ok(SocketHandover::new(self.sockets()?, token, self.taken.clone()))
    }

    /// Whether there is any socket or port.
    pub fn listens(&self) -> bool {
        !self.unix.is_empty() || !self.ports.is_empty()
    }

    /// Returns the addresses of the ports, with the numbers that the system chose.
    pub fn ports(&self) -> impl Iterator<Item = ControlAddress> {
        self.ports
            .iter()
            .map(|port| ControlAddress::Tcp { host: port.host.clone(), port: port.address.port() })
    }

    /// Returns the addresses of the dashboard for people. A generated token is included, because people
    /// cannot know it otherwise: after a `#`, which browsers do not send.
    pub fn dashboards(&self) -> impl Iterator<Item = String> {
        let generated = self.token.as_ref().filter(|token| token.generated);
        let token = generated.map(|token| format!("#token={}", token.text)).unwrap_or_default();
        self.ports.iter().map(move |port| format!("http://{}/dashboard{token}", reachable(port.address)))
    }

    /// Whether the token was generated and has to be printed.
    pub fn has_generated_token(&self) -> bool {
        self.token.as_ref().is_some_and(|token| token.generated)
    }

    /// Returns the sockets' files, except those of another program.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.unix.iter().filter(|(_, file)| file.is_own()).map(|(_, file)| file.path())
    }

    /// Serves the page about several servers at the ports, until the process exits. `figures` returns the
    /// page's figures as JSON and is called for each request.
    ///
    /// # Errors
    /// There is no event loop, or a socket cannot be registered with it.
    pub fn run_fleet(self, figures: impl Fn() -> String + 'static) -> io::Result<()> {
        let Server { ports, token, taken, .. } = self;
        let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
        runtime.block_on(async {
            let (source, mut tasks) = (Rc::new(Fleet::new(figures)), JoinSet::new());
            for port in ports {
                port.accept(&mut tasks, &source, token.as_ref(), &taken.subscribe())?;
            }
            while tasks.join_next().await.is_some() {}
            Ok(())
        })
    }

    /// Serves the figures of `provider` until the future is dropped, and records the history of the last
    /// hour. Needs a `LocalSet` or `LocalRuntime`.
    ///
    /// `provider` is called once for each request. It should use `spawn_blocking` for slow work (PSS).
    ///
    /// # Errors
    /// A socket cannot be registered with the runtime.
    pub async fn run(self, provider: impl Provider + 'static) -> io::Result<Infallible> {
        let Server { unix, ports, token, taken } = self;
        let (taken, closing) = (taken.subscribe(), taken);
        let source = Rc::new(Source { provider, history: RefCell::default(), recent: RefCell::default() });
        let mut tasks: JoinSet<Infallible> = JoinSet::new();
        // Kept here so that the files are removed as soon as this future is dropped.
        let mut files = Vec::new();
        for (listener, file) in unix {
            files.push(file);
            listener.set_nonblocking(true)?;
            let listener = tokio::net::UnixListener::from_std(listener)?;
            let accept = async move || {
                let (stream, _) = listener.accept().await?;
                let peer = stream.peer_cred().ok();
                let process = peer.as_ref().and_then(|peer| peer.pid());
                let caller = ControlCaller::User(peer.map(|peer| peer.uid()));
                Ok((stream, ControlPeer::Process(process), caller))
            };
            tasks.spawn_local(accept_all(accept, Rc::clone(&source), None, taken.clone()));
        }
        for port in ports {
            port.accept(&mut tasks, &source, token.as_ref(), &taken)?;
        }
        // A `SocketHandover` that holds the other sender can still end the accepting. Without one, no sender
        // may stay alive.
        drop(closing);
        let another = async {
            let theirs = handover::wait(taken).await;
            files
                .drain(..)
                .filter(|file| theirs.iter().any(|path| path == file.path()))
                .for_each(LocalSocketFile::forget);
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            error = sample(&source) => error,
            never = sample_load(&source) => Ok(never),
            never = another => Ok(never),
        }
    }
}

impl Port {
    fn accept<R: Respond>(
        self,
        tasks: &mut JoinSet<Infallible>,
        source: &Rc<R>,
        token: Option<&Token>,
        taken: &watch::Receiver<HandedOverFiles>,
    ) -> io::Result<()> {
        self.listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let token = token.map(|token| token.text.as_str()).unwrap_or_default();
        let gate = Gate::new(&self.host, self.address.ip(), token);
        let accept = async move || {
            let (stream, peer) = listener.accept().await?;
            let address = peer.ip().to_canonical();
            Ok((stream, ControlPeer::Address(address), ControlCaller::Address(address)))
        };
        tasks.spawn_local(accept_all(accept, Rc::clone(source), Some(Rc::new(gate)), taken.clone()));
        Ok(())
    }
}

async fn accept_all<S, R>(
    accept: impl AsyncFn() -> io::Result<(S, ControlPeer, ControlCaller)>,
    source: Rc<R>,
    gate: Option<Rc<Gate>>,
    taken: watch::Receiver<HandedOverFiles>,
) -> Infallible
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    R: Respond,
{
    let mut tasks = JoinSet::new();
    let mut connections = Connections::new();
    let mut taken = Box::pin(handover::wait(taken));
    loop {
        let accepted = tokio::select! {
            accepted = accept() => accepted,
            _ = &mut taken => break,
        };
        let (stream, client, caller) = match accepted {
            Ok(accepted) => accepted,
            Err(_) => {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // With responses in parts on all connections, room may come late.
        let is_taken = tokio::select! {
            () = make_room(&mut connections, &mut tasks) => false,
            _ = &mut taken => true,
        };
        let requested = Requested::default();
        let task =
            tasks.spawn_local(serve(stream, caller, Rc::clone(&source), gate.clone(), requested.clone()));
        connections.add(client, Instant::now(), requested, task);
        if is_taken {
            break;
        }
    }
    // The listening socket belongs to another program now. Open connections still get their responses.
    drop((accept, taken));
    while tasks.join_next().await.is_some() {}
    std::future::pending().await
}

/// Binds a port of `host`. `::` means all addresses of both families, or of IPv4 on a machine without IPv6,
/// as for the ports of clients.
fn bind_port(host: &str, port: u16) -> io::Result<TcpListener> {
    use rustix::io::Errno;
    match TcpListener::bind((host, port)) {
        Err(error)
            if host == "::"
                && matches!(Errno::from_io_error(&error), Some(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL)) =>
        {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
        }
        bound => bound,
    }
}

fn listen_again(listener: &UnixListener) -> io::Result<()> {
    Ok(rustix::net::listen(listener, crate::socket::BACKLOG)?)
}

/// Waits until there is room for one more connection, and closes one if necessary.
async fn make_room(connections: &mut Connections<AbortHandle>, tasks: &mut JoinSet<()>) {
    loop {
        while tasks.try_join_next().is_some() {}
        connections.retain(|task| !task.is_finished());
        match connections.give_way(Instant::now()) {
            None => return,
            Some(Ok(task)) => task.abort(),
            Some(Err(at)) => {
                tokio::select! {
                    _ = tasks.join_next() => {}
                    () = tokio::time::sleep_until(at.into()) => {}
                }
            }
        }
    }
}

async fn serve<S, R>(
    stream: S,
    caller: ControlCaller,
    source: Rc<R>,
    gate: Option<Rc<Gate>>,
    requested: Requested,
) where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    R: Respond,
{
    let is_long = Rc::new(Cell::new(false));
    let long = Rc::clone(&is_long);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(caller);
        requested.set(Some(Instant::now()));
        let (source, gate) = (Rc::clone(&source), gate.clone());
        let (requested, long) = (requested.clone(), Rc::clone(&long));
        async move {
            let response = source.respond(request, gate.as_deref()).await;
            if !matches!(response.body(), Reply::Whole(_)) {
                long.set(true);
                // Such a connection is not closed for others.
                requested.set(Some(Instant::now() + LONG));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_DEADLINE)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    // Errors of the client are ignored: hyper has responded if possible.
    if tokio::time::timeout(DEADLINE, &mut connection).await.is_err() && is_long.get() {
        let _ = connection.await;
    }
}

/// Adds a sample to the history at each interval.
async fn sample<P: Provider>(source: &Source<P>) -> io::Result<Infallible> {
    let mut clock = tokio::time::interval(History::STEP);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        let snapshot = source.provider.stats().await;
        source.history.borrow_mut().add(snapshot, Instant::now());
    }
}

/// Adds a sample to the load of the last seconds.
async fn sample_load<P: Provider>(source: &Source<P>) -> Infallible {
    let mut clock = tokio::time::interval(RecentLoad::EVERY);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        clock.tick().await;
        let load = source.provider.load().await;
        source.recent.borrow_mut().add(load, Instant::now());
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

/// Returns the address for a browser on this machine. An unspecified address becomes loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Generates 128 random bits in hexadecimal.
fn random_token() -> io::Result<String> {
    let mut bytes = [0; TOKEN_BYTES];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(text::hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::MAX_CONNECTIONS;
    use crate::routes::OrderBody;
    use hyper::Response;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot;

    const REQUEST: &[u8] = b"POST /reload HTTP/1.1\r\nhost: x\r\n\r\n";

    /// Sends its texts when they come, one to each request.
    struct Patient(RefCell<Vec<oneshot::Receiver<String>>>);

    impl Respond for Patient {
        async fn respond<B: OrderBody>(&self, _: Request<B>, _: Option<&Gate>) -> Response<Reply> {
            Response::new(Reply::later(self.0.borrow_mut().pop().expect("a text")))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_handover_does_not_wait_for_responses_in_parts() {
        let (_texts, receivers): (Vec<_>, Vec<_>) = (0..=MAX_CONNECTIONS).map(|_| oneshot::channel()).unzip();
        let (mut clients, mut streams) = (Vec::new(), Vec::new());
        for _ in 0..=MAX_CONNECTIONS {
            let (mut client, stream) = tokio::io::duplex(1 << 20);
            client.write_all(REQUEST).await.unwrap();
            clients.push(client);
            streams.push(stream);
        }
        let streams = RefCell::new(streams);
        let accept = async || {
            let next = streams.borrow_mut().pop();
            match next {
                Some(stream) => Ok((stream, ControlPeer::Process(Some(1)), ControlCaller::User(None))),
                None => std::future::pending().await,
            }
        };
        let source = Rc::new(Patient(RefCell::new(receivers)));
        let (sender, taken) = watch::channel(HandedOverFiles::default());
        let hands_over = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(streams.borrow().is_empty(), "the last one waits for room");
            sender.send_replace(Some(Vec::new()));
            tokio::time::timeout(DEADLINE, sender.closed()).await
        };
        let ended = tokio::task::LocalSet::new()
            .run_until(async {
                tokio::select! {
                    never = accept_all(accept, source, None, taken) => match never {},
                    ended = hands_over => ended,
                }
            })
            .await;
        assert_eq!(ended, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_in_parts_has_a_day_and_more() {
        let (send, text) = oneshot::channel();
        let (mut client, stream) = tokio::io::duplex(1 << 16);
        let source = Rc::new(Patient(RefCell::new(vec![text])));
        let later = async {
            client.write_all(REQUEST).await.unwrap();
            let ends_at = tokio::time::Instant::now() + Duration::from_secs(30 * 3600);
            let (mut received, mut send) = (Vec::new(), Some(send));
            while client.read_buf(&mut received).await.unwrap() > 0 {
                if tokio::time::Instant::now() > ends_at {
                    send.take().into_iter().for_each(|send| send.send("done".to_owned()).unwrap());
                }
            }
            received
        };
        let serves = serve(stream, ControlCaller::User(None), source, None, Requested::default());
        let (received, ()) = tokio::join!(later, serves);
        assert!(received.ends_with(b"done\n\r\n0\r\n\r\n"), "{}", received.escape_ascii());
    }

    #[test]
    fn generated_tokens_are_long_and_differ() {
        let (one, other) = (random_token().unwrap(), random_token().unwrap());
        assert_eq!(one.len(), 2 * TOKEN_BYTES);
        assert_ne!(one, other);
    }

    #[test]
    fn a_port_that_the_system_chose_is_known_with_a_link() {
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
        let mut given = Server::new(Some("secret".to_owned()));
        given.listen(&"tcp://0.0.0.0:0".parse().unwrap()).unwrap();
        let link = given.dashboards().next().unwrap();
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
