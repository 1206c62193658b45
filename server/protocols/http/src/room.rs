//! Chooses which connection of a thread is closed for a new one when the server is full.
//!
//! Why: a client can hold a connection with hardly any effort: with a handshake, head or upload that never
//! ends, or by not reading. A full server would refuse all other clients until the deadlines of such
//! connections have passed.
//!
//! Contract:
//! 1. Connections make room in this order ([`Rank`]): unproved clients that [`Unproved::first`] selects; the
//!    connection that has been idle for the longest time; other unproved clients ([`Unproved::next`]); the
//!    transfer that has been stalled by its client for the longest time, and at least for [`PAUSE`]. A
//!    connection that waits for the server is never chosen.
//! 2. A client is proved by its first complete request. A later incomplete head counts as unproved again.
//! 3. A connection is chosen once, and the caller wakes it. If its data has arrived meanwhile, another one is
//!    chosen instead ([`crate::context::Shared::displace_another`]).
//! 4. For idle connections and transfers, starting and ending a wait is one store. Choosing a connection
//!    reads 32 bytes per connection, but is rare.

use crate::unproved::{GRACE, Unproved, UnprovedClient};
use net::Subnet;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Instant;

/// In milliseconds. A shorter pause of a transfer may be no more than a round trip.
pub(crate) const PAUSE: u64 = 300;

/// Added to the numbers of normal waits. Smaller numbers are for waits that always count as the oldest.
const LATER: u64 = 1 << 63;

/// The classes of connections that may make room, in the order in which they do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rank {
    /// Unproved clients that have had enough time, or are many.
    Unproved,
    /// Idle connections.
    Idle,
    /// The other unproved clients.
    Young,
    /// Transfers that wait for their clients.
    Stalled,
}

impl Rank {
    /// All ranks, in order.
    pub const ALL: [Rank; 4] = [Rank::Unproved, Rank::Idle, Rank::Young, Rank::Stalled];
}

/// The state of a connection: the event that it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RoomState {
    /// The connection waits for the server, or does not exist.
    #[default]
    Busy,
    /// A transfer that made progress just now; its state is checked again soon.
    Moving,
    /// The connection waits for the rest of a handshake, a PROXY header or a head.
    Unproved,
    /// The connection waits for another request.
    Idle,
    /// The connection waits for more of a body, or for the client to read more of a response.
    Stalled,
    /// The connection has to make room.
    Chosen,
}

/// The protocol stage of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Stage {
    #[default]
    Http,
    /// A TLS handshake or a PROXY header.
    Handshake,
    /// A QUIC handshake. Until its client has proved its address, it makes room before all others.
    Quic { proved: bool },
    /// The connection is refused and cannot make room.
    Refused,
}

#[derive(Debug, Clone, Copy, Default)]
struct ConnectionEntry {
    /// Grows with each wait that begins.
    number: u64,
    address: Subnet,
    /// In milliseconds.
    since: u64,
    state: RoomState,
    stage: Stage,
}

/// The connections of a thread, by the keys of their timers.
#[derive(Debug)]
pub(crate) struct Room {
    entries: RefCell<Vec<ConnectionEntry>>,
    unproved: RefCell<Unproved>,
    open: Cell<usize>,
    next: Cell<u64>,
    base: Instant,
}

impl Room {
    pub(crate) fn new(base: Instant) -> Room {
        Room {
            entries: RefCell::default(),
            unproved: RefCell::default(),
            open: Cell::new(0),
            next: Cell::new(0),
            base,
        }
    }

    /// Registers a new connection.
    pub(crate) fn open(&self, key: usize, address: Subnet, stage: Stage) {
        let mut entries = self.entries.borrow_mut();
        if entries.len() <= key {
            entries.resize(key + 1, ConnectionEntry::default());
        }
        entries[key] = ConnectionEntry { address, stage, ..ConnectionEntry::default() };
        self.open.update(|n| n + 1);
    }

    /// Marks a connection as refused.
    pub(crate) fn refuse(&self, key: usize) {
        self.busy(key);
        if let Some(entry) = self.entries.borrow_mut().get_mut(key) {
            entry.stage = Stage::Refused;
        }
    }

    /// Removes a connection that has ended.
    pub(crate) fn close(&self, key: usize) {
        self.busy(key);
        self.open.update(|n| n - 1);
    }

    /// Records that a connection waits, since `now` unless it already waited in the same state.
    pub(crate) fn wait(&self, key: usize, state: RoomState, now: Instant) {
        let mut entries = self.entries.borrow_mut();
        let Some(entry) = entries.get_mut(key) else { return };
        if entry.state == state || entry.state == RoomState::Chosen || entry.stage == Stage::Refused {
            return;
        }
        self.next.update(|next| next + 1);
        let (mut number, mut since) = (LATER + self.next.get(), self.millis(now));
        if entry.stage == (Stage::Quic { proved: false }) {
            (number, since) = (self.next.get(), 0);
        }
        if entry.state == RoomState::Unproved {
            self.unproved.borrow_mut().remove(entry.address, entry.number);
        }
        (entry.number, entry.since, entry.state) = (number, since, state);
        if state == RoomState::Unproved {
            self.unproved.borrow_mut().insert(entry.address, number, UnprovedClient { key, since });
        }
    }

    /// Records that a connection waits for the server, even if it was chosen.
    #[inline]
    pub(crate) fn busy(&self, key: usize) {
        if let Some(entry) = self.entries.borrow_mut().get_mut(key) {
            if entry.state == RoomState::Unproved {
                self.unproved.borrow_mut().remove(entry.address, entry.number);
            }
            entry.state = RoomState::Busy;
        }
    }

    /// Returns whether the connection has to make room.
    #[inline]
    pub(crate) fn is_chosen(&self, key: usize) -> bool {
        self.is(key, RoomState::Chosen)
    }

    #[inline]
    pub(crate) fn is(&self, key: usize, state: RoomState) -> bool {
        self.entries.borrow().get(key).is_some_and(|entry| entry.state == state)
    }

    /// Chooses the connection of this rank that makes room. Returns its key.
    pub(crate) fn choose(&self, rank: Rank, now: Instant) -> Option<usize> {
        let now = self.millis(now);
        let key = match rank {
            Rank::Unproved => self.unproved.borrow().first(self.open.get(), now),
            Rank::Idle => self.earliest(|entry| entry.state == RoomState::Idle),
            Rank::Young => self.unproved.borrow().next(),
            Rank::Stalled => self.earliest(|entry| {
                entry.state == RoomState::Stalled && now.saturating_sub(entry.since) >= PAUSE
            }),
        };
        self.take(key)
    }

    /// Chooses a QUIC handshake that waits for its client: the oldest one of the address that has the most of them.
    pub(crate) fn choose_quic(&self) -> Option<usize> {
        let is_quic = |entry: &ConnectionEntry| matches!(entry.stage, Stage::Quic { .. });
        let waits = |entry: &ConnectionEntry| is_quic(entry) && entry.state == RoomState::Unproved;
        let mut counts: BTreeMap<Subnet, usize> = BTreeMap::new();
        for entry in self.entries.borrow().iter().filter(|entry| waits(entry)) {
            *counts.entry(entry.address).or_default() += 1;
        }
        let (most, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        self.take(self.earliest(|entry| waits(entry) && entry.address == most))
    }

    /// Returns whether a connection may be able to make room soon: a transfer has just paused or continued,
    /// or the server works on a handshake.
    pub(crate) fn changes_soon(&self) -> bool {
        let changes = |entry: &ConnectionEntry| match entry.state {
            RoomState::Stalled | RoomState::Moving => true,
            RoomState::Busy => matches!(entry.stage, Stage::Handshake | Stage::Quic { .. }),
            _ => false,
        };
        self.entries.borrow().iter().any(changes)
    }

    fn take(&self, key: Option<usize>) -> Option<usize> {
        let key = key?;
        self.busy(key);
        self.entries.borrow_mut().get_mut(key)?.state = RoomState::Chosen;
        Some(key)
    }

    /// Returns the key of the matching connection that has waited for the longest time.
    fn earliest(&self, like: impl Fn(&ConnectionEntry) -> bool) -> Option<usize> {
        let entries = self.entries.borrow();
        let all = entries.iter().enumerate().filter(|(_, entry)| like(entry));
        all.min_by_key(|(_, entry)| (entry.since, entry.number)).map(|(key, _)| key)
    }

    /// Starts at [`GRACE`], so that a wait since 0 always counts as late.
    fn millis(&self, at: Instant) -> u64 {
        GRACE + at.saturating_duration_since(self.base).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;
    use std::time::Duration;

    fn address(number: u8) -> Subnet {
        Subnet::of(Some(Ipv4Addr::new(192, 0, 2, number).into()))
    }

    fn room(base: Instant, connections: usize) -> Room {
        let room = Room::new(base);
        (0..connections).for_each(|key| room.open(key, address(1), Stage::Http));
        room
    }

    #[test]
    fn the_longest_idle_connection_is_chosen_once() {
        let now = Instant::now();
        let room = room(now, 8);
        assert_eq!(room.choose(Rank::Idle, now), None, "all are busy");
        [5, 2, 7].into_iter().for_each(|key| room.wait(key, RoomState::Idle, now));
        room.busy(5);
        room.wait(5, RoomState::Idle, now);
        assert_eq!(room.choose(Rank::Idle, now), Some(2), "5 was busy in between");
        assert!(room.is_chosen(2) && !room.is_chosen(5) && !room.is_chosen(7));
        assert_eq!([(); 3].map(|()| room.choose(Rank::Idle, now)), [Some(7), Some(5), None]);
        room.busy(2);
        room.wait(2, RoomState::Idle, now);
        assert_eq!(room.choose(Rank::Idle, now), Some(2));
        room.close(2);
        assert!(!room.is_chosen(2));
    }

    #[test]
    fn clients_that_have_proved_nothing_leave_first_and_transfers_last() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let room = room(start, 4);
        room.wait(0, RoomState::Stalled, at(0));
        room.wait(1, RoomState::Idle, at(10));
        room.wait(2, RoomState::Unproved, at(20));
        room.wait(2, RoomState::Unproved, at(900));
        assert_eq!(room.choose(Rank::Unproved, at(500)), None, "it may still be on its way");
        assert_eq!(
            room.choose(Rank::Unproved, at(1_020)),
            Some(2),
            "waiting for more does not make it younger"
        );
        assert_eq!(room.choose(Rank::Unproved, at(9_000)), None);
        room.wait(3, RoomState::Unproved, at(30));
        let ranks = [Rank::Idle, Rank::Idle, Rank::Young, Rank::Young];
        assert_eq!(ranks.map(|rank| room.choose(rank, at(40))), [Some(1), None, Some(3), None]);
        assert!(room.changes_soon());
        assert_eq!(
            (room.choose(Rank::Stalled, at(299)), room.choose(Rank::Stalled, at(300))),
            (None, Some(0))
        );
        assert!(!room.changes_soon());
    }

    #[test]
    fn a_connection_that_is_refused_makes_no_room() {
        let now = Instant::now();
        let room = room(now, 1);
        room.wait(0, RoomState::Unproved, now);
        room.refuse(0);
        room.wait(0, RoomState::Idle, now);
        assert_eq!([Rank::Idle, Rank::Young].map(|rank| room.choose(rank, now)), [None, None]);
    }

    #[test]
    fn a_handshake_of_quic_leaves_for_another_one() {
        let now = Instant::now();
        let room = room(now, 1);
        let stage = Stage::Quic { proved: true };
        for (key, from) in [(1, 2), (2, 3), (3, 3)] {
            room.open(key, address(from), stage);
        }
        (0..4).for_each(|key| room.wait(key, RoomState::Unproved, now));
        assert_eq!([(); 4].map(|()| room.choose_quic()), [Some(2), Some(3), Some(1), None]);
    }

    #[test]
    fn an_address_that_is_not_proved_takes_no_place() {
        let now = Instant::now();
        let room = room(now, 2);
        room.open(2, address(1), Stage::Quic { proved: false });
        room.wait(0, RoomState::Unproved, now);
        room.wait(1, RoomState::Idle, now);
        room.wait(2, RoomState::Unproved, now);
        assert_eq!([(); 2].map(|()| room.choose(Rank::Unproved, now)), [Some(2), None]);
    }

    #[test]
    fn a_transfer_that_goes_on_begins_a_new_pause() {
        let start = Instant::now();
        let room = room(start, 2);
        room.wait(0, RoomState::Stalled, start);
        room.wait(1, RoomState::Stalled, start + Duration::from_millis(100));
        room.busy(0);
        room.wait(0, RoomState::Stalled, start + Duration::from_millis(200));
        assert_eq!(room.choose(Rank::Stalled, start + Duration::from_secs(9)), Some(1));
    }

    #[derive(Debug, Clone)]
    enum Event {
        Open(usize, u8),
        Close(usize),
        Wait(usize, RoomState),
        Busy(usize),
        Choose(Rank),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let state = prop::sample::select(vec![RoomState::Unproved, RoomState::Idle, RoomState::Stalled]);
        let rank = prop::sample::select(Rank::ALL.to_vec());
        let event = prop_oneof![
            (0..24usize, 0..4u8).prop_map(|(key, from)| Event::Open(key, from)),
            (0..24usize).prop_map(Event::Close),
            (0..24usize, state).prop_map(|(key, state)| Event::Wait(key, state)),
            (0..24usize).prop_map(Event::Busy),
            rank.prop_map(Event::Choose),
        ];
        prop::collection::vec(event, 0..400)
    }

    proptest! {
        #[test]
        fn a_connection_that_waits_for_the_server_never_makes_room(events in events()) {
            let start = Instant::now();
            let room = Room::new(start);
            let mut open: Vec<Option<RoomState>> = vec![None; 24];
            for (step, event) in events.into_iter().enumerate() {
                let now = start + Duration::from_millis(100 * step as u64);
                match event {
                    Event::Open(key, from) if open[key].is_none() => {
                        room.open(key, address(from), Stage::Http);
                        open[key] = Some(RoomState::Busy);
                    }
                    Event::Close(key) if open[key].is_some() => {
                        room.close(key);
                        open[key] = None;
                    }
                    Event::Wait(key, state) if open[key].is_some_and(|known| known != RoomState::Chosen) => {
                        room.wait(key, state, now);
                        open[key] = Some(state);
                    }
                    Event::Busy(key) if open[key].is_some() => {
                        room.busy(key);
                        open[key] = Some(RoomState::Busy);
                    }
                    Event::Choose(rank) => {
                        let waits = |state| open.iter().flatten().any(|known| *known == state);
                        match room.choose(rank, now) {
                            Some(key) => {
                                let was = open[key].replace(RoomState::Chosen);
                                let expected = match rank {
                                    Rank::Unproved | Rank::Young => RoomState::Unproved,
                                    Rank::Idle => RoomState::Idle,
                                    Rank::Stalled => RoomState::Stalled,
                                };
                                prop_assert_eq!(was, Some(expected));
                            }
                            None if rank == Rank::Idle => prop_assert!(!waits(RoomState::Idle)),
                            None if rank == Rank::Young => prop_assert!(!waits(RoomState::Unproved)),
                            None => {}
                        }
                    }
                    _ => {}
                }
                prop_assert_eq!(room.open.get(), open.iter().flatten().count());
            }
        }
    }
}
