//! Limits the QUIC handshakes in progress on one thread: which client can begin one, and which has to prove
//! its address first.
//!
//! Why: the first packet of a connection costs its sender nothing and can bear any address, but makes the
//! server hold the state of a handshake until it times out.
//!
//! Contract:
//! 1. Few handshakes are in progress with clients that have not proved their address, in total and per
//!    address. Further clients have to prove it first (Retry, RFC 9000 section 8.1.2), for which the server
//!    holds no state.
//! 2. With a proved address more are possible, but limited as well: beyond the limit per address, clients are
//!    refused. Beyond the total, the oldest handshake of the address with the most handshakes makes room
//!    (`http::Arrival`).
//! 3. This module only counts. Handshakes make room in the same order as all other connections.

use net::Subnet;
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

/// The limits of handshakes with unproved addresses, per address and in total.
const UNPROVED_OF_ADDRESS: usize = 8;
const UNPROVED: usize = 64;
/// The limits of handshakes per address and in total.
const OF_ADDRESS: usize = 64;
const MOST: usize = 512;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    all: usize,
    unproved: usize,
}

impl Count {
    fn add(&mut self, proved: bool) {
        self.all += 1;
        self.unproved += usize::from(!proved);
    }

    fn remove(&mut self, proved: bool) {
        self.all -= 1;
        self.unproved -= usize::from(!proved);
    }
}

#[derive(Debug, Default)]
pub(crate) struct QuicHandshakes(RefCell<Counts>);

#[derive(Debug, Default)]
struct Counts {
    all: Count,
    addresses: HashMap<Subnet, Count>,
}

/// The decision about a first packet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    Begin,
    /// The client has to prove its address.
    Retry,
    /// The address has too many handshakes.
    Refuse,
    /// The handshake may begin in place of another one.
    Replace,
}

/// Counts a handshake until dropped.
pub(crate) struct InProgress {
    of: Rc<QuicHandshakes>,
    address: Subnet,
    proved: bool,
}

impl QuicHandshakes {
    /// Decides about a client at `address`. `proved`: the client has shown that it receives packets at that address.
    pub(crate) fn judge(&self, address: Subnet, proved: bool) -> Judgement {
        let counts = self.0.borrow();
        let own = counts.addresses.get(&address).copied().unwrap_or_default();
        if !proved && (counts.all.unproved >= UNPROVED || own.unproved >= UNPROVED_OF_ADDRESS) {
            Judgement::Retry
        } else if own.all >= OF_ADDRESS {
            Judgement::Refuse
        } else if counts.all.all >= MOST {
            Judgement::Replace
        } else {
            Judgement::Begin
        }
    }

    pub(crate) fn begin(self: &Rc<Self>, address: Subnet, proved: bool) -> InProgress {
        let mut counts = self.0.borrow_mut();
        counts.all.add(proved);
        counts.addresses.entry(address).or_default().add(proved);
        InProgress { of: self.clone(), address, proved }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let mut counts = self.of.0.borrow_mut();
        counts.all.remove(self.proved);
        if let Entry::Occupied(mut own) = counts.addresses.entry(self.address) {
            own.get_mut().remove(self.proved);
            if own.get().all == 0 {
                own.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn begin(handshakes: &Rc<QuicHandshakes>, from: u32, proved: bool) -> Option<InProgress> {
        let address = Subnet::of(Some(Ipv4Addr::from(0x0a00_0000 + from).into()));
        (handshakes.judge(address, proved) == Judgement::Begin).then(|| handshakes.begin(address, proved))
    }

    fn judge(handshakes: &QuicHandshakes, from: u32, proved: bool) -> Judgement {
        handshakes.judge(Subnet::of(Some(Ipv4Addr::from(0x0a00_0000 + from).into())), proved)
    }

    #[test]
    fn a_client_without_a_proof_holds_little() {
        let handshakes: Rc<QuicHandshakes> = Rc::default();
        let mut held: Vec<_> = (0..700).filter_map(|_| begin(&handshakes, 1, false)).collect();
        assert_eq!(held.len(), UNPROVED_OF_ADDRESS);
        assert_eq!(judge(&handshakes, 1, false), Judgement::Retry);
        // Other addresses, which may all be spoofed.
        held.extend((2..1000).filter_map(|from| begin(&handshakes, from, false)));
        assert_eq!(held.len(), UNPROVED);
        assert!(begin(&handshakes, 1, true).is_some(), "a proof opens the way");
        held.clear();
        assert!(begin(&handshakes, 1, false).is_some());
        assert!(handshakes.0.borrow().addresses.is_empty());
    }

    #[test]
    fn one_address_does_not_hold_all() {
        let handshakes: Rc<QuicHandshakes> = Rc::default();
        let mut held: Vec<_> = (0..100).filter_map(|_| begin(&handshakes, 1, true)).collect();
        assert_eq!((held.len(), judge(&handshakes, 1, true)), (OF_ADDRESS, Judgement::Refuse));
        held.extend((2..2000).filter_map(|from| begin(&handshakes, from, true)));
        assert_eq!((held.len(), judge(&handshakes, 5000, true)), (MOST, Judgement::Replace));
    }
}
