//! Tests pairs of TLS connections over real sockets: the state after reads and peeks.

use super::TlsStream;
use crate::Transport;
use rcgen::generate_simple_self_signed;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Returns a client and a server after their handshake.
async fn pair() -> (TlsStream, TlsStream) {
    let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (client, server) = tokio::join!(
        async {
            TlsStream::connect(Arc::new(client), "localhost", TcpStream::connect(address).await.unwrap())
                .await
        },
        async { TlsStream::accept(Arc::new(server), listener.accept().await.unwrap().0).await },
    );
    (client.unwrap(), server.unwrap())
}

async fn send(from: &TlsStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        poll_fn(|cx| from.poll_writable(cx)).await;
        match from.try_write(&[IoSlice::new(bytes)], false) {
            Ok(n) => bytes = &bytes[n..],
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    poll_fn(|cx| from.poll_flush(cx)).await.unwrap();
}

/// Reads until `buffer` is full.
async fn fill(to: &TlsStream, buffer: &mut [u8]) {
    let mut filled = 0;
    while filled < buffer.len() {
        poll_fn(|cx| to.poll_readable(cx)).await;
        match to.try_read(&mut buffer[filled..]) {
            Ok(n) => filled += n,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}

fn is_readable(tls: &TlsStream) -> bool {
    tls.poll_readable(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Waits and returns the result of a peek. Sleeps between attempts, so that a readiness that never ends does
/// not hang the test.
async fn look(tls: &TlsStream) -> bool {
    for _ in 0..200 {
        poll_fn(|cx| tls.poll_readable(cx)).await;
        match tls.try_peek() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            other => return other.unwrap(),
        }
    }
    panic!("neither bytes nor the end");
}

/// Waits until `tls` is empty: its peer's tickets arrive after the handshake without plain text.
async fn settle(tls: &TlsStream) {
    for _ in 0..200 {
        match tls.try_peek() {
            Ok(bytes) => panic!("bytes {bytes} where none were sent"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        if !is_readable(tls) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("a connection without bytes stays readable: whoever waits for it spins");
}

/// A read that has filled its buffer leaves the session marked as possibly not empty. A peek clears the mark.
#[tokio::test]
async fn a_look_at_an_empty_session_ends_its_readiness() {
    let (client, server) = pair().await;
    for size in [1, 100, 16 << 10, 200_000] {
        send(&client, &vec![b'x'; size]).await;
        let mut buffer = vec![0; size];
        fill(&server, &mut buffer).await;
        settle(&server).await;
    }
}

/// A peek also clears the mark right after the handshake.
#[tokio::test]
async fn a_look_right_after_the_handshake_ends_its_readiness() {
    let (client, server) = pair().await;
    settle(&server).await;
    settle(&client).await;
}

/// Bytes that a peek has found are not announced again, but can be read.
#[tokio::test]
async fn bytes_that_were_seen_can_be_read_in_pieces() {
    let (client, server) = pair().await;
    let sent: Vec<u8> = (0..150_000u32).map(|i| i.to_le_bytes()[0]).collect();
    send(&client, &sent).await;
    assert!(look(&server).await, "the end where bytes were sent");
    let (mut received, mut piece) = (Vec::new(), [0; 1000]);
    while received.len() < sent.len() {
        match server.read_anyway(&mut piece) {
            Ok(n) => received.extend_from_slice(&piece[..n]),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
    assert_eq!(received, sent);
    settle(&server).await;
}

/// A peek finds the end repeatedly, after all bytes have been read.
#[tokio::test]
async fn the_end_is_seen_behind_what_was_read() {
    let (client, server) = pair().await;
    send(&client, b"last").await;
    client.end_writing();
    let mut buffer = [0; 4];
    fill(&server, &mut buffer).await;
    for _ in 0..2 {
        assert!(!look(&server).await, "bytes after the last");
    }
    assert!(server.has_ended());
}
