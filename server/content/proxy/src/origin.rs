//! Parses configured origins.

use h1::syntax;
use std::fmt;
use std::path::PathBuf;
use text::url::{self, UrlParts};

/// The network address of an origin.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Endpoint {
    /// A host name or address without brackets, and a port.
    Tcp { host: String, port: u16, tls: bool },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// The destination of requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Origin {
    pub(crate) endpoint: Endpoint,
    /// The value of `Host`: host and port as written.
    pub(crate) authority: String,
    /// The prefix of every path; without a trailing slash.
    pub(crate) base: String,
    text: String,
}

impl Origin {
    /// Parses `http://host:port/base`, `https://…`, `unix:/path.sock` or `unix:/path.sock:/base`.
    ///
    /// # Errors
    /// Describes the mistake and the expected text.
    pub fn parse(text: &str) -> Result<Origin, String> {
        let wrong = |what: &str| {
            format!(
                "{text:?} is not a valid origin: {what}; write http://host:port/base, https://host/base, unix:/path.sock or \
                 unix:/path.sock:/base"
            )
        };
        if let Some(rest) = text.strip_prefix("unix:") {
            return unix(text, rest).map_err(wrong);
        }
        let UrlParts { scheme, authority, rest: base } =
            url::split(text).ok_or_else(|| wrong("a scheme is missing"))?;
        let tls = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(wrong("its scheme is neither http nor https")),
        };
        if authority.contains('@') {
            return Err(wrong("user names and passwords cannot be sent"));
        }
        let (host, port) = Some(authority)
            .filter(|authority| syntax::is_authority(authority.as_bytes()))
            .and_then(url::host_and_port)
            .ok_or_else(|| wrong("its host or port is malformed"))?;
        let port = port.and_then(|port| port.parse().ok()).unwrap_or(if tls { 443 } else { 80 });
        if port == 0 {
            return Err(wrong("port 0 cannot be connected to"));
        }
        let endpoint = Endpoint::Tcp { host: host.to_owned(), port, tls };
        Ok(Origin {
            endpoint,
            authority: authority.trim_end_matches(':').to_owned(),
            base: base_path(base).map_err(wrong)?,
            text: text.to_owned(),
        })
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self.endpoint, Endpoint::Tcp { tls: true, .. })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn unix(text: &str, rest: &str) -> Result<Origin, &'static str> {
    // nginx writes `unix:/path.sock:/base`; a path with a colon cannot be written.
    let (path, base) = rest.split_once(':').unwrap_or((rest, ""));
    let name = path.trim_start_matches('/');
    if !path.starts_with('/') || name.is_empty() {
        return Err("the path of a Unix socket begins with /");
    }
    // `unix:///path` is the same path written as a URL.
    let path = format!("/{name}");
    if path.len() > 107 {
        return Err("the path of a Unix socket has at most 107 bytes");
    }
    if path.contains('\0') {
        return Err("a path has no NUL");
    }
    let base = base_path(base)?;
    Ok(Origin {
        endpoint: Endpoint::Unix(path.into()),
        authority: "localhost".to_owned(),
        base,
        text: text.to_owned(),
    })
}

fn base_path(base: &str) -> Result<String, &'static str> {
    if base.contains(['?', '#']) {
        return Err("an origin has no query and no fragment");
    }
    if !base.is_empty() && !base.starts_with('/') {
        return Err("the base path begins with /");
    }
    if !syntax::is_target(base.as_bytes()) {
        return Err("a byte in the base path must be percent-encoded");
    }
    Ok(base.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, tls: bool) -> Endpoint {
        Endpoint::Tcp { host: host.into(), port, tls }
    }

    #[test]
    fn origins_are_read() {
        for (text, endpoint, authority, base) in [
            ("http://h", tcp("h", 80, false), "h", ""),
            ("https://h", tcp("h", 443, true), "h", ""),
            ("HTTP://h:8080/", tcp("h", 8080, false), "h:8080", ""),
            ("http://h:8080/base/", tcp("h", 8080, false), "h:8080", "/base"),
            ("http://127.0.0.1:1/a/b", tcp("127.0.0.1", 1, false), "127.0.0.1:1", "/a/b"),
            ("http://[::1]:81", tcp("::1", 81, false), "[::1]:81", ""),
            ("https://[::1]/x", tcp("::1", 443, true), "[::1]", "/x"),
            ("http://h:", tcp("h", 80, false), "h", ""),
            ("unix:/run/a.sock", Endpoint::Unix("/run/a.sock".into()), "localhost", ""),
            ("unix:///run/a.sock", Endpoint::Unix("/run/a.sock".into()), "localhost", ""),
            ("unix:/run/a.sock:/base/", Endpoint::Unix("/run/a.sock".into()), "localhost", "/base"),
            ("unix:/run/a.sock:", Endpoint::Unix("/run/a.sock".into()), "localhost", ""),
        ] {
            let origin = Origin::parse(text).unwrap();
            assert_eq!(
                (&origin.endpoint, &*origin.authority, &*origin.base),
                (&endpoint, authority, base),
                "{text}"
            );
            assert_eq!(origin.to_string(), text);
        }
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, why) in [
            ("", "scheme is missing"),
            ("example.org", "scheme is missing"),
            ("ftp://h", "neither http nor https"),
            ("http://", "host or port is malformed"),
            ("http://h:99999", "host or port is malformed"),
            ("http://h:0", "port 0"),
            ("http://u:p@h", "user names"),
            ("http://h /", "malformed"),
            ("http://h/a b", "percent-encoded"),
            ("http://h/a\r\nX: y", "percent-encoded"),
            ("http://h/?q", "no query"),
            ("http://h#f", "no query and no fragment"),
            ("unix:a.sock", "begins with /"),
            ("unix:/", "begins with /"),
            ("unix:/a:b", "base path begins with /"),
        ] {
            let error = Origin::parse(text).unwrap_err();
            assert!(error.contains(why) && error.contains("unix:/path.sock"), "{text}: {error}");
        }
        assert!(Origin::parse(&format!("unix:/{}", "x".repeat(107))).unwrap_err().contains("107 bytes"));
    }
}
