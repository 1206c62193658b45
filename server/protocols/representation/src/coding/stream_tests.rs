//! Tests encoded streams and responses.

use super::super::whole::decompress;
use super::*;
use handler::Lender;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::task::Waker;

const CODINGS: [Coding; 3] = [Coding::Br, Coding::Zstd, Coding::Gzip];

/// A stream that yields these items in order; `None` is a pause.
struct Script(VecDeque<Option<Result<Chunk, Failure>>>);

impl BodyStream for Script {
    fn poll_chunk(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        match self.0.pop_front() {
            Some(Some(item)) => Poll::Ready(Some(item)),
            Some(None) => Poll::Pending,
            None => Poll::Ready(None),
        }
    }
}

#[derive(Debug)]
struct Offer;

impl Lender for Offer {
    fn offered(&self) -> u64 {
        5
    }

    fn poll_lend(&mut self, _: &mut Context<'_>, _: Option<BorrowedFd<'_>>) -> Poll<Result<u64, Failure>> {
        panic!("an offer is declined by dropping it")
    }
}

fn broken() -> Failure {
    Failure::app(502, "the inner stream broke off")
}

fn bytes(text: &[u8]) -> Option<Result<Chunk, Failure>> {
    Some(Ok(Chunk::Bytes(Bytes::copy_from_slice(text))))
}

fn encoded(coding: Coding, script: Vec<Option<Result<Chunk, Failure>>>) -> EncodedStream {
    let permit = EncoderPermit::take(coding, &connection()).unwrap();
    EncodedStream::new(Box::new(Script(script.into())), coding, &Encoding::plain(&[]), permit).ok().unwrap()
}

fn connection() -> Rc<Peer> {
    crate::testing::connection()
}

fn encode(response: &mut Response, coding: Coding) {
    encode_response(response, &Encoding::plain(&[coding]), &connection());
}

/// Reads to the end.
fn drain(stream: &mut dyn BodyStream) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match stream.poll_chunk(&mut cx) {
            Poll::Ready(Some(Ok(Chunk::Bytes(bytes)))) => {
                assert!(!bytes.is_empty(), "empty chunk");
                out.extend_from_slice(&bytes);
            }
            Poll::Ready(Some(Ok(other))) => panic!("{other:?}"),
            Poll::Ready(Some(Err(broken))) => {
                assert!(stream.poll_chunk(&mut cx).is_ready(), "the stream ends after an error");
                return Err(broken);
            }
            Poll::Ready(None) => return Ok(out),
            Poll::Pending => {}
        }
    }
}

/// Returns the part of incomplete data that a client can decode.
fn readable(coding: Coding, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    match coding {
        Coding::Br => brotli::DecompressorWriter::new(&mut out, 4096).write_all(data).unwrap(),
        Coding::Zstd => {
            let mut decoder = zstd::stream::write::Decoder::new(&mut out).unwrap();
            decoder.write_all(data).unwrap();
            decoder.flush().unwrap();
        }
        Coding::Gzip => {
            let mut decoder = flate2::write::GzDecoder::new(&mut out);
            decoder.write_all(data).unwrap();
            decoder.flush().unwrap();
        }
        Coding::Identity => out.extend_from_slice(data),
    }
    out
}

fn file(text: &[u8]) -> Rc<handler::held::OpenFile> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text).unwrap();
    Rc::new(file.into())
}

#[test]
fn events_arrive_at_once() {
    for coding in CODINGS {
        let mut stream = encoded(coding, vec![bytes(b"data: 1\n\n"), None, bytes(b"data: 2\n\n"), None]);
        let mut cx = Context::from_waker(Waker::noop());
        let mut seen = Vec::new();
        for wanted in ["data: 1\n\n", "data: 1\n\ndata: 2\n\n"] {
            let Poll::Ready(Some(Ok(Chunk::Bytes(chunk)))) = stream.poll_chunk(&mut cx) else {
                panic!("{coding:?}: an event was held back")
            };
            seen.extend_from_slice(&chunk);
            assert_eq!(readable(coding, &seen), wanted.as_bytes(), "{coding:?}");
        }
        seen.extend(drain(&mut stream).unwrap());
        assert_eq!(decompress(coding, &seen), b"data: 1\n\ndata: 2\n\n");
    }
}

#[test]
fn pauses_without_data_send_nothing() {
    for coding in CODINGS {
        let mut stream = encoded(coding, vec![None, bytes(b"x"), None, None]);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(stream.poll_chunk(&mut cx).is_pending());
        assert!(stream.poll_chunk(&mut cx).is_ready());
        assert!(stream.poll_chunk(&mut cx).is_pending());
    }
}

#[test]
fn files_and_declined_offers() {
    let text = b"line of a file\n".repeat(10_000);
    for coding in CODINGS {
        let region = FileRegion { file: file(&text), offset: 5, len: text.len() as u64 - 5 };
        let offer: Option<Result<Chunk, Failure>> = Some(Ok(Chunk::Offer(Box::new(Offer))));
        let script = vec![offer, bytes(b"hello"), Some(Ok(Chunk::File(region)))];
        let out = drain(&mut encoded(coding, script)).unwrap();
        assert_eq!(decompress(coding, &out), [b"hello", &text[5..]].concat(), "{coding:?}");
    }
}

#[test]
fn errors_are_passed_on() {
    for coding in CODINGS {
        assert_eq!(drain(&mut encoded(coding, vec![bytes(b"x"), Some(Err(broken()))])), Err(broken()));
        let short = FileRegion { file: file(b"short"), offset: 0, len: 6 };
        assert!(drain(&mut encoded(coding, vec![Some(Ok(Chunk::File(short)))])).is_err());
    }
}

#[test]
fn a_large_chunk_is_encoded_in_several_polls() {
    let zeros = vec![0; 10 * BUDGET];
    for coding in CODINGS {
        let mut stream = encoded(coding, vec![bytes(&zeros)]);
        let mut cx = Context::from_waker(Waker::noop());
        let mut turns = 0;
        let mut out = Vec::new();
        loop {
            turns += 1;
            match stream.poll_chunk(&mut cx) {
                Poll::Ready(Some(Ok(Chunk::Bytes(bytes)))) => out.extend_from_slice(&bytes),
                Poll::Pending => {}
                Poll::Ready(None) => break,
                other => panic!("{other:?}"),
            }
        }
        assert!(turns >= 10, "{coding:?}: {turns}");
        assert_eq!(decompress(coding, &out), zeros, "{coding:?}");
    }
}

#[test]
fn an_empty_body_is_encoded_as_an_empty_one() {
    for coding in CODINGS {
        let out = drain(&mut encoded(coding, vec![])).unwrap();
        assert_eq!(decompress(coding, &out), b"", "{coding:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_split_round_trips(parts in prop::collection::vec(prop::option::of(prop::collection::vec(any::<u8>(), 0..2000)), 0..20)) {
        let whole: Vec<u8> = parts.iter().flatten().flatten().copied().collect();
        for coding in CODINGS {
            let script = parts.iter().map(|part| part.as_ref().and_then(|part| bytes(part))).collect();
            let out = drain(&mut encoded(coding, script)).unwrap();
            prop_assert_eq!(&decompress(coding, &out), &whole);
        }
    }
}

fn page(fields: &[(&str, &str)]) -> Response {
    let mut response = Response::text(200, "text/html; charset=utf-8", "<p>hello</p>\n".repeat(200));
    for (name, value) in fields {
        response.fields.push(name.as_bytes(), value.as_bytes());
    }
    response
}

#[test]
fn eligible_responses() {
    assert!(may_encode(&page(&[]), MIN_LENGTH, false));
    assert!(may_encode(&page(&[("Cache-Control", "public, max-age=5")]), MIN_LENGTH, false));
    assert!(!may_encode(&page(&[]), 1 << 20, false));
    for (name, value) in [
        ("Content-Encoding", "gzip"),
        ("Content-Range", "bytes 0-1/2"),
        ("Cache-Control", "public, No-Transform"),
        ("Content-Digest", "sha-256=:x:"),
    ] {
        assert!(!may_encode(&page(&[(name, value)]), MIN_LENGTH, false), "{name}");
    }
    for status in [101, 204, 205, 206, 304] {
        assert!(!may_encode(&Response { status, ..page(&[]) }, MIN_LENGTH, false), "{status}");
    }
    for status in [200, 203, 404, 500] {
        assert!(may_encode(&Response { status, ..page(&[]) }, MIN_LENGTH, false), "{status}");
    }
    assert!(!may_encode(&Response::text(200, "image/png", vec![0; 5000]), MIN_LENGTH, false));
    assert!(!may_encode(&Response { fields: Default::default(), ..page(&[]) }, MIN_LENGTH, false));
}

#[test]
fn lengths_of_streams_and_of_head_responses() {
    let stream = || Body::Stream(Box::new(Script(VecDeque::new())));
    assert!(may_encode(&Response { body: stream(), ..page(&[]) }, MIN_LENGTH, false));
    assert!(!may_encode(
        &Response { body: stream(), ..page(&[("Content-Length", "10")]) },
        MIN_LENGTH,
        false
    ));
    assert!(!may_encode(&Response { body: Body::Empty, ..page(&[]) }, MIN_LENGTH, false));
    assert!(may_encode(
        &Response { body: Body::Empty, ..page(&[("Content-Length", "5000")]) },
        MIN_LENGTH,
        false
    ));
}

#[test]
fn an_encoded_response_has_the_fields() {
    for coding in CODINGS {
        let mut response = page(&[
            ("ETag", "\"abc\""),
            ("Content-Length", "2600"),
            ("accept-ranges", "bytes"),
            ("Vary", "Origin"),
        ]);
        encode(&mut response, coding);
        let fields = &response.fields;
        assert_eq!(fields.get("content-encoding"), coding.token().map(str::as_bytes));
        assert_eq!(fields.all("etag").collect::<Vec<_>>(), [b"W/\"abc\""]);
        assert!(fields.get("content-length").is_none() && fields.get("accept-ranges").is_none());
        assert!(fields.lists("vary", "origin") && fields.lists("vary", "accept-encoding"));
        let Body::Bytes(body) = response.body else { panic!("a small body is encoded at once") };
        assert_eq!(decompress(coding, &body), "<p>hello</p>\n".repeat(200).as_bytes());
    }
}

#[test]
fn vary_is_added_once_and_weak_tags_stay() {
    for vary in ["accept-encoding, Origin", "*"] {
        let mut response = page(&[("Vary", vary), ("ETag", "W/\"abc\"")]);
        encode(&mut response, Coding::Gzip);
        assert_eq!(response.fields.all("vary").collect::<Vec<_>>(), [vary.as_bytes()]);
        assert_eq!(response.fields.all("etag").collect::<Vec<_>>(), [b"W/\"abc\""]);
    }
}

#[test]
fn identity_only_adds_vary() {
    let mut response = page(&[("ETag", "\"abc\"")]);
    encode(&mut response, Coding::Identity);
    assert_eq!(response.fields.get("etag"), Some(&b"\"abc\""[..]));
    assert!(
        response.fields.lists("vary", "accept-encoding") && response.fields.get("content-encoding").is_none()
    );
}

#[test]
fn bodies_that_would_grow_stay() {
    let mut response = Response::text(200, "text/plain", "abc");
    encode(&mut response, Coding::Gzip);
    assert!(matches!(&response.body, Body::Bytes(body) if &body[..] == b"abc"));
    assert!(response.fields.get("content-encoding").is_none());
}

#[test]
fn large_bodies_files_and_streams_become_streams() {
    let text = b"0123456789".repeat(10_000);
    let region = FileRegion { file: file(&text), offset: 0, len: text.len() as u64 };
    let stream = Script(vec![bytes(&text)].into());
    for body in [Body::Bytes(text.clone().into()), Body::File(region), Body::Stream(Box::new(stream))] {
        let mut response = Response { body, ..page(&[]) };
        encode(&mut response, Coding::Zstd);
        let Body::Stream(mut stream) = response.body else { panic!("a stream") };
        assert_eq!(decompress(Coding::Zstd, &drain(&mut *stream).unwrap()), text);
    }
}

#[test]
fn a_head_response_has_the_fields_of_get() {
    let mut response =
        Response { body: Body::Empty, ..page(&[("Content-Length", "2600"), ("ETag", "\"a\"")]) };
    encode(&mut response, Coding::Br);
    assert!(matches!(response.body, Body::Empty));
    assert_eq!(response.fields.get("content-encoding"), Some(&b"br"[..]));
    assert_eq!(response.fields.get("etag"), Some(&b"W/\"a\""[..]));
}

#[test]
fn unread_streams_of_a_connection_take_cheaper_codings_and_then_none() {
    let connection = connection();
    let respond = || {
        let body = Body::Stream(Box::new(Script(vec![bytes(b"some text")].into())));
        let mut response = Response::new(200, handler::Fields::default(), body);
        response.fields.push(b"ETag", b"\"1\"");
        encode_response(
            &mut response,
            &Encoding::plain(&[Coding::Zstd, Coding::Gzip, Coding::Identity]),
            &connection,
        );
        response
    };
    let coding = |response: &Response| response.fields.get("content-encoding").map(<[u8]>::to_vec);
    let held: Vec<Response> = (0..128).map(|_| respond()).collect();
    let count = |token: Option<&[u8]>| held.iter().filter(|one| coding(one).as_deref() == token).count();
    assert_eq!((count(Some(b"zstd")), count(Some(b"gzip")), count(None)), (4, 16, 108));
    let mut plain = held.into_iter().next_back().unwrap();
    assert_eq!(plain.fields.get("etag"), Some(&b"\"1\""[..]));
    assert!(plain.fields.lists("vary", "accept-encoding"));
    let Body::Stream(stream) = &mut plain.body else { panic!("a stream") };
    assert_eq!(drain(&mut **stream).unwrap(), b"some text");
    assert_eq!(coding(&respond()).as_deref(), Some(&b"zstd"[..]), "the others have ended");
}
