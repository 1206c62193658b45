//! A proxy on its own thread, between a client that sees raw bytes and backends that send given bytes.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use handler::{Ending, Exchange, Handler, Peer, PeerAddr, Response};
use http::{Context, Limits, one};
use net::Timers;
use proxy::{Origin, Proxy, ProxyConfig, Upstreams, check_health};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

pub type Log = Arc<Mutex<Vec<String>>>;

/// Passes on everything.
struct Forward(Proxy, Log);

impl Handler for Forward {
    async fn handle(&self, exchange: Exchange) -> Response {
        let target = exchange.request.target().to_vec();
        self.0.forward(exchange, target).await
    }

    fn finished(&self, ending: &Ending<'_>) {
        if let Some(failure) = ending.failure {
            self.1.lock().unwrap().push(format!("{} {}", failure.status, failure.reason));
        }
    }
}

/// A running proxy; it ends with the test's process.
pub struct Front {
    pub address: SocketAddr,
    pub log: Log,
    pub upstreams: Arc<Upstreams>,
}

/// Returns a configuration with short time-outs.
pub fn config(origins: &[String]) -> ProxyConfig {
    let origins = origins.iter().map(|origin| Origin::parse(origin).unwrap()).collect();
    ProxyConfig {
        connect_timeout: Duration::from_millis(700),
        read_timeout: Duration::from_millis(500),
        send_timeout: Duration::from_millis(500),
        max_response_head: 16 << 10,
        ..ProxyConfig::new("test", origins)
    }
}

impl Front {
    pub fn start(config: ProxyConfig) -> Front {
        let upstreams = Upstreams::new(config).unwrap();
        let (log, (tell, told)) = (Log::default(), mpsc::channel());
        let (theirs, noting) = (upstreams.clone(), log.clone());
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
            runtime.unwrap().block_on(run(theirs, noting, tell));
        });
        Front { address: told.recv().unwrap(), log, upstreams }
    }

    pub fn to(backends: &[&Backend]) -> Front {
        Front::start(config(&backends.iter().map(|backend| backend.origin()).collect::<Vec<_>>()))
    }

    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Client { stream, held: Vec::new(), ended: false }
    }

    /// Returns whether a line with `part` is logged. Waits for it, because a line may be written after the response.
    pub fn has_noted(&self, part: &str) -> bool {
        for _ in 0..500 {
            if self.log.lock().unwrap().iter().any(|line| line.contains(part)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    pub fn eventually(&self, what: &str, check: impl Fn(&Front) -> bool) {
        for _ in 0..500 {
            if check(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("never: {what}; {:?}; {:?}", self.log.lock().unwrap(), self.upstreams.counts());
    }
}

async fn run(upstreams: Arc<Upstreams>, log: Log, tell: mpsc::Sender<SocketAddr>) {
    tokio::task::spawn_local(check_health(upstreams.clone()));
    let timers = Timers::new();
    let handler = Forward(Proxy::new(upstreams), log);
    let context = Context::new(handler, Limits::default(), timers.clone());
    tokio::task::spawn_local(async move { timers.run().await });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    tell.send(listener.local_addr().unwrap()).unwrap();
    while let Ok((stream, remote)) = listener.accept().await {
        let local = PeerAddr::Inet(stream.local_addr().unwrap());
        let remote_text = remote.ip().to_string().into();
        let peer = Peer { remote: PeerAddr::Inet(remote), remote_text, local, tls: false, session: None };
        tokio::task::spawn_local(one::serve(stream, Rc::new(peer), context.clone()));
    }
}

/// A connection as a backend sees it.
pub struct Accepted {
    pub stream: TcpStream,
    /// The number of earlier connections.
    pub number: usize,
    held: Vec<u8>,
    seen: Log,
}

impl Accepted {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Accepted {
        // A backend whose peer has gone finds out elsewhere.
        let _ = self.stream.write_all(bytes.as_ref());
        self
    }

    fn fill(&mut self) -> bool {
        let mut buffer = [0; 65_536];
        let n = self.stream.read(&mut buffer).unwrap_or(0);
        self.held.extend_from_slice(&buffer[..n]);
        n > 0
    }

    /// Returns the next request head; `None` if the connection has ended.
    pub fn head(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.held.windows(4).position(|window| window == b"\r\n\r\n") {
                let head: Vec<u8> = self.held.drain(..at + 4).collect();
                let head = String::from_utf8(head).unwrap();
                self.seen.lock().unwrap().push(head.clone());
                return Some(head);
            }
            if !self.fill() {
                return None;
            }
        }
    }

    /// Returns `n` bytes of a body.
    pub fn body(&mut self, n: usize) -> Option<Vec<u8>> {
        while self.held.len() < n {
            if !self.fill() {
                return None;
            }
        }
        Some(self.held.drain(..n).collect())
    }

    /// Returns everything until the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.held)
    }

    pub fn reset(&mut self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }
}

/// A server that runs a script for each connection.
pub struct Backend {
    pub address: SocketAddr,
    pub seen: Log,
    pub connections: Arc<AtomicUsize>,
}

impl Backend {
    pub fn start(script: impl Fn(&mut Accepted) + Send + Sync + 'static) -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, connections) = (Log::default(), Arc::new(AtomicUsize::new(0)));
        let (noting, counting, script) = (seen.clone(), connections.clone(), Arc::new(script));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                let number = counting.fetch_add(1, Ordering::SeqCst);
                let mut accepted = Accepted { stream, number, held: Vec::new(), seen: noting.clone() };
                let script = script.clone();
                std::thread::spawn(move || script(&mut accepted));
            }
        });
        Backend { address, seen, connections }
    }

    /// Sends the same response to every request, on connections that stay open.
    pub fn answering(answer: impl Into<Vec<u8>>) -> Backend {
        let answer = answer.into();
        Backend::start(move |c| {
            while c.head().is_some() {
                c.send(&answer);
            }
        })
    }

    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn connected(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub fn last_seen(&self) -> String {
        self.seen.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

/// A response as the client saw it.
#[derive(Debug, Default)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// The body ended where its framing says.
    pub whole: bool,
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        let prefix = format!("{}: ", name.to_ascii_lowercase());
        let mut lines = self.head.lines();
        lines.find(|line| line.to_ascii_lowercase().starts_with(&prefix)).map(|line| &line[prefix.len()..])
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A raw connection to the proxy.
pub struct Client {
    pub stream: TcpStream,
    held: Vec<u8>,
    ended: bool,
}

impl Client {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    fn fill(&mut self) -> bool {
        let mut buffer = [0; 65_536];
        let n = match self.stream.read(&mut buffer) {
            Ok(n) => n,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("no answer: {error}; {:?}", String::from_utf8_lossy(&self.held)),
        };
        self.held.extend_from_slice(&buffer[..n]);
        self.ended = n == 0;
        n > 0
    }

    /// Returns `n` bytes; `None` if the connection ends before.
    pub fn take(&mut self, n: usize) -> Option<Vec<u8>> {
        while self.held.len() < n {
            if !self.fill() {
                return None;
            }
        }
        Some(self.held.drain(..n).collect())
    }

    fn take_until(&mut self, mark: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.held.windows(mark.len()).position(|window| window == mark) {
                return self.take(at + mark.len());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    pub fn read_head(&mut self) -> Answer {
        let head = self.take_until(b"\r\n\r\n").expect("a response head");
        let head = String::from_utf8_lossy(&head).into_owned();
        Answer { status: head[9..12].parse().unwrap(), head, ..Answer::default() }
    }

    /// Reads a response to a request with `method`.
    pub fn read_to(&mut self, method: &str) -> Answer {
        let mut answer = self.read_head();
        let bodiless = method == "HEAD" || matches!(answer.status, 100..200 | 204 | 304);
        if bodiless {
            answer.whole = true;
        } else if answer.field("transfer-encoding") == Some("chunked") {
            while let Some(line) = self.take_until(b"\r\n") {
                let size = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim_end(), 16).unwrap();
                let Some(data) = self.take(size) else { break };
                answer.body.extend(data);
                if self.take(2).as_deref() != Some(b"\r\n") {
                    break;
                }
                if size == 0 {
                    answer.whole = true;
                    break;
                }
            }
        } else if let Some(length) = answer.field("content-length") {
            let length = length.parse().unwrap();
            match self.take(length) {
                Some(body) => (answer.body, answer.whole) = (body, true),
                None => answer.body = std::mem::take(&mut self.held),
            }
        } else {
            answer.body = self.rest();
            answer.whole = true;
        }
        answer
    }

    pub fn read(&mut self) -> Answer {
        self.read_to("GET")
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: client.test\r\n\r\n")).read()
    }

    pub fn rest(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.held)
    }
}
