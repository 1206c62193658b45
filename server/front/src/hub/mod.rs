//! The hub of live pages: WebSockets of Action Cable, Server-Sent Events and long polls that the front holds itself
//! (docs/live-pages.md).
//!
//! Why: a WebSocket that a worker holds costs it memory and a descriptor, and ends with it. Here a broadcast never enters Ruby,
//! and reloads and deaths of workers are not noticed by clients. The app is called for what only it can decide: connections,
//! subscriptions, actions, and their end.
//!
//! Contract:
//! 1. All front threads share the streams ([`cable::streams`]). Publishing assigns the number and puts the message into the
//!    mailbox of each thread with listeners under one lock, so each thread gets the messages of a stream in order.
//! 2. A thread has its own clients ([`local`], [`socket`]) and calls the app as ordinary requests of the one queue ([`call`]), at most
//!    `hub.calls` of all threads at a time.
//! 3. Processes of the app publish on a Unix socket ([`publish`]), and listen there if they hold WebSockets themselves ([`processes`]).
//! 4. Pages that only listen are no matter of the app ([`listening`], [`events`], [`poll`]): the names of their streams are signed, or public.
//! 5. Publishers and subscribers of Mercure have a door of their own ([`mercure`]), and so have publishers in AnyCable's form ([`broadcasts`]); calls to
//!    the app can have the form of AnyCable's gem ([`rpc`]).
//! 6. With `hub.redis`, messages get their numbers from Redis, and reach the clients of all servers ([`shared`]). Members are shared as well.
//! 7. In an upgrade, the streams and the plain WebSockets over HTTP/1.1 go to the new program ([`heirloom`]).
//! 8. The members of streams are state of the front, too ([`present`], [`presence`]), so they survive the workers, and go to the new program.
//! 9. A channel that needs a WebSocket of the app's own makes the app serve those that come from then on, until the next reload ([`handed_back`]).
//! 10. Clients whisper to each other without the app, where it allows that ([`whispers`]).
//! 11. A client that shows a token connects without the app ([`identification`]).
//! 12. Without `hub.path` none of this exists.

mod broadcasts;
mod call;
mod commands;
mod door;
mod events;
mod given;
mod handed_back;
mod handshake;
pub(crate) mod heirloom;
mod identification;
mod joining;
mod listeners;
mod listening;
pub(crate) mod local;
mod mercure;
mod poll;
mod presence;
mod present;
mod processes;
mod publish;
mod report;
mod rpc;
mod session;
mod shared;
mod socket;
mod timers;
mod whispers;

pub(crate) use publish::Publishing;

use broadcasts::BroadcastDoor;
use cable::event_id::{EventId, StreamSet};
use given::{GivenSocket, Givers};
use identification::ConnectionTokens;

use cable::public_streams::PublicStreams;
use cable::signed::SignedNames;
use cable::streams::{HistoryBounds, StreamMessage, StreamTable, ThreadIndex};
use cable::whisper::Whisper;
use mercure::MercureDoor;
use present::{PresenceOrder, PresentStreams};
use rpc::RpcCalls;
use settings::Settings;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

/// Work for the task that publishes.
enum DeskOrder {
    Publish(PublishOrder),
    Presence(PresenceOrder),
    /// To the processes that listen.
    Deliver(Arc<StreamMessage>),
    /// To the other servers.
    Whisper(Arc<Whisper>),
}

/// A message that a thread of the front publishes, and where the thread waits for its epoch and offset.
pub(super) struct PublishOrder {
    stream: Cow<'static, str>,
    payload: String,
    answer: oneshot::Sender<Result<(Arc<str>, u64), String>>,
}

/// Receives what the clients of a thread are to get.
pub(crate) type Mailbox = mpsc::UnboundedReceiver<Mail>;

/// Something for the clients of a thread.
pub(crate) enum Mail {
    Message(Arc<StreamMessage>),
    Whisper(Arc<Whisper>),
    /// All connections that can go to another program are to go there. All messages before have been delivered; `last` is the largest offset
    /// from outside of them.
    Give {
        to: Givers,
        last: u64,
    },
    /// A client that another program has held.
    Adopt(Box<GivenSocket>),
}

/// The hub of a server that starts, and the mailbox of each of its threads.
pub(crate) type HubSeed = (Arc<SharedHub>, Vec<Mailbox>);

/// The most messages in the mailboxes of all threads before publishers have to wait.
const BACKLOG: u64 = 20_000;
/// The pause of a publisher while the threads are behind.
const BEHIND: Duration = Duration::from_millis(2);
/// How long clients wait for the streams.
const PATIENCE: Duration = Duration::from_secs(5);

/// The part of the hub that all threads share.
pub(crate) struct SharedHub {
    path: Box<str>,
    /// The path of events and polls.
    events_path: Box<str>,
    /// Other origins whose pages may listen.
    origins: Vec<String>,
    /// `None` if Mercure is off.
    mercure: Option<MercureDoor>,
    /// `None` if nothing is published by HTTP in AnyCable's form.
    broadcast: Option<BroadcastDoor>,
    /// `None`: calls to the app have the hub's own form.
    rpc: Option<RpcCalls>,
    /// How long a poll waits.
    poll: Duration,
    secret: Option<SignedNames>,
    /// `None`: the app is asked about each connection.
    tokens: Option<ConnectionTokens>,
    public: PublicStreams,
    /// Whether messages get their offsets from Redis.
    is_shared: bool,
    max_message: usize,
    max_subscriptions: usize,
    client_queue: usize,
    /// The time over which clients are closed at the end.
    drain: Duration,
    streams: Mutex<StreamTable>,
    /// Whether the streams are known as they were before this program; until then clients wait.
    ready: watch::Sender<bool>,
    /// Whether processes may publish: not while another program still has clients.
    may_publish: watch::Sender<bool>,
    mailboxes: Vec<mpsc::UnboundedSender<Mail>>,
    /// The app serves new WebSockets itself.
    is_handed_back: AtomicBool,
    /// Messages of the front's own threads, which get their numbers where those of the app's processes do.
    orders: mpsc::UnboundedSender<DeskOrder>,
    ordered: Mutex<Option<mpsc::UnboundedReceiver<DeskOrder>>>,
    present: PresentStreams,
    presence_claims: bool,
    /// Whether clients may whisper to the streams of `$pubsub`.
    pubsub_whispers: bool,
    /// The clients of the other program that are not adopted yet; one more while it may send others, which `has_all` says.
    adopting: AtomicUsize,
    has_all: AtomicBool,
    /// The thread that gets the next client of another program.
    next: AtomicUsize,
    calls: Semaphore,
    pub(crate) counts: HubCounts,
}

/// Counters of all threads.
#[derive(Debug, Default)]
pub(crate) struct HubCounts {
    clients: AtomicU64,
    accepted: AtomicU64,
    subscriptions: AtomicU64,
    published: AtomicU64,
    /// Messages and whispers in mailboxes.
    backlog: AtomicU64,
    sent: AtomicU64,
    whispers: AtomicU64,
    slow: AtomicU64,
    event_listeners: AtomicU64,
    polls: AtomicU64,
    mercure: AtomicU64,
    violations: AtomicU64,
    rejected: AtomicU64,
    resumed: AtomicU64,
    gaps: AtomicU64,
    calls: AtomicU64,
    failed_calls: AtomicU64,
    /// 1 while Redis cannot be reached.
    redis_away: AtomicU64,
    redis_losses: AtomicU64,
    unpublished: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn uncount(counter: &AtomicU64) {
    counter.fetch_sub(1, Ordering::Relaxed);
}

impl SharedHub {
    /// Creates the hub and the mailboxes of the threads; `None` if it is off. `takes_over`: another program has streams and clients that will
    /// come here.
    pub(crate) fn new(settings: &Settings, threads: usize, takes_over: bool) -> Option<HubSeed> {
        let path = settings.hub.path.as_deref().filter(|_| settings.app.is_some())?;
        let (mailboxes, receivers) = (0..threads).map(|_| mpsc::unbounded_channel()).unzip();
        let (orders, ordered) = mpsc::unbounded_channel();
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let bounds = HistoryBounds {
            time: u64::try_from(settings.hub.history.as_millis()).unwrap_or(u64::MAX),
            messages: settings.hub.history_messages as usize,
            bytes: size(settings.hub.history_memory),
        };
        let hub = SharedHub {
            path: path.into(),
            events_path: format!("{}/events", path.trim_end_matches('/')).into(),
            origins: settings.hub.origins.clone(),
            mercure: MercureDoor::new(settings),
            broadcast: BroadcastDoor::new(settings),
            rpc: RpcCalls::new(settings),
            poll: settings.hub.poll,
            is_shared: settings.hub.redis.is_some(),
            secret: settings.hub.secret.as_deref().map(SignedNames::new),
            tokens: ConnectionTokens::new(settings),
            public: PublicStreams::new(&settings.hub.public_streams),
            max_message: size(settings.hub.max_message),
            max_subscriptions: settings.hub.max_subscriptions as usize,
            client_queue: size(settings.hub.client_queue),
            drain: settings.hub.drain.min(settings.timeouts.shutdown / 2),
            streams: Mutex::new(StreamTable::new(&new_epoch(), bounds, now_ms())),
            ready: watch::Sender::new(settings.hub.redis.is_none() && !takes_over),
            may_publish: watch::Sender::new(!takes_over),
            adopting: AtomicUsize::new(1),
            has_all: AtomicBool::new(!takes_over),
            next: AtomicUsize::new(0),
            mailboxes,
            is_handed_back: AtomicBool::new(false),
            orders,
            present: PresentStreams::new(settings),
            presence_claims: settings.hub.presence_claims,
            pubsub_whispers: settings.hub.pubsub_whispers,
            ordered: Mutex::new(Some(ordered)),
            calls: Semaphore::new(settings.hub.calls as usize),
            counts: HubCounts::default(),
        };
        Some((Arc::new(hub), receivers))
    }

    /// Adds a message to a stream, and passes it on to its listeners. Returns its epoch and offset.
    fn publish(&self, name: &str, payload: &str) -> (Arc<str>, u64) {
        count(&self.counts.published);
        let mut streams = self.streams();
        let offset = streams.publish(name, payload.into(), now_ms(), &mut |thread, message| {
            self.pass_on(thread, message);
        });
        (streams.epoch().clone(), offset)
    }

    /// Publishes a message of a thread of the front.
    ///
    /// # Errors
    /// The server is stopping, or Redis cannot be reached.
    async fn order(&self, stream: Cow<'static, str>, payload: String) -> Result<(), String> {
        let (answer, answered) = oneshot::channel();
        let stopping = || "the server is stopping".to_owned();
        let order = DeskOrder::Publish(PublishOrder { stream, payload, answer });
        self.orders.send(order).map_err(|_| stopping())?;
        answered.await.map_err(|_| stopping())?.map(drop)
    }

    /// Adds a message of a given epoch that has its offset and time, in milliseconds since 1970, from outside, and passes it on if it `is_new`.
    /// Returns false if the epoch is not the one in force.
    fn insert(&self, epoch: &str, name: &str, payload: &str, numbers: (u64, u64), is_new: bool) -> bool {
        let mut streams = self.streams();
        if **streams.epoch() != *epoch {
            return false;
        }
        let is_unknown = streams.insert(name, payload.into(), numbers, now_ms(), &mut |thread, message| {
            if is_new {
                self.pass_on(thread, message);
            }
        });
        if is_unknown && is_new {
            count(&self.counts.published);
        }
        true
    }

    /// Whether clients need not wait.
    fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Lets clients in.
    fn open(&self) {
        self.ready.send_if_modified(|ready| !std::mem::replace(ready, true));
    }

    /// Waits until clients may come in, at most for [`PATIENCE`].
    async fn opened(&self) {
        let _ = tokio::time::timeout(PATIENCE, self.ready.subscribe().wait_for(|ready| *ready)).await;
    }

    /// Puts a message into the mailbox of a thread.
    fn pass_on(&self, thread: u16, message: &Arc<StreamMessage>) {
        match self.mailboxes.get(usize::from(thread)) {
            Some(mailbox) => self.post(mailbox, Mail::Message(message.clone())),
            None => self.post(&self.orders, DeskOrder::Deliver(message.clone())),
        }
    }

    /// Puts something that is to be delivered into a mailbox.
    fn post<T>(&self, mailbox: &mpsc::UnboundedSender<T>, mail: T) {
        // Counted first: the thread may have it before this returns.
        count(&self.counts.backlog);
        if mailbox.send(mail).is_err() {
            // A thread that has ended has no clients.
            uncount(&self.counts.backlog);
        }
    }

    /// Returns the index that stands for processes, behind those of the threads.
    fn process_thread(&self) -> ThreadIndex {
        self.mailboxes.len() as ThreadIndex
    }

    /// Lets a publisher wait while the threads are behind.
    async fn caught_up(&self) {
        while self.counts.backlog.load(Ordering::Relaxed) > BACKLOG {
            tokio::time::sleep(BEHIND).await;
        }
    }

    /// Returns the id of a page that is rendered now.
    fn position(&self, set: &StreamSet) -> String {
        let (mut streams, now) = (self.streams(), now_ms());
        let offsets: Vec<u64> = set.names().iter().map(|name| streams.position(name, now)).collect();
        EventId::text(streams.epoch(), set, &offsets)
    }

    /// Returns the stream that a page names: by a signed name, or by that of a public stream.
    fn stream_named(&self, name: &str) -> Option<String> {
        let signed = self.secret.as_ref().and_then(|secret| secret.verify(name));
        signed.or_else(|| self.public.has(name).then(|| name.to_owned()))
    }

    fn streams(&self) -> MutexGuard<'_, StreamTable> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a name for an epoch of streams.
fn new_epoch() -> String {
    format!("{:012x}", fastrand::u64(..1 << 48))
}

/// Returns milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
