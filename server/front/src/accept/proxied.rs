//! Connections from proxies that send the client's address with the PROXY protocol.
//!
//! Contract:
//! 1. An address with `proxy_protocol` serves only trusted proxies (`rack.trusted_proxies`), and only with a
//!    header. Guessing whether a header is present would let any client choose its address.
//! 2. The header replaces both addresses of the connection everywhere: in logs, `REMOTE_ADDR`, limits and handlers.
//! 3. The header is read before TLS, within `timeouts.handshake`. On any error, a line goes to the error log
//!    and the connection is closed without a response, because the client is unknown.

use super::acceptor::{Acceptor, canonical};
use handler::{Peer, PeerAddr};
use http::Arrival;
use net::proxy_protocol::{Accepted, Ends, HeaderFailure, ProxyHeader, Socket, receive};
use settings::{Bind, ProxyProtocol};
use std::sync::Arc;
use tokio::time::timeout;

/// Returns the version of the header that connections of an address begin with; `None` without a header.
pub(crate) fn expected(bind: &Bind) -> Option<Accepted> {
    let Bind::Tcp { proxy_protocol: Some(version), .. } = bind else { return None };
    Some(match version {
        ProxyProtocol::V1 => Accepted::V1,
        ProxyProtocol::V2 => Accepted::V2,
        ProxyProtocol::Any => Accepted::Any,
    })
}

/// Reads the header of a new connection. `None`: the connection must be closed, or was displaced.
pub(crate) async fn introduce<S: Socket>(
    acceptor: &Acceptor,
    socket: &S,
    peer: Peer,
    bind: &Arc<Bind>,
    accepted: Accepted,
    arrival: &Arrival,
) -> Option<Peer> {
    let settings = acceptor.settings.get();
    let closed = |why: &str| {
        acceptor.log(&format!("a connection from {} to {bind} was closed: {why}", peer.remote_text));
        None
    };
    if !settings.rack.trusted_proxies.trusts(peer.remote.ip()) {
        return closed(
            "it is not in rack.trusted_proxies, and an address with proxy_protocol accepts only trusted proxies",
        );
    }
    let limit = settings.timeouts.handshake;
    match arrival.perform(timeout(limit, receive(socket, accepted))).await? {
        Ok(Ok(header)) => Some(introduced(peer, header)),
        // Load balancers open and close a connection to check the port.
        Ok(Err(HeaderFailure::Ended(false))) => None,
        Ok(Err(why @ HeaderFailure::Malformed(_))) => closed(&format!(
            "{why}; let the proxy send one (haproxy: send-proxy-v2, nginx: proxy_protocol on), or remove proxy_protocol \
             from this address"
        )),
        Ok(Err(why)) => closed(&why.to_string()),
        Err(_) => closed(&format!("it sent no complete PROXY header within {} s", limit.as_secs_f64())),
    }
}

/// Replaces both addresses of the connection by those of the header.
fn introduced(mut peer: Peer, header: ProxyHeader) -> Peer {
    match header.ends {
        Ends::Own => {}
        Ends::Inet { remote, local } => {
            let remote = canonical(remote);
            peer.remote_text = remote.ip().to_string().into();
            (peer.remote, peer.local) = (PeerAddr::Inet(remote), PeerAddr::Inet(local));
        }
        Ends::Unix => {
            peer.remote_text = Box::default();
            (peer.remote, peer.local) = (PeerAddr::Unix, PeerAddr::Unix);
        }
    }
    peer.tls |= header.tls == Some(true);
    peer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> Peer {
        Peer {
            remote: PeerAddr::Inet("127.0.0.1:1".parse().unwrap()),
            remote_text: "127.0.0.1".into(),
            local: PeerAddr::Inet("127.0.0.1:80".parse().unwrap()),
            tls: false,
            session: None,
        }
    }

    #[test]
    fn the_header_says_who_the_client_is() {
        let (remote, local) = ("[::ffff:192.0.2.1]:5".parse().unwrap(), "[2001:db8::1]:443".parse().unwrap());
        let found = introduced(peer(), ProxyHeader { ends: Ends::Inet { remote, local }, tls: Some(true) });
        assert_eq!((found.remote, found.local), (PeerAddr::Inet(canonical(remote)), PeerAddr::Inet(local)));
        assert_eq!((&*found.remote_text, found.tls), ("192.0.2.1", true));
        let unix = introduced(peer(), ProxyHeader { ends: Ends::Unix, tls: None });
        assert_eq!((unix.remote, &*unix.remote_text), (PeerAddr::Unix, ""));
        let own = introduced(peer(), ProxyHeader { ends: Ends::Own, tls: None });
        assert_eq!((own.remote, &*own.remote_text, own.tls), (peer().remote, "127.0.0.1", false));
    }

    #[test]
    fn addresses_that_expect_a_header() {
        assert_eq!(expected(&"tcp://h:1?proxy_protocol=v1".parse().unwrap()), Some(Accepted::V1));
        assert_eq!(expected(&"ssl://h:1?proxy_protocol=any".parse().unwrap()), Some(Accepted::Any));
        assert_eq!(expected(&"tcp://h:1".parse().unwrap()), None);
        assert_eq!(expected(&"/a".parse().unwrap()), None);
    }
}
