//! HTTP/1.0 and HTTP/1.1 (RFC 9112): one connection, one exchange at a time.
//!
//! Contract:
//! 1. A request is accepted only if its end can be found in one way; anything else is refused, and the connection ends.
//! 2. Pipelined requests are answered in order; the next one is parsed when the last response is out.
//! 3. Between requests a connection holds no buffer: the part of the future that needs one is boxed, and gone.

mod body_state;
pub mod chunked;
mod client;
mod encode;
mod exchange;
mod head;
#[cfg(test)]
mod head_tests;
mod link;
mod output;
mod precoded;
mod receive;
mod respond;
pub mod syntax;
mod target;
mod tunnel;

pub(crate) use output::Output;
pub use syntax::is_token;
pub use tunnel::tunnel_end;

use crate::context::Context;
use crate::timers::Lane;
use crate::transport::Transport;
use handler::{Handler, Peer};
use link::Link;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// How long a connection that has not sent its first request yet is waited for while draining.
const DRAIN_PATIENCE: Duration = Duration::from_millis(500);
/// How long, and how much, is read and thrown away after an end that the client may not expect.
const LINGER_TIME: Duration = Duration::from_secs(3);
const LINGER_BYTES: usize = 32 << 20;

/// What to do with a connection when its requests so far are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// Wait for another request.
    Idle,
    /// Close at once.
    Close,
    /// End our direction, and give the client time to read what it says: closing with bytes unread would reset the
    /// connection, and the response with it.
    Linger,
}

/// Serves one connection until it ends.
pub async fn serve<S: Transport, H: Handler>(stream: S, peer: Rc<Peer>, context: Rc<Context<H>>) {
    let link = Link::new(stream, context.shared.clone());
    let mut served = 0;
    while link.has_request(served).await {
        match Box::pin(exchange::serve_requests(&link, &peer, &context, &mut served)).await {
            After::Idle => {}
            After::Close => return,
            After::Linger => return link.linger().await,
        }
    }
}

impl<S: Transport> Link<S> {
    /// Waits for the first byte of a request; `false` when none is to be waited for any more.
    async fn has_request(&self, served: u64) -> bool {
        let limits = &self.shared.limits;
        let patience = if served == 0 { limits.header_timeout } else { limits.keep_alive_timeout };
        let mut armed = false;
        let mut hurried = false;
        poll_fn(|cx| {
            self.timer.wakes(cx.waker());
            if self.poll_readable(cx).is_ready() {
                return Poll::Ready(true);
            }
            if !armed {
                armed = true;
                self.timer.arm_in(Lane::Read, patience);
            }
            if self.shared.draining.get() {
                if served > 0 {
                    return Poll::Ready(false);
                }
                if !std::mem::replace(&mut hurried, true) {
                    self.timer.arm(Lane::Read, Instant::now() + patience.min(DRAIN_PATIENCE));
                }
            }
            if self.timer.expired(Lane::Read) { Poll::Ready(false) } else { Poll::Pending }
        })
        .await
    }

    /// Ends our direction and throws away what still comes, within bounds.
    async fn linger(&self) {
        self.input.take();
        self.stream.end_writing();
        let time = if self.shared.draining.get() { DRAIN_PATIENCE } else { LINGER_TIME };
        self.timer.arm(Lane::Read, Instant::now() + time);
        let mut left = LINGER_BYTES;
        while left > 0 && !self.timer.expired(Lane::Read) {
            match self.read(<[u8]>::len) {
                Ok(0) => return,
                Ok(n) => left = left.saturating_sub(n),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if !self.readable().await {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }
}

/// Judges the head at the start of `text` as if it had come in pieces that end at `cuts` and at its end: where it ends, or
/// `None` when more would be needed. For fuzzers and other judges; [`serve`] does the same with what a socket gives.
///
/// # Errors
/// What a client would be told.
pub fn judge_head(
    text: &[u8],
    cuts: &[usize],
    limits: &crate::Limits,
) -> Result<Option<usize>, handler::Failure> {
    let mut parser = head::Parser::new();
    for &cut in cuts {
        if let Some(end) = parser.advance(&text[..cut], limits)? {
            return Ok(Some(end));
        }
    }
    parser.advance(text, limits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Timers};
    use handler::{Exchange, PeerAddr, Response};
    use std::io::{Read, Write};
    use tokio::net::UnixStream;

    struct Hello;

    impl Handler for Hello {
        async fn handle(&self, _: Exchange) -> Response {
            Response::text(200, "text/plain", "hello")
        }
    }

    fn run<R>(work: impl AsyncFnOnce(Rc<Peer>, Rc<Context<Hello>>) -> R) -> R {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
        let peer =
            Peer { remote: PeerAddr::Unix, remote_text: String::new(), local: PeerAddr::Unix, tls: false };
        runtime.expect("a runtime").block_on(async {
            let context = Context::new(Hello, Limits::default(), Timers::new());
            work(Rc::new(peer), context).await
        })
    }

    #[test]
    fn unix_sockets_are_served_too() {
        let (mut client, server) = std::os::unix::net::UnixStream::pair().unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        server.set_nonblocking(true).unwrap();
        run(async |peer, context| serve(UnixStream::from_std(server).unwrap(), peer, context).await);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"), "{answer}");
    }

    #[test]
    fn an_idle_connection_is_small() {
        let (_client, server) = std::os::unix::net::UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        run(async |peer, context| {
            let idle = serve(UnixStream::from_std(server).unwrap(), peer, context);
            assert!(size_of_val(&idle) <= 320, "{}", size_of_val(&idle));
        });
        assert!(
            size_of::<Link<tokio::net::TcpStream>>() <= 512,
            "{}",
            size_of::<Link<tokio::net::TcpStream>>()
        );
    }
}
