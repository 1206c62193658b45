//! Determines which requests a limit applies to, and by which key they are counted: [`Judged`].

use crate::ledger::{LimiterState, Tally};
use crate::rate::{Limit, Rule};
use handler::path::Path;
use handler::{Request, address};
use net::Subnet;
use settings::{RateKey, RateLimit, TrustedProxies};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A limit as it is applied.
pub(crate) struct Judged {
    pub(crate) written: RateLimit,
    /// The whole limit.
    pub(crate) limit: Limit,
    /// The results of the limit.
    pub(crate) tally: Arc<Tally>,
}

impl Judged {
    pub(crate) fn new(written: &RateLimit, ledger: &LimiterState) -> Judged {
        let limit = Limit {
            rule: Rule::TokenBucket,
            count: written.rate.count,
            period: u64::try_from(written.rate.period.as_nanos()).unwrap_or(u64::MAX),
            burst: written.burst,
        };
        Judged { written: written.clone(), limit, tally: ledger.tally(&written.name) }
    }

    /// Returns whether the limit applies to requests of this method and path.
    pub(crate) fn concerns(&self, method: &[u8], path: &Path<'_>) -> bool {
        let methods = &self.written.methods;
        (methods.is_empty() || methods.iter().any(|one| one.as_bytes() == method))
            && is_below(&self.written.paths, path)
    }

    /// Returns the key that the request is counted by; `None` if it is not limited.
    pub(crate) fn key(&self, request: &Request, trusted: &TrustedProxies) -> Option<String> {
        let by_address = matches!(self.written.key, RateKey::Address);
        let client = if by_address || !self.written.except.is_empty() {
            address::client(request, |peer| trusted.trusts(peer))
        } else {
            None
        };
        if client.is_some_and(|client| self.written.except.iter().any(|network| network.contains(client))) {
            return None;
        }
        // A changed limit begins anew: the stored state of a key is a time, which means another number with
        // another rate.
        let name = format_args!("{}:{}:{}", self.written.name, self.written.rate, self.written.burst);
        match &self.written.key {
            RateKey::All => Some(format!("{name}:all")),
            RateKey::Address => {
                let client =
                    client.map_or_else(|| "unix".to_owned(), |address| Subnet::of(Some(address)).to_string());
                Some(format!("{name}:{client}"))
            }
            RateKey::Header(field) => {
                let value = request.fields.get(field)?;
                let digest = Sha256::digest(value);
                Some(format!("{name}:{}", text::hex(&digest[..16])))
            }
        }
    }
}

/// Returns whether a path is one of the prefixes or below one. A format after it makes no difference: with
/// Rails, `/login.json` is the same action as `/login`, and would bypass its limit.
pub(crate) fn is_below(prefixes: &[String], path: &Path<'_>) -> bool {
    prefixes
        .iter()
        .any(|prefix| path.below(prefix.as_bytes()).is_some() || has_format(path, prefix.as_bytes()))
}

/// Returns whether a path is the prefix with a format after its last name, as accepted by Rails routes.
fn has_format(path: &Path<'_>, prefix: &[u8]) -> bool {
    // Most paths have neither, and need not be decoded.
    let may = path.below(b"").is_some_and(|raw| raw.iter().any(|byte| b".%".contains(byte)));
    if prefix.is_empty() || !may {
        return false;
    }
    let plain = path.plain();
    let format = plain.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(b"."));
    let format = format.map(|rest| rest.strip_suffix(b"/").unwrap_or(rest));
    let letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    format.is_some_and(|format| !format.is_empty() && format.iter().all(letter))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use handler::testing::request_from;
    use settings::RequestRate;
    use std::time::Duration;

    pub(crate) fn request(method: &str, path: &str, peer: Option<&str>) -> Request {
        request_from(peer, method, path, &[])
    }

    /// 2 requests a second, 2 at once.
    pub(crate) fn written(name: &str) -> RateLimit {
        RateLimit {
            name: name.to_owned(),
            rate: RequestRate { count: 2, period: Duration::from_secs(1) },
            burst: 2,
            paths: vec![String::new()],
            methods: Vec::new(),
            key: RateKey::Address,
            except: Vec::new(),
            shared: false,
            dry_run: false,
        }
    }

    fn judged(written: RateLimit) -> Judged {
        Judged::new(&written, &LimiterState::new(Box::new(|_| ())))
    }

    #[test]
    fn a_limit_is_about_its_paths_however_they_are_written() {
        let limit = judged(RateLimit {
            paths: vec!["/login".to_owned()],
            methods: vec!["POST".to_owned()],
            ..written("a")
        });
        let concerns =
            |method: &str, path: &str| limit.concerns(method.as_bytes(), &Path::new(path.as_bytes()));
        for path in [
            "/login",
            "/login/",
            "/login/x",
            "/%6cogin",
            "//login",
            "/x/../login",
            "/login.json",
            "/%6cogin.xml",
        ] {
            assert!(concerns("POST", path), "{path}");
        }
        for path in ["/logins.json", "/login.", "/login.json/x", "/login.a.b", "/x/login.json", "/.json"] {
            assert!(!concerns("POST", path), "{path}");
        }
        assert!(!concerns("GET", "/login") && !concerns("POST", "/logins") && !concerns("POST", "/"));
        let all = judged(written("a"));
        assert!(all.concerns(b"OPTIONS", &Path::new(b"*")) && all.concerns(b"GET", &Path::new(b"/")));
    }

    #[test]
    fn requests_are_counted_by_address_header_or_together() {
        let key =
            |limit: RateLimit, request: &Request| judged(limit).key(request, &TrustedProxies::default());
        let mut one = request("GET", "/", Some("192.0.2.1"));
        assert_eq!(key(written("a"), &one).as_deref(), Some("a:2/s:2:192.0.2.1"));
        assert_eq!(
            key(RateLimit { key: RateKey::All, ..written("a") }, &one).as_deref(),
            Some("a:2/s:2:all")
        );
        let by_header = RateLimit { key: RateKey::Header("x-api-key".to_owned()), ..written("a") };
        assert_eq!(key(by_header.clone(), &one), None, "without the header it is not limited");
        one.fields.push(b"X-Api-Key", b"secret");
        let hashed = key(by_header, &one).unwrap();
        assert!(hashed.len() == 40 && !hashed.contains("secret"), "{hashed}");
        let except = vec!["192.0.2.0/24".parse().unwrap()];
        assert_eq!(key(RateLimit { except, ..written("a") }, &one), None);
    }
}
