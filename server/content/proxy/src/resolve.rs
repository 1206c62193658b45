//! Resolves names with the system's resolver, off the event loop, every [`TTL`], and at once when no address can be connected to.
//!
//! Contract: there is one look-up of a name at a time, for all threads; requests that wait for it share its result. An origin that is down causes
//! one look-up per [`AGAIN`], however many requests fail.

use crate::Origin;
use crate::origin::Endpoint;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

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
    Name(Box<Name>),
}

/// A name and its last look-up.
#[derive(Debug)]
pub(crate) struct Name {
    host: String,
    port: u16,
    known: Mutex<ResolvedName>,
    /// Held during a look-up.
    looking: tokio::sync::Mutex<()>,
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
                Err(_) => Addresses::Name(Box::new(Name {
                    host: host.clone(),
                    port: *port,
                    known: Mutex::default(),
                    looking: tokio::sync::Mutex::default(),
                })),
            },
        }
    }

    /// Returns all addresses, with alternating families. If the resolver fails, the last result is used.
    ///
    /// # Errors
    /// The resolver finds no address.
    pub(crate) async fn get(&self) -> io::Result<Arc<[SocketAddr]>> {
        let name = match self {
            Addresses::None => return Ok([].into()),
            Addresses::Literal(address) => return Ok(address.clone()),
            Addresses::Name(name) => name,
        };
        let known = name.known();
        if known.asked_within(TTL) && known.addresses.is_some() {
            return known.result();
        }
        name.refreshed().await.result()
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
        *name.known.lock().unwrap() = ResolvedName { addresses: Some(addresses.into()), asked, error: None };
    }
}

impl Name {
    fn known(&self) -> ResolvedName {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the result of a look-up, possibly one of another request.
    async fn refreshed(&self) -> ResolvedName {
        let _turn = self.looking.lock().await;
        let known = self.known();
        if known.asked_within(AGAIN) {
            return known;
        }
        let found = tokio::net::lookup_host((self.host.as_str(), self.port)).await;
        let (addresses, error) = match found.map(|found| alternate(found.collect())) {
            Ok(found) if found.is_empty() => {
                (known.addresses, Some((io::ErrorKind::NotFound, "the name has no address".to_owned())))
            }
            Ok(found) => (Some(found.into()), None),
            Err(error) => (known.addresses, Some((error.kind(), error.to_string()))),
        };
        let known = ResolvedName { addresses, asked: Some(Instant::now()), error };
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = known.clone();
        known
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

    #[tokio::test]
    async fn what_cannot_be_connected_to_is_looked_up_again() {
        let addresses = local();
        addresses.knew(&old(), Duration::from_secs(5));
        assert_eq!(*addresses.get().await.unwrap(), old());
        let new = addresses.after(&old()).await.expect("other addresses");
        assert!(new.iter().all(|address| address.ip().is_loopback()), "{new:?}");
        assert_eq!(addresses.get().await.unwrap(), new);
        assert_eq!(addresses.after(&old()).await, Some(new.clone()), "another request learns of it, too");
        assert_eq!(addresses.after(&new).await, None, "nothing is new");
    }

    #[tokio::test]
    async fn an_origin_that_is_down_is_not_looked_up_for_each_request() {
        let addresses = local();
        addresses.knew(&old(), Duration::ZERO);
        assert_eq!(addresses.after(&old()).await, None, "it has just been looked up");
        assert_eq!(*addresses.get().await.unwrap(), old());
        let literal = Addresses::new(&Origin::parse("http://192.0.2.1:9").unwrap());
        assert_eq!(literal.after(&old()).await, None);
    }

    #[tokio::test]
    async fn a_failing_resolver_leaves_the_last_result() {
        let addresses = Addresses::new(&Origin::parse("http://name.invalid:9").unwrap());
        let error = addresses.get().await.unwrap_err();
        assert_eq!(addresses.get().await.unwrap_err().to_string(), error.to_string());
        addresses.knew(&old(), TTL);
        assert_eq!(*addresses.get().await.unwrap(), old());
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
