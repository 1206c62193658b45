//! Maintenance mode: every request gets a maintenance page instead of a response of the site, the handlers or
//! the app.
//!
//! The control socket receives the orders ([`crate::serve`]); [`workers::Pause`] pauses an app.
//!
//! Contract:
//! 1. While maintenance is off, a request costs one relaxed load.
//! 2. The response must not be cached (`no-store`), and tells clients when to retry (`Retry-After`).
//! 3. Whether a client is allowed depends on the address that rate limits use: that of the peer, or the one
//!    that trusted proxies report.

mod page;

use control::orders::MaintenanceInForce;
use handler::accept::prefers_json;
use handler::path::Path;
use handler::{Body, Fields, Request, Response};
use settings::{Cidr, TrustedProxies};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// The maintenance that all front threads share.
#[derive(Debug, Default)]
pub(crate) struct Maintenance {
    on: AtomicBool,
    in_force: Mutex<Option<Arc<InForce>>>,
    responses: AtomicU64,
}

/// A maintenance in force, with its responses ready.
#[derive(Debug)]
pub(crate) struct InForce {
    pub(crate) order: MaintenanceInForce,
    allow: Vec<Cidr>,
    html: bytes::Bytes,
    json: bytes::Bytes,
}

impl InForce {
    pub(crate) fn new(order: MaintenanceInForce) -> InForce {
        let message = order.message.as_deref();
        let html = order.page.clone().unwrap_or_else(|| page::own(message));
        InForce {
            // This program, or the one that it takes over from, has already checked the texts.
            allow: order.allow.iter().filter_map(|network| network.parse().ok()).collect(),
            html: html.into(),
            json: page::json(message).into(),
            order,
        }
    }

    /// Returns whether a request from `client` is served.
    fn allows(&self, request: &Request, client: impl FnOnce() -> Option<IpAddr>) -> bool {
        let order = &self.order;
        if !order.allow_paths.is_empty() {
            let path = Path::new(request.path());
            if order.allow_paths.iter().any(|prefix| path.below(prefix.as_bytes()).is_some()) {
                return true;
            }
        }
        !self.allow.is_empty()
            && client().is_some_and(|client| self.allow.iter().any(|network| network.contains(client)))
    }

    fn response(&self, request: &Request) -> Response {
        let as_json = prefers_json(request.fields.all("accept"));
        let (kind, text) = match as_json {
            true => ("application/json", &self.json),
            false => ("text/html; charset=utf-8", &self.html),
        };
        let mut fields = Fields::default();
        fields.push(b"Content-Type", kind.as_bytes());
        fields.push(b"Retry-After", self.order.retry_after_s.to_string().as_bytes());
        fields.push(b"Cache-Control", b"no-store");
        fields.push(b"Vary", b"Accept");
        Response::new(503, fields, Body::Bytes(text.clone()))
    }
}

impl Maintenance {
    /// Switches maintenance on, or changes it; `None` switches it off.
    pub(crate) fn set(&self, in_force: Option<InForce>) {
        let on = in_force.is_some();
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = in_force.map(Arc::new);
        self.on.store(on, Relaxed);
    }

    pub(crate) fn in_force(&self) -> Option<Arc<InForce>> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of responses since the start of the server.
    pub(crate) fn responses(&self) -> u64 {
        self.responses.load(Relaxed)
    }

    /// Returns the response to a request that is not served.
    #[inline]
    pub(crate) fn answer(&self, request: &Request, trusted: &TrustedProxies) -> Option<Box<Response>> {
        if self.on.load(Relaxed) { self.judge(request, trusted) } else { None }
    }

    #[cold]
    fn judge(&self, request: &Request, trusted: &TrustedProxies) -> Option<Box<Response>> {
        let in_force = self.in_force()?;
        if in_force.allows(request, || handler::address::client(request, |peer| trusted.trusts(peer))) {
            return None;
        }
        self.responses.fetch_add(1, Relaxed);
        Some(Box::new(in_force.response(request)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler::testing::{peer, request};
    use handler::{Peer, PeerAddr};
    use std::rc::Rc;

    fn maintenance(order: MaintenanceInForce) -> Maintenance {
        let maintenance = Maintenance::default();
        maintenance.set(Some(InForce::new(order)));
        maintenance
    }

    fn from(remote: &str, path: &str, fields: &[(&str, &str)]) -> Request {
        let remote = PeerAddr::Inet(remote.parse().unwrap());
        Request { peer: Rc::new(Peer { remote, ..peer() }), ..request("GET", path, fields) }
    }

    fn proxies() -> TrustedProxies {
        TrustedProxies { networks: vec!["10.0.0.0/8".parse().unwrap()], unix: true }
    }

    #[test]
    fn only_allowed_clients_and_paths_are_served() {
        let order = MaintenanceInForce {
            allow: vec!["192.0.2.0/24".to_owned()],
            allow_paths: vec!["/up".to_owned()],
            ..MaintenanceInForce::default()
        };
        let maintenance = maintenance(order);
        let served = |request: &Request| maintenance.answer(request, &proxies()).is_none();
        assert!(served(&from("192.0.2.7:1", "/", &[])));
        assert!(!served(&from("198.51.100.7:1", "/", &[])));
        let by = [("X-Forwarded-For", "192.0.2.7")];
        assert!(served(&from("10.0.0.1:1", "/", &by)), "a trusted proxy");
        assert!(!served(&from("198.51.100.7:1", "/", &by)), "another client that poses as one");
        for path in ["/up", "/up/x", "/%75p"] {
            assert!(served(&from("198.51.100.7:1", path, &[])), "{path}");
        }
        assert!(!served(&from("198.51.100.7:1", "/upper", &[])));
        assert_eq!(maintenance.responses(), 3);
        maintenance.set(None);
        assert!(served(&from("198.51.100.7:1", "/", &[])));
    }

    #[test]
    fn a_client_gets_what_it_reads() {
        let order = MaintenanceInForce {
            message: Some("Back at <noon>".to_owned()),
            retry_after_s: 600,
            ..MaintenanceInForce::default()
        };
        let maintenance = maintenance(order);
        let asked = |accept: &str| {
            let request = from("192.0.2.7:1", "/", &[("Accept", accept)]);
            let response = maintenance.answer(&request, &proxies()).unwrap();
            let Body::Bytes(text) = response.body else { panic!("a body in memory") };
            let field = |name| String::from_utf8(response.fields.get(name).unwrap().to_vec()).unwrap();
            assert_eq!(
                (response.status, field("cache-control"), field("retry-after")),
                (503, "no-store".into(), "600".into())
            );
            (field("content-type"), String::from_utf8(text.to_vec()).unwrap())
        };
        let (kind, page) = asked("text/html,*/*;q=0.8");
        assert!(kind.starts_with("text/html") && page.contains("Back at &lt;noon&gt;"), "{page}");
        let (kind, text) = asked("application/json");
        assert_eq!(kind, "application/json");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&json["status"], &json["message"]), (&503.into(), &"Back at <noon>".into()));
    }
}
