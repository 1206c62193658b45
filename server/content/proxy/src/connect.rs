//! Opens new connections to origins.
//!
//! Contract: an origin that has moved is found within the request: if the addresses of its name do not
//! accept, or are slow, the name is looked up again, and new addresses are tried alongside the old ones.

use crate::Upstreams;
use crate::origin::Endpoint;
use crate::resolve::Addresses;
use handler::Failure;
use net::{Stream, TlsStream, connect_tcp};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::net::UnixStream;

/// After this time without a connection, the name is looked up again; earlier if `connect_timeout` is short.
const DOUBT: Duration = Duration::from_secs(1);

/// Connects to an origin within `connect_timeout`.
///
/// # Errors
/// 502 or 504; nothing has been sent.
pub(crate) async fn connect(upstreams: &Upstreams, origin: usize) -> Result<Stream, Failure> {
    let timeout = upstreams.config.connect_timeout;
    let (status, why) = match tokio::time::timeout(timeout, open(upstreams, origin)).await {
        Ok(Ok(stream)) => return Ok(stream),
        Ok(Err(error)) => (502, error.to_string()),
        Err(_) => (504, format!("no answer within connect_timeout ({timeout:?})")),
    };
    Err(Failure::app(status, format!("cannot connect: {why}")))
}

async fn open(upstreams: &Upstreams, origin: usize) -> io::Result<Stream> {
    let state = &upstreams.origins[origin];
    let (host, tls) = match &state.origin.endpoint {
        Endpoint::Unix(path) => return UnixStream::connect(path).await.map(Stream::Unix),
        Endpoint::Tcp { host, tls, .. } => (host.as_str(), *tls),
    };
    let patience = DOUBT.min(upstreams.config.connect_timeout / 4);
    let known = state.addresses.get(patience).await?;
    let first = reach(upstreams, host, tls, &known);
    if !matches!(state.addresses, Addresses::Name(_)) {
        return first.await;
    }
    let mut first = pin!(first);
    let mut refused = None;
    tokio::select! {
        biased;
        reached = &mut first => match reached {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = Some(error),
        },
        () = tokio::time::sleep(patience) => {}
    }
    let mut second = pin!(async {
        match state.addresses.after(&known).await {
            Some(new) => reach(upstreams, host, tls, &new).await.map(Some),
            None => Ok(None),
        }
    });
    // Whether the second attempt has ended, and its error, which concerns the current addresses.
    let mut over = false;
    let mut last = None;
    poll_fn(|cx| {
        if refused.is_none() {
            match first.as_mut().poll(cx) {
                Poll::Ready(Ok(stream)) => return Poll::Ready(Ok(stream)),
                Poll::Ready(Err(error)) => refused = Some(error),
                Poll::Pending => {}
            }
        }
        if !over && let Poll::Ready(reached) = second.as_mut().poll(cx) {
            over = true;
            match reached {
                Ok(Some(stream)) => return Poll::Ready(Ok(stream)),
                Ok(None) => {}
                Err(error) => last = Some(error),
            }
        }
        match refused.take_if(|_| over) {
            Some(error) => Poll::Ready(Err(last.take().unwrap_or(error))),
            None => Poll::Pending,
        }
    })
    .await
}

/// Connects to the first address that accepts, including TLS.
async fn reach(upstreams: &Upstreams, host: &str, tls: bool, addresses: &[SocketAddr]) -> io::Result<Stream> {
    let socket = connect_tcp(addresses).await?;
    socket.set_nodelay(true)?;
    match &upstreams.tls {
        Some(config) if tls => {
            Ok(Stream::Tls(Box::new(TlsStream::connect(config.clone(), host, socket).await?)))
        }
        _ => Ok(Stream::Tcp(socket)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Origin, ProxyConfig};
    use std::net::TcpListener;
    use std::time::Instant;

    /// How long the addresses below have been known.
    const LONG: Duration = Duration::from_secs(5);

    /// An origin at `localhost` whose last look-up returned `old`.
    fn moved(old: SocketAddr) -> (Upstreams, TcpListener) {
        let new = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = new.local_addr().unwrap().port();
        let origin = Origin::parse(&format!("http://localhost:{port}")).unwrap();
        let config = ProxyConfig {
            connect_timeout: Duration::from_secs(10),
            ..ProxyConfig::new("test", vec![origin])
        };
        let upstreams = Upstreams::new(config).unwrap();
        let upstreams = std::sync::Arc::try_unwrap(upstreams).ok().expect("no other owner");
        upstreams.origins[0].addresses.knew(&[old], LONG);
        (upstreams, new)
    }

    fn connects(upstreams: &Upstreams) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { connect(upstreams, 0).await.is_ok_and(|stream| stream.is_quiet()) })
    }

    #[test]
    fn an_origin_that_has_moved_is_found_when_the_old_address_refuses() {
        let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (upstreams, _listener) = moved(refused);
        let before = Instant::now();
        assert!(connects(&upstreams));
        assert!(before.elapsed() < DOUBT, "nothing is waited for");
    }

    #[test]
    fn an_origin_that_has_moved_is_found_when_the_old_address_says_nothing() {
        // The backlog is full, so connecting does not complete.
        let full = TcpListener::bind("127.0.0.1:0").unwrap();
        rustix::net::listen(&full, 0).unwrap();
        let silent = full.local_addr().unwrap();
        let _held: Vec<_> = (0..3)
            .map(|_| std::net::TcpStream::connect_timeout(&silent, Duration::from_millis(200)))
            .collect();
        let (upstreams, _listener) = moved(silent);
        assert!(connects(&upstreams));
        assert!(connects(&upstreams), "and remembered");
    }

    #[test]
    fn an_origin_that_is_down_says_so() {
        let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (upstreams, listener) = moved(refused);
        drop(listener);
        assert!(!connects(&upstreams));
    }
}
