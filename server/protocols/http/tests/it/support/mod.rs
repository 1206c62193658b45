//! A server with a test handler on its own thread, and a client that sees raw bytes.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

mod holding;
pub mod three;

use handler::{
    Body, BodyStream, Chunk, Departure, Ending, Exchange, Failure, Fields, FileRegion, Handler, Kept, Lender,
    Peer, PeerAddr, Response,
};
use holding::Holding;
use http::{Connections, Context, body, one};
use net::Timers;
use settings::Settings;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

/// The events that the handler under test has noted, in order.
pub type Log = Arc<Mutex<Vec<String>>>;

type Job = Box<dyn FnOnce(&Context<Answers>) + Send>;

/// Answers by path.
pub struct Answers {
    log: Log,
}

/// A stream of given pieces.
struct Pieces(VecDeque<Result<Chunk, Failure>>);

impl BodyStream for Pieces {
    fn poll_chunk(&mut self, _: &mut std::task::Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        Poll::Ready(self.0.pop_front())
    }
}

/// A stream that never ends and never runs dry; notes its own end.
struct Endless(Log, bool);

impl BodyStream for Endless {
    fn poll_chunk(&mut self, _: &mut std::task::Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        if self.1 { Poll::Pending } else { Poll::Ready(Some(Ok(Chunk::Bytes(vec![b'x'; 40_000].into())))) }
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        note(&self.0, "stream dropped");
    }
}

/// A stream of text followed by offers, repeated `times` times. Bytes that an owner cannot write follow its offer.
struct Offers {
    log: Log,
    before: usize,
    offered: u64,
    times: usize,
    /// The owner dies while it has the socket.
    dies: bool,
    /// The bytes that the last owner has left.
    rest: Rc<RefCell<Vec<u8>>>,
    told: bool,
}

impl BodyStream for Offers {
    fn poll_chunk(&mut self, _: &mut std::task::Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        let rest = self.rest.take();
        if !rest.is_empty() {
            return Poll::Ready(Some(Ok(Chunk::Bytes(rest.into()))));
        }
        if self.times == 0 {
            return Poll::Ready(None);
        }
        if !std::mem::replace(&mut self.told, true) {
            return Poll::Ready(Some(Ok(Chunk::Bytes(vec![b'b'; self.before].into()))));
        }
        self.told = false;
        self.times -= 1;
        self.rest.replace(vec![b'o'; self.offered as usize]);
        let (log, rest) = (self.log.clone(), self.rest.clone());
        Poll::Ready(Some(Ok(Chunk::Offer(Box::new(Owner { log, rest, turns: 2, dies: self.dies })))))
    }
}

/// Writes to the lent socket, after some turns.
#[derive(Debug)]
struct Owner {
    log: Log,
    rest: Rc<RefCell<Vec<u8>>>,
    turns: usize,
    dies: bool,
}

impl Lender for Owner {
    fn offered(&self) -> u64 {
        self.rest.borrow().len() as u64
    }

    fn poll_lend(
        &mut self,
        cx: &mut std::task::Context<'_>,
        socket: Option<BorrowedFd<'_>>,
    ) -> Poll<Result<u64, Failure>> {
        let Some(socket) = socket else {
            note(&self.log, "declined");
            return Poll::Ready(Ok(0));
        };
        if self.turns > 0 {
            self.turns -= 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.dies {
            return Poll::Ready(Err(broken()));
        }
        note(&self.log, "lent");
        let mut socket = TcpStream::from(socket.try_clone_to_owned().unwrap());
        let mut rest = self.rest.borrow_mut();
        // The descriptor is non-blocking: bytes that do not fit stay in `rest`.
        let taken = socket.write(&rest).unwrap_or(0);
        rest.drain(..taken);
        Poll::Ready(Ok(taken as u64))
    }
}

fn note(log: &Log, text: impl Into<String>) {
    log.lock().unwrap().push(text.into());
}

fn stream(pieces: Vec<Result<Chunk, Failure>>) -> Response {
    Response { body: Body::Stream(Box::new(Pieces(pieces.into()))), ..Response::empty(200) }
}

fn broken() -> Failure {
    Failure::app(502, "the body broke off")
}

fn bytes(text: &'static str) -> Result<Chunk, Failure> {
    Ok(Chunk::Bytes(text.into()))
}

fn region(content: &[u8], offset: u64, len: u64) -> FileRegion {
    let path = std::env::temp_dir().join(format!("firebrick-http-{}-{:p}", std::process::id(), content));
    std::fs::write(&path, content).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    FileRegion { file: Rc::new(file.into()), offset, len }
}

fn with_fields(mut response: Response, fields: &[(&str, &str)]) -> Response {
    for (name, value) in fields {
        response.fields.push(name.as_bytes(), value.as_bytes());
    }
    response
}

fn bounds(memory: usize, temp_dir: &std::path::Path) -> body::BodyBounds<'_> {
    body::BodyBounds { memory, temp_dir, account: None, patience: Duration::ZERO }
}

impl Handler for Answers {
    async fn handle(&self, mut exchange: Exchange) -> Response {
        let path = String::from_utf8_lossy(exchange.request.path()).into_owned();
        note(&self.log, format!("{} {path}", String::from_utf8_lossy(exchange.request.method())));
        match &path[1..] {
            "echo" | "spool" => {
                let limit = if path == "/spool" { 10 } else { 1 << 20 };
                match body::collect(exchange.incoming, bounds(limit, &std::env::temp_dir())).await {
                    Ok(body::Collected::Empty) => Response::text(200, "text/plain", ""),
                    Ok(body::Collected::Memory(bytes)) => Response::text(200, "text/plain", bytes),
                    Ok(body::Collected::Spooled { mut file, len, .. }) => {
                        let mut content = Vec::new();
                        file.read_to_end(&mut content).unwrap();
                        assert_eq!(content.len() as u64, len);
                        with_fields(Response::text(200, "text/plain", content), &[("X-Spooled", "yes")])
                    }
                    Err(failure) => failure.into_response(),
                }
            }
            "no-temp-dir" => {
                let dir = std::path::Path::new("/nonexistent/spool");
                match body::collect(exchange.incoming, bounds(1, dir)).await {
                    Err(failure) => {
                        note(&self.log, failure.reason.clone());
                        failure.into_response()
                    }
                    Ok(_) => Response::empty(204),
                }
            }
            "kept" | "kept-large" | "kept-with-more" => {
                thread_local! {
                    static KEPT: [Rc<Kept>; 2] =
                        [3, 100_000].map(|len| Rc::new(Kept::new(vec![b'k'; len].into())));
                }
                let kept = KEPT.with(|kept| kept[usize::from(path == "/kept-large")].clone());
                let mut fields = Fields::default();
                fields.push(b"Content-Type", b"text/plain");
                let mut fields = fields.freeze();
                if path == "/kept-with-more" {
                    fields.push(b"X-More", b"yes");
                }
                Response::new(200, fields, Body::Kept(kept))
            }
            "slow" => {
                tokio::time::sleep(Duration::from_millis(150)).await;
                Response::text(200, "text/plain", "slow")
            }
            "never" => {
                poll_fn(|_| Poll::<()>::Pending).await;
                Response::empty(204)
            }
            "gone" => {
                let mut seen = Vec::new();
                while seen.last() != Some(&Departure::Gone) && seen.len() < 2 {
                    seen.push(poll_fn(|cx| exchange.client.poll_departure(cx)).await);
                    note(&self.log, format!("{:?}", seen.last().unwrap()));
                    if path == "/gone" && exchange.request.query() == b"once" {
                        break;
                    }
                }
                Response::text(200, "text/plain", "late")
            }
            "early" => {
                let mut fields = Fields::default();
                fields.push(b"Link", b"</a.css>; rel=preload");
                exchange.client.interim(103, &fields);
                exchange.client.interim(200, &fields);
                Response::text(200, "text/plain", "after hints")
            }
            "panic" => panic!("a handler that panics"),
            "stream" => stream(vec![bytes("one"), bytes("two"), bytes("three")]),
            "stream-6" => with_fields(stream(vec![bytes("one"), bytes("two")]), &[("content-length", "6")]),
            "stream-long" => {
                with_fields(stream(vec![bytes("one"), bytes("two")]), &[("content-length", "4")])
            }
            "stream-short" => with_fields(stream(vec![bytes("one")]), &[("content-length", "9")]),
            "stream-broken" => stream(vec![bytes("one"), Err(broken())]),
            "stream-mixed" => stream(vec![
                bytes("<"),
                Ok(Chunk::File(region(b"0123456789", 2, 5))),
                Ok(Chunk::Bytes(vec![b'y'; 30_000].into())),
                bytes(">"),
            ]),
            "offer" | "offer-chunked" | "offer-dies" | "offer-short" | "offers" => {
                let (before, offered, times) =
                    if path == "/offers" { (60_000, 10, 400) } else { (5, 500, 1) };
                let length = match &path[1..] {
                    "offer-chunked" => Vec::new(),
                    "offer-short" => vec![("Content-Length", "100".to_owned())],
                    _ => vec![("Content-Length", ((before + offered) * times).to_string())],
                };
                let fields: Vec<_> = length.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let (log, dies) = (self.log.clone(), path == "/offer-dies");
                let offered = offered as u64;
                let body = Offers { log, before, offered, times, dies, rest: Rc::default(), told: false };
                with_fields(Response { body: Body::Stream(Box::new(body)), ..Response::empty(200) }, &fields)
            }
            "precoded" => with_fields(
                stream(vec![bytes("3\r\none\r\n3"), bytes("\r\ntwo\r\n0\r\n\r\n")]),
                &[("Transfer-Encoding", "Chunked"), ("Content-Length", "26")],
            ),
            "precoded-bytes" => with_fields(
                Response::text(200, "text/plain", "3\r\none\r\n0\r\n\r\n"),
                &[("transfer-encoding", "chunked")],
            ),
            "not-precoded" => {
                with_fields(Response::text(200, "text/plain", "plain"), &[("Transfer-Encoding", "chunked")])
            }
            "endless" => Response {
                body: Body::Stream(Box::new(Endless(self.log.clone(), false))),
                ..Response::empty(200)
            },
            "silent" => Response {
                body: Body::Stream(Box::new(Endless(self.log.clone(), true))),
                ..Response::empty(200)
            },
            "file" => Response { body: Body::File(region(b"hello file", 6, 4)), ..Response::empty(200) },
            "file-big" => Response {
                body: Body::File(region(&vec![b'f'; 3 << 20], 0, 3 << 20)),
                ..Response::empty(200)
            },
            "file-short" => Response { body: Body::File(region(b"short", 0, 50)), ..Response::empty(200) },
            "big" => Response::text(200, "text/plain", vec![b'b'; 3 << 20]),
            "wrong-length" => {
                with_fields(Response::text(200, "text/plain", "hello"), &[("Content-Length", "99")])
            }
            "filtered" => with_fields(
                Response::text(200, "text/plain", "x"),
                &[
                    ("Transfer-Encoding", "gzip"),
                    ("Keep-Alive", "timeout=5"),
                    ("Connection", "x-a"),
                    ("Date", "mine"),
                ],
            ),
            "close" => with_fields(Response::text(200, "text/plain", "bye"), &[("connection", "Close")]),
            "split" => with_fields(Response::empty(200), &[("X-A", "b\r\nX-Injected: c")]),
            "bad-name" => with_fields(Response::empty(200), &[("X A", "b")]),
            "200-empty" => Response::empty(200),
            "head" => with_fields(Response::empty(200), &[("Content-Length", "77")]),
            "tunnel" | "tunnel-200" | "tunnel-raw" => {
                let (mine, io) = tokio::net::UnixStream::pair().unwrap();
                tokio::task::spawn_local(async move {
                    // Echoes in upper case until its input ends, then reports that.
                    let mut buffer = vec![0; 1000];
                    loop {
                        mine.readable().await.unwrap();
                        match mine.try_read(&mut buffer) {
                            Ok(0) => break,
                            Ok(n) => send_all(&mine, &buffer[..n].to_ascii_uppercase()).await,
                            Err(_) => {}
                        }
                    }
                    send_all(&mine, b"(end)").await;
                });
                let status = if path == "/tunnel" { 101 } else { 200 };
                let response = Response {
                    body: Body::Tunnel { io: net::tunnel_end(io), raw: path == "/tunnel-raw" },
                    ..Response::empty(status)
                };
                with_fields(response, &[("Upgrade", "shout")])
            }
            path if path.starts_with("websocket") => websocket(&path["websocket".len()..], &exchange),
            number if number.parse::<u16>().is_ok() => {
                Response::text(number.parse().unwrap(), "text/plain", "a body")
            }
            _ => {
                exchange.request.fields.push(b"X-Added", b"by the handler");
                let query = String::from_utf8_lossy(exchange.request.query()).into_owned();
                Response::text(200, "text/plain", format!("{path}?{query}"))
            }
        }
    }

    fn finished(&self, ending: &Ending<'_>) {
        let path =
            ending.request.map_or("-".into(), |request| String::from_utf8_lossy(request.path()).into_owned());
        let added = ending.request.and_then(|request| request.fields.get("x-added")).is_some();
        let broken = if ending.broken { " broken" } else { "" };
        let hijacked = if ending.hijacked { " hijacked" } else { "" };
        let added = if added { " added" } else { "" };
        note(
            &self.log,
            format!("finished {path} {} {}{broken}{hijacked}{added}", ending.status, ending.body_bytes),
        );
    }
}

/// Answers an opening handshake, and echoes in upper case.
fn websocket(way: &str, exchange: &Exchange) -> Response {
    let field = |name| exchange.request.fields.get(name).unwrap_or_default().to_vec();
    assert_eq!((field("connection"), field("upgrade")), (b"Upgrade".to_vec(), b"websocket".to_vec()));
    assert_eq!(exchange.request.fields.all("sec-websocket-key").count(), 1);
    let accept = String::from_utf8(accept(&field("sec-websocket-key"))).unwrap();
    let text = |head: &str| head.replace('\n', "\r\n").replace("ACCEPT", &accept);
    let head = text("HTTP/1.1 101 x\nUpgrade: WebSocket\nSec-WebSocket-Accept: ACCEPT\nX-Own: yes\n\n");
    let (raw, first) = match way {
        "-raw" => (true, head + "first "),
        "-late" => (true, text("HTTP/1.1 103 x\nLink: </a>\n\n") + &head),
        "-403" => {
            (true, text("HTTP/1.1 403 no\nContent-Length: 7\nConnection: close\n\n") + "refused (more)")
        }
        "-chunked" => (true, text("HTTP/1.1 400 no\nTransfer-Encoding: chunked\n\n3\none\n0\n\n")),
        "-200" => (true, text("HTTP/1.1 200 OK\nContent-Length: 2\n\n") + "no"),
        "-garbage" => (true, "SSH-2.0-x\r\n".to_owned()),
        _ => (false, String::new()),
    };
    let (mine, io) = tokio::net::UnixStream::pair().unwrap();
    let way = way.to_owned();
    let silent = way == "-none";
    tokio::task::spawn_local(async move {
        if silent {
            return;
        }
        send_all(&mine, first.as_bytes()).await;
        let mut buffer = vec![0; 1000];
        loop {
            mine.readable().await.unwrap();
            match mine.try_read(&mut buffer) {
                Ok(0) => break,
                // Bytes that were sent and are never read make the end a reset.
                Ok(n) if buffer[..n].starts_with(b"break") => return send_all(&mine, b"last").await,
                Ok(n) if buffer[..n].starts_with(b"close") => return,
                Ok(n) => send_all(&mine, &buffer[..n].to_ascii_uppercase()).await,
                Err(_) => {}
            }
        }
        send_all(&mine, b"(end)").await;
    });
    let response = Response {
        body: Body::Tunnel { io: net::tunnel_end(io), raw: raw || silent },
        ..Response::empty(101)
    };
    let (upgrade, accept) = match way.as_str() {
        "-chat" => ("chat", accept),
        "-wrong" => ("websocket", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_owned()),
        _ => ("websocket", accept),
    };
    let mut fields = vec![("Upgrade", upgrade), ("Sec-WebSocket-Accept", accept.as_str()), ("X-Own", "yes")];
    if way == "-unasked" {
        fields.remove(1);
    }
    with_fields(response, &fields)
}

/// The value of `Sec-WebSocket-Accept` for a key (RFC 6455 section 4.2.2).
fn accept(key: &[u8]) -> Vec<u8> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use sha1::{Digest, Sha1};
    let hash = Sha1::digest([key, b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"].concat());
    STANDARD.encode(hash).into_bytes()
}

async fn send_all(stream: &tokio::net::UnixStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        stream.writable().await.unwrap();
        match stream.try_write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            // The tunnel was not wanted.
            Err(_) => return,
        }
    }
}

/// The protocols and the transport of a server.
#[derive(Clone, Copy)]
enum Speaks {
    Http1,
    Either,
    EitherHolding,
}

/// A running server; it ends with the test's process.
pub struct Server {
    pub address: SocketAddr,
    pub log: Log,
    jobs: mpsc::Sender<Job>,
}

impl Server {
    /// Starts an HTTP/1 server.
    pub fn start(settings: impl Into<Settings>) -> Server {
        Server::launch(settings.into(), Speaks::Http1)
    }

    /// Starts a server for HTTP/1, and for HTTP/2 by prior knowledge.
    pub fn start_either(settings: impl Into<Settings>) -> Server {
        Server::launch(settings.into(), Speaks::Either)
    }

    /// As [`Server::start_either`], over a transport that holds bytes back until it is flushed.
    pub fn start_holding(settings: impl Into<Settings>) -> Server {
        Server::launch(settings.into(), Speaks::EitherHolding)
    }

    fn launch(settings: Settings, speaks: Speaks) -> Server {
        let log = Log::default();
        let (tell, told) = mpsc::channel();
        let (jobs, to_do) = mpsc::channel::<Job>();
        let answers = Answers { log: log.clone() };
        std::thread::spawn(move || run(answers, settings, speaks, &tell, to_do));
        Server { address: told.recv().unwrap(), log, jobs }
    }

    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Client { stream, held: Vec::new() }
    }

    /// Runs a closure on the server's thread.
    fn ask<R: Send + 'static>(&self, question: impl FnOnce(&Context<Answers>) -> R + Send + 'static) -> R {
        let (tell, told) = mpsc::channel();
        self.jobs.send(Box::new(move |context| tell.send(question(context)).unwrap())).unwrap();
        told.recv().unwrap()
    }

    pub fn connections(&self) -> Connections {
        self.ask(Context::connections)
    }

    pub fn drain(&self) {
        self.ask(Context::drain);
    }

    /// Waits until the log or the connections look as expected.
    pub fn eventually(&self, what: &str, check: impl Fn(&Server) -> bool) {
        for _ in 0..500 {
            if check(self) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let log = self.log.lock().unwrap().clone();
        panic!("never: {what}; {:?}; {log:?}", self.connections());
    }

    pub fn has_noted(&self, line: &str) -> bool {
        self.log.lock().unwrap().iter().any(|noted| noted == line)
    }
}

fn run(
    answers: Answers,
    settings: Settings,
    speaks: Speaks,
    tell: &mpsc::Sender<SocketAddr>,
    jobs: mpsc::Receiver<Job>,
) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default()).unwrap();
    runtime.block_on(async {
        let timers = Timers::new();
        let context = Context::new(answers, settings, timers.clone());
        tokio::task::spawn_local(async move { timers.run().await });
        tokio::task::spawn_local(run_jobs(jobs, context.clone()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        tell.send(listener.local_addr().unwrap()).unwrap();
        while let Ok((stream, remote)) = listener.accept().await {
            let local = PeerAddr::Inet(stream.local_addr().unwrap());
            let peer = Peer {
                remote: PeerAddr::Inet(remote),
                remote_text: remote.ip().to_string().into(),
                local,
                tls: false,
                session: None,
            };
            let (peer, context) = (Rc::new(peer), context.clone());
            match speaks {
                Speaks::Http1 => tokio::task::spawn_local(one::serve(stream, peer, context)),
                Speaks::Either => tokio::task::spawn_local(http::serve_either(stream, peer, context)),
                Speaks::EitherHolding => {
                    tokio::task::spawn_local(http::serve_either(Holding::new(stream), peer, context))
                }
            };
        }
    });
}

async fn run_jobs(jobs: mpsc::Receiver<Job>, context: Rc<Context<Answers>>) {
    loop {
        while let Ok(job) = jobs.try_recv() {
            job(&context);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub struct Client {
    pub stream: TcpStream,
    held: Vec<u8>,
}

/// A response as it was on the wire.
#[derive(Debug, Default)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn field(&self, name: &str) -> Option<&str> {
        let prefix = format!("{}: ", name.to_ascii_lowercase());
        self.head
            .lines()
            .find(|line| line.to_ascii_lowercase().starts_with(&prefix))
            .map(|line| &line[prefix.len()..])
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Client {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    /// Returns `false` at the end of the stream.
    fn fill(&mut self) -> bool {
        let mut buffer = [0; 65_536];
        let n = self.stream.read(&mut buffer).unwrap();
        self.held.extend_from_slice(&buffer[..n]);
        n > 0
    }

    fn take(&mut self, n: usize) -> Vec<u8> {
        while self.held.len() < n {
            assert!(self.fill(), "the connection ended too early: {:?}", String::from_utf8_lossy(&self.held));
        }
        self.held.drain(..n).collect()
    }

    fn take_until(&mut self, mark: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.held.windows(mark.len()).position(|window| window == mark) {
                return self.take(at + mark.len());
            }
            assert!(self.fill(), "the connection ended too early: {:?}", String::from_utf8_lossy(&self.held));
        }
    }

    pub fn read_head(&mut self) -> Answer {
        let head = String::from_utf8(self.take_until(b"\r\n\r\n")).unwrap();
        Answer { status: head[9..12].parse().unwrap(), head, body: Vec::new() }
    }

    /// Reads a response to a request other than HEAD.
    pub fn read(&mut self) -> Answer {
        let mut answer = self.read_head();
        if answer.field("transfer-encoding") == Some("chunked") {
            loop {
                let line = self.take_until(b"\r\n");
                let size = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim_end(), 16).unwrap();
                answer.body.extend(self.take(size));
                assert_eq!(self.take(2), b"\r\n");
                if size == 0 {
                    return answer;
                }
            }
        }
        if let Some(length) = answer.field("content-length") {
            answer.body = self.take(length.parse().unwrap());
        } else if !matches!(answer.status, 100..200 | 204 | 304) {
            answer.body = self.read_to_end();
        }
        answer
    }

    pub fn read_to_end(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.held)
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.send(get(path)).read()
    }

    /// Returns whether the server has closed the connection without further bytes.
    pub fn is_closed(&mut self) -> bool {
        self.read_to_end().is_empty()
    }

    /// Returns whether the connection stays open and silent for a while.
    pub fn is_silent(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(60))).unwrap();
        let quiet = self.held.is_empty() && self.stream.read(&mut [0; 1]).is_err();
        self.stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        quiet
    }
}

pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
}

pub fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
