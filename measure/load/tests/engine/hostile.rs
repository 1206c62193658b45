//! Tests with misbehaving servers: whatever they do, a run ends.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use load::Flow;
use load::scenario::{Protocol, Scenario, Stop};

use crate::support::{OK, assert_balanced, closed, next_head, open, responding, run, serve};

fn for_a_while(mut scenario: Scenario) -> Scenario {
    scenario.stop = Stop { after: Some(Duration::from_millis(300)), ..Stop::default() };
    scenario.timeouts.grace = Duration::from_millis(200);
    scenario
}

fn ends_soon(scenario: &Scenario) -> load::Outcome {
    let begin = Instant::now();
    let outcome = run(scenario);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_balanced(&outcome);
    outcome
}

#[test]
fn it_never_responds() {
    let address = serve(|mut stream| while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {});
    let outcome = ends_soon(&for_a_while(closed(address, 4, 1)));
    assert_eq!((outcome.ok, outcome.errors.cut_off), (0, 4));
    let outcome = ends_soon(&for_a_while(open(address, 100.0, Duration::from_secs(9), 3)));
    assert_eq!((outcome.ok, outcome.errors.cut_off, outcome.errors.unsent), (0, 3, 27));
}

#[test]
fn it_never_accepts() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let outcome = ends_soon(&for_a_while(closed(address, 4, 1)));
    assert_eq!((outcome.ok, outcome.errors.cut_off), (0, 4));
}

#[test]
fn its_accept_queue_is_full() {
    let listener =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    listener.bind(&any.into()).and_then(|()| listener.listen(0)).expect("a port");
    let address = listener.local_addr().ok().and_then(|address| address.as_socket()).expect("its address");
    let mut scenario = for_a_while(closed(address, 8, 1));
    scenario.timeouts.connect = Duration::from_millis(100);
    let outcome = ends_soon(&scenario);
    assert!(outcome.errors.connect_timeout > 0 && outcome.errors.cut_off > 0, "{:?}", outcome.errors);
}

#[test]
fn it_never_responds_to_a_limited_number() {
    let address = serve(|mut stream| while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {});
    let mut scenario = open(address, 1000.0, Duration::from_secs(9), 2);
    scenario.stop = Stop { requests: Some(100), ..Stop::default() };
    scenario.timeouts.request = Duration::from_millis(200);
    scenario.timeouts.grace = Duration::from_millis(100);
    let outcome = ends_soon(&scenario);
    assert_eq!((outcome.ok, outcome.sent + outcome.errors.unsent), (0, 100), "{:?}", outcome.errors);
    assert!(outcome.errors.timeout > 0 && outcome.errors.unsent > 80, "{:?}", outcome.errors);
}

#[test]
fn it_responds_byte_by_byte() {
    let address = serve(|mut stream| {
        for byte in OK.bytes() {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    let outcome = ends_soon(&for_a_while(closed(address, 2, 1)));
    assert_eq!((outcome.ok, outcome.errors.cut_off), (0, 2));
}

#[test]
fn requests_time_out() {
    let address = serve(|mut stream| while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {});
    let mut scenario = closed(address, 2, 6);
    scenario.timeouts.request = Duration::from_millis(100);
    let outcome = ends_soon(&scenario);
    assert_eq!((outcome.sent, outcome.errors.timeout), (6, 6));
}

#[test]
fn it_is_down() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    for scenario in [closed(gone, 50, 100), open(gone, 100.0, Duration::from_secs(5), 4)] {
        let begin = Instant::now();
        let error = load::run(&scenario, &mut |_| Flow::Continue).expect_err("nothing listens");
        assert!(error.contains("refused") && error.contains(&gone.to_string()), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(3));
    }
}

#[test]
fn it_goes_away() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut bytes = Vec::new();
        for _ in 0..10 {
            next_head(&mut stream, &mut bytes);
            stream.write_all(OK.as_bytes()).expect("a response is sent");
        }
    });
    let outcome = ends_soon(&for_a_while(closed(address, 1, 1)));
    assert_eq!(outcome.ok, 10);
    // The user backs off: pauses of 10, 20, 40 … ms fit into 300 ms only a few times.
    assert!((1..10).contains(&outcome.errors.connect), "{:?}", outcome.errors);
}

#[test]
fn it_closes_instead_of_responding() {
    let address = responding(|_, number| (number < 2).then(|| OK.to_owned()));
    let outcome = ends_soon(&closed(address, 2, 30));
    // The third of a user's three requests fails; a user whose share ends earlier has one failure less.
    assert_eq!(outcome.ok + outcome.errors.read, 30, "{:?}", outcome.errors);
    assert!((9..=10).contains(&outcome.errors.read), "{:?}", outcome.errors);
    let (text, _) = outcome.errors.texts.first_key_value().expect("a text");
    assert!(text.contains("closed the connection"), "{text}");
}

#[test]
fn its_responses_are_invalid() {
    for (nonsense, why) in [
        ("SSH-2.0-OpenSSH\r\n", "not HTTP"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "two different"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "chunk"),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "101"),
    ] {
        let address = responding(move |_, _| Some(nonsense.to_owned()));
        let outcome = ends_soon(&closed(address, 1, 2));
        assert_eq!((outcome.ok, outcome.errors.read), (0, 2), "{nonsense}: {:?}", outcome.errors);
        assert!(outcome.errors.texts.keys().any(|text| text.contains(why)), "{:?}", outcome.errors);
    }
}

#[test]
fn it_sends_more_than_a_response() {
    let address = responding(|_, _| Some(format!("{OK}surplus")));
    let outcome = ends_soon(&closed(address, 1, 3));
    assert_eq!((outcome.ok, outcome.connections), (3, 3));
    assert!(
        outcome.errors.texts.keys().any(|text| text.contains("after the end of a response")),
        "{:?}",
        outcome.errors
    );
}

#[test]
fn it_resets() {
    let address = serve(|mut stream| {
        // Closing with unread bytes makes the kernel send a reset.
        let _ = stream.read(&mut [0; 1]);
    });
    let outcome = ends_soon(&closed(address, 1, 4));
    assert_eq!((outcome.ok, outcome.errors.read + outcome.errors.write), (0, 4), "{:?}", outcome.errors);
}

#[test]
fn it_never_reads() {
    let address = serve(|stream| {
        std::thread::sleep(Duration::from_secs(20));
        drop(stream);
    });
    let mut scenario = for_a_while(closed(address, 1, 1));
    scenario.requests[0].method = "POST".to_owned();
    scenario.requests[0].body = vec![b'x'; 32 << 20].into();
    let outcome = ends_soon(&scenario);
    assert_eq!((outcome.ok, outcome.errors.cut_off), (0, 1));
}

#[test]
fn invalid_scenarios() {
    let address = responding(|_, _| Some(OK.to_owned()));
    type Change = fn(&mut Scenario);
    let changes: [(Change, &str); 7] = [
        (|scenario| scenario.requests.clear(), "no request"),
        (|scenario| scenario.threads = 0, "threads must"),
        (|scenario| scenario.stop = Stop::default(), "never end"),
        (|scenario| scenario.requests[0].method = "GE T".to_owned(), "is not a method"),
        (|scenario| scenario.requests[0].target = "/a b".to_owned(), "%20"),
        (
            |scenario| scenario.requests[0].headers.push(("A".to_owned(), "x\r\ny: z".to_owned())),
            "line break",
        ),
        (|scenario| scenario.requests[0].origin.host = "no-such-host.invalid".to_owned(), "cannot resolve"),
    ];
    for (change, why) in changes {
        let mut scenario = closed(address, 1, 1);
        change(&mut scenario);
        let error = load::run(&scenario, &mut |_| Flow::Continue).expect_err(why);
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn another_protocol_is_named() {
    for (bytes, said) in [
        (&[0x15, 3, 3, 0, 2, 2, 22][..], "this port speaks https"),
        (&[0, 0, 0, 4, 0, 0, 0, 0, 0], "this port speaks HTTP/2 only"),
    ] {
        let address = serve(move |mut stream| {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(bytes);
        });
        let outcome = ends_soon(&for_a_while(closed(address, 1, 1)));
        assert!(outcome.errors.texts.keys().any(|text| text.contains(said)), "{:?}", outcome.errors);
    }
    for (bytes, said) in [
        (&b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"[..], "this port does not speak HTTP/2"),
        (&[0x15, 3, 3, 0, 2, 2, 22], "this port speaks https"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the answer is not HTTP/2"),
    ] {
        let address = serve(move |mut stream| {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(bytes);
        });
        let mut scenario = closed(address, 1, 1);
        scenario.transport.protocol = Protocol::Http2 { streams: 1 };
        let outcome = ends_soon(&for_a_while(scenario));
        assert!(outcome.errors.texts.keys().all(|text| text.contains(said)), "{:?}", outcome.errors);
    }
}
