//! A client for any origin: what asks whom is known only when it is asked.
//!
//! Why beside [`Proxy`]: handlers name URLs as they go. Each origin gets a proxy of its own with its connections; TLS is
//! prepared once for all of them.

use crate::{Config, Origin, Proxy, Upstreams, tls};
use handler::{Exchange, Failure, FailureKind, Request, Response};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// Is told of each failure, whichever origin it is of.
pub type Failed = Rc<dyn Fn(&Failure, &Request)>;

/// Origins whose connections are kept. Beyond them, those that have not been asked for longest are forgotten.
const ORIGINS: usize = 256;

/// One thread's connections to whatever origins it is asked for.
pub struct Client {
    config: Config,
    failed: Failed,
    tls: OnceCell<Result<Arc<rustls::ClientConfig>, String>>,
    known: RefCell<HashMap<Origin, Known>>,
    asked: Cell<u64>,
}

struct Known {
    proxy: Rc<Proxy>,
    /// Number of the request that asked last.
    last: u64,
}

impl Client {
    /// A client without connections; the origins of `config` are not used. `failed` hears of bodies that break off.
    pub fn new(config: Config, failed: Failed) -> Client {
        Client { config, failed, tls: OnceCell::new(), known: RefCell::default(), asked: Cell::new(0) }
    }

    /// Asks an origin. `target` is path and query, beginning with `/`.
    ///
    /// # Errors
    /// Why there is no response.
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
        let now = self.asked.get() + 1;
        self.asked.set(now);
        let mut known = self.known.borrow_mut();
        if let Some(known) = known.get_mut(&origin) {
            known.last = now;
            return Ok(known.proxy.clone());
        }
        let tls = match origin.is_tls() {
            true => {
                let ready = self.tls.get_or_init(|| tls::client_config(&self.config)).clone();
                Some(ready.map_err(|why| Failure::new(FailureKind::UpstreamUnreachable, why))?)
            }
            false => None,
        };
        let config = Config { origins: vec![origin.clone()], ..self.config.clone() };
        let failed = self.failed.clone();
        let proxy = Proxy::new(
            Arc::new(Upstreams::prepared(config, tls)),
            Box::new(move |failure, request| failed(failure, request)),
        );
        if known.len() >= ORIGINS
            && let Some(oldest) = known.iter().min_by_key(|(_, known)| known.last).map(|(o, _)| o.clone())
        {
            // Requests under way hold on to what they need.
            known.remove(&oldest);
        }
        let proxy = Rc::new(proxy);
        known.insert(origin, Known { proxy: proxy.clone(), last: now });
        Ok(proxy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        Client::new(Config::new("test", Vec::new()), Rc::new(|_, _| {}))
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
    fn who_was_not_asked_for_longest_is_forgotten() {
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
