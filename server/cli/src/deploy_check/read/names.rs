//! Looks up host names, and tells which addresses are this machine's.

use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use settings::{DomainKind, Settings};

use super::super::facts::LookedUpName;

/// How long all answers together may take.
const LIMIT: Duration = Duration::from_secs(4);
/// The most names that are looked up.
const MOST: usize = 32;

/// Looks up the names that clients have to reach the server by.
pub(super) fn look_up(settings: &Settings) -> Vec<LookedUpName> {
    let domains = settings.acme.domains().map(|name| (name, "acme.domains"));
    let canonical = settings.https.canonical_host.as_deref().map(|name| (name, "canonical_host"));
    let hosts = settings.sites.hosts.iter().map(|host| (host.host.as_str(), "sites"));
    let mut wanted: Vec<(String, &'static str)> = Vec::new();
    for (name, key) in domains.chain(canonical).chain(hosts) {
        // A wildcard has no address, and an address needs no look-up.
        let is_host = DomainKind::of(name) == Some(DomainKind::Host);
        if is_host && wanted.len() < MOST && !wanted.iter().any(|(known, _)| known == name) {
            wanted.push((name.to_owned(), key));
        }
    }
    let (sender, receiver) = channel();
    for (place, (name, _)) in wanted.iter().enumerate() {
        let (sender, name) = (sender.clone(), name.clone());
        // A look-up cannot be stopped; the end of the program ends it.
        thread::spawn(move || drop(sender.send((place, addresses(&name)))));
    }
    drop(sender);
    let late = || Err(format!("no answer within {} s", LIMIT.as_secs()));
    let mut found: Vec<LookedUpName> =
        wanted.into_iter().map(|(name, key)| LookedUpName { name, key, addresses: late() }).collect();
    let until = Instant::now() + LIMIT;
    while let Ok((place, addresses)) = receiver.recv_timeout(until.saturating_duration_since(Instant::now()))
    {
        found[place].addresses = addresses;
    }
    found
}

fn addresses(name: &str) -> Result<Vec<(IpAddr, bool)>, String> {
    let found = (name, 0).to_socket_addrs().map_err(|error| error.to_string())?;
    let mut addresses: Vec<(IpAddr, bool)> = Vec::new();
    for address in found.map(|address| address.ip()) {
        if !addresses.iter().any(|(known, _)| *known == address) {
            addresses.push((address, is_own(address)));
        }
    }
    if addresses.is_empty() { Err("it has no address".to_owned()) } else { Ok(addresses) }
}

/// Whether an address is one of this machine: only those can be bound.
fn is_own(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn own_addresses_can_be_bound() {
        assert!(is_own(IpAddr::from([127, 0, 0, 1])));
        assert!(!is_own(IpAddr::from([192, 0, 2, 1])));
    }

    #[test]
    fn names_are_looked_up_once_and_wildcards_never() {
        let mut settings = Settings::defaults(Path::new("/"));
        assert_eq!(look_up(&settings), []);
        settings.https.canonical_host = Some("nosuch.invalid".to_owned());
        let order = |domains: &[&str]| settings::CertificateOrder {
            domains: domains.iter().map(|name| (*name).to_owned()).collect(),
            profile: None,
            challenge: settings::AcmeChallenge::Auto,
        };
        settings.acme.certificates = vec![order(&["nosuch.invalid", "*.nosuch.invalid", "192.0.2.1"])];
        let found = look_up(&settings);
        assert_eq!(
            found.iter().map(|one| (one.name.as_str(), one.key)).collect::<Vec<_>>(),
            [("nosuch.invalid", "acme.domains")]
        );
        assert!(found[0].addresses.is_err());
    }
}
