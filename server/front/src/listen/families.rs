//! Decides which sockets `::` needs for IPv6 and IPv4.
//!
//! `::`, or no address at all, means one IPv6 socket that accepts IPv4 as well, as in Puma and with nginx's
//! `ipv6only=off`.
//!
//! Contract:
//! 1. `?ipv6only=true`, or `0.0.0.0` at the same port among the addresses, excludes IPv4. (The settings
//!    refuse other IPv4 addresses at the same port.)
//! 2. A machine without IPv6 listens at `0.0.0.0`.
//! 3. Sockets of an old program or of systemd are used as they are: if an old program has a socket for one
//!    family, it is kept and the other family gets its own. systemd's configuration decides for its sockets.

use crate::handover::Handed;
use crate::systemd::activation::Activated;
use settings::Bind;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// A socket to bind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) address: SocketAddr,
    /// Whether it is `[::]` and accepts IPv4 as well.
    pub(super) both: bool,
}

impl Wanted {
    /// Returns `0.0.0.0`: all IPv4 addresses of the machine.
    pub(super) fn ipv4(port: u16) -> Wanted {
        Wanted { address: (Ipv4Addr::UNSPECIFIED, port).into(), both: false }
    }

    fn ipv6(port: u16) -> Wanted {
        Wanted { address: (Ipv6Addr::UNSPECIFIED, port).into(), both: false }
    }
}

/// Returns the sockets to bind for the `addresses` of `bind`, which is one of `binds`.
pub(super) fn of(
    addresses: Vec<SocketAddr>,
    bind: &Bind,
    binds: &[Bind],
    handed: &Handed,
    activated: &Activated,
) -> Vec<Wanted> {
    let both = bind.takes_both() && !binds.iter().any(|other| is_all_of_ipv4(other, bind));
    let one = |address: SocketAddr| {
        if !both || address.ip() != Ipv6Addr::UNSPECIFIED {
            return vec![Wanted { address, both: false }];
        }
        let port = address.port();
        let (four, six) = (Wanted::ipv4(port), Wanted::ipv6(port));
        if activated.has_only(four.address, address) {
            return vec![four];
        }
        match (handed.of_one_family(four.address), handed.of_one_family(six.address)) {
            (None, None) => vec![Wanted { address, both }],
            (Some(true), None) => vec![four],
            (None, Some(true)) => vec![six],
            // A second socket would get another port.
            (Some(_), None) if port == 0 => vec![four],
            (None, Some(_)) if port == 0 => vec![six],
            _ => vec![four, six],
        }
    };
    addresses.into_iter().flat_map(one).collect()
}

fn is_all_of_ipv4(other: &Bind, bind: &Bind) -> bool {
    match (other, bind) {
        (Bind::Tcp { host, port, .. }, Bind::Tcp { port: same, .. }) => {
            host.parse() == Ok(Ipv4Addr::UNSPECIFIED) && port == same && *port != 0
        }
        _ => false,
    }
}

/// Whether a socket failed because the machine has no IPv6.
pub(super) fn without_ipv6(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    matches!(code, Some(rustix::io::Errno::AFNOSUPPORT | rustix::io::Errno::ADDRNOTAVAIL))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(text: &str, others: &[&str]) -> Vec<Wanted> {
        let bind: Bind = text.parse().unwrap();
        let mut binds: Vec<Bind> = others.iter().map(|text| text.parse().unwrap()).collect();
        binds.push(bind.clone());
        let Bind::Tcp { host, port, .. } = &bind else { panic!("{text}") };
        let addresses = super::super::resolve(host, *port).unwrap();
        of(addresses, &bind, &binds, &Handed::default(), &Activated::default())
    }

    #[test]
    fn every_address_of_ipv6_takes_ipv4_unless_somebody_says_otherwise() {
        let address = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 80));
        let both = |both| vec![Wanted { address, both }];
        assert_eq!(wanted("tcp://[::]:80", &[]), both(true));
        assert_eq!(wanted("tcp://:80", &[]), both(true));
        assert_eq!(wanted("ssl://[0:0::0]:80", &["tcp://[::]:81", "tcp://0.0.0.0:81"]), both(true));
        assert_eq!(wanted("tcp://[::]:80?ipv6only=true", &[]), both(false));
        assert_eq!(wanted("tcp://[::]:80", &["tcp://0.0.0.0:80"]), both(false));
        assert!(wanted("tcp://[::1]:80", &[]).iter().all(|wanted| !wanted.both));
        assert_eq!(wanted("tcp://0.0.0.0:80", &[]), [Wanted::ipv4(80)]);
    }

    #[test]
    fn errors_of_a_machine_without_ipv6() {
        for (code, is_one) in [(97, true), (99, true), (98, false), (13, false)] {
            let error = io::Error::from_raw_os_error(code);
            assert_eq!(without_ipv6(&error), cfg!(target_os = "linux") && is_one, "{error}");
        }
    }
}
