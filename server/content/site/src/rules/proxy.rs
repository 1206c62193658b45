//! Defines the options of an origin, and maps paths between a prefix and its origin (`proxies`).

use handler::proxying::{Balance, Health, HostPolicy, Via};
use std::time::Duration;

use super::RequestView;
use super::escape::encoded;
use super::source::SourceSpan;

/// One entry of `proxies`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyRule {
    /// The key as written.
    pub prefix: String,
    /// The line of the entry in `static.json`, from 1.
    pub line: u32,
    /// The position of the key.
    pub(super) at: SourceSpan,
    /// The origins; at least one, all with the same base path.
    pub origins: Vec<ProxyOrigin>,
    pub balance: Balance,
    /// The longest time to connect.
    pub connect_timeout: Duration,
    /// The longest time without data from the origin.
    pub read_timeout: Duration,
    /// The longest time without progress in sending to the origin.
    pub send_timeout: Duration,
    /// How often a request is sent again that the origin cannot have acted on.
    pub retries: u32,
    /// Idle connections kept for each origin.
    pub max_idle: usize,
    /// The `Host` that the origin gets.
    pub host: HostPolicy,
    /// Verify the certificates of `https` origins.
    pub tls_verify: bool,
    /// A PEM file of certificates to verify with, instead of the system's; relative to `static.json`.
    pub tls_ca: Option<String>,
    /// Send `X-Forwarded-*` and `Forwarded`.
    pub forwarded: bool,
    /// Where `Via` is added.
    pub via: Via,
    /// Let `Upgrade: websocket` pass.
    pub websocket: bool,
    pub health: Option<Health>,
}

/// One origin, with variables substituted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyOrigin {
    /// The complete URL: `http://…`, `https://…`, `unix:/path.sock` or `unix:/path.sock:/base`.
    pub url: String,
    pub scheme: OriginScheme,
    /// The host name or address, without brackets; or the path of a Unix socket.
    pub host: String,
    /// The port, if one is written.
    pub port: Option<u16>,
    /// The base path: empty, or begins with `/` and does not end with it.
    pub base: String,
}

/// How to connect to an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginScheme {
    /// TCP.
    Http,
    /// TLS over TCP.
    Https,
    Unix,
}

impl ProxyRule {
    /// Creates a rule with all options at their defaults and no origin yet.
    pub(super) fn new(prefix: &str, at: SourceSpan, compat: bool) -> ProxyRule {
        ProxyRule {
            prefix: prefix.to_owned(),
            line: at.line,
            at,
            origins: Vec::new(),
            balance: Balance::default(),
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(60),
            send_timeout: Duration::from_secs(60),
            retries: 1,
            max_idle: 32,
            host: HostPolicy::default(),
            tls_verify: !compat,
            tls_ca: None,
            forwarded: !compat,
            // `Via` on requests is enough for the origin to detect loops; responses stay as in the buildpack.
            via: if compat { Via::Requests } else { Via::Both },
            websocket: !compat,
            health: None,
        }
    }

    /// Returns whether the path is below the prefix. With `compat`: whether it begins with the same characters.
    pub(super) fn matches(&self, path: &str, compat: bool) -> bool {
        if compat {
            return path.starts_with(&self.prefix);
        }
        if !self.prefix.starts_with('/') {
            return false;
        }
        let rest = path.strip_prefix(self.prefix.trim_end_matches('/'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns path and query for the origin.
    pub(super) fn target(&self, request: &RequestView<'_>, compat: bool) -> Vec<u8> {
        let mut target = self.origins[0].base.clone().into_bytes();
        if compat {
            // As nginx's `rewrite`: on the decoded path, encoded again.
            let rest = request.path.strip_prefix(&self.prefix).unwrap_or(request.path);
            target.push(b'/');
            target.extend(encoded(rest.strip_prefix('/').unwrap_or(rest), false));
        } else {
            let depth = self.prefix.split('/').filter(|segment| !segment.is_empty()).count();
            match below(request.raw_path, depth) {
                Some(rest) => {
                    target.push(b'/');
                    target.extend(rest);
                }
                None if target.is_empty() => target.push(b'/'),
                // The request has no slash after the prefix, so the origin gets none: `/graphql` is not `/graphql/`.
                None => {}
            }
        }
        if !request.query.is_empty() {
            target.push(b'?');
            target.extend(request.query);
        }
        target
    }

    /// Maps a `Location` that points to one of the origins to a path below the prefix.
    pub(super) fn location_back(&self, location: &[u8]) -> Option<Vec<u8>> {
        let text = std::str::from_utf8(location).ok()?;
        let rest = self.origins.iter().find_map(|origin| origin.below(text))?;
        let mut mapped = self.prefix.trim_end_matches('/').to_owned();
        // Never `//host`, whatever the origin sends.
        let path = rest.trim_start_matches(['/', '\\']);
        if rest.starts_with(['/', '\\']) || mapped.is_empty() {
            mapped.push('/');
        }
        mapped.push_str(path);
        Some(mapped.into_bytes())
    }
}

/// Returns indexes of rules, the longest prefix first; of equals, the first in the file.
pub(super) fn longest_first(rules: &[ProxyRule]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..rules.len()).collect();
    order.sort_by_key(|&id| std::cmp::Reverse(rules[id].prefix.trim_end_matches('/').len()));
    order
}

/// Returns the rest of a raw path after its first `depth` segments, without the leading slash; `None` if
/// nothing follows, not even a slash. Dot segments are resolved, so none reaches the origin; all other bytes
/// are unchanged.
fn below(raw: &[u8], depth: usize) -> Option<Vec<u8>> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = raw.split(|&byte| byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let dots = dots(segment);
        if dots == 2 {
            while kept.pop_if(|segment| segment.is_empty()).is_some() {}
            kept.pop();
        }
        if dots == 0 {
            kept.push(segment);
        } else if segments.peek().is_none() {
            kept.push(b"");
        }
    }
    let mut prefix = depth;
    let mut rest = kept.into_iter().skip_while(|segment| {
        let skip = prefix > 0;
        prefix -= usize::from(skip && !segment.is_empty());
        skip
    });
    let first = rest.next()?.to_vec();
    Some(rest.fold(first, |mut joined, segment| {
        joined.push(b'/');
        joined.extend(segment);
        joined
    }))
}

/// Returns 1 for `.`, 2 for `..`, encoded or not; 0 for anything else.
fn dots(mut segment: &[u8]) -> usize {
    let mut count = 0;
    while !segment.is_empty() {
        let after = segment
            .strip_prefix(b".")
            .or_else(|| segment.strip_prefix(b"%2e"))
            .or_else(|| segment.strip_prefix(b"%2E"));
        let Some(after) = after else { return 0 };
        segment = after;
        count += 1;
    }
    if count > 2 { 0 } else { count }
}

impl ProxyOrigin {
    /// Parses an origin. Without `compat`, a bare `host:port` means `http://`.
    ///
    /// # Errors
    /// Describes the mistake.
    pub(super) fn parse(text: &str, compat: bool) -> Result<ProxyOrigin, String> {
        const EXPECTED: &str = "expected a URL such as \"http://localhost:3000\"";
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "{EXPECTED}, found {text:?} (in URLs, spaces and non-ASCII letters are percent-encoded)"
            ));
        }
        if let Some(path) = text.strip_prefix("unix:").filter(|_| !compat) {
            return ProxyOrigin::unix(text, path);
        }
        let lower = text.to_ascii_lowercase();
        let (scheme, rest) = if lower.starts_with("http://") {
            (OriginScheme::Http, &text[7..])
        } else if lower.starts_with("https://") {
            (OriginScheme::Https, &text[8..])
        } else if text.contains("://") {
            return Err(format!("{EXPECTED}: http, https or unix:/path.sock, found {text:?}"));
        } else if compat || text.starts_with('/') {
            return Err(format!("{EXPECTED}, found {text:?}"));
        } else {
            (OriginScheme::Http, text)
        };
        if rest.contains(['?', '#']) {
            return Err(format!("{EXPECTED}: an origin has no ? and no #, found {text:?}"));
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(format!("{EXPECTED}: user and password are not supported"));
        }
        let (host, port) = authority_parts(authority).ok_or_else(|| format!("{EXPECTED}, found {text:?}"))?;
        let base = path.trim_end_matches('/').to_owned();
        let word = if scheme == OriginScheme::Https { "https" } else { "http" };
        Ok(ProxyOrigin { url: format!("{word}://{authority}{base}"), scheme, host, port, base })
    }

    fn unix(text: &str, path: &str) -> Result<ProxyOrigin, String> {
        let (socket, base) = path.split_once(':').unwrap_or((path, ""));
        if !socket.starts_with('/') || !(base.is_empty() || base.starts_with('/')) {
            return Err(format!(
                "expected \"unix:/path/to.sock\" or \"unix:/path/to.sock:/base\", found {text:?}"
            ));
        }
        let base = base.trim_end_matches('/').to_owned();
        let colon = if base.is_empty() { "" } else { ":" };
        let url = format!("unix:{socket}{colon}{base}");
        Ok(ProxyOrigin { url, scheme: OriginScheme::Unix, host: socket.to_owned(), port: None, base })
    }

    /// Returns the part of a `Location` after this origin's base path; `None` if it leads elsewhere. The
    /// scheme is ignored.
    fn below<'l>(&self, location: &'l str) -> Option<&'l str> {
        let scheme_end = location.find("://").filter(|&end| end <= 5);
        let path = match scheme_end.map(|end| location[..end].to_ascii_lowercase()) {
            Some(scheme) if scheme == "http" || scheme == "https" => {
                let rest = &location[scheme.len() + 3..];
                let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
                if !self.is_at(authority, &scheme) {
                    return None;
                }
                path
            }
            // A bare path can be mapped only if it is below the origin's base path.
            None if !self.base.is_empty() && location.starts_with('/') && !location.starts_with("//") => {
                location
            }
            _ => return None,
        };
        let below = path.strip_prefix(self.base.as_str())?;
        (below.is_empty() || below.starts_with(['/', '?', '#'])).then_some(below)
    }

    fn is_at(&self, authority: &str, scheme: &str) -> bool {
        let own_host = if self.scheme == OriginScheme::Unix { "localhost" } else { &self.host };
        let Some((host, port)) = authority_parts(authority) else { return false };
        let default = if scheme == "https" { 443 } else { 80 };
        let own_default = if self.scheme == OriginScheme::Https { 443 } else { 80 };
        let same_port = match (port, self.port) {
            (given, own) if given == own => true,
            (given, own) => {
                let given = given.unwrap_or(default);
                // Both at the default of their scheme, or the same number.
                given == own.unwrap_or(own_default)
                    || given == default && own.is_none_or(|own| own == own_default)
            }
        };
        host.eq_ignore_ascii_case(own_host) && same_port
    }
}

/// Returns the host without brackets, and the port.
fn authority_parts(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(inner) => {
            let (host, after) = inner.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':')?) })
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    // An unset variable stays in the host, so braces are accepted here: the name will not resolve.
    let name = |c: char| c.is_ascii_alphanumeric() || "-._${}:".contains(c);
    if host.is_empty() || !host.chars().all(name) {
        return None;
    }
    let port = match port {
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(port.parse().ok().filter(|&port: &u16| port > 0)?)
        }
        Some(_) => return None,
        None => None,
    };
    Some((host.to_owned(), port))
}
