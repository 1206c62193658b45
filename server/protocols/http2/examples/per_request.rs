//! Measures the cost of a request in the engine alone: receives batches of requests, as a client with many
//! streams sends them, and answers each with a head and a body. Prints nanoseconds of processor time per
//! request (Linux), so that a busy machine does not matter.
//!
//!     cargo run --profile dist -p http2 --example per_request -- [BODY BYTES] [STREAMS] [SECONDS]

use bytes::Bytes;
use handler::Fields;
use http2::{Connection, Event, Limits};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The fields that `h2load` sends.
const LOAD: [(&str, &str); 2] = [(":authority", "127.0.0.1:8080"), ("user-agent", "h2load nghttp2/1.52.0")];
/// The fields that a browser sends.
const BROWSER: [(&str, &str); 6] = [
    (":authority", "www.example.com"),
    ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0"),
    ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    ("accept-language", "en-US,en;q=0.5"),
    ("accept-encoding", "gzip, deflate, br, zstd"),
    ("cookie", "session=0123456789abcdef0123456789abcdef"),
];

fn frame(to: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    to.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    to.extend_from_slice(&[kind, flags]);
    to.extend_from_slice(&stream.to_be_bytes());
    to.extend_from_slice(payload);
}

/// Encodes a section with these fields, which are added to the table.
fn literal(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x84];
    for (name, value) in fields {
        block.push(0x40);
        for text in [name, value] {
            fieldcode::encode_integer(&mut block, 0x80, 7, fieldcode::huffman_len(text.as_bytes()) as u64);
            fieldcode::huffman_encode(text.as_bytes(), &mut block);
        }
    }
    block
}

/// Encodes the same section from the table, whose newest field is at 62.
fn indexed(fields: &[(&str, &str)]) -> Vec<u8> {
    let indices = (0..fields.len() as u8).rev().map(|at| 0x80 | (62 + at));
    [0x82, 0x86, 0x84].into_iter().chain(indices).collect()
}

fn flush(server: &mut Connection) -> usize {
    let output = server.output();
    let mut written = 0;
    while !output.is_empty() {
        let n = output.slices().iter().map(|slice| black_box(slice).len()).sum();
        written += n;
        output.advance(n);
    }
    written
}

/// Returns the processor time of this process.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or_default())
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().unwrap_or(0));
    let body = arguments.next().unwrap_or(12);
    let batch = arguments.next().unwrap_or(64) as u32;
    let seconds = Duration::from_secs(arguments.next().unwrap_or(2) as u64);
    for (name, first, again) in [
        ("h2load", literal(&LOAD), indexed(&LOAD)),
        ("browser, from the table", literal(&BROWSER), indexed(&BROWSER)),
        ("browser, Huffman each time", literal(&BROWSER), literal(&BROWSER)),
    ] {
        let mut server = Connection::new(Limits::default(), Instant::now());
        let mut input = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        frame(&mut input, 4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
        frame(&mut input, 8, 0, 0, &[0x7f, 0, 0, 0]);
        frame(&mut input, 1, 5, 1, &first);
        let mut ready = Vec::new();
        let receive = |server: &mut Connection, input: &[u8], ready: &mut Vec<_>| {
            let now = Instant::now();
            let result = server.receive(input, now, &mut |event| {
                if let Event::Request { stream, head, .. } = event {
                    ready.push((stream, black_box(head)));
                }
            });
            assert!(result.is_ok(), "{result:?}");
        };
        receive(&mut server, &input, &mut ready);
        let mut fields = Fields::default();
        fields.push(b"content-type", b"text/plain");
        fields.push(b"cache-control", b"no-cache");
        let body = Bytes::from(vec![b'x'; body]);
        let date = b"Mon, 21 Oct 2013 20:13:21 GMT";
        let (mut requests, mut next, mut written) = (0u64, 3, 0);
        let (start, began) = (Instant::now(), processor_time());
        while start.elapsed() < seconds {
            input.clear();
            for _ in 0..batch {
                frame(&mut input, 1, 5, next, &again);
                next += 2;
            }
            receive(&mut server, &input, &mut ready);
            for (stream, head) in ready.drain(..) {
                drop(head);
                let length = Some(body.len() as u64);
                server.head(stream, 200, &fields, date, length, body.is_empty());
                if !body.is_empty() {
                    assert!(server.data(stream, body.clone(), true).is_empty());
                }
            }
            written += flush(&mut server);
            requests += u64::from(batch);
            input.clear();
            if requests * body.len() as u64 > 1 << 29 {
                // Windows are opened rarely, so this is not measured.
                break;
            }
        }
        let time = processor_time() - began;
        println!(
            "{name}: {:.0} ns per request, {} requests, {} bytes each",
            time.as_nanos() as f64 / requests as f64,
            requests,
            written as u64 / requests
        );
    }
}
