//! Tests of forms of responses, and of the checks.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

use load::scenario::{ConnectTo, Length};
use sha2::{Digest, Sha256};

use crate::support::{OK, assert_balanced, closed, responding, run};

#[test]
fn forms() {
    let long = "x".repeat(300_000);
    for (response, length, connections) in [
        (format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{long}", long.len()), 300_000, 1),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x\r\nde\r\n0\r\nT: x\r\n\r\n".to_owned(), 5, 1),
        ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), 0, 1),
        ("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n".to_owned(), 0, 1),
        ("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab".to_owned(), 2, 1),
        ("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nab".to_owned(), 2, 1),
        ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nab".to_owned(), 2, 10),
    ] {
        let text = response.clone();
        let address = responding(move |_, _| Some(text.clone()));
        let outcome = run(&closed(address, 1, 10));
        assert_balanced(&outcome);
        assert_eq!((outcome.ok, outcome.bytes.bodies), (10, 10 * length), "{:.60}: {:?}", response, outcome.errors);
        assert_eq!(outcome.connections, connections, "{response:.60}");
    }
}

#[test]
fn bodies_that_end_with_the_connection() {
    let address = responding(|_, number| (number == 0).then(|| "HTTP/1.1 200 OK\r\n\r\nsome".to_owned()));
    let address_closing = crate::support::serve(move |mut stream| {
        let mut bytes = Vec::new();
        crate::support::next_head(&mut stream, &mut bytes);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nsome");
    });
    let outcome = run(&closed(address_closing, 2, 10));
    assert_balanced(&outcome);
    assert_eq!((outcome.ok, outcome.bytes.bodies, outcome.connections), (10, 40, 10));
    let mut scenario = closed(address, 1, 1);
    scenario.timeouts.request = std::time::Duration::from_millis(100);
    assert_eq!(run(&scenario).errors.timeout, 1);
}

#[test]
fn head_has_no_body() {
    let address = responding(|head, _| {
        assert!(head.starts_with("HEAD / HTTP/1.1\r\nHost: 127.0.0.1:"));
        Some("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".to_owned())
    });
    let mut scenario = closed(address, 1, 5);
    scenario.requests[0].method = "HEAD".to_owned();
    let outcome = run(&scenario);
    assert_eq!((outcome.ok, outcome.bytes.bodies, outcome.connections), (5, 0, 1));
}

#[test]
fn bodies_and_headers_are_sent() {
    let address = responding(|head, _| {
        let right = head.contains("Content-Length: 200000\r\n")
            && head.contains("host: other\r\n")
            && !head.contains("127.0.0.1");
        Some(OK.replace("200", if right { "200" } else { "400" }))
    });
    let mut scenario = closed(address, 2, 20);
    scenario.requests[0].method = "POST".to_owned();
    scenario.requests[0].body = vec![b'x'; 200_000].into();
    scenario.requests[0].headers.push(("host".to_owned(), "other".to_owned()));
    let outcome = run(&scenario);
    assert_eq!((outcome.ok, outcome.errors.total()), (20, 0));
    assert!(outcome.bytes.sent > 4_000_000);
}

#[test]
fn statuses() {
    let address = responding(|_, number| Some(OK.replace("200", ["200", "302", "404", "500"][number % 4])));
    let mut scenario = closed(address, 1, 8);
    scenario.threads = 1;
    let outcome = run(&scenario);
    assert_eq!((outcome.ok, outcome.errors.status), (4, 4));
    scenario.checks.statuses = vec![(404, 404), (500, 599)];
    let outcome = run(&scenario);
    assert_balanced(&outcome);
    assert_eq!((outcome.ok, outcome.errors.status, outcome.statuses.len()), (4, 4, 4));
}

#[test]
fn lengths_and_bodies() {
    let address = responding(|_, number| {
        Some(if number == 3 { OK.replace("5\r\n\r\nhello", "6\r\n\r\nhello!") } else { OK.to_owned() })
    });
    let mut scenario = closed(address, 1, 6);
    scenario.checks.length = Some(Length::Same);
    assert_eq!(run(&scenario).errors.length, 1);
    scenario.checks.length = Some(Length::Exactly(6));
    assert_eq!(run(&scenario).errors.length, 5);
    scenario.checks.length = None;
    scenario.checks.sha256 = Some(Sha256::digest(b"hello").into());
    assert_eq!(run(&scenario).errors.body, 1);
    scenario.checks.sha256 = None;
    scenario.checks.matching = Some(regex::bytes::Regex::new("^h.*o$").expect("an expression"));
    let outcome = run(&scenario);
    assert_balanced(&outcome);
    assert_eq!((outcome.errors.body, outcome.ok), (1, 5));
}

#[test]
fn each_user_has_its_own_cookies() {
    let address = responding(|head, number| {
        let cookie = head.lines().find_map(|line| line.strip_prefix("Cookie: "));
        let expected = (number > 0).then(|| format!("given=1; n={number}"));
        let right = cookie == expected.as_deref().or(Some("given=1"));
        let set = format!("Set-Cookie: n={}; Path=/; HttpOnly", number + 1);
        Some(OK.replace("Server: test", &set).replace("200", if right { "200" } else { "400" }))
    });
    let mut scenario = closed(address, 3, 30);
    scenario.cookies = true;
    scenario.requests[0].headers.push(("Cookie".to_owned(), "given=1".to_owned()));
    let outcome = run(&scenario);
    assert_eq!((outcome.ok, outcome.errors.total()), (30, 0), "{:?}", outcome.errors);
}

#[test]
fn stages() {
    let address = responding(|head, number| {
        assert!(head.contains("Firebrick-Timing: 1\r\n"));
        Some(match number % 2 {
            0 => OK.replace(
                "Server: test",
                "Server-Timing: db;dur=3\r\nServer-Timing: queue;dur=0.301, app;dur=2.5, cpu;dur=1",
            ),
            _ => OK.to_owned(),
        })
    });
    let mut scenario = closed(address, 1, 10);
    scenario.stages = true;
    let outcome = run(&scenario);
    let stages = outcome.stages.expect("the server reported them");
    assert_eq!(stages.reported, 5);
    let sum = |part: fn(&load::outcome::Band) -> u64| stages.bands.iter().map(part).sum::<u64>();
    assert_eq!((sum(|band| band.queue), sum(|band| band.app)), (1505, 12_500));
    assert_eq!((sum(|band| band.cpu.0), sum(|band| band.cpu.1), sum(|band| band.gvl.1)), (5000, 5, 0));
    assert!(stages.bands.is_sorted_by_key(|band| band.upto_us));
}

#[test]
fn unix_sockets() {
    let path = std::env::temp_dir().join(format!("load-test-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).expect("a socket");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {
                    let _ = stream.write_all(OK.as_bytes());
                }
            });
        }
    });
    let mut scenario = closed("127.0.0.1:1".parse().expect("an address"), 2, 20);
    scenario.transport.to = Some(ConnectTo::Unix(path.clone()));
    let outcome = run(&scenario);
    std::fs::remove_file(&path).expect("the socket");
    assert_eq!((outcome.ok, outcome.errors.total()), (20, 0));
}
