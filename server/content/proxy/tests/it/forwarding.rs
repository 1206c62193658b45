//! Tests a proxy with backends that behave.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use crate::support;

use proxy::{Balance, Health, HostPolicy, ProxyConfig, Via};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::{Backend, Front, config};

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-From: up\r\n\r\nhello";

fn pause() {
    std::thread::sleep(Duration::from_millis(60));
}

#[test]
fn connections_are_used_again_and_requests_say_who_asked() {
    let backend = Backend::answering(HELLO);
    let front = Front::to(&[&backend]);
    let mut client = front.connect();
    for _ in 0..3 {
        let answer = client.get("/a?b");
        assert_eq!((answer.status, &*answer.text(), answer.field("x-from")), (200, "hello", Some("up")));
    }
    assert_eq!(front.connect().get("/c").status, 200);
    assert_eq!(backend.connected(), 1);
    let seen = backend.seen.lock().unwrap()[0].clone();
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines[0], "GET /a?b HTTP/1.1");
    assert_eq!(lines[1], format!("Host: {}", backend.address));
    for line in [
        "X-Forwarded-For: 127.0.0.1",
        "X-Forwarded-Proto: http",
        "X-Forwarded-Host: client.test",
        "X-Forwarded-Port: 80",
        "Forwarded: for=127.0.0.1;host=client.test;proto=http",
    ] {
        assert!(lines.contains(&line), "{line}: {lines:?}");
    }
    assert_eq!(front.upstreams.counts()[0].requests, 4);
    assert_eq!(front.upstreams.counts()[0].active, 0);
}

#[test]
fn settings_decide_about_host_base_and_upgrades() {
    let backend = Backend::answering(HELLO);
    let origin = format!("{}/base/", backend.origin());
    let front = Front::start(ProxyConfig {
        host: HostPolicy::Client,
        forwarded: false,
        via: Via::Off,
        max_idle: 0,
        ..config(&[origin])
    });
    let mut client = front.connect();
    client.get("/x");
    client.get("/y");
    assert_eq!(backend.last_seen(), "GET /base/y HTTP/1.1\r\nHost: client.test\r\n\r\n");
    assert_eq!(backend.connected(), 2, "none is kept");
}

#[test]
fn requests_that_cannot_be_passed_on() {
    let backend = Backend::answering(HELLO);
    let front = Front::to(&[&backend]);
    let ask = |text: &str| front.connect().send(text).read().status;
    assert_eq!(ask("CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n"), 501);
    assert_eq!(ask("GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n"), 400, "the caller maps targets");
    assert_eq!(ask("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    assert!(backend.last_seen().starts_with("OPTIONS * HTTP/1.1\r\n"));
    assert_eq!(backend.connected(), 1);
}

#[test]
fn request_bodies_arrive_with_their_framing() {
    let backend = Backend::start(|c| {
        while let Some(head) = c.head() {
            let body = if head.contains("\r\nTransfer-Encoding: chunked\r\n") {
                let mut body = Vec::new();
                while !body.ends_with(b"0\r\n\r\n") {
                    body.extend(c.body(1).unwrap());
                }
                body
            } else {
                let length = head.split_once("Content-Length: ").unwrap().1.split_once('\r').unwrap().0;
                c.body(length.parse().unwrap()).unwrap()
            };
            c.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len())).send(body);
        }
    });
    let front = Front::to(&[&backend]);
    let mut client = front.connect();
    let post = "POST / HTTP/1.1\r\nHost: x\r\n";
    assert_eq!(client.send(format!("{post}Content-Length: 3\r\n\r\nabc")).read().text(), "abc");
    assert_eq!(client.send(format!("{post}\r\n")).read().text(), "");
    client.send(format!("{post}Content-Length: 6\r\n\r\nabc"));
    pause();
    assert_eq!(client.send("def").read().text(), "abcdef");
    client.send(format!("{post}Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n"));
    pause();
    assert_eq!(client.send("2\r\nde\r\n0\r\nT: x\r\n\r\n").read().text(), "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
    client.send(format!("{post}Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"));
    assert_eq!(client.read_head().status, 100);
    assert_eq!(client.send("ghi").read().text(), "ghi");
    let big = "x".repeat(3 << 20);
    client.send(format!("{post}Content-Length: {}\r\n\r\n{big}", big.len()));
    assert!(client.read().text() == big);
    assert!(!backend.seen.lock().unwrap().concat().contains("Expect"));
    assert_eq!(backend.connected(), 1);
}

#[test]
fn large_and_slow_responses_stream() {
    let (go, went) = std::sync::mpsc::channel::<()>();
    let went = std::sync::Mutex::new(went);
    let backend = Backend::start(move |c| {
        while let Some(head) = c.head() {
            if head.starts_with("GET /big") {
                c.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 20 << 20));
                for i in 0..20 {
                    c.send(vec![i; 1 << 20]);
                }
            } else if head.starts_with("GET /chunks") {
                c.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
                for i in 0..2000_usize {
                    let size = 1 + i * 7 % 9000;
                    c.send(format!("{size:x};e\r\n{}\r\n", "c".repeat(size)));
                }
                c.send("0\r\nT: t\r\n\r\n");
            } else {
                c.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none");
                went.lock().unwrap().recv().unwrap();
                c.send("two");
            }
        }
    });
    let front = Front::to(&[&backend]);
    let mut client = front.connect();
    let big = client.get("/big");
    assert!(big.whole && big.body.len() == 20 << 20);
    assert!(big.body.chunks(1 << 20).enumerate().all(|(i, part)| part.iter().all(|&b| b == i as u8)));
    let chunks = client.get("/chunks");
    let expected: usize = (0..2000).map(|i| 1 + i * 7 % 9000).sum();
    assert!(chunks.whole && chunks.body.len() == expected && chunks.body.iter().all(|&b| b == b'c'));
    let old = front.connect().send("GET /chunks HTTP/1.0\r\n\r\n").read();
    assert_eq!((old.body.len(), old.field("transfer-encoding")), (expected, None), "HTTP/1.0 has no chunks");
    client.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.read_head().status, 200);
    assert_eq!(client.take(3).unwrap(), b"one", "what there is comes at once");
    go.send(()).unwrap();
    assert_eq!(client.take(3).unwrap(), b"two");
    assert_eq!(backend.connected(), 1);
}

#[test]
fn a_client_that_does_not_read_holds_the_upstream() {
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counting = sent.clone();
    let backend = Backend::start(move |c| {
        c.head();
        c.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 64 << 20));
        for _ in 0..1024 {
            if c.stream.write_all(&[b'x'; 64 << 10]).is_err() {
                return;
            }
            counting.fetch_add(64 << 10, Ordering::SeqCst);
        }
    });
    let front = Front::to(&[&backend]);
    let mut client = front.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    std::thread::sleep(Duration::from_millis(900));
    assert!(sent.load(Ordering::SeqCst) < 32 << 20, "{}", sent.load(Ordering::SeqCst));
    let answer = client.read();
    assert!(answer.whole && answer.body.len() == 64 << 20, "the client's pauses are not the upstream's");
}

#[test]
fn early_answers_end_the_upload() {
    for keeps_open in [false, true] {
        let backend = Backend::start(move |c| {
            c.head();
            c.body(1000);
            c.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\n\r\nmuch");
            if keeps_open {
                std::thread::sleep(Duration::from_secs(3));
            }
        });
        let front = Front::to(&[&backend]);
        let mut client = front.connect();
        client.send(format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 50 << 20));
        let mut upload = client.stream.try_clone().unwrap();
        std::thread::spawn(move || while upload.write_all(&[b'x'; 100_000]).is_ok() {});
        let answer = client.read();
        assert_eq!((answer.status, &*answer.text()), (413, "much"), "{keeps_open}");
        assert_eq!(front.connect().get("/").status, 504, "{keeps_open}: a new connection waits for its body");
        assert_eq!(backend.connected(), 2);
    }
}

#[test]
fn informational_responses_are_passed_on() {
    let early =
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x\r\n\r\n";
    let backend = Backend::answering(format!("{early}{HELLO}"));
    let front = Front::to(&[&backend]);
    let mut client = front.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let hints = client.read_head();
    assert_eq!((hints.status, hints.field("link"), hints.field("connection")), (103, Some("</a>"), None));
    assert_eq!(client.read().text(), "hello");
    let old = front.connect().send("GET / HTTP/1.0\r\n\r\n").read();
    assert_eq!((old.status, &*old.text()), (200, "hello"));
    assert_eq!(backend.connected(), 1);
}

#[test]
fn responses_without_bodies() {
    let backend = Backend::start(|c| {
        while let Some(head) = c.head() {
            c.send(match head.split(' ').nth(1).unwrap() {
                "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nETag: x\r\n\r\n",
                "/chunked" => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                "/empty" => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\nContent-Length: 55\r\n\r\n",
            });
        }
    });
    let front = Front::to(&[&backend]);
    let mut client = front.connect();
    assert_eq!(client.get("/204").status, 204);
    let unmodified = client.get("/304");
    assert_eq!((unmodified.status, unmodified.field("etag")), (304, Some("x")));
    let head = client.send("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").read_to("HEAD");
    assert_eq!((head.status, head.field("content-length")), (200, Some("55")));
    let head = client.send("HEAD /chunked HTTP/1.1\r\nHost: x\r\n\r\n").read_to("HEAD");
    assert_eq!((head.status, head.field("content-length")), (200, None));
    assert_eq!(client.get("/empty").text(), "");
    assert_eq!(backend.connected(), 1);
}

#[test]
fn stale_connections_are_noticed_or_asked_again() {
    // Closes after each response: at once, or when the next request comes.
    for waits in [false, true] {
        let backend = Backend::start(move |c| {
            c.head();
            c.send(HELLO);
            if waits {
                c.stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
                c.head();
            }
        });
        let front = Front::to(&[&backend]);
        let mut client = front.connect();
        for method in ["GET", "PUT", "GET"] {
            let answer = client.send(format!("{method} / HTTP/1.1\r\nHost: x\r\n\r\n")).read();
            assert_eq!((answer.status, &*answer.text()), (200, "hello"), "{method} {waits}");
            pause();
        }
        let answer = client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi").read();
        // The request was sent, and may have been acted on.
        assert_eq!(answer.status, if waits { 502 } else { 200 }, "{waits}");
        let posts = backend.seen.lock().unwrap().iter().filter(|head| head.starts_with("POST")).count();
        assert_eq!(posts, 1, "{waits}: it is not sent twice");
    }
}

#[test]
fn another_origin_is_tried_when_one_cannot_be_reached() {
    let down = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let backend = Backend::answering(HELLO);
    let origins = [format!("http://{down}"), backend.origin()];
    let front = Front::start(config(&origins));
    let mut client = front.connect();
    for _ in 0..6 {
        let answer = client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi").read();
        assert_eq!(answer.status, 200);
    }
    let counts = front.upstreams.counts();
    assert_eq!((counts[0].failures, counts[0].available, counts[1].requests), (3, false, 6));
    let front = Front::start(ProxyConfig { retries: 0, ..config(&origins) });
    assert_eq!(front.connect().get("/").status, 502);
    assert!(front.has_noted("cannot connect"), "{:?}", front.log);
    let front = Front::start(config(&[format!("http://{down}"), "unix:/nonexistent/x.sock".into()]));
    assert_eq!(front.connect().get("/").status, 502);
    assert!(front.has_noted("test: unix:/nonexistent/x.sock: cannot connect"), "{:?}", front.log);
}

#[test]
fn names_are_resolved_and_connecting_has_its_time() {
    let backend = Backend::answering(HELLO);
    let front = Front::start(config(&[format!("http://localhost:{}", backend.address.port())]));
    assert_eq!(front.connect().get("/").text(), "hello");
    let front = Front::start(config(&["http://no-such-host.invalid".into()]));
    let status = front.connect().get("/").status;
    assert!(matches!(status, 502 | 504), "{status}");
    // A listener whose queue is full accepts no more.
    let full = socket_that_is_full();
    let front = Front::start(config(&[format!("http://{}", full.0)]));
    assert_eq!(front.connect().get("/").status, 504);
    assert!(front.has_noted("connect_timeout"), "{:?}", front.log);
}

/// Returns a listener without room, and the sockets that fill it.
fn socket_that_is_full() -> (std::net::SocketAddr, Vec<Box<dyn std::any::Any>>) {
    use rustix::net::{
        AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, listen, socket_with,
    };
    let new = |flags| socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
    let listener = new(SocketFlags::CLOEXEC);
    bind(&listener, &"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap()).unwrap();
    listen(&listener, 0).unwrap();
    let address: std::net::SocketAddr = getsockname(&listener).unwrap().try_into().unwrap();
    let mut held: Vec<Box<dyn std::any::Any>> = vec![Box::new(listener)];
    for _ in 0..4 {
        let client = new(SocketFlags::NONBLOCK | SocketFlags::CLOEXEC);
        // In progress, some of them for ever.
        let _ = connect(&client, &address);
        held.push(Box::new(client));
    }
    pause();
    (address, held)
}

#[test]
fn clients_that_go_take_their_requests_along() {
    let (tell, told) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let backend = Backend::start(move |c| {
        let head = c.head().unwrap();
        if head.starts_with("GET /stream") {
            c.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
        }
        tell.lock().unwrap().send(false).unwrap();
        c.rest();
        tell.lock().unwrap().send(true).unwrap();
    });
    let front =
        Front::start(ProxyConfig { read_timeout: Duration::from_secs(60), ..config(&[backend.origin()]) });
    for path in ["/wait", "/stream"] {
        let mut client = front.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert!(!told.recv_timeout(Duration::from_secs(9)).unwrap());
        pause();
        rustix::net::sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO)).unwrap();
        drop(client);
        assert!(told.recv_timeout(Duration::from_secs(9)).unwrap(), "{path}: the upstream sees the end");
    }
    front.eventually("nothing is under way", |f| f.upstreams.counts()[0].active == 0);
    let mut half = front.connect();
    half.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
    half.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(half.read_head().status, 200, "half of a client still reads");
}

#[test]
fn upstreams_that_take_nothing_time_out() {
    let backend = Backend::start(|_| std::thread::sleep(Duration::from_secs(20)));
    let front = Front::to(&[&backend]);
    let mut client = front.connect();
    client.send(format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 50 << 20));
    let mut upload = client.stream.try_clone().unwrap();
    std::thread::spawn(move || while upload.write_all(&[b'x'; 100_000]).is_ok() {});
    assert_eq!(client.read().status, 504);
    assert!(front.has_noted("send_timeout"), "{:?}", front.log);
}

#[test]
fn websockets_pass_through() {
    let backend = Backend::start(|c| {
        let head = c.head().unwrap();
        if !head.contains("\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n") {
            c.send("HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n");
            return;
        }
        c.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: y\r\n\r\nfirst ");
        let all = c.rest();
        c.send(all.to_ascii_uppercase()).send("(end)");
    });
    let front = Front::to(&[&backend]);
    let mut client = front.connect();
    let upgrade =
        "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.send(upgrade).send("early ");
    let head = client.read_head();
    assert_eq!(
        (head.status, head.field("upgrade"), head.field("connection")),
        (101, Some("WebSocket"), Some("Upgrade"))
    );
    assert_eq!(head.field("sec-websocket-accept"), Some("y"));
    client.send("late");
    assert_eq!(front.upstreams.counts()[0].active, 1);
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest(), b"first EARLY LATE(end)");
    front.eventually("the tunnel is over", |f| f.upstreams.counts()[0].active == 0);
    let refused = front.connect().get("/ws");
    assert_eq!((refused.status, refused.field("upgrade")), (426, Some("websocket")));
    let front = Front::start(ProxyConfig { websocket: false, ..config(&[backend.origin()]) });
    assert_eq!(front.connect().send(upgrade).read().status, 426);
}

#[test]
fn an_upgrade_may_be_declined() {
    let backend = Backend::answering(HELLO);
    let front = Front::to(&[&backend]);
    let mut client = front.connect();
    client.send("GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.read().text(), "hello");
    assert_eq!(client.get("/next").text(), "hello");
}

#[test]
fn unix_sockets() {
    let path = std::env::temp_dir().join(format!("firebrick-proxy-{}.sock", std::process::id()));
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut seen = Vec::new();
            while stream.read(seen_byte(&mut seen)).unwrap_or(0) > 0 {
                if seen.ends_with(b"\r\n\r\n") {
                    let head = String::from_utf8(std::mem::take(&mut seen)).unwrap();
                    let line = head.lines().take(2).collect::<Vec<_>>().join("|");
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{line}", line.len());
                    stream.write_all(answer.as_bytes()).unwrap();
                }
            }
        }
    });
    let front = Front::start(config(&[format!("unix:{}:/base", path.display())]));
    let mut client = front.connect();
    for _ in 0..2 {
        assert_eq!(client.get("/a").text(), "GET /base/a HTTP/1.1|Host: localhost");
    }
    std::fs::remove_file(&path).unwrap();
}

/// Makes room for one more byte.
fn seen_byte(seen: &mut Vec<u8>) -> &mut [u8] {
    seen.push(0);
    let last = seen.len() - 1;
    &mut seen[last..]
}

#[test]
fn requests_are_spread() {
    let (one, two) = (Backend::answering(HELLO), Backend::answering(HELLO));
    let front = Front::to(&[&one, &two]);
    let mut client = front.connect();
    (0..6).for_each(|_| assert_eq!(client.get("/").status, 200));
    assert_eq!((one.seen.lock().unwrap().len(), two.seen.lock().unwrap().len()), (3, 3));

    let slow = Backend::start(|c| {
        while c.head().is_some() {
            std::thread::sleep(Duration::from_millis(400));
            c.send(HELLO);
        }
    });
    let origins = [slow.origin(), one.origin()];
    let front = Front::start(ProxyConfig { balance: Balance::LeastConnections, ..config(&origins) });
    let (mut first, mut second) = (front.connect(), front.connect());
    first.send("GET /slow HTTP/1.1\r\nHost: x\r\n\r\n");
    front.eventually("it is under way", |f| f.upstreams.counts()[0].active == 1);
    (0..5).for_each(|_| assert_eq!(second.get("/").status, 200));
    assert_eq!(front.upstreams.counts()[1].requests, 5);
    assert_eq!(first.read().status, 200);
}

#[test]
fn health_checks_take_origins_out_and_back() {
    let well = Arc::new(AtomicBool::new(true));
    let asked = well.clone();
    let backend = Backend::start(move |c| {
        while c.head().is_some() {
            let status = if asked.load(Ordering::SeqCst) { "200 OK" } else { "500 No" };
            c.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
        }
    });
    let interval = Duration::from_millis(30);
    let health =
        Health { path: "/up?x".into(), interval, timeout: Duration::from_secs(2), healthy: 2, unhealthy: 2 };
    let front = Front::start(ProxyConfig { health: Some(health), ..config(&[backend.origin()]) });
    assert_eq!(front.connect().get("/").status, 200);
    well.store(false, Ordering::SeqCst);
    front.eventually("it is out", |f| !f.upstreams.counts()[0].available);
    let answer = front.connect().get("/");
    assert_eq!((answer.status, answer.field("retry-after")), (503, Some("1")));
    assert!(front.has_noted("health checks"), "{:?}", front.log);
    well.store(true, Ordering::SeqCst);
    front.eventually("it is back", |f| f.upstreams.counts()[0].available);
    assert_eq!(front.connect().get("/").status, 200);
    assert!(
        backend
            .seen
            .lock()
            .unwrap()
            .iter()
            .any(|head| head.starts_with("GET /up?x HTTP/1.1\r\nHost: 127.0.0.1:"))
    );
}

#[test]
fn idle_connections_are_bounded_when_the_rush_is_over() {
    let open = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counting = open.clone();
    let backend = Backend::start(move |c| {
        counting.fetch_add(1, Ordering::SeqCst);
        while c.head().is_some() {
            pause();
            c.send(HELLO);
        }
        counting.fetch_sub(1, Ordering::SeqCst);
    });
    let front = Front::start(ProxyConfig { max_idle: 1, ..config(&[backend.origin()]) });
    for _ in 0..2 {
        let mut clients: Vec<_> = (0..3).map(|_| front.connect()).collect();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        }
        clients.iter_mut().for_each(|client| assert_eq!(client.read().status, 200));
        assert_eq!(backend.connected(), 3, "three at a time need no more than three");
    }
    front.eventually("one is kept", |_| open.load(Ordering::SeqCst) == 1);
    assert_eq!(front.connect().get("/").status, 200);
    assert_eq!((backend.connected(), open.load(Ordering::SeqCst)), (3, 1), "and used");
}

#[test]
fn an_upload_that_goes_on_may_take_its_time() {
    let length = 40 << 20;
    let backend = Backend::start(move |c| {
        c.head();
        let mut left = length;
        while left > 0 {
            std::thread::sleep(Duration::from_millis(120));
            let part = left.min(4 << 20);
            c.body(part).unwrap();
            left -= part;
        }
        c.send(HELLO);
    });
    // Shorter than the whole, longer than each pause.
    let front = Front::to(&[&backend]);
    let mut client = front.connect();
    client.send(format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"));
    client.send(vec![b'x'; length]);
    assert_eq!(client.read().status, 200, "{:?}", front.log);
}

#[test]
fn a_body_that_has_been_asked_for_is_not_asked_for_again() {
    let backend = Backend::start(|c| {
        c.head();
        c.send(HELLO);
        // The next request gets no response, even if it was acted on.
        c.head();
    });
    let front = Front::to(&[&backend]);
    let mut client = front.connect();
    let put = "PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n";
    assert_eq!(client.get("/").status, 200);
    assert_eq!(client.send(format!("{put}hi")).read().status, 200, "the body is still there");
    assert_eq!(backend.connected(), 2);
    client.send(put);
    let answer = client.read();
    assert_eq!((answer.status, backend.connected()), (502, 2), "it may have come in part");
}

#[test]
fn signs_of_life_are_waited_for() {
    let backend = Backend::start(|c| {
        c.head();
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(300));
            c.send("HTTP/1.1 102 Processing\r\n\r\n");
        }
        c.send(HELLO);
    });
    let front = Front::to(&[&backend]);
    let mut client = front.connect();
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let statuses: Vec<u16> = (0..5).map(|_| client.read_head().status).collect();
    assert_eq!(statuses, [102, 102, 102, 102, 200]);
}

#[test]
fn idle_connections_are_closed_before_the_upstream_does() {
    let (tell, told) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let backend = Backend::start(move |c| {
        c.head();
        c.send("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=2\r\nContent-Length: 0\r\n\r\n");
        tell.lock().unwrap().send(c.head()).unwrap();
    });
    let front = Front::to(&[&backend]);
    assert_eq!(front.connect().get("/").status, 200);
    assert_eq!(told.recv_timeout(Duration::from_secs(9)), Ok(None), "nobody has asked again");
}
