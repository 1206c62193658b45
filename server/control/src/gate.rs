//! Access control of TCP ports. Pure.
//!
//! A Unix socket has file permissions. A port is open to every process of the machine and, by DNS rebinding,
//! to every web page in a browser on it: the name of the page's server may later resolve to 127.0.0.1, and
//! the browser then takes our responses for that server's. Therefore:
//! 1. The `Host` field must name this machine: the bound host, or a loopback name. Rebinding only affects
//!    names, so on all interfaces any address is accepted. Browsers always send the field; clients without it
//!    are accepted.
//! 2. The token is required, as `Authorization: Bearer` or `?token=`. It is compared in constant time.

use hyper::header::{AUTHORIZATION, HOST, HeaderMap};
use hyper::http::request::Parts;
use std::net::IpAddr;
use subtle::ConstantTimeEq;
use text::percent::decode;

/// The requirements for clients of one port.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    /// The host as configured; `address` is the bound address.
    host: String,
    address: IpAddr,
    token: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The `Host` field names another machine.
    Host,
    /// The token is wrong or missing.
    Token,
}

impl Gate {
    /// Creates the gate of the port at `address`, configured as `host`.
    pub(crate) fn new(host: &str, address: IpAddr, token: &str) -> Gate {
        Gate { host: host.to_ascii_lowercase(), address: address.to_canonical(), token: token.to_owned() }
    }

    /// Checks the `Host` field, which applies to every request.
    pub(crate) fn admits_host(&self, head: &Parts) -> Result<(), Refusal> {
        let field = head.headers.get_all(HOST).iter().map(|value| value.to_str().ok());
        let authority = head.uri.authority().map(|authority| Some(authority.as_str()));
        let ours = |named: Option<&str>| named.is_some_and(|named| self.is_ours(name_of(named)));
        if field.chain(authority).all(ours) { Ok(()) } else { Err(Refusal::Host) }
    }

    /// Checks the token, which applies to every request except the empty page and probes.
    pub(crate) fn admits_token(&self, head: &Parts) -> Result<(), Refusal> {
        let query = head.uri.query().unwrap_or_default();
        let in_query = query
            .split('&')
            .filter_map(|pair| pair.strip_prefix("token="))
            .map(|token| decode(token.as_bytes()));
        let shown = bearer(&head.headers).map(|token| token.as_bytes().into()).into_iter().chain(in_query);
        // All tokens are compared, so that timing does not reveal which one was right.
        let right = shown.fold(false, |right, token| right | bool::from(token.ct_eq(self.token.as_bytes())));
        if right { Ok(()) } else { Err(Refusal::Token) }
    }

    fn is_ours(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        match name.parse::<IpAddr>().map(|address| address.to_canonical()) {
            Ok(address) => address.is_loopback() || address == self.address || self.address.is_unspecified(),
            Err(_) => name == "localhost" || name.ends_with(".localhost") || name == self.host,
        }
    }
}

/// Returns the host of `HOST:PORT`, without brackets and a final dot.
fn name_of(authority: &str) -> &str {
    if let Some((inside, _)) = authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return inside;
    }
    let name = authority.split_once(':').map_or(authority, |(name, _)| name);
    name.strip_suffix('.').unwrap_or(name)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;
    use proptest::prelude::*;

    const TOKEN: &str = "a+b/c=0123456789";

    fn gate(host: &str, address: &str) -> Gate {
        Gate::new(host, address.parse().unwrap(), TOKEN)
    }

    fn head(uri: &str, fields: &[(&str, &str)]) -> Parts {
        let request =
            fields.iter().fold(Request::get(uri), |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap().into_parts().0
    }

    fn admits(gate: &Gate, host: &str) -> bool {
        gate.admits_host(&head("/stats", &[("host", host)])).is_ok()
    }

    #[test]
    fn only_names_of_this_machine_are_its_own() {
        let local = gate("127.0.0.1", "127.0.0.1");
        for host in [
            "127.0.0.1:9293",
            "localhost:9293",
            "LOCALHOST",
            "[::1]:9293",
            "[::1]",
            "app.localhost:1",
            "localhost.:1",
        ] {
            assert!(admits(&local, host), "{host}");
        }
        for host in [
            "evil.example:9293",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "10.0.0.7",
            "",
            "[evil",
            "notlocalhost",
        ] {
            assert!(!admits(&local, host), "{host}");
        }
    }

    #[test]
    fn what_was_bound_is_its_own_name() {
        assert!(admits(&gate("box.internal", "10.0.0.7"), "box.internal:9293"));
        assert!(admits(&gate("box.internal", "10.0.0.7"), "10.0.0.7:9293"));
        assert!(!admits(&gate("box.internal", "10.0.0.7"), "10.0.0.8:9293"));
        assert!(admits(&gate("0.0.0.0", "0.0.0.0"), "203.0.113.9:9293"));
        assert!(!admits(&gate("0.0.0.0", "0.0.0.0"), "rebound.example:9293"));
    }

    #[test]
    fn every_name_that_is_given_must_be_ours() {
        let gate = gate("127.0.0.1", "127.0.0.1");
        assert!(gate.admits_host(&head("/", &[])).is_ok());
        assert!(gate.admits_host(&head("/", &[("host", "localhost"), ("host", "evil.example")])).is_err());
        assert!(gate.admits_host(&head("http://evil.example/", &[("host", "localhost")])).is_err());
    }

    #[test]
    fn the_token_is_shown_in_one_of_two_ways() {
        let gate = gate("127.0.0.1", "127.0.0.1");
        let bearer = format!("bearer {TOKEN}");
        for (uri, fields) in [
            ("/stats", &[("authorization", bearer.as_str())][..]),
            ("/stats?token=a+b/c=0123456789", &[]),
            ("/stats?buckets&token=a%2Bb%2fc%3D0123456789", &[]),
            ("/stats?token=wrong", &[("authorization", bearer.as_str())]),
        ] {
            assert_eq!(gate.admits_token(&head(uri, fields)), Ok(()), "{uri}");
        }
        for (uri, fields) in [
            ("/stats", &[][..]),
            ("/stats?token=", &[]),
            ("/stats?token=a+b/c=012345678", &[]),
            ("/stats?token=a+b/c=01234567899", &[]),
            ("/stats?tokens=a+b/c=0123456789", &[]),
            ("/stats", &[("authorization", TOKEN)]),
            ("/stats", &[("authorization", "Basic a+b/c=0123456789")]),
        ] {
            assert_eq!(gate.admits_token(&head(uri, fields)), Err(Refusal::Token), "{uri}");
        }
    }

    proptest! {
        #[test]
        fn no_host_panics(host in "[ -~]{0,40}") {
            let _ = admits(&gate("127.0.0.1", "127.0.0.1"), &host);
        }
    }
}
