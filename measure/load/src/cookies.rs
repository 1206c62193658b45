//! A user's cookies: stores them from `Set-Cookie`, and sends them where they apply (a subset of RFC 6265).
//!
//! Supported: `Domain` (if the host lies within it and it contains a dot; there is no public suffix list), `Path`,
//! `Secure`, `Max-Age`, `Expires`. Ignored: `HttpOnly` and `SameSite`, which concern scripts and other sites.

use std::time::{Duration, SystemTime};

use crate::scenario::Origin;

/// The most cookies per user; the oldest are dropped first.
const MOST_COOKIES: usize = 50;
/// The longest `Set-Cookie` field that is stored, in bytes.
const LONGEST: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Cookie {
    name: String,
    value: String,
    /// The host that set the cookie, or its `Domain` attribute.
    domain: String,
    /// Whether the cookie is sent to exactly this host only.
    host_only: bool,
    path: String,
    secure: bool,
    expires: Option<SystemTime>,
}

/// All cookies of one user.
#[derive(Debug, Clone, Default)]
pub(crate) struct Jar {
    cookies: Vec<Cookie>,
}

impl Jar {
    /// Stores one `Set-Cookie` field of a response to a request for `path`. Invalid fields are ignored, as browsers do.
    pub(crate) fn set(&mut self, field: &[u8], origin: &Origin, path: &str, now: SystemTime) {
        let Some(cookie) = read(field, origin, path, now) else { return };
        self.cookies.retain(|known| {
            (&known.name, &known.domain, &known.path) != (&cookie.name, &cookie.domain, &cookie.path)
        });
        if cookie.expires.is_none_or(|expires| expires > now) {
            if self.cookies.len() == MOST_COOKIES {
                self.cookies.remove(0);
            }
            self.cookies.push(cookie);
        }
    }

    /// Returns the value of the `Cookie` field for a request, starting with `given`; `None` if there are no cookies.
    pub(crate) fn line(
        &self,
        given: Option<&str>,
        origin: &Origin,
        path: &str,
        now: SystemTime,
    ) -> Option<String> {
        let mut fitting: Vec<&Cookie> =
            self.cookies.iter().filter(|cookie| cookie.is_for(origin, path, now)).collect();
        fitting.sort_by_key(|cookie| std::cmp::Reverse(cookie.path.len()));
        let pairs = fitting.iter().map(|cookie| format!("{}={}", cookie.name, cookie.value));
        let all: Vec<String> = given.map(str::to_owned).into_iter().chain(pairs).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl Cookie {
    fn is_for(&self, origin: &Origin, path: &str, now: SystemTime) -> bool {
        let host = match self.host_only {
            true => origin.host.eq_ignore_ascii_case(&self.domain),
            false => is_within(&origin.host, &self.domain),
        };
        let below = path.strip_prefix(&self.path);
        let path =
            below.is_some_and(|rest| rest.is_empty() || self.path.ends_with('/') || rest.starts_with('/'));
        host && path && (!self.secure || origin.tls) && self.expires.is_none_or(|expires| expires > now)
    }
}

fn read(field: &[u8], origin: &Origin, path: &str, now: SystemTime) -> Option<Cookie> {
    let text = std::str::from_utf8(field).ok().filter(|text| text.len() <= LONGEST)?;
    let mut parts = text.split(';');
    let (name, value) = parts.next()?.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() || text.bytes().any(|byte| byte < b' ' && byte != b'\t') {
        return None;
    }
    let mut cookie = Cookie {
        name: name.to_owned(),
        value: value.to_owned(),
        domain: origin.host.to_ascii_lowercase(),
        host_only: true,
        path: folder(path).to_owned(),
        secure: false,
        expires: None,
    };
    let mut max_age = None;
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let (key, value) = (key.trim(), value.trim());
        match key.to_ascii_lowercase().as_str() {
            "domain" => {
                let domain = value.trim_start_matches('.').to_ascii_lowercase();
                if domain.is_empty() || (domain == cookie.domain && !domain.contains('.')) {
                    continue;
                }
                if !domain.contains('.') || !is_within(&origin.host, &domain) {
                    return None;
                }
                (cookie.domain, cookie.host_only) = (domain, false);
            }
            "path" if value.starts_with('/') => value.clone_into(&mut cookie.path),
            "secure" => cookie.secure = true,
            "max-age" => max_age = value.parse::<i64>().ok().or(max_age),
            "expires" => cookie.expires = httpdate::parse_http_date(value).ok().or(cookie.expires),
            _ => {}
        }
    }
    match max_age {
        Some(seconds @ 1..) => cookie.expires = now.checked_add(Duration::from_secs(seconds.unsigned_abs())),
        Some(_) => cookie.expires = Some(SystemTime::UNIX_EPOCH),
        None => {}
    }
    Some(cookie)
}

fn is_within(host: &str, domain: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    host == domain || (!is_address && host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')))
}

/// Returns the path up to its last slash, or `/` (RFC 6265, 5.1.4).
fn folder(path: &str) -> &str {
    match path.rfind('/') {
        Some(at @ 1..) => &path[..at],
        _ => "/",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(host: &str, tls: bool) -> Origin {
        Origin { tls, host: host.to_owned(), port: 80 }
    }

    fn sent(fields: &[&str], host: &str, path: &str) -> Option<String> {
        let now = SystemTime::now();
        let mut jar = Jar::default();
        for field in fields {
            jar.set(field.as_bytes(), &origin("www.example.com", false), "/shop/cart", now);
        }
        jar.line(None, &origin(host, false), path, now)
    }

    #[test]
    fn cookies_are_sent_where_they_apply() {
        for (fields, host, path, expected) in [
            (&["a=1"][..], "www.example.com", "/shop/x", Some("a=1")),
            (&["a=1"], "www.example.com", "/shop", Some("a=1")),
            (&["a=1"], "www.example.com", "/shopping", None),
            (&["a=1"], "www.example.com", "/", None),
            (&["a=1; Path=/"], "www.example.com", "/", Some("a=1")),
            (&["a=1; Path=/"], "sub.www.example.com", "/", None),
            (&["a=1; Path=/; Domain=example.com"], "other.example.com", "/", Some("a=1")),
            (&["a=1; Path=/; Domain=.example.com"], "badexample.com", "/", None),
            (&["a=1; Path=/; Domain=other.com"], "other.com", "/", None),
            (&["a=1; Path=/; Domain=com"], "www.example.com", "/", None),
            (&["a=1; Path=/; Secure"], "www.example.com", "/", None),
            (
                &["a=1; Path=/", "b=2; Path=/shop", "a=3; Path=/"],
                "www.example.com",
                "/shop",
                Some("b=2; a=3"),
            ),
            (&["a=1; Path=/", "a=; Path=/; Max-Age=0"], "www.example.com", "/", None),
            (&["a=1; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT"], "www.example.com", "/", None),
            (
                &["a=1; Path=/; Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT"],
                "www.example.com",
                "/",
                Some("a=1"),
            ),
            (&["=1; Path=/", "novalue", "a=x\u{1}; Path=/"], "www.example.com", "/", None),
        ] {
            assert_eq!(sent(fields, host, path).as_deref(), expected, "{fields:?} {host} {path}");
        }
    }

    #[test]
    fn given_ones_come_first() {
        let now = SystemTime::now();
        let mut jar = Jar::default();
        let local = origin("127.0.0.1", true);
        assert_eq!(jar.line(Some("x=y"), &local, "/", now).as_deref(), Some("x=y"));
        jar.set(b"a=1; Secure", &local, "/", now);
        assert_eq!(jar.line(Some("x=y"), &local, "/", now).as_deref(), Some("x=y; a=1"));
    }

    #[test]
    fn the_number_of_cookies_is_bounded() {
        let now = SystemTime::now();
        let mut jar = Jar::default();
        let local = origin("localhost", false);
        for number in 0..60 {
            jar.set(format!("c{number}=1").as_bytes(), &local, "/", now);
        }
        let line = jar.line(None, &local, "/", now).expect("cookies");
        assert_eq!(line.split("; ").count(), MOST_COOKIES);
        assert!(!line.contains("c9=") && line.contains("c59="));
    }
}
