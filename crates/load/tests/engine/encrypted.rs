//! TLS: whose certificates are believed.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use load::plan::Plan;
use load::{Verdict, plan::Tls};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, Stream};

use crate::support::{OK, closed, run, serve};

/// A server with a certificate that signs itself, and the file of that certificate.
fn server(name: &str) -> (SocketAddr, PathBuf) {
    server_until(name, 4000)
}

/// One whose certificate ends with the year before.
fn server_until(name: &str, year: i32) -> (SocketAddr, PathBuf) {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    params.not_after = rcgen::date_time_ymd(year, 1, 1);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    let path = std::env::temp_dir().join(format!("load-test-{}-{name}.pem", std::process::id()));
    std::fs::write(&path, certificate.pem()).expect("a file");
    let secret = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
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

fn plan(address: SocketAddr, tls: Tls) -> Plan {
    let mut plan = closed(address, 2, 20);
    plan.requests[0].origin.tls = true;
    "localhost".clone_into(&mut plan.requests[0].origin.host);
    plan.transport.to = Some(load::plan::Place::Tcp(address));
    plan.transport.tls = tls;
    plan
}

#[test]
fn believed_when_named_and_when_all_are() {
    let (address, path) = server("believed");
    for tls in [Tls { insecure: true, ca: None }, Tls { insecure: false, ca: Some(path.clone()) }] {
        let outcome = run(&plan(address, tls));
        assert_eq!((outcome.ok, outcome.connections), (20, 2), "{:?}", outcome.errors);
        assert!(outcome.server.tls.expect("it was encrypted").starts_with("TLSv1.3 TLS13_"));
    }
    std::fs::remove_file(path).expect("the file");
}

#[test]
fn not_believed_otherwise() {
    let (address, path) = server("refused");
    let (_, other) = server("other");
    let error =
        load::run(&plan(address, Tls { insecure: false, ca: Some(other.clone()) }), &mut |_| Verdict::Go);
    assert!(error.expect_err("it is another one").contains("certificate"));
    let mut wrong_name = plan(address, Tls { insecure: false, ca: Some(path.clone()) });
    "127.0.0.1".clone_into(&mut wrong_name.requests[0].origin.host);
    let error = load::run(&wrong_name, &mut |_| Verdict::Go).expect_err("it is for another name");
    assert!(error.contains("certificate"), "{error}");
    for path in [path, other] {
        std::fs::write(&path, "nothing").expect("the file");
        let error =
            load::run(&plan(address, Tls { insecure: false, ca: Some(path.clone()) }), &mut |_| Verdict::Go);
        assert!(error.expect_err("no certificate").contains("PEM"));
        std::fs::remove_file(path).expect("the file");
    }
}

#[test]
fn out_of_date_is_not_believed_though_named() {
    let (address, path) = server_until("expired", 2002);
    let named = Tls { insecure: false, ca: Some(path.clone()) };
    let error = load::run(&plan(address, named), &mut |_| Verdict::Go).expect_err("its time is over");
    assert!(error.contains("certificate expired") && !error.contains("name the file"), "{error}");
    assert_eq!(run(&plan(address, Tls { insecure: true, ca: None })).ok, 20);
    std::fs::remove_file(path).expect("the file");
}
