//! Names to addresses: by the system's resolver, off the event loop, repeated every [`TTL`].

use crate::Origin;
use crate::origin::Endpoint;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a result is used. The system's resolver does not return the record's own TTL.
const TTL: Duration = Duration::from_secs(30);

/// The addresses of one origin.
#[derive(Debug)]
pub(crate) enum Addresses {
    /// A Unix socket has none.
    None,
    /// Written as an address.
    Literal(Arc<[SocketAddr]>),
    /// A name with its last result.
    Name { host: String, port: u16, last: Mutex<Option<(Instant, Arc<[SocketAddr]>)>> },
}

impl Addresses {
    pub(crate) fn new(origin: &Origin) -> Addresses {
        match &origin.endpoint {
            Endpoint::Unix(_) => Addresses::None,
            Endpoint::Tcp { host, port, .. } => match host.parse::<IpAddr>() {
                Ok(address) => Addresses::Literal([SocketAddr::new(address, *port)].into()),
                Err(_) => Addresses::Name { host: host.clone(), port: *port, last: Mutex::default() },
            },
        }
    }

    /// All addresses, with alternating families. If the resolver fails, the last result is used.
    ///
    /// # Errors
    /// The resolver finds no address.
    pub(crate) async fn get(&self) -> io::Result<Arc<[SocketAddr]>> {
        let (host, port, last) = match self {
            Addresses::None => return Ok([].into()),
            Addresses::Literal(address) => return Ok(address.clone()),
            Addresses::Name { host, port, last } => (host, *port, last),
        };
        let known = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, addresses)) = &known
            && at.elapsed() < TTL
        {
            return Ok(addresses.clone());
        }
        let found = match tokio::net::lookup_host((host.as_str(), port)).await {
            Ok(found) => alternate(found.collect()),
            Err(error) => return known.map(|(_, addresses)| addresses).ok_or(error),
        };
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
        }
        let found: Arc<[SocketAddr]> = found.into();
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), found.clone()));
        Ok(found)
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
