//! Connections to origins that clients make a thread hold: for requests without a response, and for bodies of which the client does not
//! read the rest.
//!
//! Why: a client of HTTP/2 that opens a hundred streams and reads none of them has a hundred connections of an origin to itself.
//!
//! Contract:
//! 1. A connection of a client has [`OF_CLIENT`] of them. Its further requests wait until one is done with. Requests that their origin
//!    lets wait ([`YOUNG`]) and bodies that wait for their origin do not count: long polls and event streams are not held up.
//! 2. Bodies lose their connections, those that have been unread for the longest time first, when there is need: when one of the
//!    client's own requests waits ([`OWN`]); when a thread has more than [`OF_THREAD`]; when an origin refuses, or lets other requests
//!    wait ([`LATE`]); and when descriptors run out. Clients that read anything, and those with a few ([`FEW`]), are spared.
//! 3. A body that has lost its connection breaks off as soon as its client reads on.

mod body;
mod place;

pub(crate) use body::Hold;
pub(crate) use place::Place;

use crate::pool::Connection;
use crate::upstreams::Active;
use body::Held;
use handler::{Client, Departure, Failure, Peer, Version};
use place::Waiting;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::spawn_local;

/// Connections to origins that a connection of a client occupies at a time.
const OF_CLIENT: usize = 32;
/// Unread bodies of a thread.
const OF_THREAD: usize = 1_024;
/// Unread bodies of a client that are left to it when others need connections.
const FEW: usize = 8;
/// How long a request without a response counts; longer for a client that leaves much unread.
const YOUNG: Duration = Duration::from_millis(500);
/// How long a request waits for its response until unread bodies at its origin make room.
const LATE: Duration = Duration::from_millis(250);
/// How long a body has been unread, and its client has read nothing of others, before it makes room for others.
const STALLED: Duration = Duration::from_secs(2);
/// How long it has been unread before it makes room for another request of the same client.
const OWN: Duration = Duration::from_secs(30);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(200);

thread_local! {
    static HOLDS: Rc<Holds> = Rc::default();
}

/// Where a request goes: the address of the origin's state.
pub(crate) type At = usize;

/// Everything that is held on a thread.
#[derive(Default)]
pub(crate) struct Holds {
    clients: RefCell<HashMap<*const Peer, Rc<Holder>>>,
    asking: RefCell<Vec<Option<Asking>>>,
    /// Free places of `asking`.
    free: RefCell<Vec<usize>>,
    bodies: RefCell<Vec<Rc<Held>>>,
    looking: Cell<bool>,
}

/// A connection of a client that carries many requests.
struct Holder {
    /// Keeps its address from being used again.
    peer: Rc<Peer>,
    /// Young requests without a response.
    asking: Cell<usize>,
    unread: Cell<usize>,
    /// When it read on in any of its bodies.
    read: Cell<Instant>,
    /// Others needed what it held: until it reads on it gets no more than a few.
    reduced: Cell<bool>,
    waiting: RefCell<VecDeque<oneshot::Sender<Place>>>,
}

/// A request without a response.
struct Asking {
    at: Option<At>,
    since: Instant,
    holder: Option<Rc<Holder>>,
    young: bool,
}

/// Those of this thread.
pub(crate) fn of_thread() -> Rc<Holds> {
    HOLDS.with(Rc::clone)
}

/// Takes the connections of unread bodies of this thread, because descriptors run out; whether there were any.
pub fn make_room() -> bool {
    HOLDS.with(|holds| holds.make_room(None))
}

impl Holds {
    /// A place for a request, unless the client's connection occupies as many as it may.
    pub(crate) fn enter(self: &Rc<Holds>, peer: &Rc<Peer>, version: Version) -> Option<Place> {
        // One request after the other.
        if matches!(version, Version::Http10 | Version::Http11) {
            return Some(self.place(None));
        }
        let holder = self.holder(peer);
        (holder.has_room() && holder.waiting.borrow().is_empty()).then(|| self.place(Some(holder)))
    }

    /// Waits for a place.
    ///
    /// # Errors
    /// The client has gone meanwhile.
    pub(crate) async fn wait(
        self: &Rc<Holds>,
        peer: &Rc<Peer>,
        client: &dyn Client,
    ) -> Result<Place, Failure> {
        let holder = self.holder(peer);
        let (sender, receiver) = oneshot::channel();
        holder.waiting.borrow_mut().push_back(sender);
        let _waiting = Waiting { holds: self, holder };
        self.look();
        let mut receiver = pin!(receiver);
        poll_fn(|cx| {
            if let Poll::Ready(Ok(place)) = receiver.as_mut().poll(cx) {
                return Poll::Ready(Ok(place));
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

    fn holder(&self, peer: &Rc<Peer>) -> Rc<Holder> {
        let new = || {
            Rc::new(Holder {
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

    fn place(self: &Rc<Holds>, holder: Option<Rc<Holder>>) -> Place {
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
        Place { holds: self.clone(), index }
    }

    /// Holds the connection of a body for `place`'s request.
    pub(crate) fn hold(self: &Rc<Holds>, place: &Place, connection: Connection, active: Active) -> Hold {
        let (at, holder) = match &self.asking.borrow()[place.index] {
            Some(asking) => (asking.at.unwrap_or_default(), asking.holder.clone()),
            None => (0, None),
        };
        let mut bodies = self.bodies.borrow_mut();
        let held = Rc::new(Held {
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
        Hold { holds: self.clone(), held }
    }

    /// Takes the connections of unread bodies at an origin that accepts no more of them, or of any if `at` is `None`; whether there were any.
    pub(crate) fn make_room(&self, at: Option<At>) -> bool {
        self.displace(|held| at.is_none_or(|at| held.at == at)) > 0
            || at.is_none() && self.displace_oldest(STALLED, |_| true)
    }

    /// Takes the connection of the body that has been unread for the longest time of those that `may` lose it, if that is `least`; whether there
    /// was one.
    fn displace_oldest(&self, least: Duration, may: impl Fn(&Held) -> bool) -> bool {
        let bodies = self.bodies.borrow();
        let unread =
            bodies.iter().filter(|held| may(held)).filter_map(|held| Some((held.unread.get()?, held)));
        let oldest = unread.min_by_key(|(since, _)| *since).filter(|(since, _)| since.elapsed() >= least);
        let oldest = oldest.map(|(_, held)| held.clone());
        drop(bodies);
        oldest.inspect(|held| held.displace()).is_some()
    }

    /// Takes a quarter of the connections of bodies that `may` lose it, unread for [`STALLED`], and whose clients are stuck: those that have
    /// been unread for the longest time. Returns how many.
    fn displace(&self, may: impl Fn(&Held) -> bool) -> usize {
        let now = Instant::now();
        let bodies = self.bodies.borrow();
        let mut found: Vec<(Instant, Rc<Held>)> = bodies
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

    /// Starts the task that looks after requests that wait and bodies that are held.
    fn look(self: &Rc<Holds>) {
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

    /// Whether there is anything left to look after.
    fn look_once(self: &Rc<Holds>) -> bool {
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
        let holders: Vec<Rc<Holder>> = self.clients.borrow().values().cloned().collect();
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
        waiting || bodies > FEW
    }

    /// Lets requests go on that wait, while there is room.
    fn admit(self: &Rc<Holds>, holder: &Rc<Holder>) {
        while holder.has_room() {
            let Some(next) = holder.waiting.borrow_mut().pop_front() else { return };
            if !next.is_closed() {
                // One that goes meanwhile gives its place back.
                let _ = next.send(self.place(Some(holder.clone())));
            }
        }
    }

    /// After something of a client has ended: others of it may go on, or it is forgotten.
    fn released(self: &Rc<Holds>, holder: &Rc<Holder>) {
        if !holder.waiting.borrow().is_empty() {
            holder.waiting.borrow_mut().retain(|waiting| !waiting.is_closed());
            self.admit(holder);
        }
        // The map has one, and what ends has one.
        if Rc::strong_count(holder) == 2 && holder.waiting.borrow().is_empty() {
            self.clients.borrow_mut().remove(&Rc::as_ptr(&holder.peer));
        }
    }
}

impl Holder {
    fn has_room(&self) -> bool {
        self.asking.get() + self.unread.get() < if self.reduced.get() { FEW } else { OF_CLIENT }
    }

    /// Whether it has many unread bodies and reads none of them.
    fn is_stuck(&self, now: Instant) -> bool {
        self.unread.get() > FEW && now.saturating_duration_since(self.read.get()) >= STALLED
    }
}
