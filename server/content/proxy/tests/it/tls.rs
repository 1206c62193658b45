//! Tests origins behind TLS.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use crate::support;

use proxy::{ProxyConfig, Upstreams};
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use support::{Front, config};

/// A server with its own certificate for `localhost`, and the file that makes clients trust it.
struct Secure {
    address: SocketAddr,
    ca: PathBuf,
}

impl Secure {
    fn start(name: &str) -> Secure {
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
        let ca = std::env::temp_dir().join(format!("firebrick-proxy-{name}-{}.pem", std::process::id()));
        std::fs::write(&ca, certificate.pem()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let (listener, config) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(config));
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let session = ServerConnection::new(config.clone()).unwrap();
                let stream = StreamOwned::new(session, socket.unwrap());
                std::thread::spawn(move || serve(stream));
            }
        });
        Secure { address, ca }
    }

    fn origin(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }
}

type Stream = StreamOwned<ServerConnection, std::net::TcpStream>;

fn head(stream: &mut Stream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    Some(String::from_utf8(head).unwrap())
}

fn serve(mut stream: Stream) {
    while let Some(head) = head(&mut stream) {
        let path = head.split(' ').nth(1).unwrap().to_owned();
        match &*path {
            "/big" => {
                let length = 5 << 20;
                let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                let _ =
                    stream.write_all(text.as_bytes()).and_then(|()| stream.write_all(&vec![b'b'; length]));
            }
            "/echo" => {
                let length: usize =
                    head.split_once("Content-Length: ").unwrap().1.lines().next().unwrap().parse().unwrap();
                let mut body = vec![0; length];
                stream.read_exact(&mut body).unwrap();
                let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.write_all(&body));
            }
            "/ws" => {
                let text = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\nfirst ";
                stream.write_all(text.as_bytes()).unwrap();
                let mut all = Vec::new();
                let _ = stream.read_to_end(&mut all);
                stream.write_all(&all.to_ascii_uppercase()).unwrap();
                stream.conn.send_close_notify();
                let _ = stream.flush();
                return;
            }
            "/trickle" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
                // Makes the reader expect little; then one record has more than that, and nothing follows it.
                for _ in 0..6 {
                    std::thread::sleep(std::time::Duration::from_millis(30));
                    stream.write_all(b"1\r\nt\r\n").unwrap();
                }
                std::thread::sleep(std::time::Duration::from_millis(30));
                let last = format!("2ee0\r\n{}\r\n0\r\n\r\n", "T".repeat(0x2ee0));
                stream.write_all(last.as_bytes()).unwrap();
            }
            "/close" | "/cut" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nuntil close").unwrap();
                if path == "/close" {
                    stream.conn.send_close_notify();
                    let _ = stream.flush();
                }
                return;
            }
            _ => {
                let protocol = String::from_utf8_lossy(stream.conn.alpn_protocol().unwrap_or_default());
                let name = stream.conn.server_name().unwrap_or_default();
                let text = format!("{protocol} {name}");
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
                stream.write_all(answer.as_bytes()).unwrap();
            }
        }
    }
}

#[test]
fn encrypted_origins() {
    let secure = Secure::start("whole");
    let front = Front::start(ProxyConfig { tls_ca: Some(secure.ca.clone()), ..config(&[secure.origin()]) });
    let mut client = front.connect();
    assert_eq!(client.get("/").text(), "http/1.1 localhost");
    let big = client.get("/big");
    assert!(big.whole && big.body.len() == 5 << 20 && big.body.iter().all(|&b| b == b'b'));
    let body = "e".repeat(3 << 20);
    let post = format!("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    assert!(client.send(post).read().text() == body);
    assert_eq!(front.upstreams.counts()[0].requests, 3);
    let trickle = client.get("/trickle");
    assert!(trickle.whole && trickle.body.len() == 6 + 0x2ee0, "{} {:?}", trickle.body.len(), front.log);
    let closed = client.get("/close");
    assert!(closed.whole && closed.text() == "until close");
    let cut = client.get("/cut");
    assert!(!cut.whole && cut.text() == "until close", "an end without a close_notify is none: {cut:?}");
    std::fs::remove_file(&secure.ca).unwrap();
}

#[test]
fn encrypted_tunnels() {
    let secure = Secure::start("tunnel");
    let front = Front::start(ProxyConfig { tls_verify: false, ..config(&[secure.origin()]) });
    let mut client = front.connect();
    client.send("GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.read_head().status, 101);
    let sent = "m".repeat(1 << 20);
    let (mut writer, sending) = (client.stream.try_clone().unwrap(), sent.clone());
    let thread = std::thread::spawn(move || {
        writer.write_all(sending.as_bytes()).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    let answer = client.rest();
    assert!(answer == format!("first {}", sent.to_ascii_uppercase()).into_bytes(), "{}", answer.len());
    thread.join().unwrap();
    std::fs::remove_file(&secure.ca).unwrap();
}

#[test]
fn certificates_are_verified() {
    let (secure, other) = (Secure::start("verified"), Secure::start("other"));
    let front = Front::start(ProxyConfig { tls_ca: Some(other.ca.clone()), ..config(&[secure.origin()]) });
    assert_eq!(front.connect().get("/").status, 502);
    assert!(front.has_noted("certificate"), "{:?}", front.log);
    let by_address = format!("https://{}", secure.address);
    let front = Front::start(ProxyConfig {
        tls_ca: Some(secure.ca.clone()),
        ..config(std::slice::from_ref(&by_address))
    });
    assert_eq!(front.connect().get("/").status, 502, "it is not that name's certificate");
    let front = Front::start(ProxyConfig { tls_verify: false, ..config(&[by_address]) });
    assert_eq!(front.connect().get("/").status, 200);
    let plain = support::Backend::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let front =
        Front::start(ProxyConfig { tls_verify: false, ..config(&[format!("https://{}", plain.address)]) });
    let status = front.connect().get("/").status;
    assert!(matches!(status, 502 | 504), "a server that does not speak TLS: {status}");
    let wrong = ProxyConfig { tls_ca: Some(std::env::current_exe().unwrap()), ..config(&[secure.origin()]) };
    assert!(Upstreams::new(wrong).err().unwrap().contains("PEM file"));
    std::fs::remove_file(&secure.ca).unwrap();
    std::fs::remove_file(&other.ca).unwrap();
}
