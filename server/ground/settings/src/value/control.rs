//! Addresses of the control server: a Unix socket, or a TCP port with a token.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::value::bind::Bind;
use text::Mistake;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlAddress {
    /// A Unix socket, protected by its permissions.
    Unix(PathBuf),
    /// A TCP port, whose clients must send the token.
    Tcp {
        /// Host name or address; an IPv6 address without brackets.
        host: String,
        /// The port; 0 lets the kernel choose.
        port: u16,
    },
}

impl ControlAddress {
    /// Returns whether only this machine can reach the address.
    pub fn is_local(&self) -> bool {
        match self {
            ControlAddress::Unix(_) => true,
            ControlAddress::Tcp { host, .. } => is_loopback(host),
        }
    }

    /// Resolves a relative path against `base` and removes `.` components.
    pub(crate) fn based_at(self, base: &Path) -> ControlAddress {
        match self {
            ControlAddress::Unix(path) => ControlAddress::Unix(base.join(path).components().collect()),
            tcp => tcp,
        }
    }

    /// Returns whether both addresses are the same. Ports that the kernel chooses never clash.
    pub(crate) fn clashes_with(&self, other: &ControlAddress) -> bool {
        self == other && !matches!(self, ControlAddress::Tcp { port: 0, .. })
    }
}

/// Returns whether a host is the loopback: `localhost`, 127.0.0.0/8, `::1`.
fn is_loopback(host: &str) -> bool {
    let address = host.parse::<IpAddr>().map(|address| address.to_canonical().is_loopback());
    address.unwrap_or_else(|_| host.eq_ignore_ascii_case("localhost"))
}

/// Writes a form that reads back as the same address: a path alone, or `unix://PATH` where the path alone
/// would mean something else; a port as `tcp://HOST:PORT`.
impl fmt::Display for ControlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlAddress::Unix(path) => {
                let path = path.display().to_string();
                let scheme = if path.parse().as_ref() == Ok(self) { "" } else { "unix://" };
                write!(f, "{scheme}{path}")
            }
            ControlAddress::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            ControlAddress::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
        }
    }
}

/// Reads `tcp://HOST:PORT`, `http://HOST:PORT`, `unix://PATH` or a path. Anything without a scheme is a path:
/// `run/control.sock`.
impl FromStr for ControlAddress {
    type Err = Mistake;

    fn from_str(text: &str) -> Result<ControlAddress, Mistake> {
        let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:"));
        if let Some(path) = path {
            return unix(path);
        }
        match text.split_once("://") {
            Some(("tcp" | "http", rest)) => tcp(rest),
            Some(("https" | "ssl", _)) => Err(Mistake::expected(
                "tcp://HOST:PORT; there is no TLS on the control port (use an SSH tunnel)",
            )),
            Some((_, rest)) => Err(Mistake::default().near(Some(format!("tcp://{rest}")))),
            None if looks_like_port(text) => Err(Mistake::default().near(Some(suggestion(text)))),
            None => unix(text),
        }
    }
}

fn unix(path: &str) -> Result<ControlAddress, Mistake> {
    if path.trim().is_empty() || path.contains('\0') {
        return Err(Mistake::default());
    }
    if path.starts_with('@') {
        return Err(Mistake::expected("a path in the file system; abstract sockets (@) have no permissions"));
    }
    Ok(ControlAddress::Unix(path.into()))
}

fn tcp(rest: &str) -> Result<ControlAddress, Mistake> {
    if rest.contains(['?', '#']) || rest.trim_end_matches('/').contains('/') {
        return Err(Mistake::expected("only a host and a port behind tcp://, such as tcp://127.0.0.1:9293"));
    }
    match format!("tcp://{}", rest.trim_end_matches('/')).parse() {
        // A port without a host would be open to all machines, which is wrong for the control server.
        Ok(Bind::Tcp { .. }) if rest.starts_with(':') => {
            Err(Mistake::expected("a host before the port").near(Some(format!("tcp://127.0.0.1{rest}"))))
        }
        Ok(Bind::Tcp { host, port, .. }) => Ok(ControlAddress::Tcp { host, port }),
        Ok(Bind::Unix { .. } | Bind::Systemd { .. }) => Err(Mistake::default()),
        Err(_) if rest.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(Mistake::expected("a host before the port").near(Some(format!("tcp://127.0.0.1:{rest}"))))
        }
        Err(mistake) => Err(mistake),
    }
}

/// Returns whether a text is a port rather than the name of a socket file: `9293`, `localhost:9293`, `127.0.0.1:9293`.
fn looks_like_port(text: &str) -> bool {
    let port = text.rsplit_once(':').map_or(text, |(_, port)| port);
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    digits && !text.contains('/')
}

fn suggestion(text: &str) -> String {
    if text.contains(':') { format!("tcp://{text}") } else { format!("tcp://{}:{text}", Ipv4Addr::LOCALHOST) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tcp(host: &str, port: u16) -> ControlAddress {
        ControlAddress::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn every_spelling() {
        let read = |text: &str| text.parse::<ControlAddress>().unwrap_or_else(|e| panic!("{text}: {e:?}"));
        assert_eq!(read("tcp://127.0.0.1:9293"), tcp("127.0.0.1", 9293));
        assert_eq!(read("http://localhost:9293/"), tcp("localhost", 9293));
        assert_eq!(read("tcp://[::1]:0"), tcp("::1", 0));
        for text in ["/run/c.sock", "unix:///run/c.sock", "unix:/run/c.sock"] {
            assert_eq!(read(text), ControlAddress::Unix("/run/c.sock".into()));
        }
        assert_eq!(read("c.sock").based_at(Path::new("/srv")), ControlAddress::Unix("/srv/c.sock".into()));
    }

    #[test]
    fn a_path_that_looks_like_something_else_is_displayed_with_its_scheme() {
        for (path, displayed) in
            [("/run/c.sock", "/run/c.sock"), ("/a://b", "unix:///a://b"), ("9293", "unix://9293")]
        {
            let address = ControlAddress::Unix(path.into());
            assert_eq!(address.to_string(), displayed);
            assert_eq!(displayed.parse(), Ok(address));
        }
    }

    #[test]
    fn slips_are_answered_with_what_was_meant() {
        for (text, near) in [
            ("9293", "tcp://127.0.0.1:9293"),
            ("localhost:9293", "tcp://localhost:9293"),
            ("tcp://:9293", "tcp://127.0.0.1:9293"),
            ("tcp://9293", "tcp://127.0.0.1:9293"),
            ("tpc://localhost:9293", "tcp://localhost:9293"),
        ] {
            let mistake = text.parse::<ControlAddress>().expect_err(text);
            assert_eq!(mistake.nearest.as_deref(), Some(near), "{text}");
        }
        for (text, expected) in [
            ("tcp://localhost", ""),
            ("tcp://localhost:http", "port"),
            ("tcp://localhost:1/stats", "only a host and a port"),
            ("tcp://localhost:1?token=x", "only a host and a port"),
            ("https://localhost:1", "TLS"),
            ("unix://@x", "abstract"),
            ("", ""),
        ] {
            let mistake = text.parse::<ControlAddress>().expect_err(text);
            assert!(mistake.expected.unwrap_or_default().contains(expected), "{text}");
        }
    }

    #[test]
    fn only_loopback_is_local() {
        for host in ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST", "::ffff:127.0.0.1"] {
            assert!(tcp(host, 1).is_local(), "{host}");
        }
        for host in ["0.0.0.0", "::", "10.0.0.1", "example.com", "localhost.example.com"] {
            assert!(!tcp(host, 1).is_local(), "{host}");
        }
    }

    proptest! {
        #[test]
        fn what_is_read_is_written_back(text in "(tcp://|http://|unix://|unix:|/|)[a-z0-9:.\\[\\]/@]{0,20}") {
            if let Ok(address) = text.parse::<ControlAddress>() {
                prop_assert_eq!(address.to_string().parse::<ControlAddress>(), Ok(address));
            }
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = text.parse::<ControlAddress>().is_ok();
        }
    }
}
