//! Determines a request's client: [`client`], and [`forwarded`] for callers with other rules for proxies. No I/O.
//!
//! Contract: data sent by a client counts only as far as trusted proxies vouch for it. Each proxy appends the
//! address of its peer to `X-Forwarded-For`. So the list is read from its end, and the first address that is
//! not a trusted proxy's is the client's.

use crate::Request;
use std::net::IpAddr;

/// Returns the client's address; `None` if it is unknown, as on a Unix socket. `trusts` tells whether a peer is a
/// trusted proxy; `None` is one on a Unix socket.
pub fn client(request: &Request, trusts: impl Fn(Option<IpAddr>) -> bool) -> Option<IpAddr> {
    let peer = request.peer.remote.ip().map(|address| address.to_canonical());
    // Most requests have no such field, and then no network need be looked at.
    if request.fields.get("x-forwarded-for").is_none() || !trusts(peer) {
        return peer;
    }
    // Collecting nothing allocates nothing.
    let fields: Vec<&[u8]> = request.fields.all("x-forwarded-for").collect();
    let is_proxy = |address| trusts(Some(address));
    forwarded(fields.into_iter().rev(), is_proxy).map(|(_, address)| address).or(peer)
}

/// Returns the client according to the values of a proxy's `X-Forwarded-For`, the last value first: the text
/// as written, and the address. Returns `None` if the values contain no address.
pub fn forwarded<'a>(
    values: impl Iterator<Item = &'a [u8]>,
    is_proxy: impl Fn(IpAddr) -> bool,
) -> Option<(&'a [u8], IpAddr)> {
    let mut client = None;
    for word in values.flat_map(|value| value.rsplit(|byte| *byte == b',')).map(<[u8]>::trim_ascii) {
        let Some(address) = parse(word) else { break };
        client = Some((word, address));
        if !is_proxy(address) {
            break;
        }
    }
    client
}

/// Parses an address as proxies write it: `192.0.2.1`, `192.0.2.1:8080`, `2001:db8::1`, `[2001:db8::1]`,
/// `[2001:db8::1]:8080`, `fe80::1%eth0`. IPv4-mapped IPv6 addresses become IPv4.
pub fn parse(word: &[u8]) -> Option<IpAddr> {
    let word = std::str::from_utf8(word).ok()?.trim();
    let bare = match word.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0,
        None if word.matches(':').count() == 1 => word.split_once(':')?.0,
        None => word,
    };
    let bare = bare.split_once('%').map_or(bare, |(address, _)| address);
    bare.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request_from;
    use proptest::prelude::*;

    /// Trusts 10.0.0.0/8, 127.0.0.0/8 and Unix sockets.
    fn trusts(peer: Option<IpAddr>) -> bool {
        peer.is_none_or(
            |peer| matches!(peer, IpAddr::V4(address) if [10, 127].contains(&address.octets()[0])),
        )
    }

    fn request(peer: Option<&str>) -> Request {
        request_from(peer, "GET", "/", &[])
    }

    fn of(peer: &str, forwarded: &[&str]) -> Option<String> {
        let mut request = request(Some(peer));
        for list in forwarded {
            request.fields.push(b"X-Forwarded-For", list.as_bytes());
        }
        client(&request, trusts).map(|address| address.to_string())
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
    fn addresses_as_proxies_write_them() {
        for text in
            ["192.0.2.1", " 192.0.2.1 ", "192.0.2.1:4711", "::ffff:192.0.2.1", "[::ffff:192.0.2.1]:80"]
        {
            assert_eq!(parse(text.as_bytes()), "192.0.2.1".parse().ok(), "{text}");
        }
        for text in ["2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:80", "2001:db8::1%eth0"] {
            assert_eq!(parse(text.as_bytes()), "2001:db8::1".parse().ok(), "{text}");
        }
        for text in ["unknown", "", "192.0.2.1:80:80", "[2001:db8::1", "_hidden", "\u{e9}"] {
            assert_eq!(parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_unix_socket_says_no_more_than_its_proxy() {
        let mut request = request(None);
        assert_eq!(client(&request, trusts), None);
        request.fields.push(b"X-Forwarded-For", b"192.0.2.1");
        assert_eq!(client(&request, trusts), Some("192.0.2.1".parse().unwrap()));
        assert_eq!(client(&request, |_| false), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(value: Vec<u8>) {
            let found = forwarded([value.as_slice()].into_iter(), |_| true);
            prop_assert_eq!(found.map(|(word, _)| parse(word)), found.map(|(_, address)| Some(address)));
        }

        #[test]
        fn no_list_moves_an_untrusted_peer(list in "\\PC{0,60}") {
            let client = of("192.0.2.1", &[&list]);
            prop_assert_eq!(client.as_deref(), Some("192.0.2.1"));
        }
    }
}
