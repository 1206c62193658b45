//! An address to listen on: `tcp://HOST:PORT` or `unix://PATH`, each with options behind a `?`.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::kind::Mistake;
use crate::kind::numbers::digits;
use crate::nearest::nearest;

/// Backlog when none is given; the kernel lowers it to `net.core.somaxconn`.
pub const DEFAULT_BACKLOG: u32 = 4096;

/// One address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// A TCP port.
    Tcp {
        /// Host name or address, an IPv6 address without its brackets.
        host: String,
        /// 0 lets the kernel choose.
        port: u16,
        /// Connections the kernel may hold before they are accepted.
        backlog: u32,
    },
    /// A Unix stream socket.
    Unix {
        /// Absolute path.
        path: PathBuf,
        /// Umask while the socket is made.
        umask: Option<u32>,
        /// Permissions given to the socket once it is made; wins over `umask`.
        mode: Option<u32>,
        /// Connections the kernel may hold before they are accepted.
        backlog: u32,
    },
}

impl Bind {
    /// A TCP port with the default backlog.
    pub fn tcp(host: impl Into<String>, port: u16) -> Bind {
        Bind::Tcp { host: host.into(), port, backlog: DEFAULT_BACKLOG }
    }

    /// A Unix socket with the default backlog and the process's umask.
    pub fn unix(path: impl Into<PathBuf>) -> Bind {
        Bind::Unix { path: path.into(), umask: None, mode: None, backlog: DEFAULT_BACKLOG }
    }

    /// Whether both ask for the same address. Ports that the kernel chooses never clash.
    pub fn clashes_with(&self, other: &Bind) -> bool {
        match (self, other) {
            (Bind::Tcp { host: a, port: p, .. }, Bind::Tcp { host: b, port: q, .. }) => {
                a == b && p == q && *p != 0
            }
            (Bind::Unix { path: a, .. }, Bind::Unix { path: b, .. }) => a == b,
            _ => false,
        }
    }

    /// The same with a relative socket path taken from `base`, without `.` components.
    pub(crate) fn based_at(self, base: &Path) -> Bind {
        match self {
            Bind::Unix { path, umask, mode, backlog } => {
                let path = base.join(path).components().collect();
                Bind::Unix { path, umask, mode, backlog }
            }
            tcp => tcp,
        }
    }
}

/// As a URI that reads back as the same address.
impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut options, backlog) = match self {
            Bind::Tcp { host, port, backlog } => {
                let bracket = host.contains(':');
                write!(
                    f,
                    "tcp://{}{host}{}:{port}",
                    if bracket { "[" } else { "" },
                    if bracket { "]" } else { "" }
                )?;
                (Vec::new(), backlog)
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
        if let Some(path) = unix_path(address) {
            return parse_unix(path, query);
        }
        match address.split_once("://") {
            Some(("tcp", rest)) => parse_tcp(rest, query),
            Some(("ssl", _)) => {
                Err(Mistake::expected("a tcp:// or unix:// address; TLS is not part of this version"))
            }
            Some((scheme, rest)) => {
                let near = nearest(scheme, ["tcp", "unix"]).or((scheme == "http").then_some("tcp"));
                let near = near.map(|scheme| format!("{scheme}://{}", rest.trim_end_matches('/')));
                Err(Mistake::expected("an address that begins with tcp:// or unix://").near(near))
            }
            None => parse_tcp(address, query),
        }
    }
}

/// The path when this is a Unix address in any of its spellings.
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
    let options = Options::parse(query, &["umask", "mode", "backlog"])?;
    Ok(Bind::Unix { path: path.into(), umask: options.umask, mode: options.mode, backlog: options.backlog })
}

fn parse_tcp(rest: &str, query: &str) -> Result<Bind, Mistake> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let options = Options::parse(query, &["backlog"])?;
    if digits(rest).is_some() {
        return Err(Mistake::expected("HOST:PORT").near(Some(format!("tcp://0.0.0.0:{rest}"))));
    }
    let (host, port) = rest.rsplit_once(':').ok_or_else(Mistake::default)?;
    // `::1` would otherwise be read as host `:` and port 1.
    if rest.parse::<Ipv6Addr>().is_ok() || (host.contains(':') && !host.starts_with('[')) {
        return Err(Mistake::expected("an IPv6 address in brackets and a port, such as tcp://[::1]:3000"));
    }
    let port = digits(port).and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or_else(|| Mistake::expected("a port from 0 to 65535 behind the host"))?;
    let host =
        if host.is_empty() { "0.0.0.0".to_owned() } else { parse_host(host).map_err(Mistake::expected)? };
    Ok(Bind::Tcp { host, port, backlog: options.backlog })
}

/// A host name or address without its brackets, or what was expected instead.
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
        return Err("an address or host name such as 127.0.0.1, ::1 or localhost");
    }
    Ok(text.to_owned())
}

/// What may stand behind the `?`.
struct Options {
    umask: Option<u32>,
    mode: Option<u32>,
    backlog: u32,
}

impl Options {
    fn parse(query: &str, allowed: &[&'static str]) -> Result<Options, Mistake> {
        let mut options = Options { umask: None, mode: None, backlog: DEFAULT_BACKLOG };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                _ if !allowed.contains(&name) => {
                    let only = format!("only {} behind the ?, not {name:?}", allowed.join(", "));
                    return Err(Mistake::expected(only).near(nearest(name, allowed.iter().copied())));
                }
                "umask" => options.umask = Some(octal(name, value)?),
                "mode" => options.mode = Some(octal(name, value)?),
                _ => options.backlog = backlog(value)?,
            }
        }
        Ok(options)
    }
}

fn octal(name: &str, value: &str) -> Result<u32, Mistake> {
    let bits = digits(value).and_then(|_| u32::from_str_radix(value, 8).ok()).filter(|bits| *bits <= 0o777);
    bits.ok_or_else(|| Mistake::expected(format!("octal permissions such as {name}=0660")))
}

fn backlog(value: &str) -> Result<u32, Mistake> {
    let number = digits(value).filter(|number| (1..=i32::MAX as u64).contains(number));
    let number = number.and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| Mistake::expected("a whole number of at least 1 behind backlog="))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bind(text: &str) -> Bind {
        text.parse().unwrap_or_else(|mistake| panic!("{text}: {mistake:?}"))
    }

    #[test]
    fn every_spelling_of_tcp() {
        for text in ["tcp://127.0.0.1:3000", "127.0.0.1:3000", "tcp://127.0.0.1:3000/"] {
            assert_eq!(bind(text), Bind::tcp("127.0.0.1", 3000));
        }
        assert_eq!(bind("tcp://[::1]:3000"), Bind::tcp("::1", 3000));
        assert_eq!(bind("[::]:0"), Bind::tcp("::", 0));
        assert_eq!(bind("tcp://:80"), Bind::tcp("0.0.0.0", 80));
        assert_eq!(bind("app_1.local:80"), Bind::tcp("app_1.local", 80));
        let Bind::Tcp { backlog, .. } = bind("tcp://localhost:80?backlog=16") else { panic!("not TCP") };
        assert_eq!(backlog, 16);
    }

    #[test]
    fn every_spelling_of_unix() {
        for text in ["unix:///run/app.sock", "unix:/run/app.sock", "/run/app.sock"] {
            assert_eq!(bind(text), Bind::unix("/run/app.sock"));
        }
        assert_eq!(bind("unix://tmp/app.sock").based_at(Path::new("/srv")), Bind::unix("/srv/tmp/app.sock"));
        assert_eq!(bind("./app.sock").based_at(Path::new("/srv")), Bind::unix("/srv/app.sock"));
        let full = Bind::Unix { path: "/a".into(), umask: Some(0o117), mode: Some(0o660), backlog: 1024 };
        assert_eq!(bind("unix:///a?umask=0117&mode=0660&backlog=1024"), full);
    }

    #[test]
    fn slips_are_explained() {
        for (text, expected) in [
            ("ssl://0.0.0.0:443", "TLS"),
            ("http://localhost:3000", "tcp://"),
            ("localhost", ""),
            ("localhost:http", "port"),
            ("localhost:65536", "port"),
            ("::1:3000", "brackets"),
            ("tcp://[zz]:1", "IPv6"),
            ("tcp://1.2.3:80", "four numbers"),
            ("tcp://a b:80", "host name"),
            ("unix://", "path"),
            ("unix://@name", "abstract"),
            ("unix:///a?mode=0888", "octal"),
            ("unix:///a?mode=07777", "octal"),
            ("unix:///a?backlog=0", "at least 1"),
            ("tcp://h:1?umask=0117", "only backlog"),
        ] {
            let mistake = text.parse::<Bind>().expect_err(text);
            assert!(mistake.expected.unwrap_or_default().contains(expected), "{text}");
        }
        let near = |text: &str| text.parse::<Bind>().expect_err(text).nearest;
        assert_eq!(near("3000").as_deref(), Some("tcp://0.0.0.0:3000"));
        assert_eq!(near("http://localhost:3000/").as_deref(), Some("tcp://localhost:3000"));
        assert_eq!(near("unix:///a?umsk=1").as_deref(), Some("umask"));
    }

    #[test]
    fn the_same_address_twice_clashes() {
        assert!(bind("tcp://h:1").clashes_with(&bind("h:1?backlog=7")));
        assert!(!bind("tcp://h:0").clashes_with(&bind("tcp://h:0")));
        assert!(bind("/a").clashes_with(&bind("unix:///a")));
        assert!(!bind("/a").clashes_with(&bind("tcp://h:1")));
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_back(text in "(tcp://|unix://|unix:|/|)[a-z0-9:.\\[\\]/@]{0,20}(\\?(mode|umask|backlog)=[0-9]{1,4})?") {
            if let Ok(bind) = text.parse::<Bind>() {
                prop_assert_eq!(bind.to_string().parse::<Bind>(), Ok(bind));
            }
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = text.parse::<Bind>().is_ok();
        }
    }
}
