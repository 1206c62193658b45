//! Turns an accepted socket into an encrypted stream, or refuses it with a reason.

use super::acceptor::Acceptor;
use crate::tls::variables;
use ::tls::{CertificateChoice, Endpoint, Established, Failed, HandshakeRefusal, Hello};
use handler::{Peer, Session};
use http::Arrival;
use net::TlsStream;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a client waits for a certificate that is obtained on demand.
const ON_DEMAND: Duration = Duration::from_secs(60);

pub(crate) struct Secured {
    pub(crate) stream: TlsStream,
    pub(crate) session: Box<Session>,
    /// Whether the client negotiated HTTP/2.
    pub(crate) http2: bool,
}

/// Performs the handshake and counts the outcome. `None`: the connection is closed. `arrival`: set if the
/// connection may have to make room for others.
pub(crate) async fn shake(
    acceptor: &Rc<Acceptor>,
    socket: TcpStream,
    peer: &Peer,
    endpoint: Arc<Endpoint>,
    arrival: Option<Arrival>,
) -> Option<Secured> {
    let arrival = arrival.as_ref();
    // Boxed, here and below: each async function that a future passes through holds all of it, and many
    // handshakes can wait at once.
    let outcome = perform(arrival, Box::pin(steps(acceptor, socket, peer, &endpoint, arrival))).await;
    let displaced = || Err(Failed { refusal: HandshakeRefusal::Displaced, remains: None, name: None });
    match outcome.unwrap_or_else(displaced) {
        Ok(established) => {
            let Established { stream, session } = established?;
            acceptor.recorder.handshake(&stats::Handshake {
                version: session.version.name(),
                cipher: session.cipher,
                resumed: session.resumed,
            });
            let variables = if endpoint.asks_clients() { variables::of(&session) } else { Vec::new() };
            let (version, cipher) = (session.version.name(), session.cipher);
            let http2 = session.http2;
            Some(Secured {
                stream,
                session: Box::new(Session { version, cipher, variables, ..Session::default() }),
                http2,
            })
        }
        Err(failed) => {
            acceptor.recorder.handshake_failed(failed.refusal.name());
            if failed.refusal.concerns_owner() {
                let name = failed.name.as_ref().map(|name| format!(" for {name}")).unwrap_or_default();
                acceptor.log(&format!(
                    "a TLS handshake with {}{name} failed: {}",
                    peer.remote_text, failed.refusal
                ));
            }
            // The connection can be displaced until it is closed.
            perform(arrival, Box::pin(refuse(failed))).await;
            None
        }
    }
}

/// Awaits `work`. Returns `None` if the connection had to make room for another one meanwhile.
async fn perform<F: Future>(arrival: Option<&Arrival>, work: F) -> Option<F::Output> {
    match arrival {
        Some(arrival) => arrival.perform(work).await,
        None => Some(work.await),
    }
}

/// Awaits work of the server. This time does not count as waiting for the client.
async fn by_server<F: Future>(arrival: Option<&Arrival>, work: F) -> F::Output {
    match arrival {
        Some(arrival) => arrival.by_server(work).await,
        None => work.await,
    }
}

/// Returns `Ok(None)` after a challenge, which has no requests.
async fn steps(
    acceptor: &Rc<Acceptor>,
    socket: TcpStream,
    peer: &Peer,
    endpoint: &Endpoint,
    arrival: Option<&Arrival>,
) -> Result<Option<Established>, Failed> {
    let limit = acceptor.settings.get().timeouts.handshake;
    let begun = tokio::time::Instant::now();
    let hello = within(limit, Hello::read(socket)).await?;
    let left = limit.saturating_sub(begun.elapsed());
    let (hello, choice) = hello.choose(endpoint)?;
    let (hello, choice) = match choice {
        CertificateChoice::OnDemand(name, hooks) => {
            let client = peer.remote.ip().map(|address| address.to_canonical());
            let asked = within(ON_DEMAND, hello.on_demand(endpoint, &name, client, &hooks));
            by_server(arrival, Box::pin(asked)).await?
        }
        chosen => (hello, chosen),
    };
    by_server(arrival, acceptor.handshakes.turn()).await;
    within(left.max(Duration::from_millis(1)), hello.answer(endpoint, &choice)).await
}

async fn within<T>(limit: Duration, step: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let late = Err(Failed { refusal: HandshakeRefusal::Timeout, remains: None, name: None });
    timeout(limit, step).await.unwrap_or(late)
}

/// Sends a 400 to a client that speaks plain HTTP, and closes the connection.
async fn refuse(failed: Failed) {
    let plain = failed.remains.as_ref().filter(|_| failed.refusal == HandshakeRefusal::PlainHttp);
    let Some(remains) = plain else { return failed.linger().await };
    const TEXT: &str = "400 Bad Request\nThis port speaks HTTPS: use https:// instead of http://\n";
    let response = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{TEXT}",
        TEXT.len()
    );
    // The response fits into the buffer of a new socket.
    let _ = remains.socket().try_write(response.as_bytes());
    failed.linger().await;
}
