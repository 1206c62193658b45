//! Listening addresses: `tcp://HOST:PORT`, `ssl://HOST:PORT` or `unix://PATH`, each with options after a `?`;
//! or `systemd`.
//!
//! The options of `ssl://` have Puma's names. An option that this server does not support is a mistake whose
//! message gives the reason.

mod options;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use text::digits;

use crate::nearest::nearest;
use crate::value::tls::BindTls;
use options::Options;
use text::Mistake;

/// The backlog if none is given; the kernel lowers it to `net.core.somaxconn`.
pub const DEFAULT_BACKLOG: u32 = 4096;

/// The written form of all sockets of systemd.
const SYSTEMD: &str = "systemd";

/// The use of the other addresses, and of the start, when systemd passes sockets, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemdNeed {
    /// Without a socket the server does not start.
    Required,
    /// Without a socket the other addresses are used alone (`bind_to_activated_sockets` of Puma).
    Optional,
    /// The same; with sockets, those of the other addresses that name none of them are left out.
    Only,
}

impl SystemdNeed {
    /// Returns the options behind `systemd`.
    fn options(self) -> &'static str {
        match self {
            SystemdNeed::Required => "",
            SystemdNeed::Optional => "optional=true",
            SystemdNeed::Only => "only=true",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    Tcp {
        /// Host name or address; an IPv6 address without brackets.
        host: String,
        /// The port; 0 lets the kernel choose.
        port: u16,
        /// The most connections that the kernel holds before they are accepted.
        backlog: u32,
        /// TLS settings; `None` for plain text.
        tls: Option<Box<BindTls>>,
        /// Whether plain connections may begin with the preface of HTTP/2 (RFC 9113 section 3.3, "prior
        /// knowledge"). TLS connections negotiate it (ALPN).
        http2: bool,
        /// The PROXY header that a proxy in front sends first.
        proxy_protocol: Option<ProxyProtocol>,
        /// Whether `::` excludes IPv4. Without meaning for other addresses.
        ipv6only: bool,
    },
    /// A Unix stream socket.
    Unix {
        path: PathBuf,
        /// The umask while the socket is created. Without it and `mode`, every user of the machine may connect.
        umask: Option<u32>,
        /// The socket's permissions, set after it is created; overrides `umask`.
        mode: Option<u32>,
        /// The most connections that the kernel holds before they are accepted.
        backlog: u32,
    },
    /// All sockets opened by systemd that no other bind names.
    Systemd {
        /// Whether their TCP ports use TLS, unless the sockets' names select those that do.
        https: bool,
        need: SystemdNeed,
    },
}

/// The PROXY headers that a bind accepts at the start of each connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// The text header.
    V1,
    V2,
    Any,
}

impl ProxyProtocol {
    /// Returns the word of the option.
    pub fn word(self) -> &'static str {
        match self {
            ProxyProtocol::V1 => "v1",
            ProxyProtocol::V2 => "v2",
            ProxyProtocol::Any => "any",
        }
    }
}

impl Bind {
    /// Returns a plain TCP port with the default backlog.
    pub fn tcp(host: impl Into<String>, port: u16) -> Bind {
        let (host, backlog) = (host.into(), DEFAULT_BACKLOG);
        Bind::Tcp { host, port, backlog, tls: None, http2: false, proxy_protocol: None, ipv6only: false }
    }

    /// Returns a TCP port with TLS and the default backlog.
    pub fn ssl(host: impl Into<String>, port: u16, tls: BindTls) -> Bind {
        let (host, backlog, tls) = (host.into(), DEFAULT_BACKLOG, Some(Box::new(tls)));
        Bind::Tcp { host, port, backlog, tls, http2: false, proxy_protocol: None, ipv6only: false }
    }

    /// Returns the TLS settings, or `None` for plain text.
    pub fn tls(&self) -> Option<&BindTls> {
        match self {
            Bind::Tcp { tls, .. } => tls.as_deref(),
            Bind::Unix { .. } | Bind::Systemd { .. } => None,
        }
    }

    /// Returns whether plain connections may begin with the HTTP/2 preface.
    pub fn http2(&self) -> bool {
        matches!(self, Bind::Tcp { http2: true, .. })
    }

    /// Returns a Unix socket with the default backlog, to which every user of the machine may connect.
    pub fn unix(path: impl Into<PathBuf>) -> Bind {
        Bind::Unix { path: path.into(), umask: None, mode: None, backlog: DEFAULT_BACKLOG }
    }

    /// Adds TLS to a TCP port; returns other addresses unchanged.
    pub(crate) fn encrypted(self) -> Bind {
        match self {
            Bind::Tcp { host, port, backlog, tls, proxy_protocol, ipv6only, .. } => Bind::Tcp {
                host,
                port,
                backlog,
                tls: Some(tls.unwrap_or_default()),
                http2: false,
                proxy_protocol,
                ipv6only,
            },
            Bind::Systemd { need, .. } => Bind::Systemd { https: true, need },
            unix @ Bind::Unix { .. } => unix,
        }
    }

    /// Returns whether the address is `::` and accepts IPv4, too.
    pub fn takes_both(&self) -> bool {
        matches!(self, Bind::Tcp { host, ipv6only: false, .. } if host.parse() == Ok(Ipv6Addr::UNSPECIFIED))
    }

    /// Excludes IPv4 if the address is `::`.
    pub(crate) fn without_ipv4(mut self) -> Bind {
        if self.takes_both()
            && let Bind::Tcp { ipv6only, .. } = &mut self
        {
            *ipv6only = true;
        }
        self
    }

    /// Returns the IPv4 address and port, if the bind has them.
    pub(crate) fn ipv4(&self) -> Option<(Ipv4Addr, u16)> {
        match self {
            Bind::Tcp { host, port, .. } => Some((host.parse().ok()?, *port)),
            Bind::Unix { .. } | Bind::Systemd { .. } => None,
        }
    }

    /// Returns whether both binds need the same address. Ports that the kernel chooses never clash.
    pub fn clashes_with(&self, other: &Bind) -> bool {
        match (self, other) {
            (Bind::Tcp { host: a, port: p, .. }, Bind::Tcp { host: b, port: q, .. }) => {
                a == b && p == q && *p != 0
            }
            (Bind::Unix { path: a, .. }, Bind::Unix { path: b, .. }) => a == b,
            (Bind::Systemd { .. }, Bind::Systemd { .. }) => true,
            _ => false,
        }
    }

    /// Resolves a relative socket path against `base` and removes `.` components.
    pub(crate) fn based_at(self, base: &Path) -> Bind {
        match self {
            Bind::Unix { path, umask, mode, backlog } => {
                let path = base.join(path).components().collect();
                Bind::Unix { path, umask, mode, backlog }
            }
            Bind::Tcp { host, port, backlog, tls, http2, proxy_protocol, ipv6only } => {
                let tls = tls.map(|tls| Box::new(tls.based_at(base)));
                Bind::Tcp { host, port, backlog, tls, http2, proxy_protocol, ipv6only }
            }
            systemd @ Bind::Systemd { .. } => systemd,
        }
    }
}

/// Writes the address as a URI that reads back as the same address.
impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut options, backlog) = match self {
            Bind::Systemd { need: SystemdNeed::Required, .. } => return f.write_str(SYSTEMD),
            Bind::Systemd { need, .. } => return write!(f, "{SYSTEMD}?{}", need.options()),
            Bind::Tcp { host, port, backlog, tls, http2, proxy_protocol, ipv6only } => {
                let scheme = if tls.is_some() { "ssl" } else { "tcp" };
                let (open, close) = if host.contains(':') { ("[", "]") } else { ("", "") };
                write!(f, "{scheme}://{open}{host}{close}:{port}")?;
                let mut options = tls.as_ref().map(|tls| tls.options()).unwrap_or_default();
                options.extend(http2.then(|| "h2c=true".to_owned()));
                options.extend(proxy_protocol.map(|version| format!("proxy_protocol={}", version.word())));
                options.extend(ipv6only.then(|| "ipv6only=true".to_owned()));
                (options, backlog)
            }
            Bind::Unix { path, umask, mode, backlog } => {
                write!(f, "unix://{}", path.display())?;
                let octal = |name, value: &Option<u32>| value.map(|value| format!("{name}={value:04o}"));
                (octal("umask", umask).into_iter().chain(octal("mode", mode)).collect(), backlog)
            }
        };
        if *backlog != DEFAULT_BACKLOG {
            options.push(format!("backlog={backlog}"));
        }
        if options.is_empty() { Ok(()) } else { write!(f, "?{}", options.join("&")) }
    }
}

impl FromStr for Bind {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<Bind, Mistake> {
        let (address, query) = text.split_once('?').unwrap_or((text, ""));
        if address == SYSTEMD {
            let none = "systemd, systemd?optional=true or systemd?only=true: for options of a socket name its address, such as tcp://0.0.0.0:80?proxy_protocol=v2";
            let needs = [SystemdNeed::Required, SystemdNeed::Optional, SystemdNeed::Only];
            let need = needs.into_iter().find(|need| need.options() == query);
            let need = need.ok_or_else(|| Mistake::expected(none))?;
            return Ok(Bind::Systemd { https: false, need });
        }
        if let Some(path) = unix_path(address) {
            return parse_unix(path, query);
        }
        match address.split_once("://") {
            Some(("tcp", rest)) => parse_tcp("tcp", rest, query),
            Some(("ssl", rest)) => parse_tcp("ssl", rest, query),
            Some((scheme, rest)) => {
                let near = match scheme {
                    "http" => Some("tcp"),
                    "https" | "tls" => Some("ssl"),
                    other => nearest(other, ["tcp", "ssl", "unix"]),
                };
                let near = near.map(|scheme| format!("{scheme}://{}", rest.trim_end_matches('/')));
                Err(Mistake::expected("an address that begins with tcp://, ssl:// or unix://").near(near))
            }
            None => parse_tcp("tcp", address, query),
        }
    }
}

/// Returns the path if `address` is a Unix address in any spelling.
fn unix_path(address: &str) -> Option<&str> {
    address
        .strip_prefix("unix://")
        .or_else(|| address.strip_prefix("unix:"))
        .or_else(|| address.starts_with(['/', '.']).then_some(address))
}

fn parse_unix(path: &str, query: &str) -> Result<Bind, Mistake> {
    if path.is_empty() || path.contains('\0') {
        return Err(Mistake::expected("a path behind unix://"));
    }
    if path.starts_with('@') {
        return Err(Mistake::expected("a path in the file system; abstract sockets (@) have no permissions"));
    }
    let options = Options::parse(query, options::UNIX)?;
    Ok(Bind::Unix { path: path.into(), umask: options.umask, mode: options.mode, backlog: options.backlog })
}

fn parse_tcp(scheme: &str, rest: &str, query: &str) -> Result<Bind, Mistake> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let encrypted = scheme == "ssl";
    let options = Options::parse(query, if encrypted { options::SSL } else { options::TCP })?;
    if digits(rest).is_some() {
        return Err(Mistake::expected("HOST:PORT").near(Some(format!("{scheme}://[::]:{rest}"))));
    }
    let (host, port) = rest.rsplit_once(':').ok_or_else(Mistake::default)?;
    // Otherwise `::1` would be read as host `:` and port 1.
    if rest.parse::<Ipv6Addr>().is_ok() || (host.contains(':') && !host.starts_with('[')) {
        return Err(Mistake::expected("an IPv6 address in brackets and a port, such as tcp://[::1]:3000"));
    }
    let port = digits(port).and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or_else(|| Mistake::expected("a port from 0 to 65535 behind the host"))?;
    let host = if host.is_empty() { "::".to_owned() } else { parse_host(host).map_err(Mistake::expected)? };
    let tls = encrypted.then(|| options.tls()).transpose()?.map(Box::new);
    let Options { backlog, http2, proxy_protocol, ipv6only, .. } = options;
    if ipv6only && host.parse::<Ipv6Addr>().is_err() {
        return Err(Mistake::expected("ipv6only=true behind an IPv6 address such as [::] only"));
    }
    Ok(Bind::Tcp { host, port, backlog, tls, http2, proxy_protocol, ipv6only })
}

/// Returns a host name or address without its brackets, or a description of what was expected.
pub(crate) fn parse_host(text: &str) -> Result<String, &'static str> {
    let inner = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    if let Ok(address) = inner.unwrap_or(text).parse::<Ipv6Addr>() {
        return Ok(address.to_string());
    }
    if inner.is_some() {
        return Err("an IPv6 address between the brackets");
    }
    let dotted = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if dotted && text.parse::<Ipv4Addr>().is_err() {
        return Err("an address of four numbers such as 127.0.0.1");
    }
    let name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if text.is_empty() || text.len() > 253 || !text.bytes().all(name) {
        return Err("an address or host name, such as 127.0.0.1, ::1 or localhost");
    }
    Ok(text.to_owned())
}
