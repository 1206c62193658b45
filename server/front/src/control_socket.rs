//! Binds the control socket.
//!
//! The default path of the socket follows from the app's directory, so that `firebrick stats` finds it. A
//! second server of the same directory (another port, a test run) uses another path beside it and logs it. A
//! path from the settings is used as it is, or refused.

use crate::error_log::ErrorLog;
use crate::handover::{Handed, SocketKind};
use control::{ControlAddress, Listening, Server, SocketHandover};
use settings::{ProcessEnvironment, Settings, control_path};
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Listens on the configured addresses, with the sockets of an old program where it has handed them over.
/// Returns `None` when the control server is off.
///
/// # Errors
/// The text names the address and the error.
pub(crate) fn bind(
    settings: &Settings,
    log: &ErrorLog,
    handed: &mut Handed,
) -> Result<Option<Server>, String> {
    settings.control.safe_to_listen()?;
    let mut server = Server::new(settings.control.token.clone());
    for address in &settings.control.listen {
        if adopt(&mut server, address, handed) {
            continue;
        }
        match (server.listen(address), address) {
            (Err(e), ControlAddress::Unix(path))
                if e.kind() == io::ErrorKind::AddrInUse && is_default(path, &settings.dir) =>
            {
                let own = beside(path);
                server.listen(&ControlAddress::Unix(own.clone())).map_err(|e| e.to_string())?;
                log.write(&format!(
                    "another server of {} has its control socket; ask this one with `firebrick stats --control {}`",
                    settings.dir.display(),
                    own.display()
                ));
            }
            // The default socket is optional: if its directory is not writable, the app is served all the same.
            (Err(e), ControlAddress::Unix(path)) if is_default(path, &settings.dir) => {
                log.write(&without(path, &e))
            }
            (listening, _) => listening.map_err(|e| e.to_string())?,
        }
    }
    if let Some(link) = settings.control.link.clone().map(ControlAddress::Unix)
        && !adopt(&mut server, &link, handed)
    {
        match server.listen(&link) {
            // The other server of this link owns it. This server is found by its own directory.
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {}
            // The error of the socket itself has been logged.
            Err(_) if !server.listens() => {}
            Err(e) => log.write(&without(settings.control.link.as_deref().unwrap_or(Path::new("")), &e)),
            Ok(()) => {}
        }
    }
    Ok(server.listens().then_some(server))
}

/// Returns the warning about a missing control socket.
fn without(path: &Path, error: &io::Error) -> String {
    format!(
        "warning: no control socket at {}: {error}; `firebrick stats`, `reload` and `upgrade` do not find this server, signals work. \
         Set XDG_RUNTIME_DIR to a folder that this user can write, or --control to an address in one; --control off is silent",
        path.display()
    )
}

/// Adopts the socket of an old program, if there is one for the address. A socket that cannot be adopted is
/// left alone, and a new one is bound or the error reported.
fn adopt(server: &mut Server, address: &ControlAddress, handed: &mut Handed) -> bool {
    let token = handed.token();
    let socket = match address {
        ControlAddress::Unix(path) => handed.control_unix(path),
        ControlAddress::Tcp { host, port } => {
            let resolved = (host.as_str(), *port).to_socket_addrs().into_iter().flatten();
            resolved.into_iter().find_map(|wanted| handed.control_tcp(wanted))
        }
    };
    socket.is_some_and(|(socket, activated)| server.adopt(address, socket, token, activated).is_ok())
}

/// Returns the sockets of a control server with their places, for a handover.
pub(crate) fn offered(release: &SocketHandover) -> io::Result<Vec<(SocketKind, Vec<OwnedFd>)>> {
    let offer = |(listening, socket): (&Listening, &OwnedFd)| {
        let place = match listening {
            Listening::Unix { path, activated } => {
                SocketKind::ControlUnix { path: path.clone(), activated: *activated }
            }
            Listening::Tcp { address, chosen, activated } => {
                SocketKind::ControlTcp { address: *address, chosen: *chosen, activated: *activated }
            }
        };
        Ok((place, vec![socket.try_clone()?]))
    };
    release.sockets().map(offer).collect()
}

/// Returns the text of Puma's state file, as `pumactl` reads it: lines of YAML with the id of this process and the first control server.
pub(crate) fn puma_state(settings: &Settings, release: Option<&SocketHandover>) -> String {
    let mut text = format!("---\npid: {}\n", std::process::id());
    let first = release.and_then(|release| release.sockets().next()).map(|(listening, _)| listening);
    match first {
        // pumactl has no form for a path with characters that a URL escapes, and uses signals then.
        Some(Listening::Unix { path, .. }) if path.to_str().is_some_and(is_plain) => {
            text += &format!("control_url: unix://{}\n", path.display());
        }
        Some(Listening::Tcp { address, .. }) => {
            let host = match address.ip() {
                ip if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
                ip => ip.to_canonical(),
            };
            text += &format!("control_url: tcp://{}\n", SocketAddr::new(host, address.port()));
            let token = release.and_then(SocketHandover::token).or(settings.control.token.as_deref());
            text += &token.map(|token| format!("control_auth_token: {token}\n")).unwrap_or_default();
        }
        _ => {}
    }
    text + &format!("running_from: \"{}\"\n", settings.dir.display())
}

fn is_plain(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte))
}

/// Returns the banner's lines: ports that the system may have chosen, and the links to the dashboard.
pub(crate) fn lines(server: &Server) -> Vec<String> {
    let ports = server.ports().map(|port| format!("Control on {port}"));
    ports.chain(server.dashboards().map(|link| format!("Dashboard: {link}"))).collect()
}

/// Prints the link with a generated token if there is no banner: without it the control port is useless.
pub(crate) fn print_token(server: &Server) {
    if !server.has_generated_token() {
        return;
    }
    let mut out = io::stdout().lock();
    for link in server.dashboards() {
        // A closed standard output does not stop the server.
        let _ = writeln!(out, "* Dashboard: {link}").and_then(|()| out.flush());
    }
}

fn is_default(path: &Path, dir: &Path) -> bool {
    path == control_path(dir, &ProcessEnvironment, rustix::process::getuid().as_raw())
}

/// Returns `NAME-PID.sock` for `NAME.sock`.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}-{}.sock", std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::beside;
    use std::path::Path;

    #[test]
    fn the_second_socket_is_beside_the_first() {
        let own = beside(Path::new("/run/firebrick/0123.sock"));
        assert_eq!(own, Path::new(&format!("/run/firebrick/0123-{}.sock", std::process::id())));
    }
}
