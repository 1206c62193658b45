//! The waiting requests of a queue, and the order in which they are served.
//!
//! Contract:
//! 1. Classes share the seat time of the queue by their weights while requests of them wait (start-time fair
//!    queueing). A class of the last lane gets the seats that no other class wants.
//! 2. In a class, clients take turns. A client whose requests hold no seat comes before clients that hold
//!    seats, unless one of those has been passed over for some turns of all. Among equals a turn is worth the
//!    seat time of a mean request: a client with quick requests gets several in a turn; a client with slow
//!    requests is passed over to pay for them (deficit round robin), for at most [`DEBT`] turns. A client
//!    that is alone owes nothing.
//! 3. The requests of a client are served in order of arrival. A request that returns keeps its number and so its
//!    position among them.
//! 4. With one client, requests are served in order of arrival.
//! 5. Every step takes constant time, whatever the number of clients and requests. A waiting client needs no
//!    allocation once as many clients have waited before. Exceptions: a returned request searches for its
//!    position among earlier returned requests, and each class is visited.
//! 6. A [`Turn`] is given back once. A worker that has gone gives back the turns of its requests; later attempts
//!    do nothing.

use crate::class::{Class, ClassFigures, ClassShare};
use crate::client::{ClassIndex, QueueKey};
use crate::flow::{ALL, DEBT, Entry, Flow, OWN, Ring, micros};
use crate::lengths::bucket_of;
use crate::links::{List, NONE};
use crate::ticket::{PoolIndex, Serial, Ticket, Turn};
use slab::Slab;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A request that has left the line for a worker.
#[derive(Debug)]
struct OpenTurn {
    stamp: u32,
    serial: Serial,
    flow: u32,
    /// The seat time charged to its client and its class.
    charged_us: u32,
}

/// A client with waiting requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiter {
    pub key: QueueKey,
    /// Its requests that wait.
    pub waiting: u32,
    /// Its requests that have waited and that a worker has now.
    pub seats: u32,
    /// The time since which the first of them has waited.
    pub since: Instant,
}

#[derive(Debug)]
pub(crate) struct FairQueue {
    pool: PoolIndex,
    entries: Slab<Entry>,
    /// Requests in order of arrival, without those that have returned.
    arrived: List<ALL>,
    /// Returned requests, ordered by the time since which they have waited.
    returned: List<ALL>,
    flows: Slab<Flow>,
    /// The clients by key. The state of the map's hash is random, so that clients cannot choose where they are.
    known: HashMap<QueueKey, u32>,
    /// The client of the last request; the next request often has the same client.
    last: u32,
    classes: Vec<Class>,
    /// The clocks of the classes, for the ordinary lane and for the last lane; see [`Class::used`].
    clocks: [f64; 2],
    turns: Slab<OpenTurn>,
    stamp: u32,
    waiting: usize,
    longest: usize,
}

impl Default for FairQueue {
    fn default() -> FairQueue {
        FairQueue {
            pool: PoolIndex::DEFAULT,
            entries: Slab::new(),
            arrived: List::default(),
            returned: List::default(),
            flows: Slab::new(),
            known: HashMap::new(),
            last: NONE,
            classes: vec![Class::new(ClassShare { name: String::new(), weight: 1 })],
            clocks: [0.0; 2],
            turns: Slab::new(),
            stamp: 0,
            waiting: 0,
            longest: 0,
        }
    }
}

/// Requests: from their arrival to the end of their turn.
impl FairQueue {
    pub(crate) fn of_pool(self, pool: PoolIndex) -> FairQueue {
        FairQueue { pool, ..self }
    }

    /// Adds a request that has arrived last, and returns its ticket with its place.
    #[inline]
    pub(crate) fn push(&mut self, ticket: Ticket, since: Instant, key: QueueKey) -> Ticket {
        let flow = self.flow(key);
        let at = self.entry(ticket, since, flow, false);
        self.flows[flow as usize].entries.push_back(&mut self.entries, at);
        self.arrived.push_back(&mut self.entries, at);
        self.added(flow);
        Ticket { place: at, ..ticket }
    }

    /// Adds a request that has had a position before, and returns its ticket with its place.
    pub(crate) fn put_back(&mut self, ticket: Ticket, since: Instant, key: QueueKey) -> Ticket {
        let flow = self.flow(key);
        let at = self.entry(ticket, since, flow, true);
        // A returned request is older than all requests that have arrived since.
        let mut next = self.flows[flow as usize].entries.first();
        while next != NONE && self.entries[next as usize].number < ticket.number {
            next = List::<OWN>::after(&mut self.entries, next);
        }
        self.flows[flow as usize].entries.insert_before(&mut self.entries, at, next);
        let mut next = self.returned.first();
        while next != NONE && self.entries[next as usize].since <= since {
            next = List::<ALL>::after(&mut self.entries, next);
        }
        self.returned.insert_before(&mut self.entries, at, next);
        self.added(flow);
        Ticket { place: at, ..ticket }
    }

    /// Removes the request whose turn it is, for worker `serial`. Returns it with its waiting time.
    #[inline]
    pub(crate) fn pop(&mut self, serial: Serial, now: Instant) -> Option<(Ticket, Duration, Turn)> {
        let class = self.next_class()?;
        let known = &mut self.known;
        let flow = self.classes[class].next(&mut self.flows, |flows, at| {
            let Flow { key, .. } = flows.remove(at as usize);
            known.remove(&key);
        });
        // From now on the client holds a seat, so it is not forgotten with its last request.
        self.flows[flow as usize].seats += 1;
        let (ticket, since) = self.remove(self.flows[flow as usize].entries.first());
        let (its, its_class) = (&mut self.flows[flow as usize], &mut self.classes[class]);
        let mut charged_us = its_class.turn_us();
        if !its_class.has_one() {
            charged_us = its.mean.us().unwrap_or(charged_us);
            its.credit -= i64::from(charged_us);
            its.goes_on = its.credit > 0;
        }
        its_class.figures.served += 1;
        let wait = now.saturating_duration_since(since);
        its_class.figures.waited += wait;
        let ring = if its.waiting > 0 { Ring::Busy } else { Ring::None };
        // A client that keeps its turn moves to the end of the ring.
        if its.waiting == 0 || !its_class.has_one() {
            its_class.enter(&mut self.flows, flow, ring);
        }
        if self.classes.len() > 1 {
            let its_class = &mut self.classes[class];
            let clock = &mut self.clocks[usize::from(its_class.is_last_lane())];
            *clock = clock.max(its_class.used);
            its_class.uses(charged_us.into(), *clock);
        }
        self.stamp = self.stamp.wrapping_add(1);
        let slot = self.turns.insert(OpenTurn { stamp: self.stamp, serial, flow, charged_us }) as u32;
        Some((ticket, wait, Turn { slot, stamp: self.stamp }))
    }

    /// Ends the turn of a request that worker `serial` had. `app` is its time in the app; `None` if it was
    /// not served.
    #[inline]
    pub(crate) fn give_back(&mut self, turn: Turn, serial: Serial, app: Option<Duration>) {
        let Some(&OpenTurn { flow, charged_us, .. }) = self
            .turns
            .get(turn.slot as usize)
            .filter(|open| open.stamp == turn.stamp && open.serial == serial)
        else {
            return;
        };
        self.turns.remove(turn.slot as usize);
        let its = &mut self.flows[flow as usize];
        let class = &mut self.classes[usize::from(its.key.class.0)];
        let us = app.map_or(0, micros);
        if app.is_some() {
            class.ended(us);
        }
        let more = i64::from(us) - i64::from(charged_us);
        if !class.has_one() {
            if app.is_some() {
                its.mean.add(us);
            }
            let most = i64::from(class.turn_us());
            its.credit = (its.credit - more).clamp(-most * DEBT, most);
            its.goes_on &= its.credit > 0;
        }
        its.seats -= 1;
        let seats = its.seats;
        if self.classes.len() > 1 {
            let class = self.class_mut(flow);
            let lane = usize::from(class.is_last_lane());
            let clock = self.clocks[lane];
            self.class_mut(flow).uses(more, clock);
        }
        if seats == 0 {
            self.settle(flow);
        }
    }

    /// Ends the turns of all requests that a worker had.
    pub(crate) fn worker_gone(&mut self, serial: Serial) {
        let its = self.turns.iter().filter(|(_, open)| open.serial == serial);
        let turns: Vec<Turn> =
            its.map(|(slot, open)| Turn { slot: slot as u32, stamp: open.stamp }).collect();
        turns.into_iter().for_each(|turn| self.give_back(turn, serial, None));
    }

    /// Removes a request. Returns false if it does not wait.
    pub(crate) fn cancel(&mut self, ticket: Ticket) -> bool {
        let is_it = |entry: Option<&Entry>| entry.is_some_and(|entry| entry.number == ticket.number);
        let mut at = ticket.place;
        if !is_it(self.entries.get(at as usize)) {
            // The position of a returned request differs from its ticket.
            at = self.returned.first();
            while at != NONE && !is_it(self.entries.get(at as usize)) {
                at = List::<ALL>::after(&mut self.entries, at);
            }
        }
        if at == NONE {
            return false;
        }
        self.drop_out(at);
        true
    }

    /// Removes the requests that have waited since `limit` or longer.
    pub(crate) fn expire(&mut self, limit: Instant) -> Vec<Ticket> {
        let mut expired = Vec::new();
        while let Some(at) = self.first().filter(|&at| self.entries[at as usize].since <= limit) {
            let flow = self.entries[at as usize].flow;
            self.class_mut(flow).figures.refused += 1;
            expired.push(self.drop_out(at));
        }
        expired
    }

    /// Makes room for a new request with this key: removes the newest request of a client with about twice as
    /// many or more, and returns its ticket. A request of the last lane is removed for a request of any other
    /// lane.
    pub(crate) fn displace(&mut self, key: QueueKey) -> Option<Ticket> {
        let class = self.class_of(key);
        let last_lane = self.classes[class].is_last_lane();
        let longest = |of_last_lane: bool| {
            let classes = self.classes.iter().filter(|class| class.is_last_lane() == of_last_lane);
            classes.filter_map(|class| class.lengths.longest()).max_by_key(|(bucket, _)| *bucket)
        };
        let gives_way = if last_lane { None } else { longest(true) };
        let own = bucket_of(self.waiting_of(key) + 1);
        let greediest = || longest(last_lane).filter(|(bucket, _)| *bucket > own);
        let (_, flow) = gives_way.or_else(greediest)?;
        self.class_mut(flow).figures.refused += 1;
        let newest = self.flows[flow as usize].entries.last();
        Some(self.drop_out(newest))
    }

    /// Counts a request with this key that was refused.
    pub(crate) fn refused(&mut self, key: QueueKey) {
        let class = self.class_of(key);
        self.classes[class].figures.refused += 1;
    }

    /// Returns how many requests will be served before a new request with this key.
    pub(crate) fn ahead(&self, key: QueueKey) -> usize {
        let class = &self.classes[self.class_of(key)];
        let of_class = class.lengths.within(self.waiting_of(key) + 1) as usize;
        if self.classes.len() == 1 {
            return of_class;
        }
        let others = |one: &&Class| one.waiting > 0 && !std::ptr::eq(*one, class);
        let lane = |one: &&Class| one.is_last_lane() == class.is_last_lane();
        let (mut weights, mut waiting) = (class.weight(), class.waiting);
        for other in self.classes.iter().filter(others).filter(lane) {
            weights += other.weight();
            waiting += other.waiting;
        }
        let ahead =
            ((of_class as f64 * weights / class.weight()) as usize).clamp(of_class, waiting.max(of_class));
        let before = if class.is_last_lane() { self.waiting - waiting } else { 0 };
        ahead + before
    }
}

impl FairQueue {
    /// Returns the class with waiting requests that has used the least.
    #[inline]
    fn next_class(&self) -> Option<usize> {
        if self.waiting == 0 {
            return None;
        }
        if self.classes.len() == 1 {
            return Some(0);
        }
        let waiting = self.classes.iter().enumerate().filter(|(_, class)| class.waiting > 0);
        let order = |one: &Class, other: &Class| {
            one.is_last_lane().cmp(&other.is_last_lane()).then(one.used.total_cmp(&other.used))
        };
        waiting.min_by(|(_, one), (_, other)| order(one, other)).map(|(at, _)| at)
    }

    fn class_of(&self, key: QueueKey) -> usize {
        Some(usize::from(key.class.0)).filter(|&class| class < self.classes.len()).unwrap_or(0)
    }

    fn class_mut(&mut self, flow: u32) -> &mut Class {
        &mut self.classes[usize::from(self.flows[flow as usize].key.class.0)]
    }

    /// Returns the index of a client, which is added if it is new.
    #[inline]
    fn flow(&mut self, key: QueueKey) -> u32 {
        let key = QueueKey { class: ClassIndex(self.class_of(key) as u8), ..key };
        if self.flows.get(self.last as usize).is_some_and(|flow| flow.key == key) {
            return self.last;
        }
        let (flows, class) = (&mut self.flows, &self.classes[usize::from(key.class.0)]);
        let new = || flows.insert(Flow::new(key, class.turn_us().into())) as u32;
        self.last = *self.known.entry(key).or_insert_with(new);
        self.last
    }

    /// Returns the number of waiting requests with this key.
    fn waiting_of(&self, key: QueueKey) -> u32 {
        let key = QueueKey { class: ClassIndex(self.class_of(key) as u8), ..key };
        match self.flows.get(self.last as usize) {
            Some(flow) if flow.key == key => flow.waiting,
            _ => self.known.get(&key).map_or(0, |&flow| self.flows[flow as usize].waiting),
        }
    }

    #[inline]
    fn entry(&mut self, ticket: Ticket, since: Instant, flow: u32, returned: bool) -> u32 {
        let Ticket { number, thread, slot, .. } = ticket;
        let links = Default::default();
        self.entries.insert(Entry { number, since, thread, slot, flow, returned, links }) as u32
    }

    /// Counts a request that was added to a client.
    #[inline]
    fn added(&mut self, flow: u32) {
        self.waiting += 1;
        self.longest = self.longest.max(self.waiting);
        let waiting = self.flows[flow as usize].waiting;
        self.flows[flow as usize].waiting = waiting + 1;
        let class = &mut self.classes[usize::from(self.flows[flow as usize].key.class.0)];
        class.lengths.change(&mut self.flows, flow, waiting, waiting + 1);
        if class.waiting == 0 {
            class.used = class.used.max(self.clocks[usize::from(class.is_last_lane())]);
        }
        class.waiting += 1;
        if waiting == 0 {
            self.settle(flow);
        }
    }

    /// Removes a request from its lists, and counts that.
    #[inline]
    fn remove(&mut self, at: u32) -> (Ticket, Instant) {
        let flow = self.entries[at as usize].flow;
        let its = &mut self.flows[flow as usize];
        its.entries.remove(&mut self.entries, at);
        let waiting = its.waiting;
        its.waiting -= 1;
        let class = &mut self.classes[usize::from(its.key.class.0)];
        class.lengths.change(&mut self.flows, flow, waiting, waiting - 1);
        class.waiting -= 1;
        self.waiting -= 1;
        let all = if self.entries[at as usize].returned { &mut self.returned } else { &mut self.arrived };
        all.remove(&mut self.entries, at);
        let Entry { number, thread, slot, since, .. } = self.entries.remove(at as usize);
        if class.waiting == 0 {
            self.forgive(usize::from(self.flows[flow as usize].key.class.0));
        }
        (Ticket { number, thread, slot, pool: self.pool, place: NONE }, since)
    }

    /// Removes a request that gets no turn.
    fn drop_out(&mut self, at: u32) -> Ticket {
        let flow = self.entries[at as usize].flow;
        let (ticket, _) = self.remove(at);
        // The client may have been removed with the last request of its class.
        if self.flows.get(flow as usize).is_some_and(|flow| flow.waiting == 0) {
            self.settle(flow);
        }
        ticket
    }

    /// Puts a client where it belongs after a change of its requests.
    fn settle(&mut self, flow: u32) {
        let its = &self.flows[flow as usize];
        let (key, ring) = (its.key, its.ring);
        let class = &mut self.classes[usize::from(key.class.0)];
        if its.waiting > 0 && ring != Ring::None && class.has_one() {
            return;
        }
        let owes = its.credit <= 0 && class.waiting > 0;
        let wanted = match (its.waiting > 0, its.seats > 0) {
            (true, true) => Ring::Busy,
            (true, false) => Ring::Idle,
            (false, false) if owes => Ring::Idle,
            (false, _) => Ring::None,
        };
        if wanted != ring {
            class.enter(&mut self.flows, flow, wanted);
        }
        let its = &self.flows[flow as usize];
        if wanted == Ring::None && its.seats == 0 {
            self.flows.remove(flow as usize);
            self.known.remove(&key);
        }
    }

    /// Clears the debts of a class's clients, because no request waits.
    fn forgive(&mut self, class: usize) {
        while let Some(flow) = self.classes[class].rest() {
            self.classes[class].enter(&mut self.flows, flow, Ring::None);
            if self.flows[flow as usize].seats == 0 {
                let Flow { key, .. } = self.flows.remove(flow as usize);
                self.known.remove(&key);
            }
        }
    }

    /// Returns the request that has waited longest.
    fn first(&self) -> Option<u32> {
        let since = |&at: &u32| self.entries[at as usize].since;
        [self.returned.first(), self.arrived.first()].into_iter().filter(|&at| at != NONE).min_by_key(since)
    }
}

/// Settings and figures.
impl FairQueue {
    /// Sets the classes; the first is the default one. A class that is no longer named keeps its waiting
    /// requests until they are served.
    pub(crate) fn set_classes(&mut self, shares: &[ClassShare]) {
        for (at, share) in shares.iter().enumerate() {
            match self.classes.get_mut(at) {
                Some(class) if class.share.name == share.name => class.share.weight = share.weight,
                Some(class) => (class.share, class.figures) = (share.clone(), ClassFigures::default()),
                None => self.classes.push(Class::new(share.clone())),
            }
        }
        while self.classes.len() > shares.len().max(1) && self.is_last_unused() {
            self.classes.pop();
        }
    }

    /// Returns whether no client is in the last class.
    fn is_last_unused(&self) -> bool {
        let last = self.classes.len() - 1;
        self.flows.iter().all(|(_, flow)| usize::from(flow.key.class.0) != last)
    }

    /// Returns each class with its figures.
    pub(crate) fn classes(&self) -> impl Iterator<Item = (&ClassShare, ClassFigures)> + '_ {
        self.classes.iter().map(|class| {
            let (waiting, clients) = (class.waiting as u64, class.lengths.clients());
            (&class.share, ClassFigures { waiting, clients, ..class.figures })
        })
    }

    /// Returns the `limit` clients with the most waiting requests, in descending order.
    pub(crate) fn waiters(&self, limit: usize) -> Vec<Waiter> {
        let waits = |(_, flow): (usize, &Flow)| {
            let first = self.entries.get(flow.entries.first() as usize)?;
            Some(Waiter { key: flow.key, waiting: flow.waiting, seats: flow.seats, since: first.since })
        };
        let mut all: Vec<Waiter> = self.flows.iter().filter_map(waits).collect();
        all.sort_by_key(|waiter| (std::cmp::Reverse(waiter.waiting), waiter.since));
        all.truncate(limit);
        all
    }

    /// Returns the number of clients with waiting requests.
    pub(crate) fn clients(&self) -> usize {
        self.classes.iter().map(|class| class.lengths.clients() as usize).sum()
    }

    /// Returns the waiting requests of a client that has about the most.
    pub(crate) fn most_of_client(&self) -> u32 {
        let longest = self.classes.iter().filter_map(|class| class.lengths.longest());
        longest.map(|(_, flow)| self.flows[flow as usize].waiting).max().unwrap_or(0)
    }

    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the largest number of requests that have ever waited at the same time.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    /// Returns the time since which the first request has waited.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.first().map(|at| self.entries[at as usize].since)
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
