//! TLS: which certificates are trusted.

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

/// A server with a self-signed certificate, and the file of that certificate.
fn server(name: &str) -> (SocketAddr, PathBuf) {
    server_until(name, 4000)
}

/// The same with a certificate that expires at the start of `year`.
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
        while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {
            if stream.write_all(OK.as_bytes()).is_err() {
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
    for tls in [Tls { insecure: true, ca: None }, Tls { insecure: false, ca: Some(path.clone()) }] {
        let outcome = run(&scenario(address, tls));
        assert_eq!((outcome.ok, outcome.connections), (20, 2), "{:?}", outcome.errors);
        assert!(outcome.server.tls.expect("it was encrypted").starts_with("TLSv1.3 TLS13_"));
    }
    std::fs::remove_file(path).expect("the file");
}

#[test]
fn not_trusted_otherwise() {
    let (address, path) = server("refused");
    let (_, other) = server("other");
    let error = load::run(&scenario(address, Tls { insecure: false, ca: Some(other.clone()) }), &mut |_| {
        Flow::Continue
    });
    assert!(error.expect_err("it is another certificate").contains("certificate"));
    let mut wrong_name = scenario(address, Tls { insecure: false, ca: Some(path.clone()) });
    "127.0.0.1".clone_into(&mut wrong_name.requests[0].origin.host);
    let error = load::run(&wrong_name, &mut |_| Flow::Continue).expect_err("it is for another name");
    assert!(error.contains("certificate"), "{error}");
    for path in [path, other] {
        std::fs::write(&path, "nothing").expect("the file");
        let error =
            load::run(&scenario(address, Tls { insecure: false, ca: Some(path.clone()) }), &mut |_| {
                Flow::Continue
            });
        assert!(error.expect_err("no certificate").contains("PEM"));
        std::fs::remove_file(path).expect("the file");
    }
}

#[test]
fn an_expired_certificate_is_not_trusted_although_named() {
    let (address, path) = server_until("expired", 2002);
    let named = Tls { insecure: false, ca: Some(path.clone()) };
    let error = load::run(&scenario(address, named), &mut |_| Flow::Continue).expect_err("it has expired");
    assert!(error.contains("certificate expired") && !error.contains("name the file"), "{error}");
    assert_eq!(run(&scenario(address, Tls { insecure: true, ca: None })).ok, 20);
    std::fs::remove_file(path).expect("the file");
}
