//! Connects to one of several addresses of a name.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;

/// The delay before the next address is tried in parallel (RFC 8305 section 5).
const NEXT_ADDRESS: Duration = Duration::from_millis(250);

type Attempt = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// Looks up a name and connects to one of its addresses, as [`connect_tcp`] does.
///
/// # Errors
/// The error of the lookup, or that of [`connect_tcp`].
pub async fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
    connect_tcp(&addresses).await
}

/// Connects to the first of `addresses` that accepts. They are tried in order; the next one starts when one
/// has failed, or after a quarter of a second.
///
/// # Errors
/// The last attempt's error, or `NotFound` without addresses.
pub async fn connect_tcp(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut waiting = addresses.iter();
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut last_error = io::Error::new(io::ErrorKind::NotFound, "no address to connect to");
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
    fn addresses_that_do_not_accept_are_skipped() {
        let good = TcpListener::bind("127.0.0.1:0").unwrap();
        let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // Its backlog of one is full, so connecting does not complete.
        let full = TcpListener::bind("127.0.0.1:0").unwrap();
        let silent = full.local_addr().unwrap();
        rustix::net::listen(&full, 0).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // Fails if another program has taken the place in the backlog.
            let _held = tokio::time::timeout(NEXT_ADDRESS, tokio::net::TcpStream::connect(silent)).await;
            let addresses = [refused, silent, refused, good.local_addr().unwrap()];
            let connected = connect_tcp(&addresses).await.unwrap();
            assert_eq!(connected.peer_addr().unwrap(), addresses[3]);
            let error = connect_tcp(&[refused, refused]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            assert_eq!(connect_tcp(&[]).await.unwrap_err().kind(), io::ErrorKind::NotFound);
            let port = good.local_addr().unwrap().port();
            assert_eq!(dial("localhost", port).await.unwrap().peer_addr().unwrap().port(), port);
        });
    }
}
