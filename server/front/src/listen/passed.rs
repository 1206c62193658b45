//! Replaces `bind = "systemd"` by the addresses of all systemd sockets that no other bind names.
//!
//! Why addresses: all later code (TLS, ports, upgrades, texts) works with addresses, and a socket is claimed
//! by its address.
//!
//! Contract:
//! 1. Each socket is used as what it is: a TCP port or a Unix socket. `FileDescriptorName=https` turns on TLS
//!    for a port, `control` gives the socket to the control server. Other names have no meaning.
//! 2. In an upgrade, the same rules apply to the sockets that the old program hands over.
//! 3. It is an error if there is no such socket, unless the bind says that it is optional.

use super::resolve;
use crate::handover::{self, Handed, takes_both};
use crate::systemd::activation::{Activated, SocketAddress};
use settings::{Bind, BindTls, ControlAddress, Settings, SystemdNeed};
use std::net::SocketAddr;

const HTTPS: &str = "https";
const CONTROL: &str = "control";

/// Replaces `systemd` in the settings' binds, and adds addresses of the control server.
///
/// # Errors
/// There is no such socket, or its name asks for something impossible. The text names a remedy.
pub(crate) fn name_addresses(
    settings: &mut Settings,
    activated: &mut Activated,
    handed: &mut Handed,
) -> Result<(), String> {
    let found = settings.binds.iter().enumerate().find_map(|(at, bind)| match bind {
        Bind::Systemd { https, need } => Some((at, *https, *need)),
        _ => None,
    });
    let Some((mut at, https, need)) = found else { return Ok(()) };
    let all = sockets(activated, handed);
    let passed = all.len();
    if need == SystemdNeed::Only && passed > 0 {
        let is_passed = |bind: &Bind| all.iter().any(|(place, _)| names(bind, place));
        settings.binds.retain(|bind| matches!(bind, Bind::Systemd { .. }) || is_passed(bind));
        at = settings.binds.iter().position(|bind| matches!(bind, Bind::Systemd { .. })).unwrap_or(0);
    }
    let is_named = |place: &SocketAddress, binds: &[Bind]| binds.iter().any(|bind| names(bind, place));
    let free: Vec<_> = all.into_iter().filter(|(place, _)| !is_named(place, &settings.binds)).collect();
    let (control, requests): (Vec<_>, Vec<_>) = free.into_iter().partition(|(_, name)| name == CONTROL);
    let binds = binds(&requests, https)?;
    if binds.is_empty() && need == SystemdNeed::Required {
        return Err(if passed == 0 {
            "bind systemd: systemd has passed no socket to this process; start the server by its socket unit, which needs \
             ListenStream=, or bind addresses instead"
                .to_owned()
        } else {
            format!(
                "bind systemd: none of the {passed} sockets that systemd has passed is left for requests, because other binds name \
                 them or they are called {CONTROL}; remove `systemd`, or add ListenStream= to the socket unit"
            )
        });
    }
    settings.binds.splice(at..=at, binds);
    for (place, _) in control {
        give_to_control(&place, settings, activated, handed)?;
    }
    Ok(())
}

/// Returns the sockets that systemd has opened, directly or for the old program, with their names.
fn sockets(activated: &Activated, handed: &Handed) -> Vec<(SocketAddress, String)> {
    let direct = activated.places().map(|(place, name)| (place.clone(), name.to_owned()));
    let theirs = handed.activated().map(|(place, socket)| {
        let tcp = |address| SocketAddress::Tcp { address, both: takes_both(socket) };
        match place {
            handover::SocketKind::Tcp { address, encrypted, .. } => {
                (tcp(*address), if *encrypted { HTTPS } else { "" }.to_owned())
            }
            handover::SocketKind::Udp { address } => (tcp(*address), String::new()),
            handover::SocketKind::Unix { path, .. } => (SocketAddress::Unix(path.clone()), String::new()),
            handover::SocketKind::ControlUnix { path, .. } => {
                (SocketAddress::Unix(path.clone()), CONTROL.to_owned())
            }
            handover::SocketKind::ControlTcp { address, .. } => (tcp(*address), CONTROL.to_owned()),
        }
    });
    direct.chain(theirs).collect()
}

/// Whether a bind names the socket of a place.
fn names(bind: &Bind, place: &SocketAddress) -> bool {
    match bind {
        Bind::Tcp { host, port, .. } => {
            // A host that cannot be resolved is reported when it is bound.
            let ipv4 = bind.takes_both().then_some(SocketAddr::from(([0, 0, 0, 0], *port)));
            resolve(host, *port)
                .unwrap_or_default()
                .into_iter()
                .chain(ipv4)
                .any(|address| place.serves(address))
        }
        Bind::Unix { path, .. } => place.is_file(path),
        Bind::Systemd { .. } => false,
    }
}

/// `https`: TCP ports use TLS, unless the sockets' names say which ones do.
fn binds(sockets: &[(SocketAddress, String)], https: bool) -> Result<Vec<Bind>, String> {
    let by_name = sockets.iter().any(|(_, name)| name == HTTPS);
    let bind = |(place, name): &(SocketAddress, String)| match place {
        SocketAddress::Tcp { address, .. } => {
            let (host, port) = (address.ip().to_string(), address.port());
            let encrypted = if by_name { name == HTTPS } else { https };
            Ok(if encrypted { Bind::ssl(host, port, BindTls::default()) } else { Bind::tcp(host, port) })
        }
        SocketAddress::Unix(path) if name == HTTPS => Err(format!(
            "bind systemd: the socket unit calls the Unix socket {} {HTTPS}, but only TCP ports speak TLS; give it another \
             FileDescriptorName=",
            path.display()
        )),
        SocketAddress::Unix(path) => Ok(Bind::unix(path)),
    };
    sockets.iter().map(bind).collect()
}

fn give_to_control(
    place: &SocketAddress,
    settings: &mut Settings,
    activated: &mut Activated,
    handed: &mut Handed,
) -> Result<(), String> {
    let (address, theirs) = match place {
        SocketAddress::Tcp { address, .. } => (
            ControlAddress::Tcp { host: address.ip().to_string(), port: address.port() },
            handover::SocketKind::ControlTcp { address: *address, chosen: false, activated: true },
        ),
        SocketAddress::Unix(path) => (
            ControlAddress::Unix(path.clone()),
            handover::SocketKind::ControlUnix { path: path.clone(), activated: true },
        ),
    };
    if !settings.control.listen.contains(&address) {
        settings.control.listen.push(address);
    }
    match activated.take(place) {
        Some(socket) => handed.add(theirs, vec![socket.into()]),
        // The old program has handed it over.
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn tcp(address: &str, name: &str) -> (SocketAddress, String) {
        let address: SocketAddr = address.parse().unwrap();
        (SocketAddress::Tcp { address, both: false }, name.to_owned())
    }

    fn texts(sockets: &[(SocketAddress, String)], https: bool) -> Vec<String> {
        binds(sockets, https).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_socket_is_what_it_is() {
        let unix = (SocketAddress::Unix("/run/app.sock".into()), "app.socket".to_owned());
        let all = [tcp("0.0.0.0:80", "http"), tcp("[::]:443", "https"), unix.clone()];
        assert_eq!(texts(&all, false), ["tcp://0.0.0.0:80", "ssl://[::]:443", "unix:///run/app.sock"]);
        assert_eq!(texts(&all, true), texts(&all, false), "names say which ports are encrypted");
        let unnamed = [tcp("0.0.0.0:443", "unknown"), unix];
        assert_eq!(texts(&unnamed, true), ["ssl://0.0.0.0:443", "unix:///run/app.sock"]);
        assert_eq!(texts(&unnamed, false), ["tcp://0.0.0.0:443", "unix:///run/app.sock"]);
        let wrong =
            binds(&[(SocketAddress::Unix("/run/app.sock".into()), HTTPS.to_owned())], false).unwrap_err();
        assert!(wrong.contains("/run/app.sock") && wrong.contains("FileDescriptorName="), "{wrong}");
    }

    #[test]
    fn binds_name_what_is_at_their_address() {
        let (place, _) = tcp("127.0.0.1:80", "");
        assert!(names(&Bind::tcp("127.0.0.1", 80), &place));
        assert!(!names(&Bind::tcp("127.0.0.1", 81), &place) && !names(&Bind::unix("/a"), &place));
        let both = SocketAddress::Tcp { address: "[::]:80".parse().unwrap(), both: true };
        assert!(names(&Bind::tcp("0.0.0.0", 80), &both));
    }

    #[test]
    fn without_sockets_nothing_is_left_to_say() {
        let mut settings = Settings::defaults(std::path::Path::new("/"));
        let (mut activated, mut handed) = (Activated::default(), Handed::default());
        let before = settings.binds.clone();
        assert_eq!(name_addresses(&mut settings, &mut activated, &mut handed), Ok(()));
        assert_eq!(settings.binds, before);
        settings.binds.push(Bind::Systemd { https: false, need: SystemdNeed::Required });
        let error = name_addresses(&mut settings, &mut activated, &mut handed).unwrap_err();
        assert!(error.contains("passed no socket"), "{error}");
    }
}
