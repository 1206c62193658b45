//! Reads the response head that an app writes to its hijacked connection (full hijack), and the body behind it.
//!
//! Contract: the head is one that a client of HTTP/1.1 accepts ([`h1::ResponseParser`]). Bytes behind it are
//! the first ones of the tunnel, or of the body. Informational responses before it are dropped.

use bytes::{Buf, Bytes};
use h1::chunked::{ChunkBounds, Decoder};
use h1::{Framing, ResponseHead, ResponseParser};
use handler::{Body, BodyStream, Chunk, Client, Failure, Fields, Response};
use net::TunnelEnd;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll};

/// The most bytes of a head, as for the fields of an app's other responses by default.
const MAX_HEAD: usize = 64 << 10;
/// The most bytes per read.
const READ: usize = 16 << 10;
/// The most informational responses.
const MAX_INTERIM: usize = 64;
/// The limits of a chunked body; its trailers are dropped.
const BOUNDS: ChunkBounds = ChunkBounds { max_body: None, max_trailer_bytes: 64 << 10, max_trailers: 1000 };

/// Waits for the final head on `io`, and returns the response: a tunnel after 101, otherwise a body.
pub(super) async fn response(io: Box<dyn TunnelEnd>, client: &dyn Client) -> Result<Response, Failure> {
    let mut text = Vec::new();
    for _ in 0..=MAX_INTERIM {
        let (head, end) = head(&*io, &mut text, client).await?;
        if (100..200).contains(&head.status) && head.status != 101 {
            text.drain(..end);
            continue;
        }
        let first = Bytes::copy_from_slice(&text[end..]);
        text.truncate(end);
        return Ok(begun(io, head, text, first));
    }
    Err(mistake("more than 64 informational responses"))
}

/// Reads until `text` begins with a complete head. Returns the head and its length.
async fn head(
    io: &dyn TunnelEnd,
    text: &mut Vec<u8>,
    client: &dyn Client,
) -> Result<(ResponseHead, usize), Failure> {
    let mut parser = ResponseParser::new();
    poll_fn(|cx| {
        loop {
            if !text.is_empty()
                && let Some(end) = parser.advance(text, MAX_HEAD).map_err(mistake)?
            {
                let parser = std::mem::take(&mut parser);
                return Poll::Ready(Ok((parser.finish(&text[..end]), end)));
            }
            if io.poll_readable(cx).is_pending() {
                let gone = client.poll_departure(cx);
                return gone.map(|_| Err(Failure::client_gone("the client went away during the handshake")));
            }
            let start = text.len();
            text.resize(start + READ, 0);
            let read = io.try_read(&mut text[start..]);
            text.truncate(start + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) if start == 0 => {
                    return Poll::Ready(Err(mistake("the app closed the connection before it")));
                }
                Ok(0) => return Poll::Ready(Err(mistake("the app closed the connection inside the head"))),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(mistake(&error.to_string()))),
            }
        }
    })
    .await
}

fn mistake(why: &str) -> Failure {
    Failure::app(502, format!("the response that the app writes to its hijacked connection: {why}"))
}

/// Returns the response with this head. `first`: the bytes behind it.
fn begun(io: Box<dyn TunnelEnd>, head: ResponseHead, text: Vec<u8>, first: Bytes) -> Response {
    let (status, framing) = (head.status, head.framing);
    let fields = Fields::from_parts(text, head.slots);
    if status == 101 {
        let io = Box::new(AfterHead { io, first: RefCell::new(first) });
        return Response::new(status, fields, Body::Tunnel { io, raw: false });
    }
    let rest = match framing {
        Framing::Length(length) => Rest::Length(length),
        Framing::Chunked => Rest::Chunked(Box::new(Decoder::new(BOUNDS))),
        Framing::Close => Rest::Close,
    };
    Response::new(status, fields, Body::Stream(Box::new(RawBody { io, first, rest })))
}

/// A tunnel whose first bytes came with the head.
struct AfterHead {
    io: Box<dyn TunnelEnd>,
    first: RefCell<Bytes>,
}

impl TunnelEnd for AfterHead {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.first.borrow().is_empty() { self.io.poll_readable(cx) } else { Poll::Ready(()) }
    }

    fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.io.poll_writable(cx)
    }

    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut first = self.first.borrow_mut();
        if first.is_empty() {
            return self.io.try_read(buffer);
        }
        let n = first.len().min(buffer.len());
        first.copy_to_slice(&mut buffer[..n]);
        if first.is_empty() {
            *first = Bytes::new();
        }
        Ok(n)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.io.try_write(bytes)
    }

    fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_flush(cx)
    }

    fn end_writing(&self) {
        self.io.end_writing();
    }

    fn is_over(&self) -> bool {
        self.io.is_over()
    }
}

/// The part of a body that is missing.
enum Rest {
    Length(u64),
    Chunked(Box<Decoder>),
    /// Everything up to the end of the connection.
    Close,
}

/// The body of a response that refuses the WebSocket.
struct RawBody {
    io: Box<dyn TunnelEnd>,
    first: Bytes,
    rest: Rest,
}

impl RawBody {
    fn is_complete(&self) -> bool {
        match &self.rest {
            Rest::Length(left) => *left == 0,
            Rest::Chunked(decoder) => decoder.is_done(),
            Rest::Close => false,
        }
    }

    /// Returns the part of the body in received bytes; it may be empty.
    fn take(&mut self, mut bytes: Bytes) -> Result<Chunk, Failure> {
        match &mut self.rest {
            Rest::Length(left) => {
                bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= bytes.len() as u64;
            }
            Rest::Chunked(decoder) => {
                let mut data = Vec::with_capacity(bytes.len());
                decoder.decode(&bytes, &mut data).map_err(|_| mistake("a malformed chunk"))?;
                bytes = data.into();
            }
            Rest::Close => {}
        }
        Ok(Chunk::Bytes(bytes))
    }

    /// Returns the failure of a body that ends with the connection but must not, if it does. A length that is
    /// not reached is reported where lengths are compared.
    fn cut_off(&self) -> Option<Failure> {
        matches!(self.rest, Rest::Chunked(_))
            .then(|| mistake("the app closed the connection inside the body"))
    }
}

impl BodyStream for RawBody {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Failure>>> {
        loop {
            if self.is_complete() {
                return Poll::Ready(None);
            }
            if !self.first.is_empty() {
                let first = std::mem::take(&mut self.first);
                return Poll::Ready(Some(self.take(first)));
            }
            if self.io.poll_readable(cx).is_pending() {
                return Poll::Pending;
            }
            let mut bytes = vec![0; READ];
            match self.io.try_read(&mut bytes) {
                Ok(0) => return Poll::Ready(self.cut_off().map(Err)),
                Ok(n) => {
                    bytes.truncate(n);
                    return Poll::Ready(Some(self.take(bytes.into())));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Some(Err(mistake(&error.to_string())))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler::StayingClient;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::pin::pin;
    use std::task::Waker;

    /// An app's end whose bytes come in given pieces, and then end.
    struct Pieces(RefCell<VecDeque<Vec<u8>>>);

    impl TunnelEnd for Pieces {
        fn poll_readable(&self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Ready(())
        }

        fn poll_writable(&self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }

        fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
            let mut pieces = self.0.borrow_mut();
            let Some(piece) = pieces.front_mut() else { return Ok(0) };
            let n = piece.len().min(buffer.len());
            buffer[..n].copy_from_slice(&piece[..n]);
            piece.drain(..n);
            if piece.is_empty() {
                pieces.pop_front();
            }
            Ok(n)
        }

        fn try_write(&self, _: &[u8]) -> io::Result<usize> {
            Err(ErrorKind::WouldBlock.into())
        }

        fn end_writing(&self) {}

        fn is_over(&self) -> bool {
            false
        }
    }

    /// The status, the fields, and everything behind the head.
    type Seen = (u16, Vec<Vec<u8>>, Vec<u8>);

    fn read(bytes: &[u8], cut: usize) -> Result<Seen, String> {
        let pieces = bytes.chunks(cut).map(<[u8]>::to_vec).collect();
        let io = Box::new(Pieces(RefCell::new(pieces)));
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(read) = pin!(response(io, &StayingClient)).poll(&mut cx) else {
            panic!("nothing to wait for")
        };
        let response = read.map_err(|failure| failure.reason.into_owned())?;
        let fields = response.fields.iter().map(|(name, value)| [name, value].join(&b':')).collect();
        let mut behind = Vec::new();
        match response.body {
            Body::Tunnel { io, raw: false } => {
                let mut buffer = [0; 7];
                while let Ok(n @ 1..) = io.try_read(&mut buffer) {
                    behind.extend_from_slice(&buffer[..n]);
                }
            }
            Body::Stream(mut stream) => loop {
                match stream.poll_chunk(&mut cx) {
                    Poll::Ready(Some(Ok(Chunk::Bytes(bytes)))) => behind.extend_from_slice(&bytes),
                    Poll::Ready(Some(Err(failure))) => return Err(failure.reason.into_owned()),
                    _ => break,
                }
            },
            _ => panic!("another body"),
        }
        Ok((response.status, fields, behind))
    }

    #[test]
    fn the_length_of_a_body_is_kept_to() {
        for (text, expected) in [
            ("HTTP/1.1 403 x\r\nContent-Length: 3\r\n\r\nabcdef", Ok("abc")),
            ("HTTP/1.1 403 x\r\nContent-Length: 0\r\n\r\nabcdef", Ok("")),
            ("HTTP/1.1 403 x\r\n\r\nabcdef", Ok("abcdef")),
            ("HTTP/1.1 403 x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nd", Ok("abc")),
            ("HTTP/1.1 403 x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", Err("inside the body")),
            ("HTTP/1.1 403 x\r\nTransfer-Encoding: chunked\r\n\r\nx", Err("a malformed chunk")),
            ("HTTP/1.1 103 x\r\nA: b\r\n\r\nHTTP/1.1 101 x\r\nUpgrade: y\r\n\r\nframes", Ok("frames")),
            ("", Err("before it")),
            ("HTTP/1.1 101 x\r\n", Err("inside the head")),
            ("HTTP/2 200\r\n\r\n", Err("are not those of an HTTP/1 response")),
        ] {
            match (read(text.as_bytes(), 1000), expected) {
                (Ok((_, _, behind)), Ok(expected)) => assert_eq!(behind, expected.as_bytes(), "{text:?}"),
                (Err(reason), Err(expected)) => assert!(reason.contains(expected), "{text:?}: {reason}"),
                (found, _) => panic!("{text:?}: {found:?}"),
            }
        }
        let many = "HTTP/1.1 100 x\r\n\r\n".repeat(66);
        assert!(read(many.as_bytes(), 1000).is_err_and(|reason| reason.contains("more than 64")));
        let long = format!("HTTP/1.1 101 x\r\nA: {}\r\n\r\n", "x".repeat(MAX_HEAD));
        assert!(read(long.as_bytes(), 1000).is_err());
    }

    proptest! {
        /// However the bytes are split, the response is the same.
        #[test]
        fn any_split_gives_the_same(
            lines in prop::collection::vec(prop::sample::select(vec![
                "HTTP/1.1 101 x", "HTTP/1.1 100 x", "HTTP/1.0 403 no", "Upgrade: websocket", "Content-Length: 4",
                "Transfer-Encoding: chunked", "", "3\r\nabc", "0", "frames", "\0",
            ]), 0..12),
            cut in 1usize..30,
        ) {
            let text = lines.join("\r\n");
            let (whole, split) = (read(text.as_bytes(), 10_000), read(text.as_bytes(), cut));
            // Where the bytes end decides which mistake is noticed first.
            prop_assert_eq!(whole.clone().ok(), split.clone().ok(), "{:?} {:?}", whole, split);
        }

        #[test]
        fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..300), cut in 1usize..50) {
            let _ = read(&[b"HTTP/1.1 101 ", &bytes[..]].concat(), cut);
            let _ = read(&bytes, cut);
        }
    }
}
