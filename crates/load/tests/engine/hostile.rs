//! Servers that do what they should not. Whatever they do, a run ends.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use load::Verdict;
use load::plan::{Plan, Stop};

use crate::support::{OK, answering, assert_balanced, closed, next_head, open, run, serve};

fn for_a_while(mut plan: Plan) -> Plan {
    plan.stop = Stop { after: Some(Duration::from_millis(300)), ..Stop::default() };
    plan.timeouts.grace = Duration::from_millis(200);
    plan
}

fn ends_soon(plan: &Plan) -> load::Outcome {
    let begin = Instant::now();
    let outcome = run(plan);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_balanced(&outcome);
    outcome
}

#[test]
fn it_swallows_everything() {
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
fn its_queue_is_full() {
    let listener =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    listener.bind(&any.into()).and_then(|()| listener.listen(0)).expect("a port");
    let address = listener.local_addr().ok().and_then(|address| address.as_socket()).expect("its address");
    let mut plan = for_a_while(closed(address, 8, 1));
    plan.timeouts.connect = Duration::from_millis(100);
    let outcome = ends_soon(&plan);
    assert!(outcome.errors.connect_timeout > 0 && outcome.errors.cut_off > 0, "{:?}", outcome.errors);
}

#[test]
fn it_swallows_all_that_were_asked_for() {
    let address = serve(|mut stream| while matches!(stream.read(&mut [0; 1024]), Ok(1..)) {});
    let mut plan = open(address, 1000.0, Duration::from_secs(9), 2);
    plan.stop = Stop { requests: Some(100), ..Stop::default() };
    plan.timeouts.request = Duration::from_millis(200);
    plan.timeouts.grace = Duration::from_millis(100);
    let outcome = ends_soon(&plan);
    assert_eq!((outcome.ok, outcome.sent + outcome.errors.unsent), (0, 100), "{:?}", outcome.errors);
    assert!(outcome.errors.timeout > 0 && outcome.errors.unsent > 80, "{:?}", outcome.errors);
}

#[test]
fn it_answers_byte_by_byte() {
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
    let mut plan = closed(address, 2, 6);
    plan.timeouts.request = Duration::from_millis(100);
    let outcome = ends_soon(&plan);
    assert_eq!((outcome.sent, outcome.errors.timeout), (6, 6));
}

#[test]
fn it_is_not_there() {
    let gone = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("its address");
    for plan in [closed(gone, 50, 100), open(gone, 100.0, Duration::from_secs(5), 4)] {
        let begin = Instant::now();
        let error = load::run(&plan, &mut |_| Verdict::Go).expect_err("nobody is there");
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
            stream.write_all(OK.as_bytes()).expect("an answer is taken");
        }
    });
    let outcome = ends_soon(&for_a_while(closed(address, 1, 1)));
    assert_eq!(outcome.ok, 10);
    // Not asked as fast as possible: pauses of 10, 20, 40 … ms fit into 300 ms only a few times.
    assert!((1..10).contains(&outcome.errors.connect), "{:?}", outcome.errors);
}

#[test]
fn it_closes_instead_of_answering() {
    let address = answering(|_, number| (number < 2).then(|| OK.to_owned()));
    let outcome = ends_soon(&closed(address, 2, 30));
    assert_eq!((outcome.ok, outcome.errors.read), (20, 10), "{:?}", outcome.errors);
    let (text, _) = outcome.errors.texts.first_key_value().expect("a text");
    assert!(text.contains("closed the connection"), "{text}");
}

#[test]
fn it_talks_nonsense() {
    for (nonsense, why) in [
        ("SSH-2.0-OpenSSH\r\n", "not HTTP"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "two different"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "chunk"),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "101"),
    ] {
        let address = answering(move |_, _| Some(nonsense.to_owned()));
        let outcome = ends_soon(&closed(address, 1, 2));
        assert_eq!((outcome.ok, outcome.errors.read), (0, 2), "{nonsense}: {:?}", outcome.errors);
        assert!(outcome.errors.texts.keys().any(|text| text.contains(why)), "{:?}", outcome.errors);
    }
}

#[test]
fn it_says_more_than_it_was_asked() {
    let address = answering(|_, _| Some(format!("{OK}surplus")));
    let outcome = ends_soon(&closed(address, 1, 3));
    assert_eq!((outcome.ok, outcome.connections), (3, 3));
    assert!(
        outcome.errors.texts.keys().any(|text| text.contains("belong to no answer")),
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
    let mut plan = for_a_while(closed(address, 1, 1));
    plan.requests[0].method = "POST".to_owned();
    plan.requests[0].body = vec![b'x'; 32 << 20].into();
    let outcome = ends_soon(&plan);
    assert_eq!((outcome.ok, outcome.errors.cut_off), (0, 1));
}

#[test]
fn plans_that_make_no_sense() {
    let address = answering(|_, _| Some(OK.to_owned()));
    type Change = fn(&mut Plan);
    let changes: [(Change, &str); 7] = [
        (|plan| plan.requests.clear(), "nothing to ask"),
        (|plan| plan.threads = 0, "0 threads"),
        (|plan| plan.stop = Stop::default(), "never end"),
        (|plan| plan.requests[0].method = "GE T".to_owned(), "is no method"),
        (|plan| plan.requests[0].target = "/a b".to_owned(), "%20"),
        (|plan| plan.requests[0].headers.push(("A".to_owned(), "x\r\ny: z".to_owned())), "line break"),
        (|plan| plan.requests[0].origin.host = "no-such-host.invalid".to_owned(), "not known"),
    ];
    for (change, why) in changes {
        let mut plan = closed(address, 1, 1);
        change(&mut plan);
        let error = load::run(&plan, &mut |_| Verdict::Go).expect_err(why);
        assert!(error.contains(why), "{error}");
    }
}
