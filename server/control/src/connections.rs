//! Decides which connection to close when an address has reached its limit. Pure: times are arguments.
//!
//! Why: a control socket must respond even while clients hold its connections open, by accident or on
//! purpose. Waiting for their deadlines would take too long.
//!
//! Contract:
//! 1. A connection without a request can be closed after [`HEAD_TIME`], one whose response is in progress
//!    after [`RESPONSE_TIME`], and none before.
//! 2. Among these, connections without a request are closed first, then those of the client with the most
//!    connections, then the oldest.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The limit of connections per address.
pub(crate) const MAX_CONNECTIONS: usize = 32;
/// How long a request's head may take while others wait.
const HEAD_TIME: Duration = Duration::from_millis(250);
/// How long a response may take while others wait. `/requests?backtraces` alone can take a second.
const RESPONSE_TIME: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ControlPeer {
    /// The process at the other end of a Unix socket, if known.
    Process(Option<i32>),
    Address(IpAddr),
}

/// When a connection's request was complete. Shared with the task that serves it.
pub(crate) type Requested = Rc<Cell<Option<Instant>>>;

struct ControlConnection<T> {
    client: ControlPeer,
    accepted: Instant,
    requested: Requested,
    task: T,
}

impl<T> ControlConnection<T> {
    fn gives_way_at(&self) -> Instant {
        self.requested.get().map_or(self.accepted + HEAD_TIME, |requested| requested + RESPONSE_TIME)
    }
}

/// The connections of one address, oldest first.
pub(crate) struct Connections<T>(Vec<ControlConnection<T>>);

impl<T> Connections<T> {
    pub(crate) fn new() -> Connections<T> {
        Connections(Vec::new())
    }

    pub(crate) fn add(&mut self, client: ControlPeer, accepted: Instant, requested: Requested, task: T) {
        self.0.push(ControlConnection { client, accepted, requested, task });
    }

    /// Drops connections that have ended.
    pub(crate) fn retain(&mut self, open: impl Fn(&T) -> bool) {
        self.0.retain(|held| open(&held.task));
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MAX_CONNECTIONS
    }

    /// Returns the connection to close for a new one, or the time at which one can be closed. `None` while
    /// there is room.
    pub(crate) fn give_way(&mut self, now: Instant) -> Option<Result<T, Instant>> {
        if !self.is_full() {
            return None;
        }
        let next = self.0.iter().map(ControlConnection::gives_way_at).min()?;
        if next > now {
            return Some(Err(next));
        }
        let of_client = |client: ControlPeer| self.0.iter().filter(|held| held.client == client).count();
        let ready = self.0.iter().enumerate().filter(|(_, held)| held.gives_way_at() <= now);
        // `max_by_key` returns the last of equal elements, so the oldest must come last.
        let (index, _) =
            ready.rev().max_by_key(|(_, held)| (held.requested.get().is_none(), of_client(held.client)))?;
        Some(Ok(self.0.remove(index).task))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: usize, clients: impl Fn(usize) -> i32, now: Instant) -> Connections<usize> {
        let mut connections = Connections::new();
        for number in 0..count {
            connections.add(ControlPeer::Process(Some(clients(number))), now, Requested::default(), number);
        }
        connections
    }

    #[test]
    fn with_room_none_gives_way() {
        let now = Instant::now();
        assert_eq!(filled(MAX_CONNECTIONS - 1, |_| 1, now).give_way(now + HEAD_TIME), None);
    }

    #[test]
    fn each_has_time_for_its_request() {
        let now = Instant::now();
        let mut connections = filled(MAX_CONNECTIONS, |_| 1, now);
        assert_eq!(connections.give_way(now), Some(Err(now + HEAD_TIME)));
        assert_eq!(connections.give_way(now + HEAD_TIME), Some(Ok(0)), "the oldest");
        assert_eq!(connections.give_way(now + HEAD_TIME), None, "there is room");
    }

    #[test]
    fn the_client_with_most_connections_loses_one() {
        let now = Instant::now();
        let mut connections = filled(MAX_CONNECTIONS, |number| if number < 10 { 1 } else { 2 }, now);
        assert_eq!(connections.give_way(now + HEAD_TIME), Some(Ok(10)));
    }

    #[test]
    fn a_request_has_time_for_its_response() {
        let now = Instant::now();
        let mut connections = filled(MAX_CONNECTIONS - 1, |_| 1, now);
        for held in &connections.0 {
            held.requested.set(Some(now));
        }
        let later = now + Duration::from_secs(1);
        connections.add(ControlPeer::Address([127, 0, 0, 1].into()), later, Requested::default(), 99);
        assert_eq!(connections.give_way(later), Some(Err(later + HEAD_TIME)));
        assert_eq!(connections.give_way(later + HEAD_TIME), Some(Ok(99)), "without a request");
        connections.add(ControlPeer::Process(Some(2)), later, Rc::new(Cell::new(Some(later))), 100);
        assert_eq!(connections.give_way(later + HEAD_TIME), Some(Err(now + RESPONSE_TIME)));
        assert_eq!(connections.give_way(now + RESPONSE_TIME), Some(Ok(0)));
    }
}
