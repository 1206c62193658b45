//! The handler for Rack apps: a request in, its frame to a worker, the answer out.

use crate::loan::Offer;
use crate::local::{Call, Carried, Local, Place};
use crate::reply::{Head, News, Next};
use handler::{
    Body, BodyStream, Broken, Chunk, Client, Departure, Exchange, Failure, FailureKind, Handler, Lent,
    PeerAddr, Request, Response, Trace, Version,
};
use http::body::{Collected, collect};
use http::h1::is_token;
use std::cell::Cell;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::UnixStream;
use wire::Kind;
use wire::request::{Encoder, Head as WireHead, Put};

/// What the Rack handler has to know.
#[derive(Debug, Clone)]
pub struct RackOptions {
    /// Larger request bodies go to the worker in a file, bytes.
    pub body_memory: usize,
    /// Where such files are.
    pub temp_dir: PathBuf,
}

/// Is told of each failure: the error log.
pub type OnFailure = Box<dyn Fn(&Failure, &Request)>;

/// Serves requests by the app.
pub struct Rack {
    local: Rc<Local>,
    options: RackOptions,
    failed: OnFailure,
    samples: Samples,
}

/// Chooses one request of [`Samples::OF`] to be measured, by lot: apps and clients may have a rhythm of their own.
struct Samples(Cell<u32>);

impl Samples {
    /// Measuring costs some system calls, so not every request is.
    const OF: u32 = 16;

    /// Whether the next request is one.
    #[inline]
    fn next(&self) -> bool {
        // Marsaglia's xorshift; the seed is any number but 0.
        let mut state = self.0.get();
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        self.0.set(state);
        state.is_multiple_of(Self::OF)
    }
}

/// What a waiting handler hears first.
enum Heard {
    News(News),
    Departed(Departure),
}

impl Rack {
    /// A handler that uses `local`'s workers and tells `failed` of each failure.
    pub fn new(local: Rc<Local>, options: RackOptions, failed: OnFailure) -> Rack {
        Rack { local, options, failed, samples: Samples(Cell::new(0x9e37_79b9)) }
    }

    async fn answer(&self, exchange: Exchange) -> Result<Response, (Failure, Lent)> {
        let Exchange { request, incoming, client, trace } = exchange;
        let call = match self.call(&request, incoming, trace).await {
            Ok(call) => call,
            Err(failure) => return Err((failure, request)),
        };
        let asking = Asking { local: &self.local, call: Some(call.clone()) };
        if let Err(failure) = self.local.submit(&call) {
            return Err((failure, request));
        }
        loop {
            match poll_fn(|cx| hear(&call, &*client, cx)).await {
                Heard::News(News::Interim(status, fields)) => client.interim(status, &fields),
                Heard::News(News::Head(head)) => {
                    return self.respond(head, asking).map_err(|failure| (failure, request));
                }
                Heard::News(News::Hijacked(fd)) => {
                    asking.done();
                    return tunnel(fd, true, 101, handler::Fields::default())
                        .map_err(|failure| (failure, request));
                }
                Heard::News(News::Failed(failure)) => return Err((failure, request)),
                // Who has half closed may still read, but is not worth a place in the line; what has begun goes on.
                Heard::Departed(Departure::HalfClosed) if !matches!(call.place(), Place::Waiting(_)) => {}
                Heard::Departed(_) => {
                    return Err((Failure::new(FailureKind::ClientGone, "the client went away"), request));
                }
            }
        }
    }

    /// Reads the body and encodes the request.
    async fn call(
        &self,
        request: &Request,
        incoming: handler::Incoming,
        trace: Rc<Trace>,
    ) -> Result<Rc<Call>, Failure> {
        let body = collect(incoming, self.options.body_memory, &self.options.temp_dir).await?;
        // Without a body nothing has been waited for since the head was complete.
        let asked = if matches!(body, Collected::Empty) { request.arrived } else { Instant::now() };
        let mut frame = Vec::with_capacity(256 + request.fields.text().len());
        let measure = self.samples.next() || trace.measure.get();
        encode(request, &body, self.local.monotonic_us(asked), measure, &mut frame);
        let body = match body {
            Collected::Empty => Carried::Nothing,
            Collected::Memory(bytes) => Carried::Bytes(bytes),
            Collected::Spooled { file, .. } => Carried::File(file),
        };
        Ok(Rc::new(Call::new(frame, body, trace, asked)))
    }

    fn respond(&self, head: Head, asking: Asking<'_>) -> Result<Response, Failure> {
        check(&head)?;
        let Head { status, fields, body, stream } = head;
        if let Some(fd) = stream {
            asking.done();
            if status == 101 {
                return tunnel(fd, false, status, fields);
            }
            let body = Body::Stream(Box::new(SocketBody { first: body, socket: socket(fd)? }));
            return Ok(Response { status, fields, body, close: false });
        }
        let Some(call) = asking.call.clone() else { return Err(internal("a response without its request")) };
        let body = if call.place() == Place::Over {
            match call.reply.whole() {
                Some((0, _)) if body.is_empty() => Body::Empty,
                Some((0, _)) => Body::Bytes(body),
                Some((_, Some(Chunk::File(region)))) if body.is_empty() => Body::File(region),
                Some((_, Some(Chunk::Bytes(bytes)))) if body.is_empty() => Body::Bytes(bytes),
                Some((_, first)) => self.stream(body, first, call),
                None => self.stream(body, None, call),
            }
        } else {
            self.stream(body, None, call)
        };
        asking.done();
        Ok(Response { status, fields, body, close: false })
    }

    fn stream(&self, first: bytes::Bytes, second: Option<Chunk>, call: Rc<Call>) -> Body {
        Body::Stream(Box::new(ReplyBody { first, second, call, local: self.local.clone(), over: false }))
    }
}

impl Handler for Rack {
    async fn handle(&self, exchange: Exchange) -> Response {
        match self.answer(exchange).await {
            Ok(response) => response,
            Err((failure, request)) => {
                (self.failed)(&failure, &request);
                failure.into_response()
            }
        }
    }
}

fn hear(call: &Call, client: &dyn Client, cx: &mut Context<'_>) -> Poll<Heard> {
    if let Poll::Ready(news) = call.reply.poll_news(cx) {
        return Poll::Ready(Heard::News(news));
    }
    client.poll_departure(cx).map(Heard::Departed)
}

/// Gives the request up when the handler's future is dropped or fails.
struct Asking<'a> {
    local: &'a Rc<Local>,
    call: Option<Rc<Call>>,
}

impl Asking<'_> {
    fn done(mut self) {
        self.call = None;
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(call) = &self.call {
            self.local.abandon(call);
        }
    }
}

/// A response body that comes in frames.
struct ReplyBody {
    first: bytes::Bytes,
    second: Option<Chunk>,
    call: Rc<Call>,
    local: Rc<Local>,
    over: bool,
}

impl BodyStream for ReplyBody {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Broken>>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(Chunk::Bytes(std::mem::take(&mut self.first)))));
        }
        if let Some(chunk) = self.second.take() {
            return Poll::Ready(Some(Ok(chunk)));
        }
        let Poll::Ready((chunk, grant)) = self.call.reply.poll_chunk(self.local.room(), cx) else {
            return Poll::Pending;
        };
        self.over = !matches!(chunk, Some(Ok(_)));
        let chunk = chunk.map(|next| next.map(|next| self.chunk(next)));
        if let (1.., Place::Sent { serial, id, .. }) = (grant, self.call.place()) {
            self.local.tell(serial, Kind::Window, id, &grant.to_le_bytes());
        }
        Poll::Ready(chunk)
    }
}

impl ReplyBody {
    fn chunk(&self, next: Next) -> Chunk {
        match next {
            Next::Chunk(chunk) => chunk,
            Next::Offer(len) => {
                Chunk::Offer(Box::new(Offer::new(self.call.clone(), self.local.clone(), len)))
            }
        }
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        if !self.over {
            self.local.abandon(&self.call);
        }
    }
}

/// A response body that the app writes to a socket of its own (partial hijack, streaming bodies).
struct SocketBody {
    first: bytes::Bytes,
    socket: UnixStream,
}

impl BodyStream for SocketBody {
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Chunk, Broken>>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(Chunk::Bytes(std::mem::take(&mut self.first)))));
        }
        let mut bytes = vec![0; 16 << 10];
        let mut buffer = ReadBuf::new(&mut bytes);
        match Pin::new(&mut self.socket).poll_read(cx, &mut buffer) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(_)) => Poll::Ready(Some(Err(Broken))),
            Poll::Ready(Ok(())) => {
                let n = buffer.filled().len();
                bytes.truncate(n);
                Poll::Ready((n > 0).then(|| Ok(Chunk::Bytes(bytes.into()))))
            }
        }
    }
}

fn socket(fd: OwnedFd) -> Result<UnixStream, Failure> {
    let socket = std::os::unix::net::UnixStream::from(fd);
    socket
        .set_nonblocking(true)
        .and_then(|()| UnixStream::from_std(socket))
        .map_err(|e| internal(format!("a socket of the app's: {e}")))
}

fn tunnel(fd: OwnedFd, raw: bool, status: u16, fields: handler::Fields) -> Result<Response, Failure> {
    Ok(Response {
        status,
        fields,
        body: Body::Tunnel { io: http::h1::tunnel_end(socket(fd)?), raw },
        close: true,
    })
}

fn internal(why: impl Into<std::borrow::Cow<'static, str>>) -> Failure {
    Failure::new(FailureKind::Internal, why)
}

/// What an app may not answer: what would become another header or another response (RFC 9110 section 5.5).
fn check(head: &Head) -> Result<(), Failure> {
    if head.status < 200 && !(head.status == 101 && head.stream.is_some()) {
        let why = format!("the app answered with status {}, which is not final", head.status);
        return Err(Failure::new(FailureKind::BadResponse, why));
    }
    for (name, value) in head.fields.iter() {
        if !is_token(name) {
            let why = format!("the app answered with a header named {:?}", name.escape_ascii().to_string());
            return Err(Failure::new(FailureKind::BadResponse, why));
        }
        if value.iter().any(|&byte| matches!(byte, 0 | b'\r' | b'\n')) {
            let why = format!("the app's header {} has a line break or NUL in it", name.escape_ascii());
            return Err(Failure::new(FailureKind::BadResponse, why));
        }
    }
    Ok(())
}

fn encode(request: &Request, body: &Collected, asked_us: u64, measure: bool, frame: &mut Vec<u8>) {
    let (server_name, server_port) = request.server();
    let target = request.target;
    // A path that is implied (`http://host`) is not in the target; the worker takes none for `/`.
    let inside = |part: handler::Span| match part.start.checked_sub(target.start) {
        Some(start) if start + part.len <= target.len => (start, part.len),
        _ => (0, 0),
    };
    let remote_port = match request.peer.remote {
        PeerAddr::Inet(addr) => addr.port(),
        PeerAddr::Unix => 0,
    };
    let head = WireHead {
        version: if request.version == Version::Http10 { 10 } else { 11 },
        https: request.https,
        remote_port,
        measure,
        asked_us,
        method: request.method(),
        target: request.target(),
        path: inside(request.path),
        query: inside(request.query),
        remote_addr: request.peer.remote_text.as_bytes(),
        server_name,
        server_port,
    };
    let mut encoder = Encoder::new(frame, &head);
    for (name, value) in request.fields.iter() {
        encoder.field(name, value);
    }
    for (name, value) in &request.variables {
        encoder.variable(name, value);
    }
    match body {
        Collected::Empty => encoder.finish(Put::None),
        Collected::Memory(bytes) => encoder.finish(Put::Behind(bytes.len())),
        Collected::Spooled { len, .. } => encoder.finish(Put::Descriptor(*len)),
    }
}

#[cfg(test)]
mod tests {
    use super::Samples;
    use std::cell::Cell;

    #[test]
    fn one_in_sixteen_is_measured_without_a_rhythm() {
        let samples = Samples(Cell::new(1));
        let chosen: Vec<bool> = (0..160_000).map(|_| samples.next()).collect();
        let in_step =
            |step: usize, from: usize| chosen.iter().skip(from).step_by(step).filter(|&&c| c).count();
        assert!((9_500..10_500).contains(&in_step(1, 0)));
        assert!((0..16).all(|from| (500..750).contains(&in_step(16, from))));
    }
}
