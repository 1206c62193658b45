//! The clients of one front thread: delivers messages to them, sends pings, ends them.
//!
//! Contract: all this is done to [`TURN`] WebSockets at a time, and to [`EVENT_TURN`] other listeners. Between two turns their connections write
//! and others are served, so a message for 10,000 clients does not delay a request by more than one turn.

use super::given::{Givers, Resume};
use super::listeners::Listeners;
use super::{Mail, Mailbox, SharedHub, count, now_ms, uncount};
use crate::app::App;
use crate::sites::local::Log;
use bytes::Bytes;
use cable::audience::{Audiences, Delivered};
use cable::exclusion::SessionId;
use cable::frame::code;
use cable::message;
use cable::streams::StreamMessage;
use net::task::spawn_local;
use serde::Deserialize;
use slab::Slab;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Each client gets a ping in this time, as from Action Cable.
const BEAT: Duration = Duration::from_secs(3);
/// The clients are divided into so many parts, which get their pings one after the other.
const PARTS: usize = 10;
/// The most clients of a turn. Writing to one takes a few microseconds.
const TURN: usize = 128;
/// The most other listeners of a turn. Many of them may be streams of one connection.
const EVENT_TURN: usize = 256;

/// The hub on one thread.
pub(crate) struct LocalHub {
    pub(super) hub: Arc<SharedHub>,
    pub(super) index: u16,
    pub(super) app: Rc<App>,
    pub(super) log: Log,
    pub(super) sockets: RefCell<Slab<Rc<dyn HubClient>>>,
    pub(super) audiences: RefCell<Audiences<usize>>,
    /// The subscriptions that may whisper, and get whispers.
    pub(super) whisperers: RefCell<Audiences<usize>>,
    /// The clients that are not WebSockets.
    pub(super) listeners: Listeners,
    /// Clients by the stream on which the app ends connections.
    remote: RefCell<HashMap<Box<str>, Vec<usize>>>,
    /// No further client is accepted.
    pub(super) closing: Cell<bool>,
    /// Clients are being told to connect again.
    draining: Cell<bool>,
    /// The offset of the last message that all clients of this thread have got.
    pub(super) delivered: Cell<u64>,
    /// Clients whose connections are about to go to another program.
    pub(super) giving: Cell<usize>,
    /// Serves the connections of clients that another program has held.
    pub(super) resume: OnceCell<Resume>,
    /// Calls about the end of connections that are under way.
    pub(super) last_calls: Cell<usize>,
}

/// A client of a thread, as the thread sees it.
pub(super) trait HubClient {
    /// Returns the number that the client knows as that of its session.
    fn session_id(&self) -> SessionId;

    /// Sends a message. Returns whether it will reach the client; one that reads too slowly is closed.
    fn send(&self, frame: Bytes) -> bool;

    /// Sends a message that may be lost. Returns whether it will reach the client: one that reads slowly does not get it.
    fn send_if_room(&self, frame: Bytes) -> bool;

    /// Sends a ping, unless something waits that shows as well that the server lives.
    fn beat(&self, ping: &Bytes);

    /// Ends the connection with Action Cable's message and a Close frame.
    fn end(&self, reason: &str, reconnect: bool, status: u16);

    /// Leaves all streams, and tells the app of the end. Only the first call has an effect.
    fn leave(&self);

    /// Gives the client to another program as soon as possible. Returns whether that can be done.
    fn give(&self, to: &Givers) -> bool {
        let _ = to;
        false
    }

    /// Undoes [`HubClient::give`] if it has not happened yet.
    fn keep(&self) {}
}

/// A message with which the app ends connections (`ActionCable.server.remote_connections`).
#[derive(Deserialize)]
struct RemoteOrder<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(default = "yes")]
    reconnect: bool,
}

fn yes() -> bool {
    true
}

impl LocalHub {
    /// Creates the hub of a thread, and starts to deliver.
    pub(crate) fn start(
        hub: Arc<SharedHub>,
        index: u16,
        app: Rc<App>,
        log: Log,
        mailbox: Mailbox,
    ) -> Rc<LocalHub> {
        let local = Rc::new(LocalHub {
            hub,
            index,
            app,
            log,
            sockets: RefCell::default(),
            audiences: RefCell::default(),
            whisperers: RefCell::default(),
            listeners: Listeners::default(),
            remote: RefCell::default(),
            closing: Cell::new(false),
            draining: Cell::new(false),
            delivered: Cell::new(0),
            giving: Cell::new(0),
            resume: OnceCell::new(),
            last_calls: Cell::new(0),
        });
        spawn_local(local.clone().deliver_all(mailbox));
        spawn_local(local.clone().beat());
        local
    }

    /// Sets how connections of another program are served.
    pub(crate) fn resumes_by(&self, resume: Resume) {
        // Called once.
        let _ = self.resume.set(resume);
    }

    async fn deliver_all(self: Rc<Self>, mut mailbox: Mailbox) {
        while let Some(mail) = mailbox.recv().await {
            match mail {
                Mail::Message(message) => {
                    self.deliver(&message).await;
                    self.delivered.set(message.offset);
                    uncount(&self.hub.counts.backlog);
                }
                Mail::Whisper(whisper) => {
                    let send = |socket: &dyn HubClient, frame: &Bytes| socket.send_if_room(frame.clone());
                    self.pass_to(&self.whisperers, Delivered::Whisper(whisper), send).await;
                    uncount(&self.hub.counts.backlog);
                }
                Mail::Give { to, last } => {
                    self.delivered.update(|delivered| delivered.max(last));
                    self.give(to).await;
                }
                Mail::Adopt(given) => {
                    // The client goes on from a position in streams that may still be on their way from Redis.
                    self.hub.opened().await;
                    self.adopt(*given);
                }
            }
        }
    }

    async fn deliver(&self, message: &Arc<StreamMessage>) {
        let mut events = self.listeners.begin(message);
        while !events.is_over() {
            let sent = self.listeners.advance(&mut events, EVENT_TURN);
            self.hub.counts.sent.fetch_add(sent, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
        let send = |socket: &dyn HubClient, frame: &Bytes| socket.send(frame.clone());
        self.pass_to(&self.audiences, Delivered::Message(message.clone()), send).await;
        self.end_remotely(message);
    }

    /// Sends a message or whisper to the WebSockets of an audience, in turns. `send` returns whether it will reach the client.
    async fn pass_to(
        &self,
        audiences: &RefCell<Audiences<usize>>,
        delivered: Delivered,
        send: impl Fn(&dyn HubClient, &Bytes) -> bool,
    ) {
        let excluded = delivered.excluded();
        let mut delivery = audiences.borrow().begin(delivered);
        loop {
            let mut sent = 0;
            let is_unfinished = {
                let sockets = self.sockets.borrow();
                audiences.borrow().advance(&mut delivery, TURN, &mut |client, frame| {
                    let socket = sockets.get(client);
                    if let Some(socket) = socket.filter(|socket| excluded != Some(socket.session_id())) {
                        sent += u64::from(send(&**socket, frame));
                    }
                })
            };
            self.hub.counts.sent.fetch_add(sent, Ordering::Relaxed);
            // The connections write before the next turn, and before the next message.
            tokio::task::yield_now().await;
            if !is_unfinished {
                break;
            }
        }
    }

    /// Ends the connections for which the app has sent a message to do so.
    fn end_remotely(&self, message: &StreamMessage) {
        if let Some(clients) = self.remote.borrow().get(&*message.stream)
            && let Ok(RemoteOrder { kind: "disconnect", reconnect }) = serde_json::from_str(&message.payload)
        {
            let sockets = self.sockets.borrow();
            clients
                .iter()
                .filter_map(|client| sockets.get(*client))
                .for_each(|socket| socket.end("remote", reconnect, code::NORMAL));
        }
    }

    /// Sends pings to one part of the clients after the other.
    async fn beat(self: Rc<Self>) {
        let mut part = 0;
        loop {
            tokio::time::sleep(BEAT / PARTS as u32).await;
            part = (part + 1) % PARTS;
            let now = now_ms();
            if self.index == 0 {
                self.hub.let_members_expire();
            }
            if self.index == 0 && part == 0 {
                self.hub.streams().expire(now);
            }
            self.listeners.beat(part, PARTS);
            if self.sockets.borrow().is_empty() {
                continue;
            }
            let ping = message::ping(now / 1000);
            self.in_turns(|client| client % PARTS == part, |socket| socket.beat(&ping)).await;
        }
    }

    /// Calls `act` for each client that is there now and `fits`.
    pub(super) async fn in_turns(&self, fits: impl Fn(usize) -> bool, act: impl Fn(&dyn HubClient)) {
        let clients: Vec<usize> =
            self.sockets.borrow().iter().map(|(client, _)| client).filter(|client| fits(*client)).collect();
        for turn in clients.chunks(TURN) {
            for client in turn {
                let socket = self.sockets.borrow().get(*client).cloned();
                socket.iter().for_each(|socket| act(&**socket));
            }
            tokio::task::yield_now().await;
        }
    }

    /// Adds a client. Returns its number.
    pub(super) fn add(&self, socket: Rc<dyn HubClient>) -> usize {
        count(&self.hub.counts.clients);
        count(&self.hub.counts.accepted);
        self.sockets.borrow_mut().insert(socket)
    }

    /// Removes a client.
    pub(super) fn remove(&self, client: usize) {
        if self.sockets.borrow_mut().try_remove(client).is_some() {
            uncount(&self.hub.counts.clients);
        }
    }

    /// Lets the app end a client's connection by messages on `stream`.
    pub(super) fn listen_for_end(&self, stream: &str, client: usize) {
        self.hub.streams().listen(stream, self.index, now_ms());
        self.remote.borrow_mut().entry(stream.into()).or_default().push(client);
    }

    /// Undoes [`LocalHub::listen_for_end`].
    pub(super) fn forget_end(&self, stream: &str, client: usize) {
        self.hub.streams().unlisten(stream, self.index, now_ms());
        let mut remote = self.remote.borrow_mut();
        if let Some(clients) = remote.get_mut(stream) {
            clients.retain(|known| *known != client);
            if clients.is_empty() {
                remote.remove(stream);
            }
        }
    }

    /// Tells all clients to connect again, one after the other within `hub.drain`, and accepts no further one: the server stops.
    pub(crate) fn close(self: &Rc<Self>) {
        self.closing.set(true);
        self.listeners.close();
        self.draining.set(true);
        let local = self.clone();
        spawn_local(async move {
            local.end_all().await;
            local.draining.set(false);
        });
    }

    async fn end_all(&self) {
        let clients: Vec<usize> = self.sockets.borrow().iter().map(|(client, _)| client).collect();
        let (began, each) = (Instant::now(), self.hub.drain.div_f64(clients.len().max(1) as f64));
        for (at, client) in clients.into_iter().enumerate() {
            let early = each.mul_f64(at as f64).saturating_sub(began.elapsed());
            if !early.is_zero() {
                tokio::time::sleep(early).await;
            } else if at % TURN == 0 {
                tokio::task::yield_now().await;
            }
            let socket = self.sockets.borrow().get(client).cloned();
            if let Some(socket) = socket {
                socket.end("server_restart", true, code::RESTART);
                socket.leave();
            }
        }
    }

    /// Whether connections are still being ended, or the app is being told of their ends.
    pub(crate) fn is_telling(&self) -> bool {
        self.draining.get() || self.last_calls.get() > 0
    }
}
