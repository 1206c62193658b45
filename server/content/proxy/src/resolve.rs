//! Resolves names with the system's resolver, off the event loop, every [`TTL`], and at once when no address
//! can be connected to.
//!
//! 1. At most one look-up of a name runs at a time, for all threads; the requests that wait for it share its
//!    result. The look-up continues when those requests have given up. An origin that is down causes one
//!    look-up per [`AGAIN`], however many requests fail.
//! 2. If the resolver fails, the last result is used. If the resolver is slow, one request after another
//!    waits, for at most its own time limit, until one has waited in vain. From then on the last result is
//!    used at once, until the resolver replies.

use crate::Origin;
use crate::origin::Endpoint;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long a result is used. The system's resolver does not return the record's own TTL.
const TTL: Duration = Duration::from_secs(30);

/// The shortest time between two look-ups of a name, even after a failure.
const AGAIN: Duration = Duration::from_secs(1);

/// The addresses of one origin.
#[derive(Debug)]
pub(crate) enum Addresses {
    /// A Unix socket has no addresses.
    None,
    /// Written as an address.
    Literal(Arc<[SocketAddr]>),
    /// A name with its last result.
    Name(Arc<Name>),
}

/// A name and its last look-up.
#[derive(Debug)]
pub(crate) struct Name {
    host: String,
    port: u16,
    known: watch::Sender<ResolvedName>,
    /// Whether a look-up is under way.
    looking: AtomicBool,
    /// Whether a request has waited in vain for it.
    late: AtomicBool,
    /// A slow look-up of a test waits for this.
    #[cfg(test)]
    replies: tokio::sync::Notify,
    #[cfg(test)]
    is_slow: AtomicBool,
}

#[derive(Debug, Clone, Default)]
struct ResolvedName {
    addresses: Option<Arc<[SocketAddr]>>,
    /// The time of the last look-up.
    asked: Option<Instant>,
    /// The resolver's error, if there is no address.
    error: Option<(io::ErrorKind, String)>,
}

impl ResolvedName {
    fn asked_within(&self, time: Duration) -> bool {
        self.asked.is_some_and(|at| at.elapsed() < time)
    }

    /// Returns the addresses, also old ones if the resolver fails.
    fn result(&self) -> io::Result<Arc<[SocketAddr]>> {
        match (&self.addresses, &self.error) {
            (Some(addresses), _) => Ok(addresses.clone()),
            (None, Some((kind, text))) => Err(io::Error::new(*kind, text.clone())),
            (None, None) => Err(io::Error::new(io::ErrorKind::NotFound, "the name has not been looked up")),
        }
    }
}

impl Addresses {
    pub(crate) fn new(origin: &Origin) -> Addresses {
        match &origin.endpoint {
            Endpoint::Unix(_) => Addresses::None,
            Endpoint::Tcp { host, port, .. } => match host.parse::<IpAddr>() {
                Ok(address) => Addresses::Literal([SocketAddr::new(address, *port)].into()),
                Err(_) => Addresses::Name(Arc::new(Name {
                    host: host.clone(),
                    port: *port,
                    known: watch::Sender::default(),
                    looking: AtomicBool::default(),
                    late: AtomicBool::default(),
                    #[cfg(test)]
                    replies: tokio::sync::Notify::new(),
                    #[cfg(test)]
                    is_slow: AtomicBool::default(),
                })),
            },
        }
    }

    /// Returns all addresses, with alternating families. If the resolver fails, or does not reply within
    /// `patience`, the last result is used.
    ///
    /// # Errors
    /// The resolver finds no address.
    pub(crate) async fn get(&self, patience: Duration) -> io::Result<Arc<[SocketAddr]>> {
        let name = match self {
            Addresses::None => return Ok([].into()),
            Addresses::Literal(address) => return Ok(address.clone()),
            Addresses::Name(name) => name,
        };
        let known = name.known();
        let Some(old) = known.addresses.clone() else { return name.refreshed().await.result() };
        if known.asked_within(TTL) || name.late.load(Ordering::Relaxed) {
            return Ok(old);
        }
        let Ok(new) = tokio::time::timeout(patience, name.refreshed()).await else {
            // Not if it has ended just now.
            name.late.store(name.looking.load(Ordering::Relaxed), Ordering::Relaxed);
            return Ok(old);
        };
        new.result()
    }

    /// Returns the addresses that are not in `old`, which have failed; `None` if there are none.
    pub(crate) async fn after(&self, old: &[SocketAddr]) -> Option<Arc<[SocketAddr]>> {
        let Addresses::Name(name) = self else { return None };
        let new = |known: &ResolvedName| {
            let found = known.addresses.iter().flat_map(|addresses| addresses.iter());
            let new: Vec<SocketAddr> = found.filter(|address| !old.contains(address)).copied().collect();
            (!new.is_empty()).then(|| new.into())
        };
        // Another request may have looked up the name.
        if let Some(new) = new(&name.known()) {
            return Some(new);
        }
        new(&name.refreshed().await)
    }

    /// Sets the result of a look-up `age` ago.
    #[cfg(test)]
    pub(crate) fn knew(&self, addresses: &[SocketAddr], age: Duration) {
        let Addresses::Name(name) = self else { panic!("no name") };
        let asked = Instant::now().checked_sub(age);
        name.known.send_replace(ResolvedName { addresses: Some(addresses.into()), asked, error: None });
    }
}

impl Name {
    fn known(&self) -> ResolvedName {
        self.known.borrow().clone()
    }

    /// Returns the result of a look-up, possibly one of another request.
    async fn refreshed(self: &Arc<Name>) -> ResolvedName {
        let mut results = self.known.subscribe();
        let known = results.borrow().clone();
        if known.asked_within(AGAIN) {
            return known;
        }
        if !self.looking.swap(true, Ordering::AcqRel) {
            let turn = Turn(self.clone());
            tokio::spawn(turn.look_up());
        }
        // The sender lives as long as the name.
        let _ = results.changed().await;
        self.known()
    }
}

/// A look-up under way.
struct Turn(Arc<Name>);

impl Turn {
    async fn look_up(self) {
        let name = &*self.0;
        #[cfg(test)]
        if name.is_slow.load(Ordering::Relaxed) {
            name.replies.notified().await;
        }
        let found = tokio::net::lookup_host((name.host.as_str(), name.port)).await;
        let (addresses, error) = match found.map(|found| alternate(found.collect())) {
            Ok(found) if found.is_empty() => {
                (None, Some((io::ErrorKind::NotFound, "the name has no address".to_owned())))
            }
            Ok(found) => (Some(found.into()), None),
            Err(error) => (None, Some((error.kind(), error.to_string()))),
        };
        name.known.send_modify(|known| {
            *known = ResolvedName {
                addresses: addresses.or(known.addresses.take()),
                asked: Some(Instant::now()),
                error,
            };
        });
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.looking.store(false, Ordering::Release);
        self.0.late.store(false, Ordering::Relaxed);
        // If the thread has ended, the requests of other threads get the last result.
        self.0.known.send_modify(|_| {});
    }
}

/// Alternates families (RFC 8305 section 4), the resolver's first choice first.
fn alternate(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = found.first().is_some_and(SocketAddr::is_ipv6);
    let (first, second): (Vec<_>, Vec<_>) = found.into_iter().partition(|a| a.is_ipv6() == first_is_v6);
    let mut second = second.into_iter();
    let mut all = Vec::new();
    for address in first {
        all.push(address);
        all.extend(second.next());
    }
    all.extend(second);
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local() -> Addresses {
        Addresses::new(&Origin::parse("http://localhost:9").unwrap())
    }

    fn old() -> [SocketAddr; 1] {
        ["192.0.2.1:9".parse().unwrap()]
    }

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_resolver_that_hangs_leaves_the_last_result_until_it_replies() {
        let addresses = local();
        let Addresses::Name(name) = &addresses else { panic!("no name") };
        name.is_slow.store(true, Ordering::Relaxed);
        addresses.knew(&old(), TTL);
        // Like a request whose time is over.
        let asking = tokio::time::timeout(Duration::from_millis(20), addresses.get(PATIENCE));
        assert!(asking.await.is_err());
        assert_eq!(*addresses.get(Duration::from_millis(20)).await.unwrap(), old());
        // From now on no request waits; a wait would never end.
        assert_eq!(*addresses.get(Duration::MAX).await.unwrap(), old());
        name.replies.notify_one();
        // Only the look-up of the first request, which has given up, brings the new addresses.
        let mut results = name.known.subscribe();
        results.wait_for(|known| known.asked_within(AGAIN)).await.unwrap();
        assert_ne!(*addresses.get(PATIENCE).await.unwrap(), old());
        tokio::task::yield_now().await;
        assert!(!name.late.load(Ordering::Relaxed) && !name.looking.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn what_cannot_be_connected_to_is_looked_up_again() {
        let addresses = local();
        addresses.knew(&old(), Duration::from_secs(5));
        assert_eq!(*addresses.get(PATIENCE).await.unwrap(), old());
        let new = addresses.after(&old()).await.expect("other addresses");
        assert!(new.iter().all(|address| address.ip().is_loopback()), "{new:?}");
        assert_eq!(addresses.get(PATIENCE).await.unwrap(), new);
        assert_eq!(addresses.after(&old()).await, Some(new.clone()), "another request learns of it, too");
        assert_eq!(addresses.after(&new).await, None, "nothing is new");
    }

    #[tokio::test]
    async fn an_origin_that_is_down_is_not_looked_up_for_each_request() {
        let addresses = local();
        addresses.knew(&old(), Duration::ZERO);
        assert_eq!(addresses.after(&old()).await, None, "it has just been looked up");
        assert_eq!(*addresses.get(PATIENCE).await.unwrap(), old());
        let literal = Addresses::new(&Origin::parse("http://192.0.2.1:9").unwrap());
        assert_eq!(literal.after(&old()).await, None);
    }

    #[tokio::test]
    async fn a_failing_resolver_leaves_the_last_result() {
        let addresses = Addresses::new(&Origin::parse("http://name.invalid:9").unwrap());
        let error = addresses.get(PATIENCE).await.unwrap_err();
        assert_eq!(addresses.get(PATIENCE).await.unwrap_err().to_string(), error.to_string());
        addresses.knew(&old(), TTL);
        assert_eq!(*addresses.get(PATIENCE).await.unwrap(), old());
        assert_eq!(addresses.after(&old()).await, None);
    }

    #[test]
    fn families_take_turns() {
        let parse = |text: &[&str]| text.iter().map(|a| a.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let found = parse(&["[::1]:1", "[::2]:1", "1.1.1.1:1", "[::3]:1", "2.2.2.2:1"]);
        assert_eq!(alternate(found), parse(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1", "[::3]:1"]));
        assert_eq!(alternate(vec![]), vec![]);
        assert_eq!(
            alternate(parse(&["1.1.1.1:1", "[::1]:1", "[::2]:1"])),
            parse(&["1.1.1.1:1", "[::1]:1", "[::2]:1"])
        );
    }
}
