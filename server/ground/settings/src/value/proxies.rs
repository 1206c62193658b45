//! The peers whose forwarding headers are trusted.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use text::Mistake;
use text::digits;

/// Peers whose forwarding headers are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Networks of trusted TCP peers.
    pub networks: Vec<Cidr>,
    /// Whether every peer on a Unix socket is trusted.
    pub unix: bool,
}

impl TrustedProxies {
    /// Returns whether the peer is trusted; `None` means a peer on a Unix socket.
    pub fn trusts(&self, peer: Option<IpAddr>) -> bool {
        match peer {
            Some(address) => self.networks.iter().any(|network| network.contains(address)),
            None => self.unix,
        }
    }

    pub(crate) fn parse(words: &[&str]) -> Result<TrustedProxies, Mistake> {
        if words.contains(&"none") {
            let alone = words.len() == 1;
            return alone
                .then(TrustedProxies::default)
                .ok_or_else(|| Mistake::expected("\"none\" to stand alone"));
        }
        let mut proxies = TrustedProxies::default();
        for word in words {
            if *word == "unix" {
                proxies.unix = true;
            } else {
                proxies.networks.push(word.parse()?);
            }
        }
        Ok(proxies)
    }
}

/// A network: an address and the number of its leading bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// Returns the network of the first `prefix` bits of `address`, or `None` if the address has fewer bits.
    pub fn new(address: IpAddr, prefix: u8) -> Option<Cidr> {
        (prefix <= bits(address)).then_some(Cidr { address, prefix })
    }

    /// Returns whether `peer` is in this network. An IPv4 peer of a dual-stack socket (`::ffff:a.b.c.d`)
    /// counts as IPv4.
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

fn bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// As it is written: without the number of bits if all count.
impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix == bits(self.address) {
            write!(f, "{}", self.address)
        } else {
            write!(f, "{}/{}", self.address, self.prefix)
        }
    }
}

impl FromStr for Cidr {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Cidr, Mistake> {
        let (address, prefix) =
            text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| Mistake::default())?;
        let prefix = match prefix {
            None => bits(address),
            Some(prefix) => digits(prefix).and_then(|prefix| u8::try_from(prefix).ok()).unwrap_or(u8::MAX),
        };
        Cidr::new(address, prefix)
            .ok_or_else(|| Mistake::expected(format!("0 to {} bits behind the / of {text}", bits(address))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusts(words: &[&str], peer: &str) -> bool {
        let proxies = TrustedProxies::parse(words).expect("valid networks");
        proxies.trusts(Some(peer.parse().expect("an address")))
    }

    #[test]
    fn networks_contain_their_addresses_only() {
        assert!(trusts(&["10.0.0.0/8"], "10.255.0.1"));
        assert!(!trusts(&["10.0.0.0/8"], "11.0.0.1"));
        assert!(trusts(&["0.0.0.0/0"], "203.0.113.9"));
        assert!(!trusts(&["0.0.0.0/0"], "2001:db8::1"));
        assert!(trusts(&["::1"], "::1"));
        assert!(!trusts(&["::1"], "::2"));
        assert!(trusts(&["fc00::/7"], "fdff::1"));
        assert!(trusts(&["127.0.0.0/8"], "::ffff:127.0.0.1"));
        assert!(trusts(&["::/0"], "2001:db8::1"));
        assert!(trusts(&["10.1.2.3/8"], "10.9.9.9"));
    }

    #[test]
    fn a_network_is_written_as_it_is_read() {
        for text in ["10.0.0.0/8", "192.0.2.7", "::1", "2001:db8::/32", "0.0.0.0/0"] {
            assert_eq!(text.parse::<Cidr>().map(|network| network.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn unix_and_none_are_words() {
        assert!(TrustedProxies::parse(&["unix"]).is_ok_and(|proxies| proxies.trusts(None)));
        assert!(TrustedProxies::parse(&["none"]).is_ok_and(|proxies| !proxies.trusts(None)));
        for wrong in
            [&["none", "unix"][..], &["10.0.0.0/33"], &["::/129"], &["10.0.0/8"], &["10.0.0.0/"], &["x"]]
        {
            assert!(TrustedProxies::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
