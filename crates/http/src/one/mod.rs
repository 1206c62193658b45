//! HTTP/1.0 and HTTP/1.1 connections (RFC 9112): one exchange at a time.
//!
//! Contract:
//! 1. A request is accepted only if its end can be found in one way; anything else is refused, and the connection ends.
//! 2. Pipelined requests are answered in order; the next one is parsed after the last response has been sent.
//! 3. Between requests a connection holds no buffer: the part of the future that needs one is boxed and dropped.

mod body_state;
mod client;
mod exchange;
mod incoming;
mod link;
mod receive;
mod respond;
mod tunnel;

use crate::context::Context;
use exchange::Then;
use handler::{Failure, Handler, Peer};
pub(crate) use link::Link;
use net::Transport;
use std::rc::Rc;
use std::time::Duration;

/// How long a client may take to read a response that it may not expect.
const LINGER: Duration = Duration::from_secs(3);
/// The same on a connection that was never served: there may be many of them.
const LINGER_REFUSED: Duration = Duration::from_secs(1);

/// Serves one connection until it ends.
pub async fn serve<S: Transport, H: Handler>(stream: S, peer: Rc<Peer>, context: Rc<Context<H>>) {
    serve_link(Link::new(stream, context.shared.clone()), peer, context).await;
}

/// Serves a connection from which bytes may have been read already.
pub(crate) async fn serve_link<S: Transport, H: Handler>(
    link: Rc<Link<S>>,
    peer: Rc<Peer>,
    context: Rc<Context<H>>,
) {
    let mut served = 0;
    while link.has_request(served).await {
        match Box::pin(exchange::serve_requests(&link, &peer, &context, &mut served)).await {
            Then::Idle => {}
            Then::Close => return,
            Then::Linger => return link.linger(LINGER).await,
        }
    }
}

/// Sends the response to a connection that is not served, and closes it.
pub async fn refuse<S: Transport, H: Handler>(
    stream: S,
    peer: Rc<Peer>,
    context: Rc<Context<H>>,
    failure: Failure,
) {
    let link = Link::new(stream, context.shared.clone());
    link.wakes_this_task().await;
    if exchange::refuse_connection(&link, &peer, &context, failure).await == Then::Linger {
        link.linger(LINGER_REFUSED).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use handler::{Exchange, PeerAddr, Response};
    use net::Timers;
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
        let peer = Peer {
            remote: PeerAddr::Unix,
            remote_text: String::new(),
            local: PeerAddr::Unix,
            tls: false,
            session: None,
        };
        runtime.expect("a runtime").block_on(async {
            let context = Context::new(Hello, Limits::default(), Timers::new());
            work(Rc::new(peer), context).await
        })
    }

    #[test]
    fn unix_sockets_are_served() {
        let (mut client, server) = std::os::unix::net::UnixStream::pair().unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        server.set_nonblocking(true).unwrap();
        run(async |peer, context| serve(UnixStream::from_std(server).unwrap(), peer, context).await);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nhello"), "{answer}");
    }

    #[test]
    fn a_refused_client_that_stays_is_closed() {
        let (mut client, server) = std::os::unix::net::UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        run(async |peer, context| {
            let stream = UnixStream::from_std(server).unwrap();
            let timers = context.shared.timers.clone();
            tokio::select! {
                () = refuse(stream, peer, context, Failure::busy("no room")) => {}
                () = timers.run() => {}
                () = tokio::time::sleep(LINGER_REFUSED * 20) => panic!("it is still open"),
            }
        });
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
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
