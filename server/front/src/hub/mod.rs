//! The hub of live pages: WebSockets of Action Cable that the front holds itself (docs/live-pages.md).
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
//! 3. Processes of the app publish on a Unix socket ([`publish`]).
//! 4. Without `hub.path` none of this exists.

mod call;
mod commands;
mod handshake;
pub(crate) mod local;
mod publish;
mod report;
mod session;
mod socket;

pub(crate) use publish::Publishing;

use cable::signed::SignedNames;
use cable::streams::{HistoryBounds, StreamMessage, StreamTable};
use settings::Settings;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, mpsc};

/// The messages for the clients of a thread.
pub(crate) type Mailbox = mpsc::UnboundedReceiver<Arc<StreamMessage>>;

/// The hub of a server that starts, and the mailbox of each of its threads.
pub(crate) type HubSeed = (Arc<SharedHub>, Vec<Mailbox>);

/// The most messages in the mailboxes of all threads before publishers have to wait.
const BACKLOG: u64 = 20_000;

/// The part of the hub that all threads share.
pub(crate) struct SharedHub {
    path: Box<str>,
    secret: Option<SignedNames>,
    max_message: usize,
    max_subscriptions: usize,
    client_queue: usize,
    streams: Mutex<StreamTable>,
    mailboxes: Vec<mpsc::UnboundedSender<Arc<StreamMessage>>>,
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
    /// Messages in mailboxes.
    backlog: AtomicU64,
    sent: AtomicU64,
    slow: AtomicU64,
    violations: AtomicU64,
    rejected: AtomicU64,
    resumed: AtomicU64,
    gaps: AtomicU64,
    calls: AtomicU64,
    failed_calls: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn uncount(counter: &AtomicU64) {
    counter.fetch_sub(1, Ordering::Relaxed);
}

impl SharedHub {
    /// Creates the hub and the mailboxes of the threads; `None` if it is off.
    pub(crate) fn new(settings: &Settings, threads: usize) -> Option<HubSeed> {
        let path = settings.hub.path.as_deref().filter(|_| settings.app.is_some())?;
        let (mailboxes, receivers) = (0..threads).map(|_| mpsc::unbounded_channel()).unzip();
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let bounds = HistoryBounds {
            time: u64::try_from(settings.hub.history.as_millis()).unwrap_or(u64::MAX),
            messages: settings.hub.history_messages as usize,
            bytes: size(settings.hub.history_memory),
        };
        let hub = SharedHub {
            path: path.into(),
            secret: settings.hub.secret.as_deref().map(SignedNames::new),
            max_message: size(settings.hub.max_message),
            max_subscriptions: settings.hub.max_subscriptions as usize,
            client_queue: size(settings.hub.client_queue),
            streams: Mutex::new(StreamTable::new(&new_epoch(), bounds, now_ms())),
            mailboxes,
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

    /// Puts a message into the mailbox of a thread.
    fn pass_on(&self, thread: u16, message: &Arc<StreamMessage>) {
        // Counted first: the thread may have it before this returns.
        count(&self.counts.backlog);
        if self.mailboxes[usize::from(thread)].send(message.clone()).is_err() {
            // A thread that has ended has no clients.
            uncount(&self.counts.backlog);
        }
    }

    /// Whether publishers have to wait, because the threads are behind.
    fn is_behind(&self) -> bool {
        self.counts.backlog.load(Ordering::Relaxed) > BACKLOG
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
