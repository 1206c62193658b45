//! Tests clients that change their address, and threads that share a port, over real sockets.
#![allow(clippy::unwrap_used, reason = "all of this is test code")]

use quic::quinn::{self, Endpoint};
use quic::{Keys, QuicBounds, Steering, endpoint, server_config};
use rustls::pki_types::PrivateKeyDer;
use socket2::{Domain, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const THREADS: u8 = 2;

fn socket(address: SocketAddr) -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM.nonblocking(), None).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket.into()
}

fn bounds() -> QuicBounds {
    QuicBounds { streams: 100, stream_window: 1 << 20, send_window: 1 << 20, idle: Duration::from_secs(30) }
}

fn crypto() -> (rustls::ServerConfig, rustls::ClientConfig) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = || Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut server = rustls::ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let mut client = rustls::ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    server.alpn_protocols = vec![b"echo".to_vec()];
    client.alpn_protocols = vec![b"echo".to_vec()];
    (server, client)
}

/// Echoes the bytes of the streams of one connection after another.
async fn echo(endpoint: Endpoint, accepted: Arc<AtomicUsize>) {
    while let Some(incoming) = endpoint.accept().await {
        let Ok(connection) = incoming.await else { continue };
        accepted.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(async move {
            while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                let Ok(text) = receive.read_to_end(1000).await else { return };
                if send.write_all(&text).await.is_err() || send.finish().is_err() {
                    return;
                }
            }
        });
    }
}

/// Starts threads that echo on one port. Returns their counts of accepted connections.
fn serve(config: quinn::ServerConfig, keys: &Keys) -> (SocketAddr, Vec<Arc<AtomicUsize>>) {
    let first = socket((Ipv4Addr::LOCALHOST, 0).into());
    let address = first.local_addr().unwrap();
    let mut sockets = vec![first];
    sockets.extend((1..THREADS).map(|_| socket(address)));
    let counts = sockets.into_iter().zip(Steering::mailboxes(THREADS)).map(|(socket, mailbox)| {
        let (config, keys, accepted) = (config.clone(), keys.clone(), Arc::new(AtomicUsize::new(0)));
        let count = accepted.clone();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime
                .block_on(async { echo(endpoint(socket, mailbox, config, &keys).unwrap(), accepted).await });
        });
        count
    });
    (address, counts.collect())
}

#[test]
fn connections_survive_changes_of_their_address() {
    let (server, client) = crypto();
    let keys = Keys::random().unwrap();
    let config = server_config(Arc::new(server), &bounds(), &keys).unwrap();
    let (address, counts) = serve(config, &keys);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(client).unwrap();
        let config = quinn::ClientConfig::new(Arc::new(crypto));
        for round in 0..6 {
            let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
            let connection =
                endpoint.connect_with(config.clone(), address, "localhost").unwrap().await.unwrap();
            // The kernel picks a thread's socket for each new port. With 8 changes, both are reached.
            for change in 0..8 {
                let text = format!("{round} {change}");
                let (mut send, mut receive) = connection.open_bi().await.unwrap();
                send.write_all(text.as_bytes()).await.unwrap();
                send.finish().unwrap();
                assert_eq!(receive.read_to_end(1000).await.unwrap(), text.as_bytes());
                endpoint.rebind(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()).unwrap();
            }
        }
    });
    assert_eq!(counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<usize>(), 6);
}

#[test]
fn a_configuration_without_the_suite_of_first_packets_is_refused() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() != rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    assert!(server_config(Arc::new(config), &bounds(), &Keys::random().unwrap()).is_err());
}
