//! The record of a client that one program passes on to another ([`super::heirloom`]).
//!
//! Contract: a record has everything that the other program needs to go on with the client, and the other program may be of another version: a
//! record that it cannot read is an error, and the client connects again.

use super::call::template_of;
use cable::exclusion::SessionId;
use cable::frame::FrameDecoder;
use cable::presence::PresenceJoin;
use handler::{Peer, PeerAddr, Request};
use net::TunnelEnd;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use tokio::sync::mpsc;

/// Takes the clients of a thread to the other program.
pub(crate) type Givers = mpsc::UnboundedSender<Box<GivenSocket>>;

/// Serves a connection that another program has held: its descriptor, its peer, the bytes that were read ahead, and its far end.
pub(crate) type Resume = Box<dyn Fn(OwnedFd, Peer, Vec<u8>, Box<dyn TunnelEnd>)>;

/// A client on its way to another program.
pub(crate) struct GivenSocket {
    pub(super) connection: OwnedFd,
    pub(super) record: SocketRecord,
}

/// A client as a text.
#[derive(Serialize, Deserialize)]
pub(super) struct SocketRecord {
    pub(super) is_extended: bool,
    /// The number of the session; an older program does not name it.
    #[serde(default)]
    pub(super) id: SessionId,
    pub(super) handshake: HandshakeRecord,
    /// The app's state of the connection, and the stream on which it ends connections.
    pub(super) connection: Box<str>,
    pub(super) remote: Option<Box<str>>,
    /// Not the app has let it in, but its token; an older program does not name it.
    #[serde(default)]
    pub(super) by_token: bool,
    pub(super) subscriptions: Vec<SubscriptionRecord>,
    pub(super) decoder: FrameDecoder,
    /// Bytes from the client that are not decoded, and bytes for it that are not sent.
    pub(super) unwritten: Vec<u8>,
    pub(super) unsent: Vec<u8>,
    /// The largest offset from outside up to which the client has everything.
    pub(super) delivered: u64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct SubscriptionRecord {
    pub(super) identifier: String,
    pub(super) channel: Option<Box<str>>,
    pub(super) streams: Vec<String>,
    /// The stream that the client may whisper to.
    #[serde(default)]
    pub(super) whispers_to: Option<String>,
    /// The members that the client is; an older program does not know them.
    #[serde(default)]
    pub(super) members: Vec<PresenceJoin>,
    /// The intervals of the channel's timers, in seconds.
    #[serde(default)]
    pub(super) timers: Vec<f64>,
}

/// The parts of a handshake that calls to the app need. Bytes are characters of the same number.
#[derive(Serialize, Deserialize)]
pub(super) struct HandshakeRecord {
    target: String,
    /// Where the path begins in the target.
    path: usize,
    authority: String,
    fields: Vec<(String, String)>,
    variables: Vec<(String, String)>,
    https: bool,
    remote: Option<SocketAddr>,
    local: Option<SocketAddr>,
}

fn characters(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn bytes(text: &str) -> Vec<u8> {
    text.chars().map(|character| u8::try_from(u32::from(character)).unwrap_or(b'?')).collect()
}

impl HandshakeRecord {
    pub(super) fn of(request: &Request) -> HandshakeRecord {
        let pair = |(name, value): (&[u8], &[u8])| (characters(name), characters(value));
        let inet = |address: &PeerAddr| match address {
            PeerAddr::Inet(address) => Some(*address),
            PeerAddr::Unix => None,
        };
        HandshakeRecord {
            target: characters(request.target()),
            path: request.path.start.saturating_sub(request.target.start) as usize,
            authority: characters(request.authority()),
            fields: request.fields.iter().map(pair).collect(),
            variables: request.variables.iter().map(|(name, value)| pair((name, value))).collect(),
            https: request.https,
            remote: inet(&request.peer.remote),
            local: inet(&request.peer.local),
        }
    }

    pub(super) fn peer(&self) -> Peer {
        let address = |known: Option<SocketAddr>| known.map_or(PeerAddr::Unix, PeerAddr::Inet);
        Peer {
            remote: address(self.remote),
            remote_text: self.remote.map_or(String::new(), |remote| remote.ip().to_string()).into(),
            local: address(self.local),
            tls: false,
            session: None,
        }
    }

    pub(super) fn request(&self) -> Request {
        let fields: Vec<_> = self.fields.iter().map(|(name, value)| (bytes(name), bytes(value))).collect();
        let fields = fields.iter().map(|(name, value)| (&**name, &**value));
        let (target, authority, peer) = (bytes(&self.target), bytes(&self.authority), Rc::new(self.peer()));
        let (before, query) = match target.iter().position(|byte| *byte == b'?') {
            Some(at) => (&target[..at], &target[at + 1..]),
            None => (&*target, &[][..]),
        };
        let path = &before[before.len().min(self.path)..];
        let mut request = template_of(&target, path, query, &authority, fields, peer);
        request.https = self.https;
        let variables = self.variables.iter();
        request.variables =
            variables.map(|(name, value)| (bytes(name).into(), bytes(value).into())).collect();
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_survives() {
        let record = HandshakeRecord {
            target: "http://example.org/cable?user=\u{e4}".to_owned(),
            path: 18,
            authority: "example.org".to_owned(),
            fields: vec![("Cookie".to_owned(), "a=\u{ff}\u{80}".to_owned())],
            variables: vec![("name".to_owned(), "value".to_owned())],
            https: true,
            remote: Some("192.0.2.1:5".parse().unwrap()),
            local: None,
        };
        let request = record.request();
        assert_eq!(request.target(), b"http://example.org/cable?user=\xe4");
        assert_eq!((request.path(), request.authority()), (&b"/cable"[..], &b"example.org"[..]));
        assert_eq!(request.fields.get("cookie"), Some(&b"a=\xff\x80"[..]));
        assert_eq!(&*request.peer.remote_text, "192.0.2.1");
        let text = |record: &HandshakeRecord| serde_json::to_string(record).unwrap();
        assert_eq!(text(&HandshakeRecord::of(&request)), text(&record));
    }
}
