//! Tests HTTP/3 clients that make the server work or hold memory for nothing: their connection ends, and
//! others are served meanwhile.

use crate::support;

use quic::quinn::{Connection, ConnectionError, VarInt};
use settings::Limits;
use std::time::Duration;
use support::three::{QuicServer, exchange, get, request, start};
use tokio::time::timeout;

/// H3_EXCESSIVE_LOAD.
const LOAD: u64 = 0x107;
/// GET https://x/
const GET: &[u8] = &[1, 8, 0, 0, 0xd1, 0xd7, 0xc1, 0x50, 1, b'x'];
/// POST https://x/
const POST: &[u8] = &[1, 8, 0, 0, 0xd4, 0xd7, 0xc1, 0x50, 1, b'x'];

/// Encodes a GET of a path with a field of `more` bytes.
fn head(path: &str, more: usize) -> Vec<u8> {
    let mut section = vec![0, 0, 0xd1, 0xd7, 0x50, 1, b'x', 0x51, path.len() as u8];
    section.extend_from_slice(path.as_bytes());
    section.extend_from_slice(b"\x23x-a");
    fieldcode::encode_integer(&mut section, 0, 7, more as u64);
    section.extend(std::iter::repeat_n(b'v', more));
    let mut text = Vec::new();
    http3::encode_frame(&mut text, 1, &section);
    text
}

/// Repeats `step` until the client's connection is closed, while another client gets its responses. Returns
/// the number of steps.
fn flood(quic: &QuicServer, most: usize, mut step: impl AsyncFnMut(&Connection, usize)) -> usize {
    quic.with(async |quic| {
        let (mut others, _other, _endpoint) = quic.requests().await;
        let (_own, connection, mut control) = quic.raw().await;
        let mut count = 0;
        while connection.close_reason().is_none() {
            assert!(count <= most, "it is not ended");
            let _ = timeout(Duration::from_secs(5), step(&connection, count)).await;
            if count % 16 == 0 {
                assert_eq!(get(&mut others, "/other").await.status, 200);
            }
            count += 1;
        }
        let why = connection.closed().await;
        assert!(
            matches!(&why, ConnectionError::ApplicationClosed(close) if u64::from(close.error_code) == LOAD),
            "{why:?}"
        );
        assert_eq!(get(&mut others, "/other").await.status, 200);
        let _ = control.finish();
        count
    })
}

#[test]
fn requests_that_are_taken_back() {
    let quic = start(Limits::default());
    let cancel = async |connection: &Connection, _: usize| {
        let Ok((mut send, mut receive)) = connection.open_bi().await else { return };
        let _ = send.write_all(&head("/gone", 1)).await;
        let _ = send.reset(VarInt::from_u32(0x10c));
        let _ = receive.stop(VarInt::from_u32(0x10c));
    };
    let count = flood(&quic, 2000, cancel);
    assert!((200..1500).contains(&count), "{count}");
    // After the handler has noticed the departure.
    let leave = async |connection: &Connection, _: usize| {
        let Ok((mut send, mut receive)) = connection.open_bi().await else { return };
        let _ = send.write_all(&head("/gone", 1)).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
        let _ = receive.stop(VarInt::from_u32(0x10c));
        tokio::time::sleep(Duration::from_millis(2)).await;
        let _ = send.reset(VarInt::from_u32(0x10c));
    };
    assert!((200..1500).contains(&flood(&quic, 2000, leave)));
    // Without a complete head.
    let cancel = async |connection: &Connection, _: usize| {
        let Ok((mut send, _receive)) = connection.open_bi().await else { return };
        let _ = send.write_all(&GET[..4]).await;
        tokio::task::yield_now().await;
        let _ = send.reset(VarInt::from_u32(0x10c));
    };
    assert!(flood(&quic, 2000, cancel) >= 200);
}

#[test]
fn responses_make_up_for_what_is_taken_back() {
    let quic = start(Limits::default());
    quic.with(async |quic| {
        let (_own, connection, _control) = quic.raw().await;
        for _ in 0..600 {
            let (mut send, mut receive) = connection.open_bi().await.unwrap();
            send.write_all(GET).await.unwrap();
            send.finish().unwrap();
            assert!(!receive.read_to_end(10_000).await.unwrap().is_empty());
            let (mut send, mut receive) = connection.open_bi().await.unwrap();
            let _ = (send.write_all(GET).await, send.reset(0x10cu32.into()), receive.stop(0x10cu32.into()));
        }
        assert!(connection.close_reason().is_none(), "{:?}", connection.close_reason());
    });
}

#[test]
fn unidirectional_streams_of_unknown_types() {
    let quic = start(Limits::default());
    let unknown = async |connection: &Connection, count: usize| {
        let Ok(mut stream) = connection.open_uni().await else { return };
        // Some streams end before their type is complete.
        let _ =
            stream.write_all(if count.is_multiple_of(4) { &[0x40] } else { &[0x40, 0x41, 1, 2, 3] }).await;
        let _ = stream.reset(VarInt::from_u32(0x10c));
    };
    assert!(flood(&quic, 1000, unknown) < 200);
}

#[test]
fn requests_with_mistakes() {
    let quic = start(Limits::default());
    let broken = async |connection: &Connection, _: usize| {
        let Ok((mut send, mut receive)) = connection.open_bi().await else { return };
        let _ = send.write_all(&[1, 3, 0, 0, 0xd1]).await;
        let _ = send.finish();
        let _ = receive.read_to_end(1000).await;
    };
    assert!(flood(&quic, 1000, broken) >= 100);
}

#[test]
fn data_in_crumbs() {
    let quic = start(Limits::default());
    let crumbs = async |connection: &Connection, _: usize| {
        let Ok((mut send, _receive)) = connection.open_bi().await else { return };
        let _ = send.write_all(POST).await;
        let _ = send.write_all(&[0, 1, b'x'].repeat(30_000)).await;
        let _ = send.finish();
    };
    flood(&quic, 100, crumbs);
}

#[test]
fn updates_of_priorities() {
    let quic = start(Limits::default());
    quic.with(async |quic| {
        let (_own, connection, mut control) = quic.raw().await;
        let mut updates = Vec::new();
        (0..1000).for_each(|_| http3::encode_frame(&mut updates, 0xf_0700, b"\x00u=1"));
        let _ = control.write_all(&updates).await;
        let why = connection.closed().await;
        assert!(
            matches!(&why, ConnectionError::ApplicationClosed(close) if u64::from(close.error_code) == LOAD),
            "{why:?}"
        );
    });
}

#[test]
fn heads_that_do_not_end() {
    let quic = start(Limits::default());
    let mut open = Vec::new();
    let endless = async |connection: &Connection, _: usize| {
        let Ok((mut send, receive)) = connection.open_bi().await else { return };
        let text = head("/", 60_000);
        let _ = send.write_all(&text[..50_000]).await;
        open.push((send, receive));
    };
    // Sixteen times max_header_bytes.
    assert!((18..60).contains(&flood(&quic, 200, endless)));
}

#[test]
fn heads_of_requests_in_progress_are_bounded_together() {
    let quic = start(Limits::default());
    quic.with(async |quic| {
        let (_own, connection, _control) = quic.raw().await;
        let mut open = Vec::new();
        for _ in 0..30 {
            let (mut send, receive) = connection.open_bi().await.unwrap();
            send.write_all(&head("/gone", 60_000)).await.unwrap();
            send.finish().unwrap();
            open.push((send, receive));
        }
        let mut refused = 0;
        for (_, receive) in &mut open {
            if let Ok(Err(why)) = timeout(Duration::from_millis(200), receive.read_chunk(10, true)).await {
                assert!(
                    matches!(&why, quic::quinn::ReadError::Reset(code) if u64::from(*code) == 0x10b),
                    "{why:?}"
                );
                refused += 1;
            }
        }
        assert!((10..20).contains(&refused), "{refused}");
        assert!(connection.close_reason().is_none());
    });
}

/// Unread data is held by the transport: little, until a handler reads a body.
#[test]
fn windows_are_small_until_a_body_is_read() {
    let quic = start(Limits::default());
    quic.with(async |quic| {
        let (_own, connection, _control) = quic.raw().await;
        let (mut send, _receive) = connection.open_bi().await.unwrap();
        let mut text = head("/gone", 1);
        http3::encode_frame(&mut text, 0, &vec![b'x'; 4 << 20]);
        let mut sent = 0;
        while let Ok(Ok(n)) = timeout(Duration::from_millis(500), send.write(&text[sent..])).await {
            sent += n;
        }
        assert!((100_000..200_000).contains(&sent), "{sent}");
        let (mut requests, _connection, _endpoint) = quic.requests().await;
        let large = vec![b'u'; 900_000];
        for _ in 0..3 {
            assert_eq!(
                exchange(&mut requests, request("POST", "/echo"), &large).await.body.len(),
                large.len()
            );
        }
    });
}
