//! Passes streams and clients on to the program that takes over in an upgrade, so that clients notice nothing.
//!
//! The sequence: the old program stops to publish, and delivers what was published ([`give_away`]). It sends the streams, then the connections of
//! its clients with a record of each, then the end. The new program ([`SharedHub::inherit`]) lets no client in before it has the streams, and
//! publishes nothing before the end.
//!
//! Contract:
//! 1. Connections without TLS over HTTP/1.1 go to the new program, with the frame that has arrived in part and the bytes that are not sent yet. The
//!    old program tells all others to connect again.
//! 2. A client whose command is in the app goes when the command is carried out. After [`LAGGARDS`] the old program tells it to connect again.
//! 3. Nothing waits for longer than [`PATIENCE`]. If the old program dies, or is one that passes nothing on, the new one goes on without.

use super::call::CallSource;
use super::given::{GivenSocket, Givers, HandshakeRecord, SocketRecord, SubscriptionRecord};
use super::local::{HubClient, LocalHub};
use super::session::{HubSubscription, Session};
use super::socket::{CableSocket, SocketEnd};
use super::{Mail, PATIENCE, SharedHub, now_ms};
use crate::handover::{Heirloom, SuccessorChannel};
use cable::command::{CableProtocol, StreamPosition};
use cable::frame::{FrameDecoder, code};
use cable::message;
use cable::presence::PresenceRecord;
use cable::streams::TableRecord;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Seek, Write};
use std::os::fd::AsFd;
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

// The old program.

impl CableSocket {
    /// Records the client. `None` if its handshake is not known any more.
    pub(super) fn record(
        &self,
        decoder: FrameDecoder,
        unwritten: Vec<u8>,
        unsent: Vec<u8>,
    ) -> Option<SocketRecord> {
        let session = self.session.borrow();
        let subscriptions = session.subscriptions.iter().map(|subscription| SubscriptionRecord {
            identifier: subscription.identifier.to_string(),
            channel: subscription.channel.clone(),
            streams: subscription.streams.iter().map(|stream| stream.name.to_string()).collect(),
            whispers_to: subscription
                .streams
                .iter()
                .find(|stream| stream.takes_whispers)
                .map(|stream| stream.name.to_string()),
            members: subscription.presence.joins.clone(),
            timers: subscription.timers.as_ref().map_or(Vec::new(), |timers| timers.every().to_vec()),
        });
        Some(SocketRecord {
            is_extended: self.protocol == CableProtocol::Extended,
            id: self.id,
            handshake: HandshakeRecord::of(&self.source.template()?),
            connection: session.connection.clone(),
            remote: session.remote.clone(),
            by_token: session.by_token,
            subscriptions: subscriptions.collect(),
            decoder,
            unwritten,
            unsent,
            delivered: self.local.delivered.get(),
        })
    }
}

/// Gives streams and clients to the program that has taken over. Nothing is published here any more, unless by Redis.
pub(crate) async fn give_away(hub: Arc<SharedHub>, channel: Rc<SuccessorChannel>, log: impl Fn(&str)) {
    // Streams that are shared come from Redis.
    let (streams, members) = ((!hub.is_shared).then(|| hub.streams().record()), hub.present.record());
    let file = written(|file| {
        serde_json::to_writer(&mut *file, &streams)?;
        // A program that does not know members does not read on.
        Ok(serde_json::to_writer(file, &members)?)
    });
    match file {
        Ok(file) => channel.hub_streams(&file).await,
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
                if let Some(file) = file {
                    let mut reader = serde_json::Deserializer::from_reader(BufReader::new(file));
                    let record = Option::<TableRecord>::deserialize(&mut reader);
                    let record = record.map_err(|error| unreadable(&error))?;
                    match PresenceRecord::deserialize(&mut reader) {
                        Ok(record) => self.present.adopt(record),
                        // A program that does not know members.
                        Err(error) if error.is_eof() => {}
                        Err(error) => return Err(unreadable(&error)),
                    }
                    if let Some(record) = record {
                        self.streams().adopt(record, now_ms());
                        self.open();
                    }
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
    pub(super) fn take_up(self: &Rc<Self>, record: &mut SocketRecord) {
        let mut session = Session {
            connection: std::mem::take(&mut record.connection),
            by_token: record.by_token,
            ..Session::default()
        };
        if let Some(remote) = record.remote.take() {
            self.local.listen_for_end(&remote, self.client.get());
            session.remote = Some(remote);
        }
        self.session.replace(session);
        for subscription in record.subscriptions.drain(..) {
            let whispers_to = subscription.whispers_to.as_deref();
            self.add(&subscription.identifier, subscription.channel, &subscription.streams, whispers_to);
            self.join_as_before(&subscription.identifier, subscription.members);
            self.set_timers(&subscription.identifier, &subscription.timers);
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
