//! Listening addresses: combines binds, port and host, and makes sure that no path is used twice.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::origin::ValueSource;
use crate::settings::Settings;
use crate::table::app;
use crate::table::entry::{About, Category};
use crate::table::listen::{BIND, CONTROL, HOST, PORT};
use crate::table::logs;
use crate::table::taker::{CheckedValue, Taker};
use crate::table::tls::HTTPS;
use crate::value::bind::{Bind, SystemdNeed};
use crate::value::control::ControlAddress;
use crate::value::log::{AccessLog, ErrorLog};
use crate::value::tls::BindTls;
use sys::socket::LONGEST_PATH;

/// All IPv4 addresses, for a machine without IPv6.
const ALL_OF_IPV4: &str = "0.0.0.0";

/// Returns the addresses to listen on.
///
/// Binds replace the default address. A port written in the same place as the binds adds its own address. A
/// port flag replaces the file's binds, because flags override the file. The variable counts only without
/// binds. With `https` all TCP ports use TLS, unless one of them says so itself.
pub(super) fn binds(taker: &Taker<'_>, https: bool, obtains_certificates: bool, ipv6: bool) -> Vec<Bind> {
    let binds = plain_binds(taker, obtains_certificates, ipv6);
    if !https || binds.iter().any(|bind| bind.tls().is_some()) {
        return binds;
    }
    if binds.iter().all(|bind| matches!(bind, Bind::Unix { .. })) {
        taker.conflict(&HTTPS.about, "TLS needs a TCP port: add -b tcp://127.0.0.1:9292");
    }
    binds.into_iter().map(Bind::encrypted).collect()
}

/// Returns the addresses before TLS is applied. A server that `obtains` certificates listens on 80 and 443
/// instead of the default address; a port replaces 80.
fn plain_binds(taker: &Taker<'_>, obtains: bool, ipv6: bool) -> Vec<Bind> {
    let mut binds = taker.take(&BIND);
    // Sockets of systemd that need not be there come beside whatever is used without them.
    let is_optional =
        |bind: &Bind| matches!(bind, Bind::Systemd { need: SystemdNeed::Optional | SystemdNeed::Only, .. });
    let optional = binds.value.iter().position(is_optional).map(|at| binds.value.remove(at));
    let mut all = addresses(taker, binds, obtains, ipv6);
    all.extend(optional.filter(|bind| !all.iter().any(|known| known.clashes_with(bind))));
    all
}

fn addresses(taker: &Taker<'_>, binds: CheckedValue<Vec<Bind>>, obtains: bool, ipv6: bool) -> Vec<Bind> {
    let mut host = taker.take(&HOST);
    if host.origin == ValueSource::Default && !ipv6 {
        host.value = ALL_OF_IPV4.to_owned();
    }
    let any = !binds.value.is_empty();
    let port = taker.take_where(&PORT, |origin| !(any && matches!(origin, ValueSource::Env(_))));
    let by_variable = matches!(port.origin, ValueSource::Env(_));
    if obtains && !any {
        let http = if port.origin == ValueSource::Default || by_variable { 80 } else { port.value };
        let mut hosts = vec![host.value];
        // The CA verifies a name with an AAAA record over IPv6, and clients visit it that way. With port 0
        // the kernel would choose two different ports.
        match host.origin {
            ValueSource::Default if ipv6 && http != 0 => hosts.insert(0, ALL_OF_IPV4.to_owned()),
            ValueSource::Default if !ipv6 => taker.warn(
                "this machine has no IPv6: names that are verified here must have no AAAA record".to_owned(),
            ),
            _ => {}
        }
        let plain = hosts.iter().map(|host| Bind::tcp(host.as_str(), http));
        let encrypted = hosts.iter().map(|host| Bind::ssl(host.as_str(), 443, BindTls::default()));
        return plain.chain(encrypted).collect();
    }
    let address = Bind::tcp(host.value.clone(), port.value);
    let by_flag = |origin: &ValueSource| matches!(origin, ValueSource::Flag(_));
    let adds_port = port.origin != ValueSource::Default && by_flag(&port.origin) == by_flag(&binds.origin);
    if !any || (by_flag(&port.origin) && !by_flag(&binds.origin)) {
        return vec![address];
    }
    if !adds_port {
        warn_of_unused(taker, &binds.origin, [("port", &port.origin), ("host", &host.origin)]);
    }
    let mut all: Vec<Bind> = Vec::new();
    for bind in binds.value.into_iter().chain(adds_port.then_some(address)) {
        if all.iter().any(|known| known.clashes_with(&bind)) {
            taker.conflict(&BIND.about, format!("{bind} is there twice"));
        }
        if let Bind::Unix { path, .. } = &bind {
            fits_a_socket(taker, &BIND.about, path);
        }
        all.push(bind);
    }
    ipv4_once(taker, &all);
    all
}

/// Refuses IPv4 addresses that `::` already accepts at the same port. With `0.0.0.0`, `::` is left with IPv6
/// only, so there is no conflict.
fn ipv4_once(taker: &Taker<'_>, binds: &[Bind]) {
    for both in binds.iter().filter(|bind| bind.takes_both()) {
        let Bind::Tcp { port, .. } = both else { continue };
        let others = binds.iter().filter(|other| {
            other
                .ipv4()
                .is_some_and(|(address, same)| same == *port && *port != 0 && !address.is_unspecified())
        });
        let by_another = binds.iter().any(|other| other.ipv4() == Some((Ipv4Addr::UNSPECIFIED, *port)));
        for other in others.filter(|_| !by_another) {
            let alone = both.clone().without_ipv4();
            taker.conflict(
                &BIND.about,
                format!("{both} already accepts IPv4, including {other}: remove {other}, or write {alone}"),
            );
        }
    }
}

/// Warns of a port or host without effect. A flag that overrides the file needs no warning; a value as strong
/// as the binds does.
fn warn_of_unused(taker: &Taker<'_>, binds: &ValueSource, parts: [(&str, &ValueSource); 2]) {
    for (name, origin) in parts {
        let overruled = matches!(binds, ValueSource::Flag(_)) && !matches!(origin, ValueSource::Flag(_));
        if *origin != ValueSource::Default && !overruled {
            taker.warn(format!("{name} from {origin} has no effect, because {binds} says where to listen"));
        }
    }
}

/// Reports a path that is too long for a Unix socket address.
pub(super) fn fits_a_socket(taker: &Taker<'_>, about: &About, path: &Path) {
    let length = path.as_os_str().len();
    if length > LONGEST_PATH {
        let text = path.display();
        let limit = format!("the path of a Unix socket may have at most {LONGEST_PATH} bytes");
        taker.conflict(about, format!("{limit}, {text} has {length}"));
    }
}

/// Reports paths that two options would both create. The two logs may share one file.
pub(super) fn no_path_twice(taker: &Taker<'_>, settings: &Settings) {
    let sockets = settings.binds.iter().filter_map(|bind| match bind {
        Bind::Unix { path, .. } => Some((&BIND.about, path)),
        Bind::Tcp { .. } | Bind::Systemd { .. } => None,
    });
    let access = if let AccessLog::File(path) = &settings.logs.access { Some(path) } else { None };
    let error = if let ErrorLog::File(path) = &settings.logs.error { Some(path) } else { None };
    let control = settings.control.listen.iter().filter_map(|address| match address {
        ControlAddress::Unix(path) => Some((&CONTROL.about, path)),
        ControlAddress::Tcp { .. } => None,
    });
    let pidfile = settings.process.pidfile.iter().map(|path| (&app::pidfile.about, path));
    let state = settings.process.state_path.iter().map(|path| (&app::state_path.about, path));
    let access = access.into_iter().map(|path| (&logs::access.about, path));
    let error = error.into_iter().map(|path| (&logs::error.about, path));
    let mut used: Vec<(&About, &PathBuf)> = sockets.collect();
    for (about, path) in control.chain(pidfile).chain(state).chain(access).chain(error) {
        let both_logs = |other: &About| about.category == Category::Logs && other.category == Category::Logs;
        let other = used.iter().find(|(other, known)| *known == path && !both_logs(other));
        if let Some((other, _)) = other {
            taker.conflict(about, format!("{} uses the same path", other.key));
        }
        used.push((about, path));
    }
}
