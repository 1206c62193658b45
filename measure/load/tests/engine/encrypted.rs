//! Tests of TLS: the trusted certificates.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use load::scenario::Scenario;
use load::{Flow, scenario::Tls};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};

use crate::support::{OK, closed, run, serve};

/// Starts a server with a self-signed certificate; returns its address and the file of the certificate.
fn server(name: &str) -> (SocketAddr, PathBuf) {
    server_until(name, 4000)
}

/// Does the same with a certificate that expires at the start of `year`.
fn server_until(name: &str, year: i32) -> (SocketAddr, PathBuf) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    let path = std::env::temp_dir().join(format!("load-test-{}-{name}.pem", std::process::id()));
    std::fs::write(&path, certificate.pem()).expect("a file");
    let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], secret)
        .expect("a key that fits");
    let config = Arc::new(config);
    let address = serve(move |mut socket| {
        let mut connection = ServerConnection::new(config.clone()).expect("a connection");
        let mut stream = Stream::new(&mut connection, &mut socket);
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = stream.read(&mut buffer) {
            let last = String::from_utf8_lossy(&buffer[..length]).contains("Connection: close");
            let text = if last { OK.replace("Server: test", "Connection: close") } else { OK.to_owned() };
            if stream.write_all(text.as_bytes()).is_err() || last {
                stream.conn.send_close_notify();
                let _ = stream.flush();
                return;
            }
        }
    });
    (address, path)
}

fn scenario(address: SocketAddr, tls: Tls) -> Scenario {
    let mut scenario = closed(address, 2, 20);
    scenario.requests[0].origin.tls = true;
    "localhost".clone_into(&mut scenario.requests[0].origin.host);
    scenario.transport.to = Some(load::scenario::ConnectTo::Tcp(address));
    scenario.transport.tls = tls;
    scenario
}

#[test]
fn trusted_if_named_or_if_all_are() {
    let (address, path) = server("believed");
    for tls in [Tls { insecure: true, ..Tls::default() }, Tls { ca: Some(path.clone()), ..Tls::default() }] {
        let outcome = run(&scenario(address, tls));
        assert_eq!((outcome.ok, outcome.connections), (20, 2), "{:?}", outcome.errors);
        assert!(outcome.server.tls.expect("it was encrypted").starts_with("TLSv1.3 TLS13_"));
        let handshakes = outcome.handshakes.expect("it was encrypted");
        assert_eq!((handshakes.full, handshakes.resumed, handshakes.failures()), (2, 0, 0));
        assert_eq!((handshakes.took.len(), handshakes.suites.values().sum::<u64>()), (2, 2));
    }
    std::fs::remove_file(path).expect("the file");
}

#[test]
fn not_trusted_otherwise() {
    let (address, path) = server("refused");
    let (_, other) = server("other");
    let error = load::run(&scenario(address, Tls { ca: Some(other.clone()), ..Tls::default() }), &mut |_| {
        Flow::Continue
    });
    assert!(error.expect_err("it is another certificate").contains("certificate"));
    let mut wrong_name = scenario(address, Tls { ca: Some(path.clone()), ..Tls::default() });
    "127.0.0.1".clone_into(&mut wrong_name.requests[0].origin.host);
    let error = load::run(&wrong_name, &mut |_| Flow::Continue).expect_err("it is for another name");
    assert!(error.contains("certificate"), "{error}");
    for path in [path, other] {
        std::fs::write(&path, "nothing").expect("the file");
        let error =
            load::run(&scenario(address, Tls { ca: Some(path.clone()), ..Tls::default() }), &mut |_| {
                Flow::Continue
            });
        assert!(error.expect_err("no certificate").contains("PEM"));
        std::fs::remove_file(path).expect("the file");
    }
}

#[test]
fn an_expired_certificate_is_not_trusted_although_named() {
    let (address, path) = server_until("expired", 2002);
    let named = Tls { ca: Some(path.clone()), ..Tls::default() };
    let error = load::run(&scenario(address, named), &mut |_| Flow::Continue).expect_err("it has expired");
    assert!(error.contains("certificate expired") && !error.contains("name the file"), "{error}");
    assert_eq!(run(&scenario(address, Tls { insecure: true, ..Tls::default() })).ok, 20);
    std::fs::remove_file(path).expect("the file");
}

#[test]
fn handshakes_are_counted_and_resumed_on_request() {
    let (address, path) = server("resumed");
    for resume in [false, true] {
        let mut scenario = scenario(address, Tls { insecure: true, resume, ..Tls::default() });
        scenario.transport.protocol = load::scenario::Protocol::Http1 { keep_alive: false, pipeline: 1 };
        let outcome = run(&scenario);
        let handshakes = outcome.handshakes.expect("it was encrypted");
        assert_eq!((outcome.ok, handshakes.complete()), (20, 20), "{:?}", outcome.errors);
        // The first connections of the two users have no session.
        let expected = if resume { (1..=2, 18..=19) } else { (20..=20, 0..=0) };
        assert!(expected.0.contains(&handshakes.full), "{} full", handshakes.full);
        assert!(expected.1.contains(&handshakes.resumed), "{} resumed", handshakes.resumed);
        assert!(handshakes.took.len() == 20 && handshakes.counted >= 18);
    }
    std::fs::remove_file(path).expect("the file");
}

#[test]
fn handshakes_that_fail_are_counted_with_their_reason() {
    let (good, path) = server("good");
    let turn = std::sync::atomic::AtomicUsize::new(0);
    // Every other connection does not use TLS. The first one does, otherwise the run would not begin.
    let address = serve(move |mut socket| {
        if turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(2) {
            let mut far = std::net::TcpStream::connect(good).expect("the server");
            let (mut from, mut to) =
                (socket.try_clone().expect("a socket"), far.try_clone().expect("a socket"));
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            let _ = std::io::copy(&mut far, &mut socket);
        } else {
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            let _ = socket.read(&mut [0; 4096]);
        }
    });
    let mut scenario = scenario(address, Tls { insecure: true, ..Tls::default() });
    scenario.traffic = closed(address, 1, 6).traffic;
    scenario.transport.protocol = load::scenario::Protocol::Http1 { keep_alive: false, pipeline: 1 };
    let outcome = run(&scenario);
    let handshakes = outcome.handshakes.expect("it was encrypted");
    assert_eq!((handshakes.complete(), handshakes.failures()), (10, 10), "{:?}", outcome.errors);
    assert_eq!(outcome.errors.connect, 10);
    let reason = handshakes.failed.keys().next().expect("a reason");
    assert!(reason.contains("this port speaks http") && !reason.contains("TLS with"), "{reason}");
    std::fs::remove_file(path).expect("the file");
}

#[test]
fn a_port_without_tls_is_named_as_one() {
    for (answer, said, other) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"[..],
            "this port speaks http; use http://",
            "InvalidContentType",
        ),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the answer is not TLS", "http;"),
        // It waits for the end of a request.
        (b"", "the port accepts connections, but the handshake was not complete in time", "no connection"),
    ] {
        let address = crate::support::serve(move |mut stream| {
            let _ = std::io::Read::read(&mut stream, &mut [0; 1024]);
            let _ = std::io::Write::write_all(&mut stream, answer);
            if answer.is_empty() {
                let _ = std::io::Read::read(&mut stream, &mut [0; 4096]);
            }
        });
        let tls = Tls { insecure: true, ..Tls::default() };
        let mut scenario = scenario(address, tls);
        scenario.timeouts.connect = std::time::Duration::from_millis(300);
        let error = load::run(&scenario, &mut |_| Flow::Continue).expect_err("there is no TLS");
        assert!(error.contains(said) && !error.contains(other), "{error}");
    }
}
