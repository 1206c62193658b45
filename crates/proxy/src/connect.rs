//! New connections to origins.

use crate::Upstreams;
use crate::origin::Place;
use crate::stream::Stream;
use crate::tls::Tls;
use handler::{Failure, FailureKind};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};

/// How long an address is waited for before the next one is tried beside it (RFC 8305 section 5).
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

type Attempt = Pin<Box<dyn Future<Output = io::Result<TcpStream>>>>;

/// Connects to an origin within `connect_timeout`.
///
/// # Errors
/// [`FailureKind::UpstreamUnreachable`] or [`FailureKind::UpstreamTimeout`]: nothing has been sent.
pub(crate) async fn connect(upstreams: &Upstreams, origin: usize) -> Result<Stream, Failure> {
    let patience = upstreams.config.connect_timeout;
    let (kind, why) = match tokio::time::timeout(patience, open(upstreams, origin)).await {
        Ok(Ok(stream)) => return Ok(stream),
        Ok(Err(error)) => (FailureKind::UpstreamUnreachable, error.to_string()),
        Err(_) => (FailureKind::UpstreamTimeout, format!("no answer within connect_timeout ({patience:?})")),
    };
    Err(Failure::new(kind, format!("cannot connect: {why}")))
}

async fn open(upstreams: &Upstreams, origin: usize) -> io::Result<Stream> {
    let state = &upstreams.origins[origin];
    let (host, tls) = match &state.origin.place {
        Place::Unix(path) => return UnixStream::connect(path).await.map(Stream::Unix),
        Place::Tcp { host, tls, .. } => (host, *tls),
    };
    let socket = first_to_answer(&state.addresses.get().await?).await?;
    socket.set_nodelay(true)?;
    match &upstreams.tls {
        Some(config) if tls => Ok(Stream::Tls(Box::new(Tls::connect(config.clone(), host, socket).await?))),
        _ => Ok(Stream::Tcp(socket)),
    }
}

/// Connects to all addresses, one after the other: the next one when one has failed, or takes its time.
async fn first_to_answer(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut waiting = addresses.iter();
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "the origin has no address");
    loop {
        match waiting.next() {
            Some(&address) => attempts.push(Box::pin(TcpStream::connect(address))),
            None if attempts.is_empty() => return Err(last_error),
            None => {}
        }
        let more = waiting.len() > 0;
        let mut pause = pin!(tokio::time::sleep(NEXT_ADDRESS));
        let connected = poll_fn(|cx| {
            let mut failed = false;
            let mut at = 0;
            while at < attempts.len() {
                match attempts[at].as_mut().poll(cx) {
                    Poll::Ready(Ok(socket)) => return Poll::Ready(Some(socket)),
                    Poll::Ready(Err(error)) => {
                        last_error = error;
                        failed = true;
                        drop(attempts.remove(at));
                    }
                    Poll::Pending => at += 1,
                }
            }
            let next = failed || attempts.is_empty() || (more && pause.as_mut().poll(cx).is_ready());
            if next { Poll::Ready(None) } else { Poll::Pending }
        })
        .await;
        if let Some(socket) = connected {
            return Ok(socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn addresses_that_do_not_answer_are_passed_over() {
        let good = TcpListener::bind("127.0.0.1:0").unwrap();
        let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // A queue of one that is full: connecting takes for ever.
        let full = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = full.local_addr().unwrap();
        rustix::net::listen(&full, 0).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let _held = tokio::net::TcpStream::connect(silent).await.unwrap();
            let addresses = [refused, silent, refused, good.local_addr().unwrap()];
            let connected = first_to_answer(&addresses).await.unwrap();
            assert_eq!(connected.peer_addr().unwrap(), addresses[3]);
            let error = first_to_answer(&[refused, refused]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            assert_eq!(first_to_answer(&[]).await.unwrap_err().kind(), io::ErrorKind::NotFound);
        });
    }
}
