//! Handshakes of QUIC in progress, of one thread: who may begin one.
//!
//! Why: the first packet of a connection costs its sender nothing, may bear any address, and makes the server hold the state of a
//! handshake until that has timed out.
//!
//! Contract:
//! 1. Few handshakes are in progress with clients that have not proved their address, in all and for each address. The others prove it
//!    first, for which nothing is held.
//! 2. With a proved address more are possible, but bounded as well. When there are too many in all, the oldest one of the address that
//!    has the most makes room; a single address beyond its own bound is refused.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::rc::Rc;
use tokio::sync::Notify;

/// Handshakes with clients that have proved nothing: of an address, and in all.
const UNPROVED_OF_ADDRESS: usize = 8;
const UNPROVED: usize = 64;
/// Handshakes of an address, and in all.
const OF_ADDRESS: usize = 64;
const MOST: usize = 512;

/// The handshakes of a thread.
#[derive(Default)]
pub(crate) struct Beginnings {
    /// Oldest first.
    open: RefCell<BTreeMap<u64, One>>,
    next: Cell<u64>,
}

struct One {
    address: IpAddr,
    proved: bool,
    displaced: Rc<Notify>,
}

/// What becomes of a first packet.
pub(crate) enum Judgement {
    /// The handshake begins.
    Begin(Begun),
    /// The client has to prove its address.
    Prove,
    /// There are too many.
    Refuse,
}

/// A handshake in progress, until this is dropped.
pub(crate) struct Begun {
    of: Rc<Beginnings>,
    number: u64,
    displaced: Rc<Notify>,
}

impl Beginnings {
    pub(crate) fn new() -> Rc<Beginnings> {
        Rc::default()
    }

    /// Decides about a client at `address`; `proved`: it receives what is sent there.
    pub(crate) fn judge(self: &Rc<Beginnings>, address: IpAddr, proved: bool) -> Judgement {
        let (mut of_address, mut unproved, mut unproved_of_address) = (0, 0, 0);
        for one in self.open.borrow().values() {
            let same = one.address == address;
            of_address += usize::from(same);
            unproved += usize::from(!one.proved);
            unproved_of_address += usize::from(same && !one.proved);
        }
        if !proved && (unproved >= UNPROVED || unproved_of_address >= UNPROVED_OF_ADDRESS) {
            return Judgement::Prove;
        }
        if of_address >= OF_ADDRESS {
            return Judgement::Refuse;
        }
        if self.open.borrow().len() >= MOST {
            self.displace();
        }
        let (number, displaced) = (self.next.get(), Rc::new(Notify::new()));
        self.next.set(number + 1);
        self.open.borrow_mut().insert(number, One { address, proved, displaced: displaced.clone() });
        Judgement::Begin(Begun { of: self.clone(), number, displaced })
    }

    /// Ends the oldest one of those that have proved nothing, else of the address that has the most.
    fn displace(&self) {
        let mut open = self.open.borrow_mut();
        let unproved = open.iter().find(|(_, one)| !one.proved).map(|(&number, _)| number);
        let oldest = unproved.or_else(|| {
            let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
            open.values().for_each(|one| *counts.entry(one.address).or_default() += 1);
            let (most, _) = counts.into_iter().max_by_key(|(_, count)| *count)?;
            open.iter().find(|(_, one)| one.address == most).map(|(&number, _)| number)
        });
        if let Some(one) = oldest.and_then(|number| open.remove(&number)) {
            one.displaced.notify_one();
        }
    }
}

impl Begun {
    /// Waits until this one has to make room.
    pub(crate) async fn displaced(&self) {
        self.displaced.notified().await;
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.of.open.borrow_mut().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from(0x0a00_0000 + number).into()
    }

    fn begin(beginnings: &Rc<Beginnings>, from: u32, proved: bool) -> Option<Begun> {
        match beginnings.judge(address(from), proved) {
            Judgement::Begin(begun) => Some(begun),
            Judgement::Prove | Judgement::Refuse => None,
        }
    }

    #[test]
    fn who_has_proved_nothing_holds_little() {
        let beginnings = Beginnings::new();
        let mut held: Vec<_> = (0..700).filter_map(|_| begin(&beginnings, 1, false)).collect();
        assert_eq!(held.len(), UNPROVED_OF_ADDRESS);
        assert!(matches!(beginnings.judge(address(1), false), Judgement::Prove));
        // Other addresses, which may all be made up.
        held.extend((2..1000).filter_map(|from| begin(&beginnings, from, false)));
        assert_eq!(held.len(), UNPROVED);
        assert!(begin(&beginnings, 1, true).is_some(), "a proof opens the way");
        held.clear();
        assert!(begin(&beginnings, 1, false).is_some());
    }

    #[test]
    fn one_address_does_not_hold_all_and_the_oldest_makes_room() {
        let beginnings = Beginnings::new();
        let mut held: Vec<_> = (0..100).filter_map(|_| begin(&beginnings, 1, true)).collect();
        assert_eq!(held.len(), OF_ADDRESS);
        assert!(matches!(beginnings.judge(address(1), true), Judgement::Refuse));
        held.extend((2..2000).filter_map(|from| begin(&beginnings, from, true)));
        assert_eq!(beginnings.open.borrow().len(), MOST);
        let of_first = beginnings.open.borrow().values().filter(|one| one.address == address(1)).count();
        assert_eq!(of_first, 1, "the address that has the most makes room");
    }
}
