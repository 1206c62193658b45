//! Who a request is from: [`client`]. Pure.
//!
//! Contract: what a client sends counts only as far as trusted proxies vouch for it. Each proxy appends the address that it was
//! connected from to `X-Forwarded-For`, so the list is read from its end, and the first address that is no trusted proxy's is the client's.

use handler::{PeerAddr, Request};
use settings::TrustedProxies;
use std::net::{IpAddr, Ipv6Addr};

/// The client's address; `None` where nobody knows it, as on a Unix socket.
pub(crate) fn client(request: &Request, trusted: &TrustedProxies) -> Option<IpAddr> {
    let peer = match request.peer.remote {
        PeerAddr::Inet(address) => Some(address.ip().to_canonical()),
        PeerAddr::Unix => None,
    };
    if !trusted.trusts(peer) {
        return peer;
    }
    let fields: Vec<&[u8]> = request.fields.all("x-forwarded-for").collect();
    let mut client = peer;
    for word in fields.iter().rev().flat_map(|field| field.rsplit(|byte| *byte == b',')) {
        let Some(address) = parse(word.trim_ascii()) else { break };
        client = Some(address);
        if !trusted.trusts(client) {
            break;
        }
    }
    client
}

/// `192.0.2.1`, `192.0.2.1:8080`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:8080`.
fn parse(word: &[u8]) -> Option<IpAddr> {
    let word = std::str::from_utf8(word).ok()?;
    let bare = match word.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None if word.matches(':').count() == 1 => word.split_once(':')?.0,
        None => word,
    };
    bare.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// The address as limits count it: of IPv6 the network of 64 bits, all of which one client has.
pub(crate) fn counted(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            format!("{}/64", Ipv6Addr::from_bits(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::tests::request;
    use proptest::prelude::*;

    fn trusted() -> TrustedProxies {
        let networks = ["10.0.0.0/8", "127.0.0.0/8"].iter().map(|text| text.parse().unwrap()).collect();
        TrustedProxies { networks, unix: true }
    }

    fn of(peer: &str, forwarded: &[&str]) -> Option<String> {
        let mut request = request("GET", "/", Some(peer));
        for list in forwarded {
            request.fields.push(b"X-Forwarded-For", list.as_bytes());
        }
        client(&request, &trusted()).map(|address| address.to_string())
    }

    #[test]
    fn a_client_is_who_trusted_proxies_say() {
        let is = |peer, forwarded, client: &str| assert_eq!(of(peer, forwarded).as_deref(), Some(client));
        is("192.0.2.1", &[], "192.0.2.1");
        is("192.0.2.1", &["198.51.100.7"], "192.0.2.1");
        is("10.0.0.1", &["198.51.100.7"], "198.51.100.7");
        is("10.0.0.1", &["203.0.113.9, 198.51.100.7, 10.0.0.2"], "198.51.100.7");
        is("10.0.0.1", &["203.0.113.9", "198.51.100.7:4711"], "198.51.100.7");
        is("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3");
        is("10.0.0.1", &["[2001:db8::1]:80"], "2001:db8::1");
        is("10.0.0.1", &["2001:db8::1"], "2001:db8::1");
        is("10.0.0.1", &["::ffff:192.0.2.1"], "192.0.2.1");
        is("10.0.0.1", &["unknown"], "10.0.0.1");
        is("10.0.0.1", &["198.51.100.7, unknown"], "10.0.0.1");
    }

    #[test]
    fn a_unix_socket_says_no_more_than_its_proxy() {
        let mut request = request("GET", "/", None);
        assert_eq!(client(&request, &trusted()), None);
        request.fields.push(b"X-Forwarded-For", b"192.0.2.1");
        assert_eq!(client(&request, &trusted()), Some("192.0.2.1".parse().unwrap()));
        assert_eq!(client(&request, &TrustedProxies::default()), None);
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        assert_eq!(counted("192.0.2.1".parse().unwrap()), "192.0.2.1");
        assert_eq!(counted("2001:db8:1:2:3:4:5:6".parse().unwrap()), "2001:db8:1:2::/64");
    }

    proptest! {
        #[test]
        fn no_list_moves_an_untrusted_peer(list in "\\PC{0,60}") {
            let client = of("192.0.2.1", &[&list]);
            prop_assert_eq!(client.as_deref(), Some("192.0.2.1"));
        }
    }
}
