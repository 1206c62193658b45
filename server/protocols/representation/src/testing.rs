//! Builds connections for tests.

use handler::{Peer, PeerAddr};
use std::rc::Rc;

/// Returns the two ends of a connection.
pub(crate) fn connection() -> Rc<Peer> {
    Rc::new(Peer {
        remote: PeerAddr::Unix,
        remote_text: "192.0.2.1".into(),
        local: PeerAddr::Unix,
        tls: false,
        session: None,
    })
}
