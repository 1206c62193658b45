//! IP addresses for Ruby: prefixes as keys of a Hash, and the client of a forwarded request.

use handler::address::{forwarded, parse as address};
use std::net::IpAddr;

/// Returns the first `length` bits of an address, followed by the length. IPv4 addresses count as IPv6's
/// `::ffff:0:0/96`, but a shorter IPv6 prefix contains no IPv4 address. `None` if the address has fewer bits.
pub(crate) fn prefix(address: IpAddr, length: u8) -> Option<Vec<u8>> {
    let (bits, length) = match address {
        IpAddr::V4(address) if length <= 32 => (u128::from(address.to_ipv6_mapped()), length + 96),
        IpAddr::V6(address) if length <= 128 => (u128::from(address), length),
        IpAddr::V4(_) | IpAddr::V6(_) => return None,
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
    let family = if address.is_ipv4() { b'4' } else { b'6' };
    let mut key = (bits & mask).to_be_bytes()[..usize::from(length).div_ceil(8)].to_vec();
    key.extend([length, family]);
    Some(key)
}

/// Reads `192.0.2.0/24` or an address. Returns the key of the prefix, its length in bits as written, and
/// whether it is IPv4.
pub(crate) fn cidr(text: &[u8]) -> Option<(Vec<u8>, u8, bool)> {
    let text = std::str::from_utf8(text).ok()?;
    let (host, length) = match text.split_once('/') {
        Some((host, length)) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            (host, Some(length.parse().ok()?))
        }
        Some(_) => return None,
        None => (text, None),
    };
    let address: IpAddr = host.parse().ok()?;
    let length = length.unwrap_or(if address.is_ipv4() { 32 } else { 128 });
    Some((prefix(address, length)?, length, address.is_ipv4()))
}

/// Returns whether a peer may be a proxy of this site. Only then is its `X-Forwarded-For` used.
fn is_near(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback() || address.is_private() || address.is_link_local(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.is_unique_local() || address.is_unicast_link_local()
        }
    }
}

/// Returns the client of a request that `peer` sent with `value` as its `X-Forwarded-For`: the last address
/// in it that is not a proxy of this site. A client can forge all earlier addresses. A peer with a public
/// address is itself the client.
pub(crate) fn client<'a>(peer: &'a [u8], value: &'a [u8]) -> &'a [u8] {
    if !address(peer).is_some_and(is_near) {
        return peer;
    }
    forwarded(std::iter::once(value), is_near).map_or(peer, |(client, _)| client)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn within(address_text: &str, cidr_text: &str) -> bool {
        let (key, length, four) = cidr(cidr_text.as_bytes()).unwrap();
        let address = address(address_text.as_bytes()).unwrap();
        address.is_ipv4() == four && prefix(address, length) == Some(key)
    }

    #[test]
    fn prefixes() {
        assert!(within("192.0.2.7", "192.0.2.0/24") && !within("192.0.3.7", "192.0.2.0/24"));
        assert!(
            within("192.0.2.7", "192.0.2.7")
                && within("10.1.2.3", "10.0.0.0/9")
                && within("1.2.3.4", "0.0.0.0/0")
        );
        assert!(within("2001:db8::1", "2001:db8::/33") && !within("2001:db8:8000::1", "2001:db8::/33"));
        assert!(within("::ffff:10.0.0.1", "10.0.0.0/8") && !within("10.0.0.1", "::/0"));
        for wrong in
            ["", "10.0.0", "10.0.0.0/33", "10.0.0.0/", "::/129", "10.0.0.0/+8", "host", "10.0.0.0/-1"]
        {
            assert_eq!(cidr(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn only_near_peers_are_believed() {
        let client = |peer: &str, forwarded: &str| {
            String::from_utf8_lossy(client(peer.as_bytes(), forwarded.as_bytes())).into_owned()
        };
        assert_eq!(client("192.0.2.1", "10.0.0.1"), "192.0.2.1");
        assert_eq!(client("127.0.0.1", "192.0.2.9"), "192.0.2.9");
        assert_eq!(client("10.0.0.1", "6.6.6.6, 192.0.2.9, 10.0.0.2"), "192.0.2.9");
        assert_eq!(client("10.0.0.1", "10.0.0.3,10.0.0.2"), "10.0.0.3");
        assert_eq!(client("127.0.0.1", "6.6.6.6, nonsense"), "127.0.0.1");
        assert_eq!(client("127.0.0.1", ""), "127.0.0.1");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(text: Vec<u8>, peer: Vec<u8>) {
            let _ = (address(&text), cidr(&text), client(&peer, &text), client(b"127.0.0.1", &text));
        }

        #[test]
        fn a_prefix_is_what_the_first_bits_say(a: u32, b: u32, length in 0u8..=32) {
            let bits = |n: u32| n.checked_shr(32 - u32::from(length)).unwrap_or(0);
            let of = |n: u32| prefix(IpAddr::V4(n.into()), length);
            prop_assert_eq!(of(a) == of(b), bits(a) == bits(b));
        }
    }
}
