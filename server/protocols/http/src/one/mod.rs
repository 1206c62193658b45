//! Serves HTTP/1.0 and HTTP/1.1 connections (RFC 9112), one exchange at a time.
//!
//! Contract:
//! 1. A request is accepted only if its end is unambiguous. Anything else is refused, and the connection ends.
//! 2. Pipelined requests are answered in order. The next one is parsed after the previous response has been sent.
//! 3. A connection holds no buffer between requests: the part of the future that needs one is boxed and dropped.

mod body_state;
mod client;
mod exchange;
mod incoming;
mod link;
mod receive;
mod respond;
mod tunnel;
mod watched;

use crate::context::Context;
use exchange::{Served, Then};
use handler::{Failure, Handler, Peer};
pub(crate) use link::Link;
use net::{Subnet, Transport, TunnelEnd};
use std::rc::Rc;
use std::time::Duration;
use tunnel::TunnelOutcome;
use watched::Watched;

/// The longest lingering close after a response.
const LINGER: Duration = Duration::from_secs(3);
/// The longest lingering close of a refused connection: there may be many of them.
const LINGER_REFUSED: Duration = Duration::from_secs(1);

/// A connection that is about to be served.
///
/// Opening is a separate step to save memory: a future that takes a stream as an argument reserves room for
/// it twice, for as long as it lives.
pub struct Connection<S>(pub(crate) Rc<Link<S>>);

impl<S: Transport> Connection<S> {
    /// Opens a connection of the client at `address`; it counts as open from now on.
    pub fn open<H>(stream: S, address: Subnet, context: &Context<H>) -> Connection<S> {
        Connection(Link::new(stream, context.shared.clone(), address))
    }

    /// Serves the connection until it ends; then `held` is dropped.
    ///
    /// Not an `async fn`, which would reserve room for its arguments twice.
    pub fn serve<H: Handler, T>(
        self,
        peer: Rc<Peer>,
        context: Rc<Context<H>>,
        held: T,
    ) -> impl Future<Output = ()> {
        let link = self.0;
        async move {
            let mut served = 0;
            while link.has_request(served).await {
                let serving = Box::pin(exchange::serve_requests(&link, &peer, &context, &mut served));
                let then = match Watched::new(&link, serving).await {
                    Served::Then(then) => then,
                    Served::Tunnel(tunnel) => Watched::new(&link, Box::pin(tunnel.run(&link))).await,
                };
                match then {
                    Then::Idle => {}
                    Then::Close => break,
                    Then::Linger => {
                        // Boxed: this keeps the future of an idle connection small.
                        Watched::new(&link, Box::pin(link.linger(LINGER))).await;
                        break;
                    }
                }
            }
            Box::pin(link.settle()).await;
            drop(held);
        }
    }
}

/// Serves one connection until it ends.
pub async fn serve<S: Transport, H: Handler>(stream: S, peer: Rc<Peer>, context: Rc<Context<H>>) {
    let address = Subnet::of(peer.remote.ip());
    Connection::open(stream, address, &context).serve(peer, context, ()).await;
}

/// Goes on with a tunnel that another process has opened, until it ends. `ahead`: bytes that the other process has read from the client.
pub async fn resume<S: Transport, H>(
    stream: S,
    address: Subnet,
    context: Rc<Context<H>>,
    ahead: &[u8],
    io: Box<dyn TunnelEnd>,
) {
    let link = Link::new(stream, context.shared.clone(), address);
    link.input.borrow_mut().extend_from_slice(ahead);
    link.wakes_this_task().await;
    link.busy();
    let running = async {
        let _counted = (link.shared.count_active(), link.shared.count_tunnel());
        tunnel::run(&link, io).await.1
    };
    if Watched::new(&link, Box::pin(running)).await == TunnelOutcome::Ended {
        Watched::new(&link, Box::pin(link.linger(LINGER))).await;
    }
    Box::pin(link.settle()).await;
}

/// Sends the response for `failure` on a connection that is not served, and closes it.
pub async fn refuse<S: Transport, H: Handler>(
    stream: S,
    peer: Rc<Peer>,
    context: Rc<Context<H>>,
    failure: Failure,
) {
    let link = Link::new(stream, context.shared.clone(), Subnet::of(peer.remote.ip()));
    context.shared.room.refuse(link.timer.key());
    link.wakes_this_task().await;
    let refusing = Box::pin(exchange::refuse_connection(&link, &peer, &context, failure));
    if Watched::new(&link, refusing).await == Then::Linger {
        Watched::new(&link, Box::pin(link.linger(LINGER_REFUSED))).await;
    }
    link.settle().await;
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
            remote_text: Box::default(),
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

    fn pair() -> (std::os::unix::net::UnixStream, UnixStream) {
        let (client, server) = std::os::unix::net::UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        (client, UnixStream::from_std(server).unwrap())
    }

    #[test]
    fn an_idle_connection_is_small() {
        run(async |peer, context| {
            let (_client, stream) = pair();
            let idle =
                Connection::open(stream, Subnet::default(), &context).serve(peer, context, [0_usize; 2]);
            // Together with the runtime's part, the task has 256 bytes.
            assert!(size_of_val(&idle) <= 144, "{}", size_of_val(&idle));
        });
        // Together with the counts of its `Rc`, the link has 224 bytes.
        let size = size_of::<Link<net::Connection>>();
        assert!(size <= 208, "{size}");
    }

    #[test]
    fn a_request_in_progress_is_small() {
        run(async |peer, context| {
            let (_client, stream) = pair();
            let link = Link::new(stream, context.shared.clone(), Subnet::default());
            let mut served = 0;
            let serving = exchange::serve_requests(&link, &peer, &context, &mut served);
            // The handler's own future is not included.
            assert!(size_of_val(&serving) <= 656, "{}", size_of_val(&serving));
        });
    }
}
