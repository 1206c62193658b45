//! Tests WebSockets over HTTP/2 and HTTP/3 (RFC 8441, RFC 9220): the handshake, the tunnel, and its end.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use crate::support;

use bytes::Bytes;
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http::{Limits, Timeouts};
use http_types::{Method, Request, Response};
use quic::quinn;
use std::time::Duration;
use support::Server;
use support::three::{QuicServer, start};
use tokio::net::TcpStream;

fn run<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), work).await.expect("in time") })
}

/// Waits without blocking this thread, which the client needs.
async fn eventually(server: &Server, what: &str, check: impl Fn(&Server) -> bool) {
    for _ in 0..1000 {
        if check(server) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.eventually(what, check);
}

struct Client(h2::client::SendRequest<Bytes>);

/// A WebSocket, and the head of its response.
struct Socket {
    head: http_types::response::Parts,
    send: SendStream<Bytes>,
    receive: RecvStream,
}

impl Client {
    async fn to(server: &Server) -> Client {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let builder = h2::client::Builder::new().initial_window_size(1 << 20).clone();
        let (requests, connection) = builder.handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let requests = requests.ready().await.unwrap();
        // The server's SETTINGS arrive with its first frames.
        let mut client = Client(requests);
        assert_eq!(client.get("/hello").await, 200);
        assert!(client.0.is_extended_connect_protocol_enabled());
        client
    }

    async fn get(&mut self, path: &str) -> u16 {
        let request = Request::builder().uri(format!("http://x.test{path}")).body(()).unwrap();
        let (response, _) = self.0.send_request(request, true).unwrap();
        response.await.unwrap().status().as_u16()
    }

    async fn open(&mut self, path: &str) -> Result<Socket, h2::Error> {
        let mut request = Request::builder()
            .method(Method::CONNECT)
            .uri(format!("http://x.test{path}"))
            .header("sec-websocket-key", "a key that means nothing")
            .header("sec-websocket-version", "13")
            .body(())
            .unwrap();
        request.extensions_mut().insert(Protocol::from_static("websocket"));
        let (response, send) = self.0.send_request(request, false)?;
        let (head, receive) = Response::into_parts(response.await?);
        Ok(Socket { head, send, receive })
    }
}

impl Socket {
    fn status(&self) -> u16 {
        self.head.status.as_u16()
    }

    fn send(&mut self, bytes: impl Into<Bytes>, end: bool) {
        self.send.send_data(bytes.into(), end).unwrap();
    }

    /// Reads at least `len` bytes, or to the end.
    async fn read(&mut self, len: usize) -> Result<Vec<u8>, h2::Error> {
        let mut all = Vec::new();
        while all.len() < len {
            let Some(data) = self.receive.data().await else { break };
            let data = data?;
            self.receive.flow_control().release_capacity(data.len())?;
            all.extend_from_slice(&data);
        }
        Ok(all)
    }
}

#[test]
fn a_handler_sees_an_upgrade_and_the_client_a_200() {
    let server = Server::start_either(Limits::default());
    run(async {
        let mut client = Client::to(&server).await;
        for (path, first) in [("/websocket", ""), ("/websocket-raw", "first "), ("/websocket-late", "")] {
            let mut socket = client.open(path).await.unwrap();
            assert_eq!(socket.status(), 200, "{path}");
            assert_eq!(socket.head.headers.get("x-own").unwrap(), "yes");
            for name in ["sec-websocket-accept", "upgrade", "connection", "content-length"] {
                assert!(socket.head.headers.get(name).is_none(), "{name}");
            }
            socket.send("hello", false);
            let expected = format!("{first}HELLO");
            assert_eq!(socket.read(expected.len()).await.unwrap(), expected.as_bytes());
            assert_eq!(client.get("/beside").await, 200, "the connection serves other requests");
            socket.send("bye", true);
            assert_eq!(socket.read(usize::MAX).await.unwrap(), b"BYE(end)");
            let bytes = expected.len() + 8;
            eventually(&server, "the end is told", |s| {
                s.has_noted(&format!("finished {path} 200 {bytes} hijacked"))
            })
            .await;
        }
    });
    assert!(server.has_noted("GET /websocket"));
    server.eventually("none is left", |s| s.connections() == http::Connections::default());
}

#[test]
fn large_amounts_go_both_ways_within_the_windows() {
    let server = Server::start_either(Limits { max_body: Some(1000), ..Limits::default() });
    run(async {
        let mut client = Client::to(&server).await;
        let mut socket = client.open("/websocket").await.unwrap();
        let sent = vec![b'm'; 5 << 20];
        let mut rest = Bytes::from(sent.clone());
        let mut send = socket.send;
        let sending = tokio::spawn(async move {
            while !rest.is_empty() {
                send.reserve_capacity(rest.len().min(100_000));
                let room = std::future::poll_fn(|cx| send.poll_capacity(cx)).await.unwrap().unwrap();
                send.send_data(rest.split_to(room.min(rest.len())), rest.is_empty()).unwrap();
            }
        });
        let mut all = Vec::new();
        while let Some(data) = socket.receive.data().await {
            let data = data.unwrap();
            socket.receive.flow_control().release_capacity(data.len()).unwrap();
            all.extend_from_slice(&data);
        }
        sending.await.unwrap();
        assert!(all == [sent.to_ascii_uppercase(), b"(end)".to_vec()].concat(), "{}", all.len());
    });
}

#[test]
fn a_wrong_handshake_opens_nothing() {
    let server = Server::start_either(Limits::default());
    run(async {
        let mut client = Client::to(&server).await;
        for (path, status, body) in [
            ("/websocket-wrong", 502, "502 Bad Gateway\n"),
            ("/websocket-unasked", 502, "502 Bad Gateway\n"),
            ("/websocket-chat", 502, "502 Bad Gateway\n"),
            ("/websocket-none", 502, "502 Bad Gateway\n"),
            ("/websocket-garbage", 502, "502 Bad Gateway\n"),
            // A 2xx would mean that a WebSocket is open.
            ("/websocket-200", 501, "501 Not Implemented\n"),
            ("/plain", 501, "501 Not Implemented\n"),
            ("/204", 501, "501 Not Implemented\n"),
            // A response that refuses a WebSocket is sent as it is.
            ("/websocket-403", 403, "refused"),
            ("/websocket-chunked", 400, "one"),
            ("/404", 404, "a body"),
            ("/302", 302, "a body"),
        ] {
            let mut socket = client.open(path).await.unwrap();
            let read = socket.read(usize::MAX).await.unwrap();
            assert_eq!(
                (socket.status(), String::from_utf8(read).unwrap().as_str()),
                (status, body),
                "{path}"
            );
        }
        assert_eq!(client.get("/tunnel").await, 500, "only a CONNECT opens a tunnel");
    });
}

#[test]
fn the_ends_of_both_sides_are_passed_on() {
    let server = Server::start_either(Limits::default());
    run(async {
        let mut client = Client::to(&server).await;
        // The app closes: END_STREAM, although the client has not ended its half. Bytes that the client still
        // sends are dropped.
        let mut socket = client.open("/websocket").await.unwrap();
        socket.send("close", false);
        assert_eq!(socket.read(usize::MAX).await.unwrap(), b"");
        socket.send("more", true);
        // The app breaks off with bytes unread: RST_STREAM with CANCEL.
        let mut socket = client.open("/websocket").await.unwrap();
        socket.send(vec![b'x'; 500], false);
        socket.read(500).await.unwrap();
        socket.send([b"break".to_vec(), vec![b'x'; 50_000]].concat(), false);
        match socket.read(usize::MAX).await {
            Ok(read) => assert_eq!(read, b"last"),
            Err(error) => assert_eq!(error.reason(), Some(Reason::CANCEL)),
        }
        // The client resets.
        let mut socket = client.open("/websocket").await.unwrap();
        socket.send.send_reset(Reason::CANCEL);
        eventually(&server, "it is told", |s| s.has_noted("finished /websocket 200 0 broken hijacked")).await;
        // The client has ended its half before the handshake.
        let mut request =
            Request::builder().method(Method::CONNECT).uri("http://x.test/websocket-raw").body(()).unwrap();
        request.extensions_mut().insert(Protocol::from_static("websocket"));
        let (response, _) = client.0.send_request(request, true).unwrap();
        let (head, receive) = response.await.unwrap().into_parts();
        let mut socket = Socket { head, send: socket.send, receive };
        assert_eq!((socket.status(), socket.read(usize::MAX).await.unwrap()), (200, b"first (end)".to_vec()));
        assert_eq!(client.get("/after").await, 200);
    });
    server.eventually("none is left", |s| s.connections() == http::Connections::default());
}

/// Many streams in turn: the place of a tunnel that has ended is used again.
#[test]
fn tunnels_and_requests_share_a_connection() {
    let server = Server::start_either(Limits::default());
    run(async {
        let mut client = Client::to(&server).await;
        for round in 0..50 {
            let mut sockets = Vec::new();
            for _ in 0..5 {
                sockets.push(client.open("/websocket").await.unwrap());
            }
            for socket in &mut sockets {
                socket.send(if round % 2 == 0 { "close" } else { "x" }, false);
            }
            for socket in &mut sockets {
                socket.read(1).await.unwrap();
                socket.send("", true);
            }
            assert_eq!(client.get("/hello").await, 200);
        }
    });
    server.eventually("all are told", |s| {
        let log = s.log.lock().unwrap();
        log.iter().filter(|line| line.starts_with("finished /websocket 200")).count() == 250
    });
    server.eventually("none is left", |s| s.connections() == http::Connections::default());
}

#[test]
fn a_connection_counts_as_a_tunnel_while_nothing_else_is_open() {
    let server =
        Server::start_either(Timeouts { keep_alive: Duration::from_millis(100), ..Timeouts::default() });
    run(async {
        let mut client = Client::to(&server).await;
        let mut one = client.open("/websocket").await.unwrap();
        let mut two = client.open("/websocket").await.unwrap();
        eventually(&server, "it is one tunnel", |s| {
            s.connections().tunnels == 1 && s.connections().open == 1
        })
        .await;
        let request = Request::builder().uri("http://x.test/slow").body(()).unwrap();
        let (slow, _) = client.0.send_request(request, true).unwrap();
        eventually(&server, "a request is open, too", |s| s.connections().tunnels == 0).await;
        assert_eq!(slow.await.unwrap().status(), 200);
        eventually(&server, "it is one tunnel again", |s| s.connections().tunnels == 1).await;
        server.drain();
        // Longer than keep_alive: neither that nor the drain ends a tunnel.
        tokio::time::sleep(Duration::from_millis(400)).await;
        one.send("still", true);
        assert_eq!(one.read(usize::MAX).await.unwrap(), b"STILL(end)");
        two.send("", true);
        assert_eq!(two.read(usize::MAX).await.unwrap(), b"(end)");
    });
    server.eventually("none is left", |s| s.connections() == http::Connections::default());
}

#[test]
fn a_client_that_reads_nothing_is_given_up() {
    let server = Server::start_either(Timeouts { send: Duration::from_millis(300), ..Timeouts::default() });
    run(async {
        let mut client = Client::to(&server).await;
        let mut socket = client.open("/websocket").await.unwrap();
        socket.send(vec![b'x'; 60_000], false);
        // The window of a stream is 1 MiB here, so as much is echoed without a reader.
        let mut rest = Bytes::from(vec![b'y'; 3 << 20]);
        while !rest.is_empty() {
            socket.send.reserve_capacity(rest.len().min(50_000));
            match std::future::poll_fn(|cx| socket.send.poll_capacity(cx)).await {
                Some(Ok(room)) => socket.send(rest.split_to(room.min(rest.len())), false),
                _ => break,
            }
        }
        eventually(&server, "it is told", |s| {
            let log = s.log.lock().unwrap();
            log.iter()
                .any(|line| line.starts_with("finished /websocket 200") && line.ends_with("broken hijacked"))
        })
        .await;
        assert_eq!(client.get("/after").await, 200);
    });
}

/// The head of an Extended CONNECT as a HEADERS frame of HTTP/3.
fn connect(path: &str, protocol: &str) -> Vec<u8> {
    // CONNECT, https, x as the authority.
    let mut section = vec![0, 0, 0xcf, 0xd7, 0x50, 1, b'x', 0x51, path.len() as u8];
    section.extend_from_slice(path.as_bytes());
    section.extend_from_slice(b"\x27\x02:protocol");
    section.push(protocol.len() as u8);
    section.extend_from_slice(protocol.as_bytes());
    [&[1, section.len() as u8][..], &section].concat()
}

fn data(bytes: &[u8]) -> Vec<u8> {
    [&[0, 0x40 | (bytes.len() >> 8) as u8, bytes.len() as u8][..], bytes].concat()
}

/// The stream of a WebSocket over HTTP/3.
struct Stream {
    send: quinn::SendStream,
    receive: quinn::RecvStream,
    held: Vec<u8>,
}

impl Stream {
    async fn open(connection: &quinn::Connection, path: &str) -> Stream {
        let (mut send, receive) = connection.open_bi().await.unwrap();
        send.write_all(&connect(path, "websocket")).await.unwrap();
        Stream { send, receive, held: Vec::new() }
    }

    /// Returns the next frame; `None` at the end.
    async fn frame(&mut self) -> Result<Option<(u8, Vec<u8>)>, quinn::ReadError> {
        loop {
            if let [kind, len, ref rest @ ..] = self.held[..] {
                let (len, skip) = match (len >> 6, rest) {
                    (0, _) => (usize::from(len), 2),
                    (1, [low, ..]) => (usize::from(len & 0x3f) << 8 | usize::from(*low), 3),
                    _ => (usize::MAX, 0),
                };
                if self.held.len() - skip >= len {
                    let payload = self.held[skip..skip + len].to_vec();
                    self.held.drain(..skip + len);
                    return Ok(Some((kind, payload)));
                }
            }
            match self.receive.read_chunk(10_000, true).await? {
                Some(chunk) => self.held.extend_from_slice(&chunk.bytes),
                None => return Ok(None),
            }
        }
    }

    /// Reads the head. Returns whether its status is 200 (which is in the static table).
    async fn is_open(&mut self) -> bool {
        let (kind, head) = self.frame().await.unwrap().unwrap();
        assert_eq!(kind, 1);
        head[2] == 0xd9
    }

    async fn read(&mut self, len: usize) -> Result<Vec<u8>, quinn::ReadError> {
        let mut all = Vec::new();
        while all.len() < len {
            match self.frame().await? {
                Some((0, data)) => all.extend(data),
                Some(_) => {}
                None => break,
            }
        }
        Ok(all)
    }
}

fn http3() -> QuicServer {
    start(Limits { max_body: Some(100), ..Limits::default() })
}

#[test]
fn http3_tunnels() {
    let quic = http3();
    quic.with(async |quic| {
        let (_endpoint, connection, _control) = quic.raw().await;
        let mut settings = connection.accept_uni().await.unwrap();
        // SETTINGS_MAX_FIELD_SECTION_SIZE and SETTINGS_ENABLE_CONNECT_PROTOCOL, behind the type of the stream.
        let mut text = [0; 10];
        settings.read_exact(&mut text).await.unwrap();
        assert_eq!((&text[..4], &text[8..]), (&[0, 4, 7, 6][..], &[8, 1][..]));
        for (path, first) in [("/websocket", ""), ("/websocket-raw", "first ")] {
            let mut stream = Stream::open(&connection, path).await;
            assert!(stream.is_open().await, "{path}");
            stream.send.write_all(&data(&[b'x'; 1000])).await.unwrap();
            let expected = format!("{first}{}", "X".repeat(1000));
            assert_eq!(stream.read(expected.len()).await.unwrap(), expected.as_bytes());
            eventually(&quic.server, "it is a tunnel", |server| server.connections().tunnels == 1).await;
            stream.send.write_all(&data(b"bye")).await.unwrap();
            stream.send.finish().unwrap();
            assert_eq!(stream.read(usize::MAX).await.unwrap(), b"BYE(end)");
            let bytes = expected.len() + 8;
            eventually(&quic.server, "it is told", |server| {
                server.has_noted(&format!("finished {path} 200 {bytes} hijacked"))
            }).await;
        }
        eventually(&quic.server, "it is no tunnel any more", |server| server.connections().tunnels == 0).await;
        // The app closes, and the client's half stays open.
        let mut stream = Stream::open(&connection, "/websocket").await;
        assert!(stream.is_open().await);
        stream.send.write_all(&data(b"close")).await.unwrap();
        assert_eq!(stream.read(usize::MAX).await.unwrap(), b"");
        let _ = stream.send.write_all(&data(b"more")).await;
        assert!(stream.send.stopped().await.is_ok(), "the client is told to stop");
        // The client resets.
        let mut stream = Stream::open(&connection, "/websocket").await;
        assert!(stream.is_open().await);
        stream.send.reset(0x10cu32.into()).unwrap();
        match stream.read(usize::MAX).await {
            Err(quinn::ReadError::Reset(code)) => assert_eq!(u64::from(code), 0x10c),
            other => panic!("{other:?}"),
        }
        // Not a WebSocket.
        for (path, protocol) in [("/plain", "websocket"), ("/websocket", "connect-udp"), ("/websocket-wrong", "websocket")] {
            let (mut send, receive) = connection.open_bi().await.unwrap();
            send.write_all(&connect(path, protocol)).await.unwrap();
            let mut stream = Stream { send, receive, held: Vec::new() };
            assert!(!stream.is_open().await, "{path} {protocol}");
        }
        // Nothing but DATA may follow (RFC 9114 section 4.4).
        let mut stream = Stream::open(&connection, "/websocket").await;
        assert!(stream.is_open().await);
        stream.send.write_all(&[1, 2, 0, 0]).await.unwrap();
        assert!(matches!(connection.closed().await, quinn::ConnectionError::ApplicationClosed(close) if u64::from(close.error_code) == 0x105));
    });
    quic.server.eventually("no connection", |server| server.connections() == http::Connections::default());
}

#[test]
fn http3_tunnels_outlive_a_drain() {
    let quic = http3();
    quic.with(async |quic| {
        let (_endpoint, connection, _control) = quic.raw().await;
        let mut stream = Stream::open(&connection, "/websocket").await;
        assert!(stream.is_open().await);
        quic.server.drain();
        tokio::time::sleep(Duration::from_millis(600)).await;
        let counts = quic.server.connections();
        assert_eq!((counts.open, counts.tunnels), (1, 1));
        stream.send.write_all(&data(b"still")).await.unwrap();
        stream.send.finish().unwrap();
        assert_eq!(stream.read(usize::MAX).await.unwrap(), b"STILL(end)");
        connection.closed().await;
    });
    quic.server.eventually("no connection", |server| server.connections() == http::Connections::default());
}
