//! Queues connections of unproved clients: the server waits for the rest of a handshake, of a PROXY header,
//! or of a request head.
//!
//! Why: such a connection costs its client hardly anything, and the server one of `max_connections`. One
//! client must not take all of them, and clients that are about to finish must not displace one another.
//!
//! Contract:
//! 1. A connection is in the queue while the server waits for its client, not while the server computes.
//! 2. [`Unproved::first`] makes room before any idle connection. It is the oldest of the address with the
//!    most queued connections, if they exceed the address's share ([`LEAST_SHARE`], [`SHARE`]); else a
//!    connection that has waited for longer than [`GRACE`], of the address with the most; else, if more than
//!    half of the thread's connections are queued, the oldest of the address with the most.
//! 3. [`Unproved::next`] makes room when no connection is idle: the oldest of the address with the most
//!    queued connections.
//!
//! Times are milliseconds; nothing here reads a clock.

use net::Subnet;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How long a client may take before its connection makes room ahead of idle ones: a few round trips, a lost packet.
pub(crate) const GRACE: u64 = 1_000;
/// An address's share of the queue: one in so many connections of the thread,
const SHARE: usize = 8;
/// and at least this number.
const LEAST_SHARE: usize = 16;

/// Queued connections by the addresses of their clients; per address, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Unproved {
    addresses: BTreeMap<Subnet, BTreeMap<u64, UnprovedClient>>,
    len: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UnprovedClient {
    pub(crate) key: usize,
    pub(crate) since: u64,
}

impl Unproved {
    /// Adds a connection. Smaller numbers of an address are older.
    pub(crate) fn insert(&mut self, address: Subnet, number: u64, waiting: UnprovedClient) {
        self.addresses.entry(address).or_default().insert(number, waiting);
        self.len += 1;
    }

    /// Removes a connection.
    pub(crate) fn remove(&mut self, address: Subnet, number: u64) {
        let Some(of_address) = self.addresses.get_mut(&address) else { return };
        if of_address.remove(&number).is_some() {
            self.len -= 1;
        }
        if of_address.is_empty() {
            self.addresses.remove(&address);
        }
    }

    /// Returns the key of the connection that makes room before idle ones, if any. `open`: the number of open
    /// connections of the thread.
    pub(crate) fn first(&self, open: usize, now: u64) -> Option<usize> {
        let share = (open / SHARE).max(LEAST_SHARE);
        let (most, oldest) = self.most(|_| true)?;
        if most > share {
            return Some(oldest.key);
        }
        let late = self.most(|oldest| now.saturating_sub(oldest.since) >= GRACE);
        let many = (self.len > open / 2 && self.len > LEAST_SHARE).then_some(oldest);
        late.map(|(_, oldest)| oldest).or(many).map(|one| one.key)
    }

    /// Returns the key of the connection that makes room when no connection is idle.
    pub(crate) fn next(&self) -> Option<usize> {
        self.most(|_| true).map(|(_, oldest)| oldest.key)
    }

    /// Considers the addresses whose oldest connection satisfies `like`. Returns the connection count of the
    /// one with the most, and its oldest connection.
    fn most(&self, like: impl Fn(&UnprovedClient) -> bool) -> Option<(usize, UnprovedClient)> {
        let oldest = self.addresses.values().filter_map(|all| {
            let (number, oldest) = all.first_key_value()?;
            like(oldest).then_some((all.len(), Reverse(*number), *oldest))
        });
        let (count, _, oldest) = oldest.max_by_key(|(count, number, _)| (*count, *number))?;
        Some((count, oldest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn address(number: u8) -> Subnet {
        Subnet::of(Some(Ipv4Addr::new(192, 0, 2, number).into()))
    }

    /// Creates a queue of connections (address, since). Their keys are their positions.
    fn queue(of: &[(u8, u64)]) -> Unproved {
        let mut queue = Unproved::default();
        for (key, &(from, since)) in of.iter().enumerate() {
            queue.insert(address(from), key as u64, UnprovedClient { key, since });
        }
        queue
    }

    #[test]
    fn young_ones_leave_after_idle_connections_and_late_ones_before() {
        let queue = queue(&[(1, 500), (2, 900), (2, 950)]);
        assert_eq!((queue.first(500, 1_000), queue.next()), (None, Some(1)));
        assert_eq!(queue.first(500, 1_500), Some(0), "late, although another address has more");
        assert_eq!(queue.first(500, 2_500), Some(1), "all are late: of the address that has the most");
    }

    #[test]
    fn an_address_with_more_than_its_share_loses_its_own_first() {
        let mut all = vec![(1, 0)];
        all.extend((0..=LEAST_SHARE).map(|_| (2, 5_000)));
        assert_eq!(queue(&all).first(40, 5_000), Some(1), "although that of the other address is older");
        assert_eq!(queue(&all).first(1_000, 5_000), Some(0));
        all.pop();
        assert_eq!(queue(&all).first(40, 5_000), Some(0));
    }

    #[test]
    fn many_addresses_do_not_hold_most_of_the_connections() {
        let all: Vec<_> = (0..200).map(|from| (from, 0)).collect();
        assert_eq!((queue(&all).first(399, 10), queue(&all).first(400, 10)), (Some(0), None));
    }

    proptest! {
        #[test]
        fn the_address_that_has_the_most_beyond_its_share_leaves_first(
            mut all in prop::collection::vec((0u8..6, 0u64..5_000), 0..200),
            open in 0usize..400,
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..50),
        ) {
            all.sort_by_key(|(_, since)| *since);
            let mut queue = queue(&all);
            let mut left: BTreeMap<usize, (u8, u64)> = all.into_iter().enumerate().collect();
            for index in removed {
                if let Some(key) = left.keys().nth(index.index(200)).copied() {
                    let (from, _) = left.remove(&key).unwrap();
                    queue.remove(address(from), key as u64);
                }
            }
            prop_assert_eq!(queue.len, left.len());
            prop_assert_eq!(queue.next().is_some(), !left.is_empty());
            let count = |from: u8| left.values().filter(|(other, _)| *other == from).count();
            let most = (0..6).map(count).max().unwrap_or(0);
            if let Some(next) = queue.next() {
                prop_assert_eq!(count(left[&next].0), most);
            }
            let late = left.values().any(|(_, since)| 5_000 - since >= GRACE);
            match queue.first(open, 5_000) {
                Some(key) => {
                    let (from, since) = left[&key];
                    // No older connection of the same address stays.
                    prop_assert!(left.iter().all(|(other, (of, _))| *of != from || *other >= key));
                    let beyond = most > LEAST_SHARE && most > open / SHARE;
                    prop_assert!(!beyond || count(from) == most);
                    prop_assert!(beyond || 5_000 - since >= GRACE || left.len() > open / 2);
                }
                None => prop_assert!(most <= LEAST_SHARE.max(open / SHARE) && !late),
            }
        }
    }
}
