//! Tests of HTTP/2 with prior knowledge, against the server side of the `h2` crate.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http_types::{Request, Response};
use load::scenario::{Protocol, Stop};

use crate::support::{OK, assert_balanced, closed, open, responding, run};

/// Starts a server that handles each stream with `handler`, at most `most` streams at once.
fn server(
    most: u32,
    handler: impl Fn(Request<RecvStream>, SendResponse<Bytes>) + Send + Sync + Copy + 'static,
) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    listener.set_nonblocking(true).expect("an option");
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut builder = h2::server::Builder::new();
                    let Ok(mut connection) = builder.max_concurrent_streams(most).handshake(socket).await
                    else {
                        return;
                    };
                    while let Some(Ok((request, response))) = connection.accept().await {
                        handler(request, response);
                    }
                });
            }
        });
    });
    address
}

fn hello(request: Request<RecvStream>, mut response: SendResponse<Bytes>) {
    let right = request.method() == "GET" && request.uri().path() == "/x" && request.headers()["a"] == "b";
    let head = Response::builder().status(if right { 200 } else { 400 }).header("server", "two");
    if let Ok(mut body) = response.send_response(head.body(()).expect("a head"), false) {
        let _ = body.send_data(Bytes::from_static(b"hello"), true);
    }
}

fn scenario(address: SocketAddr, connections: usize, streams: usize, requests: u64) -> load::Scenario {
    let mut scenario = closed(address, connections, requests);
    scenario.requests[0].target = "/x?y".to_owned();
    scenario.requests[0].headers =
        vec![("A".to_owned(), "b".to_owned()), ("Connection".to_owned(), "x".to_owned())];
    scenario.transport.protocol = Protocol::Http2 { streams };
    scenario
}

#[test]
fn many_streams_on_few_connections() {
    for most in [4, 100] {
        let outcome = run(&scenario(server(most, hello), 2, 30, 900));
        assert_balanced(&outcome);
        assert_eq!(
            (outcome.ok, outcome.connections, outcome.bytes.bodies),
            (900, 2, 4500),
            "{:?}",
            outcome.errors
        );
        assert_eq!(
            (outcome.server.protocol.as_str(), outcome.server.software.as_deref()),
            ("HTTP/2", Some("two"))
        );
    }
}

#[test]
fn the_open_model_fills_a_connection_before_it_opens_another() {
    let mut scenario = scenario(server(100, hello), 1, 50, 1);
    scenario.stop = Stop::default();
    scenario.traffic =
        open("127.0.0.1:1".parse().expect("an address"), 200.0, Duration::from_millis(500), 10).traffic;
    scenario.threads = 1;
    let outcome = run(&scenario);
    assert_balanced(&outcome);
    assert_eq!((outcome.ok, outcome.connections), (100, 1), "{:?}", outcome.errors);
}

#[test]
fn bodies_both_ways() {
    fn echo(request: Request<RecvStream>, mut response: SendResponse<Bytes>) {
        tokio::spawn(async move {
            let mut body = request.into_body();
            let mut length = 0;
            while let Some(Ok(data)) = body.data().await {
                length += data.len();
                let _ = body.flow_control().release_capacity(data.len());
            }
            let mut out = response.send_response(Response::new(()), false).expect("a stream");
            let _ = out.send_data(vec![b'x'; length].into(), true);
        });
    }
    let mut scenario = scenario(server(100, echo), 1, 4, 12);
    scenario.requests[0].method = "POST".to_owned();
    scenario.requests[0].body = vec![b'x'; 300_000].into();
    let outcome = run(&scenario);
    assert_eq!((outcome.ok, outcome.bytes.bodies), (12, 3_600_000), "{:?}", outcome.errors);
}

#[test]
fn reset_streams_are_errors_and_refused_ones_are_sent_again() {
    fn reset(request: Request<RecvStream>, mut response: SendResponse<Bytes>) {
        drop(request);
        response.send_reset(Reason::INTERNAL_ERROR);
    }
    let outcome = run(&scenario(server(100, reset), 1, 2, 4));
    assert_balanced(&outcome);
    assert_eq!((outcome.ok, outcome.errors.read), (0, 4), "{:?}", outcome.errors);
    fn refuse_some(request: Request<RecvStream>, mut response: SendResponse<Bytes>) {
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        match COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 3 {
            0 => response.send_reset(Reason::REFUSED_STREAM),
            _ => hello(request, response),
        }
    }
    let outcome = run(&scenario(server(100, refuse_some), 1, 2, 30));
    assert_balanced(&outcome);
    assert_eq!(outcome.ok, 30, "{:?}", outcome.errors);
}

#[test]
fn it_never_responds() {
    // Dropping a stream would reset it, so these are leaked.
    fn never(request: Request<RecvStream>, response: SendResponse<Bytes>) {
        std::mem::forget((request, response));
    }
    let mut scenario = scenario(server(100, never), 2, 5, 1);
    scenario.stop = Stop { after: Some(Duration::from_millis(200)), ..Stop::default() };
    scenario.timeouts.grace = Duration::from_millis(100);
    let begin = Instant::now();
    let outcome = run(&scenario);
    assert_balanced(&outcome);
    assert!(begin.elapsed() < Duration::from_secs(8));
    assert_eq!((outcome.ok, outcome.errors.cut_off), (0, 10), "{:?}", outcome.errors);
}

#[test]
fn it_does_not_speak_http2() {
    let address = responding(|_, _| Some(OK.to_owned()));
    let mut scenario = scenario(address, 1, 1, 3);
    scenario.timeouts.request = Duration::from_secs(1);
    // The preface looks like a request, so the connection opens and the response is invalid.
    let outcome = run(&scenario);
    assert_balanced(&outcome);
    assert_eq!((outcome.ok, outcome.errors.read), (0, 3), "{:?}", outcome.errors);
}
