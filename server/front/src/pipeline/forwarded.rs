//! Reads the header fields in which a proxy reports the client's scheme, and removes fields that request
//! X-Sendfile. Only fields of trusted proxies count.

use handler::Request;
use settings::TrustedProxies;

/// Reads `X-Forwarded-Proto`, `X-Forwarded-Ssl` and `Forwarded` of trusted peers.
pub(crate) struct ForwardedFields {
    trusted: TrustedProxies,
}

impl ForwardedFields {
    /// Believes the fields of `trusted` only.
    pub(crate) fn new(trusted: TrustedProxies) -> ForwardedFields {
        ForwardedFields { trusted }
    }

    /// Sets the request's scheme to the client's. Returns whether a trusted proxy has reported it. Removes
    /// header fields with which a client could pose as a proxy that sends files.
    pub(crate) fn apply(&self, request: &mut Request) -> bool {
        if request.fields.iter().any(|(name, _)| offers_files(name)) && !self.trusts(request) {
            request.fields.retain(|name, _| !offers_files(name));
        }
        let Some(https) = reported_https(request) else { return false };
        let trusted = self.trusts(request);
        if trusted {
            request.https = https;
        }
        trusted
    }

    fn trusts(&self, request: &Request) -> bool {
        self.trusted.trusts(request.peer.remote.ip())
    }
}

/// Whether a field asks the app to let the proxy send files (`Rack::Sendfile` trusts it). Such a field would
/// let any client learn the paths of files.
fn offers_files(name: &[u8]) -> bool {
    name.len() == 15
        && (name.eq_ignore_ascii_case(b"x-sendfile-type") || name.eq_ignore_ascii_case(b"x-accel-mapping"))
}

/// Whether the fields report `https`; `None` without such a field.
fn reported_https(request: &Request) -> Option<bool> {
    if let Some(proto) = request.fields.get("x-forwarded-proto") {
        // The first entry of a list is the client's.
        let first = proto.split(|&byte| byte == b',').next().unwrap_or_default().trim_ascii();
        return scheme(first);
    }
    if let Some(ssl) = request.fields.get("x-forwarded-ssl") {
        return Some(ssl.trim_ascii().eq_ignore_ascii_case(b"on"));
    }
    let forwarded = request.fields.get("forwarded")?;
    let first = forwarded.split(|&byte| byte == b',').next().unwrap_or_default();
    first.split(|&byte| byte == b';').find_map(|pair| {
        let (name, value) = pair.split_at_checked(pair.iter().position(|&byte| byte == b'=')?)?;
        let value = value[1..].trim_ascii().trim_prefix_suffix(b'"');
        name.trim_ascii().eq_ignore_ascii_case(b"proto").then(|| scheme(value)).flatten()
    })
}

fn scheme(name: &[u8]) -> Option<bool> {
    if name.eq_ignore_ascii_case(b"https") || name.eq_ignore_ascii_case(b"wss") {
        Some(true)
    } else if name.eq_ignore_ascii_case(b"http") || name.eq_ignore_ascii_case(b"ws") {
        Some(false)
    } else {
        None
    }
}

trait Unquoted {
    fn trim_prefix_suffix(&self, quote: u8) -> &[u8];
}

impl Unquoted for [u8] {
    fn trim_prefix_suffix(&self, quote: u8) -> &[u8] {
        match self {
            [first, inner @ .., last] if *first == quote && *last == quote => inner,
            whole => whole,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler::testing::{self, peer};
    use handler::{Peer, PeerAddr};
    use std::rc::Rc;

    fn request(fields: &[(&str, &str)], remote: PeerAddr) -> Request {
        Request { peer: Rc::new(Peer { remote, ..peer() }), ..testing::request("GET", "/", fields) }
    }

    fn scheme_of(fields: &[(&str, &str)], remote: &str) -> bool {
        let trusted = TrustedProxies {
            networks: vec![settings::Cidr::new([127, 0, 0, 0].into(), 8).unwrap()],
            unix: true,
        };
        let mut request = request(fields, PeerAddr::Inet(remote.parse().unwrap()));
        ForwardedFields::new(trusted).apply(&mut request);
        request.https
    }

    #[test]
    fn only_trusted_proxies_may_offer_to_send_files() {
        let fields =
            [("X-Sendfile-Type", "X-Accel-Redirect"), ("Accept", "*/*"), ("x-accel-mapping", "/=/x/")];
        for (remote, left) in [("192.0.2.7:1", 1), ("127.0.0.1:1", 3)] {
            let trusted = TrustedProxies {
                networks: vec![settings::Cidr::new([127, 0, 0, 0].into(), 8).unwrap()],
                unix: true,
            };
            let mut request = request(&fields, PeerAddr::Inet(remote.parse().unwrap()));
            assert!(!ForwardedFields::new(trusted).apply(&mut request));
            assert_eq!(request.fields.len(), left, "{remote}");
        }
    }

    #[test]
    fn fields_of_trusted_proxies_are_accepted() {
        for fields in [
            [("X-Forwarded-Proto", "https")],
            [("X-Forwarded-Proto", "HTTPS, http")],
            [("X-Forwarded-Ssl", "on")],
            [("Forwarded", "for=192.0.2.1; proto=\"https\", proto=http")],
        ] {
            assert!(scheme_of(&fields, "127.0.0.1:1"), "{fields:?}");
            assert!(!scheme_of(&fields, "192.0.2.7:1"), "{fields:?} from a stranger");
        }
        assert!(!scheme_of(&[("X-Forwarded-Proto", "gopher")], "127.0.0.1:1"));
    }
}
