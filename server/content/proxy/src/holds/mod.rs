//! Limits the origin connections that clients hold on a thread: for requests without a response, and for
//! bodies that the client does not read.
//!
//! Why: an HTTP/2 client that opens a hundred streams and reads none of them would have a hundred connections
//! of an origin to itself.
//!
//! Contract:
//! 1. A client's connection may use [`OF_CLIENT`] origin connections. Its further requests wait until one is
//!    free. Requests whose origin keeps them waiting ([`YOUNG`]) and bodies that wait for their origin do not
//!    count, so long polls and event streams are not held up.
//! 2. Unread bodies lose their connections, the longest unread first, in these cases: one of the client's own
//!    requests waits ([`OWN`]); the thread has more than [`OF_THREAD`]; an origin refuses connections or
//!    keeps other requests waiting ([`LATE`]); descriptors run out. Clients that read anything, and clients
//!    with only a few unread bodies ([`FEW`]), are spared.
//! 3. A body that has lost its connection breaks off as soon as its client continues to read.

mod body;
mod permit;

pub(crate) use body::BodyGuard;
pub(crate) use permit::RequestPermit;

use crate::pool::Connection;
use crate::upstreams::Active;
use body::HeldBody;
use handler::{Client, Departure, Failure, Peer, Version};
use net::task::spawn_local;
use permit::Waiting;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The most origin connections that a client's connection uses at a time.
const OF_CLIENT: usize = 32;
/// The most unread bodies of a thread.
const OF_THREAD: usize = 1_024;
/// Unread bodies that a client may keep when other requests need connections.
const FEW: usize = 8;
/// How long a request without a response counts; longer for a client that leaves much unread.
const YOUNG: Duration = Duration::from_millis(500);
/// How long a request waits for its response before unread bodies at its origin make room.
const LATE: Duration = Duration::from_millis(250);
/// How long a body must be unread, while its client reads no other body either, before it makes room for other clients.
const STALLED: Duration = Duration::from_secs(2);
/// How long a body must be unread before it makes room for another request of the same client.
const OWN: Duration = Duration::from_secs(30);
/// The time between two checks.
const LOOK: Duration = Duration::from_millis(200);

thread_local! {
    static HOLDS: Rc<HeldConnections> = Rc::default();
}

/// The destination of a request: the address of the origin's state.
pub(crate) type At = usize;

/// All held connections of a thread.
#[derive(Default)]
pub(crate) struct HeldConnections {
    clients: RefCell<HashMap<*const Peer, Rc<HoldingClient>>>,
    asking: RefCell<Vec<Option<Asking>>>,
    /// Free indexes of `asking`.
    free: RefCell<Vec<usize>>,
    bodies: RefCell<Vec<Rc<HeldBody>>>,
    looking: Cell<bool>,
}

/// A client's connection that carries many requests.
struct HoldingClient {
    /// Keeps the address of the peer from being reused.
    peer: Rc<Peer>,
    /// Young requests without a response.
    asking: Cell<usize>,
    unread: Cell<usize>,
    /// When the client last read from any of its bodies.
    read: Cell<Instant>,
    /// Other clients needed this client's connections. Until it reads again, it gets only a few.
    reduced: Cell<bool>,
    waiting: RefCell<VecDeque<oneshot::Sender<RequestPermit>>>,
}

/// A request without a response.
struct Asking {
    at: Option<At>,
    since: Instant,
    holder: Option<Rc<HoldingClient>>,
    young: bool,
}

pub(crate) fn of_thread() -> Rc<HeldConnections> {
    HOLDS.with(Rc::clone)
}

/// A thread without unread bodies needs descriptors, which those of other threads hold.
static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// Takes connections from unread bodies of this thread because descriptors run out. Returns whether there were any. If not, the other threads do so
/// within [`LOOK`].
pub fn make_room() -> bool {
    HOLDS.with(|holds| holds.make_room(None))
}

impl HeldConnections {
    /// Returns a permit for a request, unless the client's connection already uses its share.
    pub(crate) fn enter(
        self: &Rc<HeldConnections>,
        peer: &Rc<Peer>,
        version: Version,
    ) -> Option<RequestPermit> {
        // HTTP/1 has one request at a time.
        if matches!(version, Version::Http10 | Version::Http11) {
            return Some(self.permit(None));
        }
        let holder = self.holder(peer);
        (holder.has_room() && holder.waiting.borrow().is_empty()).then(|| self.permit(Some(holder)))
    }

    /// Waits for a permit.
    ///
    /// # Errors
    /// The client has gone meanwhile.
    pub(crate) async fn wait(
        self: &Rc<HeldConnections>,
        peer: &Rc<Peer>,
        client: &dyn Client,
    ) -> Result<RequestPermit, Failure> {
        let holder = self.holder(peer);
        let (sender, receiver) = oneshot::channel();
        holder.waiting.borrow_mut().push_back(sender);
        let _waiting = Waiting { holds: self, holder };
        self.look();
        let mut receiver = pin!(receiver);
        poll_fn(|cx| {
            if let Poll::Ready(Ok(permit)) = receiver.as_mut().poll(cx) {
                return Poll::Ready(Ok(permit));
            }
            match crate::conversation::poll_departure(client, cx) {
                Poll::Ready(Departure::Gone) => {
                    Poll::Ready(Err(Failure::client_gone("the client went away")))
                }
                _ => Poll::Pending,
            }
        })
        .await
    }

    fn holder(&self, peer: &Rc<Peer>) -> Rc<HoldingClient> {
        let new = || {
            Rc::new(HoldingClient {
                peer: peer.clone(),
                asking: Cell::new(0),
                unread: Cell::new(0),
                read: Cell::new(Instant::now()),
                reduced: Cell::new(false),
                waiting: RefCell::default(),
            })
        };
        self.clients.borrow_mut().entry(Rc::as_ptr(peer)).or_insert_with(new).clone()
    }

    fn permit(self: &Rc<HeldConnections>, holder: Option<Rc<HoldingClient>>) -> RequestPermit {
        let young = holder.as_ref().inspect(|holder| holder.asking.update(|count| count + 1)).is_some();
        let asking = Some(Asking { at: None, since: Instant::now(), holder, young });
        let mut all = self.asking.borrow_mut();
        let index = match self.free.borrow_mut().pop() {
            Some(index) => {
                all[index] = asking;
                index
            }
            None => {
                all.push(asking);
                all.len() - 1
            }
        };
        RequestPermit { holds: self.clone(), index }
    }

    /// Holds the connection of a body for `permit`'s request.
    pub(crate) fn hold(
        self: &Rc<HeldConnections>,
        permit: &RequestPermit,
        connection: Connection,
        active: Active,
    ) -> BodyGuard {
        let (at, holder) = match &self.asking.borrow()[permit.index] {
            Some(asking) => (asking.at.unwrap_or_default(), asking.holder.clone()),
            None => (0, None),
        };
        let mut bodies = self.bodies.borrow_mut();
        let held = Rc::new(HeldBody {
            at,
            holder,
            index: Cell::new(bodies.len()),
            unread: Cell::new(None),
            begun: Cell::new(false),
            connection: RefCell::new(Some((connection, active))),
            displaced: Cell::new(false),
        });
        held.set_unread(true);
        bodies.push(held.clone());
        let many = bodies.len();
        drop(bodies);
        if many > OF_THREAD {
            self.displace(|_| true);
        }
        if many > FEW {
            self.look();
        }
        BodyGuard { holds: self.clone(), held }
    }

    /// Takes connections from unread bodies at the origin `at`, which accepts no more, or at any origin if
    /// `at` is `None`. Returns whether there were any. If not, other threads give descriptors up.
    pub(crate) fn make_room(&self, at: Option<At>) -> bool {
        let found = self.give_up(at);
        if at.is_none() && !found {
            IS_WANTED.store(true, Ordering::Relaxed);
        }
        found
    }

    fn give_up(&self, at: Option<At>) -> bool {
        self.displace(|held| at.is_none_or(|at| held.at == at)) > 0
            || at.is_none() && self.displace_oldest(STALLED, |_| true)
    }

    /// Takes the connection from the longest unread body that `may` lose it, if it has been unread for
    /// `least`. Returns whether there was one.
    fn displace_oldest(&self, least: Duration, may: impl Fn(&HeldBody) -> bool) -> bool {
        let bodies = self.bodies.borrow();
        let unread =
            bodies.iter().filter(|held| may(held)).filter_map(|held| Some((held.unread.get()?, held)));
        let oldest = unread.min_by_key(|(since, _)| *since).filter(|(since, _)| since.elapsed() >= least);
        let oldest = oldest.map(|(_, held)| held.clone());
        drop(bodies);
        oldest.inspect(|held| held.displace()).is_some()
    }

    /// Takes connections from a quarter of the bodies that `may` lose it, have been unread for [`STALLED`]
    /// and whose clients are stuck; the longest unread first. Returns how many.
    fn displace(&self, may: impl Fn(&HeldBody) -> bool) -> usize {
        let now = Instant::now();
        let bodies = self.bodies.borrow();
        let mut found: Vec<(Instant, Rc<HeldBody>)> = bodies
            .iter()
            .filter(|held| held.holder.as_ref().is_some_and(|holder| holder.is_stuck(now)) && may(held))
            .filter_map(|held| Some((held.unread.get()?, held.clone())))
            .filter(|(since, _)| now.saturating_duration_since(*since) >= STALLED)
            .collect();
        drop(bodies);
        found.sort_by_key(|(since, _)| *since);
        let count = found.len().div_ceil(4).max(16).min(found.len());
        found.truncate(count);
        for (_, held) in &found {
            held.displace();
            held.holder.iter().for_each(|holder| holder.reduced.set(true));
        }
        found.len()
    }

    /// Starts the task that checks waiting requests and held bodies.
    fn look(self: &Rc<HeldConnections>) {
        if self.looking.replace(true) {
            return;
        }
        let holds = Rc::downgrade(self);
        spawn_local(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                let Some(holds) = holds.upgrade() else { return };
                if !holds.look_once() {
                    holds.looking.set(false);
                    return;
                }
            }
        });
    }

    /// Checks once. Returns whether there is anything left to check.
    fn look_once(self: &Rc<HeldConnections>) -> bool {
        let now = Instant::now();
        let mut late: Vec<At> = Vec::new();
        for asking in self.asking.borrow_mut().iter_mut().flatten() {
            let waited = now.saturating_duration_since(asking.since);
            if waited >= YOUNG
                && asking.young
                && let Some(holder) =
                    asking.holder.as_ref().filter(|holder| holder.unread.get() < OF_CLIENT / 2)
            {
                holder.asking.update(|count| count - 1);
                asking.young = false;
            }
            if waited >= LATE
                && let Some(at) = asking.at
                && !late.contains(&at)
            {
                late.push(at);
            }
        }
        let holders: Vec<Rc<HoldingClient>> = self.clients.borrow().values().cloned().collect();
        let mut waiting = false;
        for holder in holders.iter().filter(|holder| !holder.waiting.borrow().is_empty()) {
            if !holder.has_room() {
                self.displace_oldest(OWN, |held| {
                    held.holder.as_ref().is_some_and(|one| Rc::ptr_eq(one, holder))
                });
            }
            self.admit(holder);
            waiting |= !holder.waiting.borrow().is_empty();
        }
        let bodies = self.bodies.borrow().len();
        if bodies > OF_THREAD {
            self.displace(|_| true);
        }
        for at in late {
            self.displace(|held| held.at == at);
        }
        if IS_WANTED.swap(false, Ordering::Relaxed) {
            self.give_up(None);
        }
        waiting || bodies > FEW
    }

    /// Admits waiting requests while there is room.
    fn admit(self: &Rc<HeldConnections>, holder: &Rc<HoldingClient>) {
        while holder.has_room() {
            let Some(next) = holder.waiting.borrow_mut().pop_front() else { return };
            if !next.is_closed() {
                // A request that ends meanwhile gives its permit back.
                let _ = next.send(self.permit(Some(holder.clone())));
            }
        }
    }

    /// Admits other requests of a client after one has ended, or forgets the client.
    fn released(self: &Rc<HeldConnections>, holder: &Rc<HoldingClient>) {
        if !holder.waiting.borrow().is_empty() {
            holder.waiting.borrow_mut().retain(|waiting| !waiting.is_closed());
            self.admit(holder);
        }
        // One reference is the map's, and one belongs to the caller.
        if Rc::strong_count(holder) == 2 && holder.waiting.borrow().is_empty() {
            self.clients.borrow_mut().remove(&Rc::as_ptr(&holder.peer));
        }
    }
}

impl HoldingClient {
    fn has_room(&self) -> bool {
        self.asking.get() + self.unread.get() < if self.reduced.get() { FEW } else { OF_CLIENT }
    }

    /// Returns whether the client has many unread bodies and reads none of them.
    fn is_stuck(&self, now: Instant) -> bool {
        self.unread.get() > FEW && now.saturating_duration_since(self.read.get()) >= STALLED
    }
}
