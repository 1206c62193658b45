//! Tests HTTP/2 over real sockets, with the `h2` crate as the client.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use crate::support;

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use h2::{Reason, RecvStream};
use http::{Limits, Timeouts};
use http_types::{HeaderMap, Method, Request};
use std::time::Duration;
use support::{Server, get};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

const SHORT: Duration = Duration::from_millis(400);

/// A response as a test sees it.
#[derive(Debug, Default)]
struct Got {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

type Outcome = Result<Got, h2::Error>;

impl Got {
    fn field(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

fn run<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), work).await.expect("in time") })
}

struct Client {
    requests: SendRequest<Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Client {
    async fn to(server: &Server) -> Client {
        Client::with(
            server,
            Builder::new().initial_window_size(1 << 20).initial_connection_window_size(8 << 20),
        )
        .await
    }

    async fn with(server: &Server, builder: &Builder) -> Client {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let (requests, connection) = builder.handshake(stream).await.unwrap();
        Client { requests, connection: tokio::spawn(connection) }
    }

    async fn send(
        &mut self,
        request: Request<()>,
        end: bool,
    ) -> Result<(h2::client::ResponseFuture, h2::SendStream<Bytes>), h2::Error> {
        let mut ready = self.requests.clone().ready().await?;
        ready.send_request(request, end)
    }

    async fn get(&mut self, path: &str) -> Outcome {
        self.ask(Method::GET, path).await
    }

    async fn ask(&mut self, method: Method, path: &str) -> Outcome {
        let (response, _) = self.send(request(method, path), true).await?;
        receive(response).await
    }

    async fn post(&mut self, path: &str, body: Vec<u8>, declared: bool) -> Outcome {
        let mut post = request(Method::POST, path);
        if declared {
            post.headers_mut().insert("content-length", body.len().into());
        }
        let (response, mut stream) = self.send(post, false).await?;
        let sending = tokio::spawn(async move {
            let mut rest = Bytes::from(body);
            while !rest.is_empty() {
                stream.reserve_capacity(rest.len().min(100_000));
                let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
                    return;
                };
                let piece = rest.split_to(room.min(rest.len()));
                if stream.send_data(piece, rest.is_empty()).is_err() {
                    return;
                }
            }
        });
        let got = receive(response).await;
        sending.abort();
        got
    }
}

fn request(method: Method, path: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("http://example.test{path}")).body(()).unwrap()
}

async fn receive(response: h2::client::ResponseFuture) -> Outcome {
    let (head, mut body) = response.await?.into_parts();
    let body = drain(&mut body).await?;
    Ok(Got { status: head.status.as_u16(), headers: head.headers, body })
}

async fn drain(body: &mut RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        all.extend_from_slice(&data);
    }
    Ok(all)
}

fn noted(server: &Server, start: &str) -> usize {
    server.log.lock().unwrap().iter().filter(|line| line.starts_with(start)).count()
}

#[test]
fn requests_at_the_same_time_are_answered_each() {
    let server = Server::start_either(Limits::default());
    run(async {
        let client = Client::to(&server).await;
        let asked: Vec<_> = (0..2000)
            .map(|number| {
                let mut requests =
                    Client { requests: client.requests.clone(), connection: tokio::spawn(async { Ok(()) }) };
                tokio::spawn(async move { requests.get(&format!("/number?{number}")).await })
            })
            .collect();
        for (number, asked) in asked.into_iter().enumerate() {
            let got = asked.await.unwrap().unwrap();
            assert_eq!((got.status, got.body), (200, format!("/number?{number}").into_bytes()));
        }
    });
    server.eventually("each is told once", |s| noted(s, "finished /number 200") == 2000);
    server.eventually("none is left", |s| s.connections().open == 0);
}

#[test]
fn http1_on_the_same_port() {
    let server = Server::start_either(Limits::default());
    let mut client = server.connect();
    for part in ["P", "RI /x HTTP/1.1\r\n", "Host: x\r\n\r\n"] {
        client.send(part);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.read().text(), "/x?");
    assert_eq!(client.send(get("/again?1")).read().text(), "/again?1");
}

#[test]
fn responses_of_all_kinds() {
    every_kind(&Server::start_either(Limits::default()));
}

/// Encryption may hold bytes back when the socket is full; all of them must be flushed.
#[test]
fn responses_of_all_kinds_over_a_transport_that_holds_bytes_back() {
    every_kind(&Server::start_holding(Limits::default()));
}

fn every_kind(server: &Server) {
    run(async {
        for window in [300, 65_535, 1 << 20] {
            let builder = Builder::new().initial_window_size(window).clone();
            let mut client = Client::with(server, &builder).await;
            let got = client.get("/a?b").await.unwrap();
            assert_eq!((got.body.as_slice(), got.field("content-length")), (&b"/a?b"[..], Some("4")));
            assert!(got.field("date").is_some_and(|date| date.ends_with("GMT")));
            assert_eq!(client.get("/stream").await.unwrap().body, b"onetwothree");
            let sized = client.get("/stream-6").await.unwrap();
            assert_eq!((sized.body.as_slice(), sized.field("content-length")), (&b"onetwo"[..], Some("6")));
            let mixed = client.get("/stream-mixed").await.unwrap().body;
            assert!(mixed.starts_with(b"<23456yy") && mixed.ends_with(b"yy>") && mixed.len() == 30_007);
            assert_eq!(client.get("/file").await.unwrap().body, b"file");
            assert_eq!(client.get("/file-big").await.unwrap().body, vec![b'f'; 3 << 20]);
            assert_eq!(client.get("/big").await.unwrap().body, vec![b'b'; 3 << 20]);
            for _ in 0..3 {
                assert_eq!(client.get("/kept").await.unwrap().body, b"kkk");
                assert_eq!(client.get("/kept-large").await.unwrap().body, vec![b'k'; 100_000]);
                assert_eq!(client.get("/kept-with-more").await.unwrap().field("x-more"), Some("yes"));
            }
            assert_eq!(client.get("/precoded").await.unwrap().body, b"onetwo");
            assert_eq!(client.get("/offer").await.unwrap().body.len(), 505);
        }
    });
    assert!(server.has_noted("declined") && !server.has_noted("lent"));
}

#[test]
fn fields_of_the_connection_are_left_out() {
    let server = Server::start_either(Limits::default());
    run(async {
        let mut client = Client::to(&server).await;
        let got = client.get("/filtered").await.unwrap();
        for name in ["connection", "keep-alive", "transfer-encoding", "proxy-connection", "upgrade"] {
            assert_eq!(got.field(name), None, "{name}");
        }
        assert_eq!(got.field("date"), Some("mine"));
        assert_eq!(client.get("/close").await.unwrap().body, b"bye");
        assert_eq!(client.get("/split").await.unwrap().status, 500);
        assert_eq!(client.get("/bad-name").await.unwrap().status, 500);
        assert_eq!(client.get("/tunnel").await.unwrap().status, 500);
        assert_eq!(client.get("/tunnel-raw").await.unwrap().status, 500);
    });
}

#[test]
fn responses_without_a_body() {
    let server = Server::start_either(Limits::default());
    run(async {
        let mut client = Client::to(&server).await;
        for (method, path, status, length) in [
            (Method::HEAD, "/a", 200, Some("3")),
            (Method::HEAD, "/big", 200, Some("3145728")),
            (Method::HEAD, "/head", 200, Some("77")),
            (Method::HEAD, "/stream", 200, None),
            (Method::GET, "/200-empty", 200, Some("0")),
            (Method::GET, "/204", 204, None),
            (Method::GET, "/205", 205, Some("0")),
            (Method::GET, "/304", 304, None),
        ] {
            let got = client.ask(method, path).await.unwrap();
            assert_eq!(
                (got.status, got.field("content-length"), got.body.len()),
                (status, length, 0),
                "{path}"
            );
        }
    });
}

#[test]
fn a_response_that_breaks_off_is_reset() {
    let server = Server::start_either(Limits::default());
    run(async {
        let mut client = Client::to(&server).await;
        for path in ["/stream-broken", "/stream-short", "/stream-long", "/file-short", "/offer-dies"] {
            let got = client.get(path).await;
            if path == "/offer-dies" {
                // Without a socket, the owner never reaches the point where it would die.
                assert_eq!(got.unwrap().body.len(), 505);
                continue;
            }
            assert_eq!(got.unwrap_err().reason(), Some(Reason::INTERNAL_ERROR), "{path}");
        }
        assert_eq!(client.get("/panic").await.unwrap_err().reason(), Some(Reason::INTERNAL_ERROR));
        assert_eq!(client.get("/a").await.unwrap().status, 200, "the others go on");
    });
    server.eventually("all are told", |s| noted(s, "finished") == 7);
    assert!(server.has_noted("finished /stream-broken 200 3 broken"));
    assert!(server.has_noted("finished /panic 0 0 broken"));
}

#[test]
fn uploads() {
    let server = Server::start_either(Limits { max_body: Some(5 << 20), ..Limits::default() });
    run(async {
        let mut client = Client::to(&server).await;
        for declared in [false, true] {
            for size in [1, 70_000, 1 << 20, (5 << 20) - 1] {
                let body = vec![b'u'; size];
                let got = client.post("/echo", body.clone(), declared).await.unwrap();
                assert!(got.status == 200 && got.body == body, "{size}");
                assert_eq!(got.field("x-spooled"), (size > 1 << 20).then_some("yes"), "{size}");
            }
            let spooled = client.post("/spool", vec![b's'; 3 << 20], declared).await.unwrap();
            assert_eq!((spooled.body.len(), spooled.field("x-spooled")), (3 << 20, Some("yes")));
            let refused = client.post("/echo", vec![b'x'; (5 << 20) + 1], declared).await.unwrap();
            assert_eq!(refused.status, 413);
            assert_eq!(client.post("/unread", vec![b'x'; 2 << 20], declared).await.unwrap().status, 200);
        }
        let many: Vec<_> = (0..20)
            .map(|number: u8| {
                let mut client =
                    Client { requests: client.requests.clone(), connection: tokio::spawn(async { Ok(()) }) };
                tokio::spawn(
                    async move { client.post("/echo", vec![number; 900_000], false).await.unwrap().body },
                )
            })
            .collect();
        for (number, body) in many.into_iter().enumerate() {
            assert_eq!(body.await.unwrap(), vec![number as u8; 900_000]);
        }
    });
    server.eventually("none is left", |s| s.connections().open == 0);
}

#[test]
fn an_upload_that_comes_too_slowly() {
    let rate =
        Timeouts { body_min_rate: Some(1000), body_grace: Duration::from_secs(1), ..Timeouts::default() };
    let server = Server::start_either(rate);
    run(async {
        let mut client = Client::to(&server).await;
        let (response, mut stream) = client.send(request(Method::POST, "/echo"), false).await.unwrap();
        stream.send_data(Bytes::from_static(b"x"), false).unwrap();
        assert_eq!(receive(response).await.unwrap().status, 408);
        assert_eq!(client.get("/a").await.unwrap().status, 200, "the others go on");
    });
}

#[test]
fn a_client_that_resets_a_stream() {
    let server = Server::start_either(Limits::default());
    run(async {
        let mut client = Client::to(&server).await;
        for path in ["/gone", "/never", "/silent", "/endless"] {
            let (response, mut stream) = client.send(request(Method::GET, path), true).await.unwrap();
            if path != "/gone" && path != "/never" {
                let _ = response.await.unwrap();
            } else {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            stream.send_reset(Reason::CANCEL);
            let start = format!("finished {path}");
            let seen = async {
                while noted(&server, &start) == 0 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), seen).await.expect(path);
        }
        assert_eq!(client.get("/a").await.unwrap().status, 200);
    });
    assert!(server.has_noted("Gone") && !server.has_noted("HalfClosed"));
    assert_eq!(server.log.lock().unwrap().iter().filter(|line| *line == "stream dropped").count(), 2);
}

#[test]
fn a_client_that_goes_away() {
    let server = Server::start_either(Limits::default());
    run(async {
        let mut client = Client::to(&server).await;
        let mut waiting = Vec::new();
        for path in ["/gone", "/never", "/silent"] {
            waiting.push(client.send(request(Method::GET, path), true).await.unwrap());
        }
        let counted = async {
            while noted(&server, "GET") < 3 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        counted.await;
        let now = server.connections();
        assert_eq!((now.open, now.active, now.idle), (1, 1, 0));
        client.connection.abort();
    });
    server.eventually("all are told", |s| noted(s, "finished") == 3 && s.connections().open == 0);
}

#[test]
fn a_stream_that_is_not_read_is_given_up_and_others_are_not() {
    let server = Server::start_either(Timeouts { send: SHORT, ..Timeouts::default() });
    run(async {
        let builder =
            Builder::new().initial_window_size(100_000).initial_connection_window_size(4 << 20).clone();
        let mut client = Client::with(&server, &builder).await;
        let mut unread = Vec::new();
        for path in ["/endless", "/big", "/file-big"] {
            let (response, stream) = client.send(request(Method::GET, path), true).await.unwrap();
            unread.push((response.await.unwrap(), stream));
        }
        for _ in 0..100 {
            assert_eq!(client.get("/kept").await.unwrap().status, 200);
            if noted(&server, "finished /endless")
                + noted(&server, "finished /big")
                + noted(&server, "finished /file")
                == 3
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("they are still being sent: {:?}", server.log.lock().unwrap());
    });
}

#[test]
fn draining_lets_requests_finish() {
    let server = Server::start_either(Limits::default());
    run(async {
        let mut client = Client::to(&server).await;
        let idle = Client::to(&server).await;
        assert_eq!(client.get("/a").await.unwrap().status, 200);
        let (slow, _) = client.send(request(Method::GET, "/slow"), true).await.unwrap();
        while noted(&server, "GET /slow") == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let (tell, told) = tokio::sync::oneshot::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                server.drain();
                tell.send(()).unwrap();
            });
        });
        told.await.unwrap();
        assert_eq!(receive(slow).await.unwrap().body, b"slow");
        assert!(client.connection.await.unwrap().is_ok(), "ended in an orderly way");
        let _ = idle.connection.await.unwrap();
    });
    server.eventually("none is left", |s| s.connections().open == 0);
}

#[test]
fn connections_end_after_so_many_requests_or_idle() {
    let server = Server::start_either(Limits { max_requests_per_connection: Some(2), ..Limits::default() });
    run(async {
        let mut client = Client::to(&server).await;
        assert_eq!(client.get("/a").await.unwrap().status, 200);
        assert_eq!(client.get("/b").await.unwrap().status, 200);
        assert!(client.connection.await.unwrap().is_ok());
    });
    let server = Server::start_either(Timeouts { keep_alive: SHORT, header: SHORT, ..Timeouts::default() });
    run(async {
        let mut client = Client::to(&server).await;
        assert_eq!(client.get("/a").await.unwrap().status, 200);
        let _ = client.connection.await.unwrap();
        let silent = Client::to(&server).await;
        let _ = silent.connection.await.unwrap();
    });
    server.eventually("none is left", |s| s.connections().open == 0);
}

#[test]
fn as_many_streams_at_a_time_as_allowed() {
    let server = Server::start_either(Limits { http2_streams: 3, ..Limits::default() });
    run(async {
        let mut client = Client::to(&server).await;
        assert_eq!(client.get("/a").await.unwrap().status, 200);
        assert_eq!(client.requests.current_max_send_streams(), 3);
    });
}

#[test]
fn urgent_responses_come_first() {
    let server = Server::start_either(Limits::default());
    run(async {
        let builder =
            Builder::new().initial_window_size(8 << 20).initial_connection_window_size(65_535).clone();
        let mut client = Client::with(&server, &builder).await;
        let order = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        let mut waiting = Vec::new();
        for priority in ["u=6", "u=3", "u=1"] {
            let mut get = request(Method::GET, "/big");
            get.headers_mut().insert("priority", priority.parse().unwrap());
            waiting.push((priority, client.send(get, true).await.unwrap().0));
        }
        let tasks = tokio::task::LocalSet::new();
        for (priority, response) in waiting {
            let order = order.clone();
            tasks.spawn_local(async move {
                assert_eq!(receive(response).await.unwrap().body.len(), 3 << 20);
                order.borrow_mut().push(priority);
            });
        }
        tasks.await;
        assert_eq!(*order.borrow(), ["u=1", "u=3", "u=6"]);
    });
}
