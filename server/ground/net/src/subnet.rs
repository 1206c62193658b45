//! The part of an address that identifies one client, for limits per client.
//!
//! Contract: an IPv4 address counts as itself, even if it is written as IPv6. In IPv6 a client has a network
//! of 64 bits, whose addresses all belong to one [`Subnet`] (RFC 6177). Clients without an address (Unix
//! sockets) share one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Marks an IPv4 address. No assigned IPv6 network begins like this.
const IPV4: u64 = 1 << 32;

/// An IPv4 address, or a 64-bit network of IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Subnet(u64);

impl Subnet {
    /// Returns the subnet of a client's address; `None` means a Unix socket.
    pub fn of(address: Option<IpAddr>) -> Subnet {
        match address.map(|address| address.to_canonical()) {
            Some(IpAddr::V4(address)) => Subnet(IPV4 | u64::from(address.to_bits())),
            Some(IpAddr::V6(address)) => Subnet((address.to_bits() >> 64) as u64),
            None => Subnet::default(),
        }
    }

    /// Returns the subnet as a number, no two of which are equal.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Returns the subnet with this number.
    pub fn from_bits(bits: u64) -> Subnet {
        Subnet(bits)
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            number if number >> 32 == 1 => write!(f, "{}", Ipv4Addr::from_bits(number as u32)),
            network => write!(f, "{}/64", Ipv6Addr::from_bits(u128::from(network) << 64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(address: &str) -> Subnet {
        Subnet::of(Some(address.parse().unwrap()))
    }

    #[test]
    fn a_client_has_an_address_or_a_network() {
        assert_eq!(subnet("192.0.2.1"), subnet("::ffff:192.0.2.1"));
        assert_ne!(subnet("192.0.2.1"), subnet("192.0.2.2"));
        assert_eq!(subnet("2001:db8:1:2::1"), subnet("2001:db8:1:2:ffff::9"));
        assert_ne!(subnet("2001:db8:1:2::1"), subnet("2001:db8:1:3::1"));
        assert_ne!(Subnet::of(None), subnet("0.0.0.0"));
        assert_eq!(Subnet::from_bits(subnet("192.0.2.1").bits()).to_string(), "192.0.2.1");
        assert_eq!(subnet("2001:db8:1:2::1").to_string(), "2001:db8:1:2::/64");
    }
}
