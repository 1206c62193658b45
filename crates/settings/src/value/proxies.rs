//! Which peers are believed when they say who the client is.

use std::net::IpAddr;

/// Peers whose forwarding headers are believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Networks of believed TCP peers.
    pub networks: Vec<Cidr>,
    /// Whether every peer on a Unix socket is believed.
    pub unix: bool,
}

impl TrustedProxies {
    /// Whether the peer is believed; `None` is a peer on a Unix socket.
    pub fn trusts(&self, peer: Option<IpAddr>) -> bool {
        match peer {
            Some(address) => self.networks.iter().any(|network| network.contains(address)),
            None => self.unix,
        }
    }
}

/// A network: an address and how many leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// The network of the first `prefix` bits of `address`; `None` when the address has not that many.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Cidr> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= bits).then_some(Cidr { address, prefix })
    }

    /// Whether `peer` is in this network. An IPv4 peer of a dual-stack socket (`::ffff:a.b.c.d`) counts as IPv4.
    pub fn contains(&self, peer: IpAddr) -> bool {
        match (self.address, peer.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(peer)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                (net.to_bits() ^ peer.to_bits()) & mask == 0
            }
            (IpAddr::V6(net), IpAddr::V6(peer)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                (net.to_bits() ^ peer.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}
