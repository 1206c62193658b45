//! Passes streams and clients on to the program that takes over in an upgrade, so that clients notice nothing.
//!
//! The sequence: the old program stops to publish, and delivers what was published ([`give_away`]). It sends the streams, then the connections of
//! its clients with a record of each, then the end. The new program ([`SharedHub::inherit`]) lets no client in before it has the streams, and
//! publishes nothing before the end.
//!
//! Contract:
//! 1. Connections without TLS over HTTP/1.1 go to the new program, with the frame that has arrived in part and the bytes that are not sent yet. All
//!    others are told to connect again.
//! 2. A client whose command is in the app goes when the command is carried out; after [`LAGGARDS`] it stays, and is told to connect again.
//! 3. Nothing waits for longer than [`PATIENCE`]. If the old program dies, or is one that passes nothing on, the new one goes on without.

use super::call::{CallSource, template_of};
use super::local::{HubClient, LocalHub};
use super::session::{HubSubscription, Session};
use super::socket::{CableSocket, SocketEnd};
use super::{Mail, PATIENCE, SharedHub, now_ms};
use crate::handover::SuccessorChannel;
use cable::command::{CableProtocol, StreamPosition};
use cable::frame::{FrameDecoder, code};
use cable::message;
use cable::streams::TableRecord;
use handler::{Peer, PeerAddr, Request};
use net::TunnelEnd;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The most connections of one message between the programs.
const MOST: usize = 60;
/// How long a client may be in the way.
const LAGGARDS: Duration = Duration::from_millis(1500);
/// The pause between two looks at the clients that are in the way.
const LOOK: Duration = Duration::from_millis(5);

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
    is_extended: bool,
    handshake: HandshakeRecord,
    /// The app's state of the connection, and the stream on which it ends connections.
    connection: Box<str>,
    remote: Option<Box<str>>,
    subscriptions: Vec<SubscriptionRecord>,
    pub(super) decoder: FrameDecoder,
    /// Bytes from the client that are not decoded, and bytes for it that are not sent.
    unwritten: Vec<u8>,
    pub(super) unsent: Vec<u8>,
    /// The largest offset from outside up to which the client has everything.
    delivered: u64,
}

#[derive(Serialize, Deserialize)]
struct SubscriptionRecord {
    identifier: String,
    channel: Option<Box<str>>,
    streams: Vec<String>,
}

/// The parts of a handshake that calls to the app need. Bytes are characters of the same number.
#[derive(Serialize, Deserialize)]
struct HandshakeRecord {
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
    fn of(request: &Request) -> HandshakeRecord {
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

    fn peer(&self) -> Peer {
        let address = |known: Option<SocketAddr>| known.map_or(PeerAddr::Unix, PeerAddr::Inet);
        Peer {
            remote: address(self.remote),
            remote_text: self.remote.map_or(String::new(), |remote| remote.ip().to_string()).into(),
            local: address(self.local),
            tls: false,
            session: None,
        }
    }

    fn request(&self) -> Request {
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

impl SocketRecord {
    /// Records a client. `None` if its handshake is not known any more.
    pub(super) fn of(
        socket: &CableSocket,
        decoder: FrameDecoder,
        unwritten: Vec<u8>,
        unsent: Vec<u8>,
    ) -> Option<SocketRecord> {
        let session = socket.session.borrow();
        let subscriptions = session.subscriptions.iter().map(|subscription| SubscriptionRecord {
            identifier: subscription.identifier.to_string(),
            channel: subscription.channel.clone(),
            streams: subscription.streams.iter().map(|stream| stream.name.to_string()).collect(),
        });
        Some(SocketRecord {
            is_extended: socket.protocol == CableProtocol::Extended,
            handshake: HandshakeRecord::of(&socket.source.template()?),
            connection: session.connection.clone(),
            remote: session.remote.clone(),
            subscriptions: subscriptions.collect(),
            decoder,
            unwritten,
            unsent,
            delivered: socket.local.delivered.get(),
        })
    }
}

// The old program.

/// Gives streams and clients to the program that has taken over. Nothing is published here any more, unless by Redis.
pub(crate) async fn give_away(hub: Arc<SharedHub>, channel: Rc<SuccessorChannel>, log: impl Fn(&str)) {
    let record = (!hub.is_shared).then(|| hub.streams().record());
    let file = record.map(|record| written(|file| Ok(serde_json::to_writer(file, &record)?))).transpose();
    match file {
        Ok(file) => channel.hub_streams(file.as_ref()).await,
        Err(error) => log(&format!("hub: the streams are not handed over: {error}")),
    }
    let mut given = hub.give();
    let mut some = Vec::new();
    while given.recv_many(&mut some, MOST).await > 0 {
        let records = written(|file| {
            some.iter().try_for_each(|given| Ok(serde_json::to_writer(&mut *file, &given.record)?))
        });
        let connections: Vec<_> = some.iter().map(|given| given.connection.as_fd()).collect();
        match records {
            Ok(records) => channel.hub_sockets(&records, &connections).await,
            Err(error) => log(&format!("hub: WebSockets are not handed over: {error}")),
        }
        some.clear();
    }
    channel.hub_end().await;
}

/// Returns a file in memory, to be read from its start.
fn written(write: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>) -> io::Result<File> {
    let mut file = sys::file::in_memory("firebrick hub")?;
    {
        let mut writer = BufWriter::new(&file);
        write(&mut writer)?;
        writer.flush()?;
    }
    file.rewind()?;
    Ok(file)
}

impl SharedHub {
    /// Asks all threads for their clients.
    fn give(&self) -> mpsc::UnboundedReceiver<Box<GivenSocket>> {
        let (to, given) = mpsc::unbounded_channel();
        let streams = self.streams();
        for mailbox in &self.mailboxes {
            // A thread that has ended has no clients.
            let _ = mailbox.send(Mail::Give { to: to.clone(), last: streams.last() });
        }
        given
    }
}

impl LocalHub {
    /// Gives all clients away that can go, and tells the others to connect again. Nothing is delivered meanwhile.
    pub(super) async fn give(self: &Rc<Self>, to: Givers) {
        self.closing.set(true);
        self.in_turns(|_| true, |socket| _ = socket.give(&to)).await;
        drop(to);
        let until = Instant::now() + LAGGARDS;
        while self.giving.get() > 0 && Instant::now() < until {
            tokio::time::sleep(LOOK).await;
        }
        self.in_turns(|_| true, |socket| socket.keep()).await;
        self.close();
    }
}

// The new program.

/// A part of what the old program passes on.
pub(crate) enum Heirloom {
    /// The streams; `None` if they come from Redis.
    Streams(Option<File>),
    /// Records of clients, and their connections.
    Sockets(File, Vec<OwnedFd>),
    /// Nothing more follows.
    End,
}

impl SharedHub {
    /// Takes a part over.
    ///
    /// # Errors
    /// It cannot be read; then the clients have to connect again.
    pub(crate) fn inherit(&self, heirloom: Heirloom) -> Result<(), String> {
        let unreadable = |error: &dyn std::fmt::Display| {
            format!("hub: what the old program has handed over cannot be read: {error}")
        };
        match heirloom {
            Heirloom::Streams(file) => {
                if let Some(record) = file.and_then(|file| read::<TableRecord>(file).next()) {
                    let record = record.map_err(|error| unreadable(&error))?;
                    self.streams().adopt(record, now_ms());
                    self.open();
                }
            }
            Heirloom::Sockets(file, connections) => {
                for (record, connection) in read::<SocketRecord>(file).zip(connections) {
                    let record = record.map_err(|error| unreadable(&error))?;
                    let thread = self.next.fetch_add(1, Ordering::Relaxed) % self.mailboxes.len();
                    self.adopting.fetch_add(1, Ordering::AcqRel);
                    let _ = self.mailboxes[thread]
                        .send(Mail::Adopt(Box::new(GivenSocket { connection, record })));
                }
            }
            Heirloom::End => {
                if !self.is_shared {
                    self.open();
                }
                if !self.has_all.swap(true, Ordering::AcqRel) {
                    self.adopted();
                }
            }
        }
        Ok(())
    }

    /// Counts a client as adopted. After the last, processes may publish: now it gets each message.
    fn adopted(&self) {
        if self.adopting.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.may_publish.send_if_modified(|may| !std::mem::replace(may, true));
        }
    }

    /// Waits until processes may publish, at most for [`PATIENCE`].
    pub(super) async fn may_publish(&self) {
        let mut may = self.may_publish.subscribe();
        let _ = tokio::time::timeout(PATIENCE, may.wait_for(|may| *may)).await;
    }
}

fn read<T: DeserializeOwned>(file: File) -> impl Iterator<Item = serde_json::Result<T>> {
    serde_json::Deserializer::from_reader(BufReader::new(file)).into_iter()
}

impl LocalHub {
    /// Goes on with a client of another program.
    pub(super) fn adopt(self: &Rc<Self>, given: GivenSocket) {
        let GivenSocket { connection, mut record } = given;
        let Some(resume) = self.resume.get() else { return };
        let protocol = if record.is_extended { CableProtocol::Extended } else { CableProtocol::Basic };
        let source = CallSource::Own(Box::new(record.handshake.request()));
        let (peer, ahead) = (record.handshake.peer(), std::mem::take(&mut record.unwritten));
        let socket = CableSocket::adopted(self, source, protocol, &mut record);
        resume(connection, peer, ahead, Box::new(SocketEnd(socket)));
        self.hub.adopted();
    }
}

impl CableSocket {
    /// Takes the session up again, and sends what was published since the client was given away.
    pub(super) fn take_up(&self, record: &mut SocketRecord) {
        let mut session =
            Session { connection: std::mem::take(&mut record.connection), ..Session::default() };
        if let Some(remote) = record.remote.take() {
            self.local.listen_for_end(&remote, self.client.get());
            session.remote = Some(remote);
        }
        self.session.replace(session);
        for subscription in record.subscriptions.drain(..) {
            self.add(&subscription.identifier, subscription.channel, &subscription.streams);
        }
        let session = self.session.borrow();
        session.subscriptions.iter().for_each(|subscription| self.catch_up(subscription, record.delivered));
    }

    /// Sends the messages after an offset from outside that do not come by themselves.
    fn catch_up(&self, subscription: &HubSubscription, delivered: u64) {
        if !self.local.hub.is_shared {
            return;
        }
        let mut missed = Vec::new();
        {
            let streams = self.local.hub.streams();
            let position = StreamPosition { epoch: streams.epoch().to_string(), offset: delivered };
            for stream in &subscription.streams {
                let Some(found) = streams.resume(&stream.name, Some(&position), None) else {
                    return self.end("server_restart", true, code::RESTART);
                };
                missed.extend(found.into_iter().filter(|message| message.offset <= stream.offset));
            }
        }
        missed.sort_by_key(|message| message.offset);
        for message in missed {
            self.send(message::streamed(&subscription.identifier, &message, self.protocol));
        }
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
