//! Tests valid and invalid headers.

use super::crc32c::crc32c;
use super::*;
use proptest::prelude::*;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

fn complete(bytes: &[u8]) -> ProxyHeader {
    match parse(bytes, Accepted::Any) {
        Ok(ParsedHeader::Complete(header, length)) => {
            assert_eq!(length, bytes.len());
            header
        }
        other => panic!("{other:?}"),
    }
}

fn inet(remote: &str, local: &str) -> Ends {
    Ends::Inet { remote: remote.parse().unwrap(), local: local.parse().unwrap() }
}

fn why(bytes: &[u8]) -> &'static str {
    match parse(bytes, Accepted::Any) {
        Err(MalformedHeader::Header(why)) => why,
        other => panic!("{:?}: {other:?}", String::from_utf8_lossy(bytes)),
    }
}

/// Returns a header of version 2.
fn two(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    bytes.extend([command, family]);
    bytes.extend(u16::try_from(body.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn value(kind: u8, value: &[u8]) -> Vec<u8> {
    [&[kind], &u16::try_from(value.len()).unwrap().to_be_bytes()[..], value].concat()
}

const FOUR: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 7, 0xdc, 0x04, 0x01, 0xbb];

#[test]
fn version_one() {
    let four = complete(b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n");
    assert_eq!(four, ProxyHeader { ends: inet("192.0.2.1:56324", "198.51.100.7:443"), tls: None });
    let six = complete(b"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n");
    assert_eq!(six.ends, inet("[2001:db8::1]:1", "[2001:db8::2]:65535"));
    for unknown in ["PROXY UNKNOWN\r\n", "PROXY UNKNOWN ffff:f...f:ffff ffff:f...f:ffff 65535 65535\r\n"] {
        assert_eq!(complete(unknown.as_bytes()).ends, Ends::Own);
    }
    for (line, expected) in [
        ("PROXY TCP5 1.1.1.1 1.1.1.1 1 1\r\n", "TCP4"),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 1\r\n", "two ports"),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 1 1 1\r\n", "more than"),
        ("PROXY TCP4  1.1.1.1 1.1.1.1 1 1\r\n", "more than"),
        ("PROXY TCP4 ::1 ::1 1 1\r\n", "family"),
        ("PROXY TCP6 1.1.1.1 1.1.1.1 1 1\r\n", "family"),
        ("PROXY TCP4 1.1.1.01 1.1.1.1 1 1\r\n", "family"),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 01 1\r\n", "ports"),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 +1 1\r\n", "ports"),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 65536 1\r\n", "ports"),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 1 1\n", "CR LF"),
        ("PROXY TCP4 1.1.1.1 1.1.1.1 1 1\r\r\n", "CR LF"),
        ("PROXY \r\n", "TCP4"),
    ] {
        assert!(why(line.as_bytes()).contains(expected), "{line}");
    }
    assert!(why(&[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 93]].concat()).contains("107"));
    assert!(why(&[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 92], b"\r\n"].concat()).contains("CR LF"));
    complete(&[b"PROXY UNKNOWN ".as_slice(), &[b'x'; 91], b"\r\n"].concat());
}

#[test]
fn version_two() {
    assert_eq!(complete(&two(0x21, 0x11, &FOUR)).ends, inet("192.0.2.1:56324", "198.51.100.7:443"));
    let mut six = [0; 36];
    (six[0], six[15], six[31], six[33], six[35]) = (0x20, 1, 2, 80, 81);
    assert_eq!(complete(&two(0x21, 0x21, &six)).ends, inet("[2000::1]:80", "[::2]:81"));
    assert_eq!(complete(&two(0x21, 0x31, &[0; 216])).ends, Ends::Unix);
    assert_eq!(complete(&two(0x21, 0x00, &[1; 7])).ends, Ends::Own);
    // The content of LOCAL is skipped.
    for family in [0x00, 0x11, 0xff] {
        assert_eq!(complete(&two(0x20, family, &[0xff; 9])).ends, Ends::Own);
    }
    for (bytes, expected) in [
        (two(0x11, 0x11, &FOUR), "version"),
        (two(0x22, 0x11, &FOUR), "command"),
        (two(0x21, 0x12, &FOUR), "datagrams"),
        (two(0x21, 0x41, &FOUR), "family"),
        (two(0x21, 0x11, &FOUR[..11]), "too short"),
        (two(0x21, 0x21, &[0; 35]), "too short"),
        (two(0x21, 0x31, &[0; 215]), "too short"),
        (two(0x21, 0x11, &[0; 4097]), "4096"),
        (two(0x21, 0x11, &[&FOUR[..], &[4, 0]].concat()), "value"),
        (two(0x21, 0x11, &[&FOUR[..], &[4, 0, 2, 1]].concat()), "value"),
    ] {
        assert!(why(&bytes).contains(expected), "{expected}: {}", why(&bytes));
    }
}

#[test]
fn values_of_version_two() {
    let with = |values: &[Vec<u8>]| two(0x21, 0x11, &[&FOUR[..], &values.concat()].concat());
    let many: Vec<_> = (0..3).map(|_| value(0xe0, &[7; 1000])).collect();
    assert_eq!(complete(&with(&many)).tls, None);
    let version = value(0x21, b"TLSv1.3");
    let ssl = |flags: u8| value(0x20, &[&[flags, 0, 0, 0, 0], &version[..]].concat());
    assert_eq!(complete(&with(&[value(4, &[0; 5]), ssl(0x07)])).tls, Some(true));
    assert_eq!(complete(&with(&[ssl(0x00)])).tls, Some(false));
    assert!(why(&with(&[value(0x20, &[1, 0, 0, 0])])).contains("TLS"));
    assert!(why(&with(&[value(0x03, &[1, 0, 0])])).contains("checksum"));
    let empty = with(&[value(0x02, b"a.test"), value(0x03, &[0; 4]), value(0x04, &[])]);
    let sum = crc32c(&[&empty]).to_be_bytes();
    let right = with(&[value(0x02, b"a.test"), value(0x03, &sum), value(0x04, &[])]);
    complete(&right);
    let mut wrong = right;
    wrong[17] ^= 1;
    assert!(why(&wrong).contains("checksum is wrong"));
}

#[test]
fn only_accepted_versions() {
    let (one, two) = (b"PROXY UNKNOWN\r\n".to_vec(), two(0x20, 0, &[]));
    for (bytes, accepted, fits) in [
        (&one, Accepted::V1, true),
        (&two, Accepted::V1, false),
        (&one, Accepted::V2, false),
        (&two, Accepted::V2, true),
        (&one, Accepted::Any, true),
        (&two, Accepted::Any, true),
    ] {
        let parsed = parse(bytes, accepted);
        assert_eq!(matches!(parsed, Ok(ParsedHeader::Complete(..))), fits, "{parsed:?}");
    }
    for other in ["GET / HTTP/1.1\r\n", "PROXYTCP4", "\r\n\r\nGET", "\u{16}\u{3}\u{1}"] {
        let error = parse(other.as_bytes(), Accepted::Any).unwrap_err();
        assert!(error.to_string().contains("does not begin with a PROXY header"), "{error}");
    }
}

fn headers() -> impl Strategy<Value = Vec<u8>> {
    let one = (any::<SocketAddr>(), any::<SocketAddr>()).prop_map(|(remote, local)| match (remote, local) {
        (SocketAddr::V4(a), SocketAddr::V4(b)) => {
            format!("PROXY TCP4 {} {} {} {}\r\n", a.ip(), b.ip(), a.port(), b.port()).into_bytes()
        }
        (SocketAddr::V6(a), SocketAddr::V6(b)) => {
            format!("PROXY TCP6 {} {} {} {}\r\n", a.ip(), b.ip(), a.port(), b.port()).into_bytes()
        }
        _ => b"PROXY UNKNOWN\r\n".to_vec(),
    });
    let values = prop::collection::vec(any::<u8>(), 0..600).prop_map(|bytes| value(0xe1, &bytes));
    let second = values.prop_map(|value| two(0x21, 0x11, &[&FOUR[..], &value].concat()));
    prop_oneof![one, second]
}

proptest! {
    #[test]
    fn headers_end_where_they_end(header in headers(), behind in prop::collection::vec(any::<u8>(), 0..40)) {
        let whole = parse(&header, Accepted::Any);
        let complete = matches!(whole, Ok(ParsedHeader::Complete(_, length)) if length == header.len());
        prop_assert!(complete, "{:?}", whole);
        for end in 0..header.len() {
            prop_assert_eq!(parse(&header[..end], Accepted::Any), Ok(ParsedHeader::Incomplete));
        }
        prop_assert_eq!(parse(&[header, behind].concat(), Accepted::Any), whole);
    }

    #[test]
    fn no_bytes_panic_and_a_verdict_is_final(
        start in prop::sample::select(vec![&b"PROXY TCP4 "[..], b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0", b""]),
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let bytes = [start, &bytes[..]].concat();
        let whole = parse(&bytes, Accepted::Any);
        for end in 0..bytes.len() {
            let part = parse(&bytes[..end], Accepted::Any);
            prop_assert!(part == Ok(ParsedHeader::Incomplete) || part == whole, "{part:?} {whole:?}");
        }
    }
}

fn run<T>(what: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), what).await.unwrap() })
}

#[test]
fn what_follows_stays_in_the_socket() {
    let long = two(0x21, 0x11, &[&FOUR[..], &value(0xe0, &[7; 700])].concat());
    for header in [b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n".to_vec(), two(0x21, 0x11, &FOUR), long]
    {
        for pieces in [1, 7, header.len()] {
            run(async {
                let (mut near, mut far) = UnixStream::pair().unwrap();
                let sent = [&header[..], b"GET / HTTP/1.1\r\n"].concat();
                let send = async {
                    for piece in sent.chunks(sent.len().div_ceil(pieces)) {
                        near.write_all(piece).await.unwrap();
                        tokio::task::yield_now().await;
                    }
                    drop(near);
                };
                let (received, ()) = tokio::join!(receive(&far, Accepted::Any), send);
                assert_eq!(received.unwrap().ends, inet("192.0.2.1:56324", "198.51.100.7:443"));
                let mut rest = Vec::new();
                far.read_to_end(&mut rest).await.unwrap();
                assert_eq!(rest, b"GET / HTTP/1.1\r\n");
            });
        }
    }
}

#[test]
fn connections_that_end_early() {
    for (sent, expected) in [("", "before"), ("PROXY TC", "within"), ("GET /", "does not begin")] {
        let error = run(async {
            let (mut near, far) = UnixStream::pair().unwrap();
            near.write_all(sent.as_bytes()).await.unwrap();
            near.shutdown().await.unwrap();
            receive(&far, Accepted::Any).await.unwrap_err().to_string()
        });
        assert!(error.contains(expected), "{error}");
    }
}
