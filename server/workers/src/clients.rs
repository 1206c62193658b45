//! The client and the class of a request that has to wait ([`QueueKey`]), by the settings `queue.fair` and
//! `[queue.classes]`.
//!
//! Contract:
//! 1. Only a request that finds no free seat is looked at.
//! 2. The value of a header field or a cookie identifies a person or a company, and may be a secret. It leaves
//!    this module as a hash that is keyed with a random secret of the process.
//! 3. An address is read as rate limits read it: [`handler::address`], [`Subnet`].

mod crawlers;

use handler::path::Path;
use handler::{Request, address, cookies};
use net::Subnet;
use queue::{ClassIndex, ClassShare, QueueClient, QueueKey};
use settings::{Fair, NamedValue, QueueClass, Settings, TrustedProxies};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Identifies clients. All threads share one, so that their hashes agree.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    secret: RandomState,
}

impl Clients {
    /// Returns the client whose turn a request uses in pool number `pool`.
    pub(crate) fn key(&self, request: &Request, settings: &Settings, pool: usize) -> QueueKey {
        let class = class(request, &settings.queue.classes);
        QueueKey {
            class,
            client: self.client(request, settings.fair_of(pool), &settings.rack.trusted_proxies),
        }
    }

    fn client(&self, request: &Request, fair: &Fair, trusted: &TrustedProxies) -> QueueClient {
        let by_address = || {
            let address = address::client(request, |peer| trusted.trusts(peer));
            QueueClient::Address(Subnet::of(address).bits())
        };
        let by = |kind, value: Option<&[u8]>| value.map_or_else(by_address, |value| self.hash(kind, value));
        match fair {
            Fair::Off => QueueClient::All,
            Fair::Address => by_address(),
            Fair::Header(name) => by(b'h', request.fields.get(name)),
            Fair::Cookie(name) => by(b'c', cookies(&request.fields, name).next()),
            Fair::Host => self.hash(b'o', &request.server().0.to_ascii_lowercase()),
        }
    }

    fn hash(&self, kind: u8, value: &[u8]) -> QueueClient {
        let mut hasher = self.secret.build_hasher();
        hasher.write_u8(kind);
        hasher.write(value);
        QueueClient::Hash(hasher.finish())
    }
}

/// Describes a client for operators: its address, or the hash that identifies it.
pub fn describe(client: QueueClient) -> String {
    match client {
        QueueClient::All => "all".to_owned(),
        QueueClient::Address(bits) if Subnet::from_bits(bits) == Subnet::default() => "unix".to_owned(),
        QueueClient::Address(bits) => Subnet::from_bits(bits).to_string(),
        QueueClient::Hash(hash) => format!("#{hash:016x}"),
    }
}

/// Returns the classes of these settings for the queues, the default one first.
pub(crate) fn shares(settings: &Settings) -> Vec<ClassShare> {
    let default = ClassShare { name: QueueClass::DEFAULT.to_owned(), weight: settings.queue.default_weight };
    let named = |class: &QueueClass| ClassShare { name: class.name.clone(), weight: class.weight };
    std::iter::once(default).chain(settings.queue.classes.iter().map(named)).collect()
}

/// Returns the first class whose conditions the request meets.
fn class(request: &Request, classes: &[QueueClass]) -> ClassIndex {
    let found = classes.iter().position(|class| belongs(request, class));
    found.map_or(ClassIndex::DEFAULT, |at| ClassIndex(at as u8 + 1))
}

fn belongs(request: &Request, class: &QueueClass) -> bool {
    let QueueClass { paths, header, cookie, crawlers, .. } = class;
    let is = |wanted: &NamedValue, value: &[u8]| match &wanted.value {
        Some(wanted) => wanted.as_bytes() == value,
        None => true,
    };
    let has_path = || {
        let path = Path::new(request.path());
        paths.iter().any(|prefix| path.below(prefix.as_bytes()).is_some())
    };
    (paths.is_empty() || has_path())
        && header
            .as_ref()
            .is_none_or(|header| request.fields.all(&header.name).any(|value| is(header, value.trim_ascii())))
        && cookie
            .as_ref()
            .is_none_or(|cookie| cookies(&request.fields, &cookie.name).any(|value| is(cookie, value)))
        && (!crawlers || request.fields.get("user-agent").is_some_and(crawlers::is_known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler::testing::request_from;
    use proptest::prelude::*;

    fn request(path: &str, peer: &str, fields: &[(&str, &str)]) -> Request {
        request_from(Some(peer), "GET", path, fields)
    }

    fn client(fair: &Fair, request: &Request) -> QueueClient {
        let networks = vec!["10.0.0.0/8".parse().unwrap()];
        let clients = Clients::default();
        let trusted = TrustedProxies { networks, unix: true };
        assert_eq!(clients.client(request, fair, &trusted), clients.client(request, fair, &trusted));
        clients.client(request, fair, &trusted)
    }

    #[test]
    fn clients_are_addresses_behind_trusted_proxies() {
        let shown = |peer: &str, fields: &[(&str, &str)]| {
            describe(client(&Fair::Address, &request("/", peer, fields)))
        };
        let forwarded = [("X-Forwarded-For", "192.0.2.7")];
        assert_eq!(shown("198.51.100.1", &forwarded), "198.51.100.1", "it is no proxy");
        assert_eq!(shown("10.0.0.1", &forwarded), "192.0.2.7");
        assert_eq!(shown("10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(shown("2001:db8:1:2:3::4", &[]), "2001:db8:1:2::/64");
        assert_eq!(client(&Fair::Off, &request("/", "192.0.2.1", &[])), QueueClient::All);
    }

    #[test]
    fn values_of_headers_and_cookies_are_shown_as_hashes() {
        let clients = Clients::default();
        let key = |fair: &Fair, fields: &[(&str, &str)]| {
            clients.client(&request("/", "192.0.2.1", fields), fair, &TrustedProxies::default())
        };
        let header = Fair::Header("x-tenant".to_owned());
        assert_eq!(key(&header, &[("X-Tenant", "a")]), key(&header, &[("x-tenant", "a")]));
        assert_ne!(key(&header, &[("X-Tenant", "a")]), key(&header, &[("X-Tenant", "b")]));
        assert_eq!(describe(key(&header, &[])), "192.0.2.1");
        assert!(!describe(key(&header, &[("X-Tenant", "secret")])).contains("secret"));
        let cookie = Fair::Cookie("tenant".to_owned());
        let with = |text| key(&cookie, &[("Cookie", text)]);
        assert_eq!(with("a=1; tenant=x"), with("tenant=x ;b=2"));
        assert_eq!(with("a=1; tenant=x"), key(&cookie, &[("cookie", "a=1"), ("cookie", "tenant=x")]));
        assert_ne!(with("tenant=x"), with("tenant=y"));
        assert!(
            [with("xtenant=x"), with("tenant"), with("tenants=x")]
                .iter()
                .all(|one| describe(*one) == "192.0.2.1")
        );
        assert_ne!(with("tenant=x"), key(&header, &[("X-Tenant", "x")]), "a cookie is no header");
        let host = |name| key(&Fair::Host, &[("Host", name)]);
        assert_eq!(host("a.example"), host("a.example"));
    }

    proptest! {
        /// Any fields of a request give a key.
        #[test]
        fn any_field_is_read(cookie: Vec<u8>, agent: Vec<u8>, forwarded: Vec<u8>) {
            let mut request = request("/", "10.0.0.1", &[]);
            for (name, value) in [("Cookie", &cookie), ("User-Agent", &agent), ("X-Forwarded-For", &forwarded)] {
                request.fields.push(name.as_bytes(), value);
            }
            let crawlers = QueueClass {
                name: "a".to_owned(),
                weight: 0,
                paths: Vec::new(),
                header: None,
                cookie: Some(NamedValue { name: "a".to_owned(), value: Some("1".to_owned()) }),
                crawlers: true,
            };
            belongs(&request, &crawlers);
            for fair in [Fair::Address, Fair::Cookie("a".to_owned()), Fair::Header("x-a".to_owned()), Fair::Host] {
                client(&fair, &request);
            }
        }
    }

    #[test]
    fn a_class_has_the_requests_that_meet_all_its_conditions() {
        let named = |name: &str, value: Option<&str>| {
            Some(NamedValue { name: name.to_owned(), value: value.map(str::to_owned) })
        };
        let class = |paths: &[&str]| QueueClass {
            name: "a".to_owned(),
            weight: 1,
            paths: paths.iter().map(|&path| path.to_owned()).collect(),
            header: None,
            cookie: None,
            crawlers: false,
        };
        let is = |class: &QueueClass, path: &str, fields: &[(&str, &str)]| {
            belongs(&request(path, "192.0.2.1", fields), class)
        };
        let api = class(&["/api", "/v2"]);
        assert!(["/api", "/api/x", "/v2/", "/%61pi", "/x/../api"].iter().all(|path| is(&api, path, &[])));
        assert!(!is(&api, "/apis", &[]) && !is(&api, "/", &[]));
        assert!(is(&class(&[""]), "/x", &[]));
        let paid = QueueClass { header: named("X-Plan", Some("pro")), ..class(&["/api"]) };
        assert!(is(&paid, "/api", &[("x-plan", "free"), ("X-Plan", " pro ")]));
        assert!(
            !is(&paid, "/api", &[("X-Plan", "Pro")])
                && !is(&paid, "/", &[("X-Plan", "pro")])
                && !is(&paid, "/api", &[])
        );
        let member = QueueClass { cookie: named("session", None), ..class(&[]) };
        assert!(
            is(&member, "/", &[("Cookie", "session=1")]) && !is(&member, "/", &[("Cookie", "sessions=1")])
        );
        let crawlers = QueueClass { crawlers: true, ..class(&[]) };
        assert!(is(&crawlers, "/", &[("User-Agent", "Googlebot/2.1")]) && !is(&crawlers, "/", &[]));
        let classes = [api, crawlers];
        let of = |path: &str, fields: &[(&str, &str)]| {
            super::class(&request(path, "192.0.2.1", fields), &classes).0
        };
        assert_eq!(
            [
                of("/", &[]),
                of("/api", &[("User-Agent", "bingbot/2")]),
                of("/", &[("User-Agent", "bingbot/2")])
            ],
            [0, 1, 2]
        );
    }
}
