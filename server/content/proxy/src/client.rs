//! Sends requests to any origin.
//!
//! Why in addition to [`Proxy`]: handlers in mruby choose URLs at run time. Each origin gets a proxy with its
//! own connections; the TLS configuration is shared.

use crate::via::Pseudonym;
use crate::{Origin, Proxy, ProxyConfig, Upstreams, tls};
use handler::{Exchange, Failure, Response};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// The most origins whose connections are kept. Beyond that, the least recently used one is dropped.
const ORIGINS: usize = 256;

/// One thread's connections to any origins.
pub struct ProxyClient {
    config: ProxyConfig,
    tls: OnceCell<Result<Arc<rustls::ClientConfig>, String>>,
    known: RefCell<HashMap<Origin, ClientProxy>>,
    requests: Cell<u64>,
}

struct ClientProxy {
    proxy: Rc<Proxy>,
    /// The number of its last request.
    last: u64,
}

impl ProxyClient {
    /// Creates a client without connections. The origins of `config` are not used.
    pub fn new(config: ProxyConfig) -> ProxyClient {
        ProxyClient { config, tls: OnceCell::new(), known: RefCell::default(), requests: Cell::new(0) }
    }

    /// Sends a request to an origin. `target`: path and query, beginning with `/`.
    ///
    /// # Errors
    /// The reason why there is no response.
    pub async fn ask(
        &self,
        origin: Origin,
        exchange: Exchange,
        target: Vec<u8>,
    ) -> Result<Response, Failure> {
        let proxy = self.proxy(origin)?;
        proxy.ask(exchange, target).await
    }

    fn proxy(&self, origin: Origin) -> Result<Rc<Proxy>, Failure> {
        let now = self.requests.get() + 1;
        self.requests.set(now);
        let mut known = self.known.borrow_mut();
        if let Some(known) = known.get_mut(&origin) {
            known.last = now;
            return Ok(known.proxy.clone());
        }
        let tls = match origin.is_tls() {
            true => {
                let ready = self.tls.get_or_init(|| tls::client_config(&self.config)).clone();
                Some(ready.map_err(|why| Failure::app(502, why))?)
            }
            false => None,
        };
        let config = ProxyConfig { origins: vec![origin.clone()], ..self.config.clone() };
        let proxy = Proxy::new(Arc::new(Upstreams::prepared(config, tls, Pseudonym::of_clients())));
        if known.len() >= ORIGINS
            && let Some(oldest) = known.iter().min_by_key(|(_, known)| known.last).map(|(o, _)| o.clone())
        {
            // Requests in progress keep the parts that they need.
            known.remove(&oldest);
        }
        let proxy = Rc::new(proxy);
        known.insert(origin, ClientProxy { proxy: proxy.clone(), last: now });
        Ok(proxy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> ProxyClient {
        ProxyClient::new(ProxyConfig::new("test", Vec::new()))
    }

    fn origin(port: usize) -> Origin {
        Origin::parse(&format!("http://127.0.0.1:{port}")).unwrap()
    }

    #[test]
    fn an_origin_keeps_its_connections() {
        let client = client();
        let first = client.proxy(origin(1)).unwrap();
        assert!(!Rc::ptr_eq(&first, &client.proxy(origin(2)).unwrap()));
        assert!(Rc::ptr_eq(&first, &client.proxy(origin(1)).unwrap()));
    }

    #[test]
    fn the_least_recently_used_origin_is_dropped() {
        let client = client();
        let first = client.proxy(origin(1)).unwrap();
        let second = client.proxy(origin(2)).unwrap();
        (3..=ORIGINS).for_each(|port| drop(client.proxy(origin(port)).unwrap()));
        assert!(Rc::ptr_eq(&first, &client.proxy(origin(1)).unwrap()));
        drop(client.proxy(origin(ORIGINS + 1)).unwrap());
        assert_eq!(client.known.borrow().len(), ORIGINS);
        assert!(Rc::ptr_eq(&first, &client.proxy(origin(1)).unwrap()));
        assert!(!Rc::ptr_eq(&second, &client.proxy(origin(2)).unwrap()));
    }
}
