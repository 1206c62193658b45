//! Writes `Via` (RFC 9110, 7.6.3): every request for an origin names this server, so that a request that
//! returns is recognized.
//!
//! Contract:
//! 1. The name differs in every process: two servers in a row are no loop.
//! 2. The name also differs for every proxy of a process, because a request may rightly pass two of them: one
//!    host of a server may be the origin of another one. A request that returns to the same proxy is in a
//!    loop.
//! 3. The client's list is kept and extended, even if the client is not trusted: the field gives no rights.

use crate::forwarded::list;
use handler::{Fields, Request, Version};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The name of this process.
static PROCESS: LazyLock<String> =
    LazyLock::new(|| format!("firebrick-{:016x}", RandomState::new().build_hasher().finish()));

/// The number of proxies that have a name.
static NAMED: AtomicU64 = AtomicU64::new(0);

/// The name of a proxy in `Via`.
#[derive(Debug, Clone)]
pub(crate) struct Pseudonym(Box<str>);

impl Pseudonym {
    /// Returns a name that no other proxy has.
    pub(crate) fn of_proxy() -> Pseudonym {
        Pseudonym(format!("{}-{}", *PROCESS, NAMED.fetch_add(1, Relaxed) + 1).into())
    }

    /// Returns the name of all clients ([`crate::Client`]) of this process.
    pub(crate) fn of_clients() -> Pseudonym {
        Pseudonym(format!("{}-0", *PROCESS).into())
    }

    /// Returns how often the request has passed this proxy already.
    pub(crate) fn passes(&self, request: &Request) -> usize {
        let elements = request.fields.all("via").flat_map(|value| value.split(|&byte| byte == b','));
        elements.filter(|element| received_by(element) == Some(self.0.as_bytes())).count()
    }

    /// Appends the field of a request: the earlier entries, and this proxy's.
    pub(crate) fn write(&self, to: &mut Vec<u8>, request: &Request) {
        let own = |to: &mut Vec<u8>| {
            to.extend_from_slice(version(request.version));
            to.push(b' ');
            to.extend_from_slice(self.0.as_bytes());
        };
        list(to, request, true, "Via", own, true);
    }
}

/// Adds the field of an origin's response. The name has no number here, so that the fields that clients see
/// do not change with every start.
pub(crate) fn mark(fields: &mut Fields, http10: bool) {
    fields.push(b"Via", if http10 { b"1.0 firebrick" } else { b"1.1 firebrick" });
}

/// Returns the receiver of an element of the list: the word after the protocol.
fn received_by(element: &[u8]) -> Option<&[u8]> {
    let words = element.split(|byte| matches!(byte, b' ' | b'\t'));
    words.filter(|word| !word.is_empty()).nth(1)
}

/// Returns `received-protocol` without its name, which is HTTP.
fn version(version: Version) -> &'static [u8] {
    match version {
        Version::Http10 => b"1.0",
        Version::Http11 => b"1.1",
        Version::Http2 => b"2",
        Version::Http3 => b"3",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::request;

    fn written(own: &Pseudonym, fields: &[(&str, &str)], version: Version) -> String {
        let mut request = request("GET", "/", fields);
        request.version = version;
        let mut to = Vec::new();
        own.write(&mut to, &request);
        String::from_utf8(to).unwrap()
    }

    #[test]
    fn the_list_is_extended_and_names_the_version_that_was_received() {
        let own = Pseudonym::of_proxy();
        let name = &own.0;
        assert!(name.starts_with("firebrick-") && h1::is_token(name.as_bytes()), "{name}");
        assert_eq!(
            written(&own, &[("Via", "1.0 fred"), ("via", "2 barney (a, b)")], Version::Http11),
            format!("Via: 1.0 fred, 2 barney (a, b), 1.1 {name}\r\n")
        );
        let versions = [Version::Http10, Version::Http11, Version::Http2, Version::Http3];
        let lines = versions.map(|version| written(&own, &[], version));
        assert_eq!(lines, ["1.0", "1.1", "2", "3"].map(|version| format!("Via: {version} {name}\r\n")));
    }

    #[test]
    fn only_the_same_proxy_recognizes_a_request() {
        let (own, other) = (Pseudonym::of_proxy(), Pseudonym::of_proxy());
        let line = written(&own, &[("Via", "1.1 vegur")], Version::Http2);
        let came = request("GET", "/", &[("Via", line["Via: ".len()..].trim_end())]);
        assert_eq!(
            (own.passes(&came), other.passes(&came), Pseudonym::of_clients().passes(&came)),
            (1, 0, 0)
        );
        let twice = format!("1.1  {0} (x),\t2 {0} , 1.1 {0}0", own.0);
        assert_eq!(own.passes(&request("GET", "/", &[("Via", &twice), ("Via", &twice)])), 4);
        for strange in ["", ",,", "1.1", &own.0, "1.1 firebrick-0000", "\u{fc}"] {
            assert_eq!(own.passes(&request("GET", "/", &[("Via", strange)])), 0, "{strange}");
        }
    }
}
