//! Threaded test servers, and scenarios for them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use load::scenario::{
    Arrivals, Checks, Origin, Protocol, Request, RequestOrder, Scenario, Stage, Stop, Think, Timeouts, Tls,
    Traffic, Transport,
};
use load::{Flow, Outcome};

pub const OK: &str = "HTTP/1.1 200 OK\r\nServer: test\r\nContent-Length: 5\r\n\r\nhello";

/// Starts a server with a thread per connection.
pub fn serve(connection: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let connection = Arc::new(connection);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = connection.clone();
            std::thread::spawn(move || connection(stream));
        }
    });
    address
}

/// Starts a server that responds with `respond(head, number of earlier requests on the connection)`. It
/// closes the connection on `None`.
pub fn responding(respond: impl Fn(&str, usize) -> Option<String> + Send + Sync + 'static) -> SocketAddr {
    serve(move |mut stream| {
        let mut number = 0;
        let mut bytes = Vec::new();
        while let Some(head) = next_head(&mut stream, &mut bytes) {
            let Some(text) = respond(&head, number) else { return };
            if stream.write_all(text.as_bytes()).is_err() {
                return;
            }
            number += 1;
        }
    })
}

/// Reads the head of the next request and skips its body.
pub fn next_head(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end + 4]).into_owned();
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "))
                .map_or(0, |length| length.parse().expect("a number"));
            if bytes.len() >= end + 4 + length {
                bytes.drain(..end + 4 + length);
                return Some(head);
            }
        }
        let mut more = [0; 65536];
        match stream.read(&mut more) {
            Ok(count @ 1..) => bytes.extend_from_slice(&more[..count]),
            _ => return None,
        }
    }
}

pub fn request(address: SocketAddr, target: &str) -> Request {
    Request {
        origin: Origin { tls: false, host: address.ip().to_string(), port: address.port() },
        method: "GET".to_owned(),
        target: target.to_owned(),
        headers: Vec::new(),
        body: Bytes::new(),
        weight: 1,
    }
}

/// Returns a scenario in which `users` users send `requests` requests in total.
pub fn closed(address: SocketAddr, users: usize, requests: u64) -> Scenario {
    Scenario {
        requests: vec![request(address, "/")],
        order: RequestOrder::InTurn,
        traffic: Traffic::Closed { users, think: Think::None },
        stop: Stop { requests: Some(requests), ..Stop::default() },
        warm_up: Duration::ZERO,
        transport: Transport {
            protocol: Protocol::Http1 { keep_alive: true, pipeline: 1 },
            to: None,
            tls: Tls::default(),
        },
        timeouts: Timeouts {
            connect: Duration::from_secs(5),
            request: Duration::from_secs(10),
            grace: Duration::from_secs(5),
        },
        checks: Checks::default(),
        threads: 2,
        cookies: false,
        stages: false,
        journey: None,
        part: load::scenario::Part::default(),
    }
}

/// Returns a scenario with `rate` requests per second for a while.
pub fn open(address: SocketAddr, rate: f64, duration: Duration, connections: usize) -> Scenario {
    let stages = vec![Stage { from: rate, to: rate, duration: Some(duration) }];
    Scenario {
        traffic: Traffic::Open { stages, arrivals: Arrivals::Even, connections },
        stop: Stop::default(),
        ..closed(address, 1, 1)
    }
}

pub fn run(scenario: &Scenario) -> Outcome {
    load::run(scenario, &mut |_| Flow::Continue).expect("a run")
}

/// Checks that every started request has exactly one result.
pub fn assert_balanced(outcome: &Outcome) {
    assert_eq!(outcome.sent, outcome.ok + outcome.errors.total() - outcome.errors.unsent, "{outcome:#?}");
    assert_eq!(outcome.ok, outcome.latency.len());
    assert_eq!(outcome.ok, outcome.service.len());
    assert_eq!(outcome.ok, outcome.first_byte.len());
    let course = outcome.course.iter().fold((0, 0, 0), |sum, second| {
        assert_eq!(second.ok, second.spread.iter().map(|(_, count)| count).sum::<u64>());
        (sum.0 + second.sent, sum.1 + second.ok, sum.2 + second.errors)
    });
    assert_eq!(course, (outcome.sent, outcome.ok, outcome.errors.total() - outcome.errors.unsent));
}
