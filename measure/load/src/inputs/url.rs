//! URLs of requests: `http://localhost:9292/path?query`, `localhost:9292`, `[::1]:9292`, `unix:/run/app.sock:/path`.

use std::net::Ipv6Addr;
use std::path::PathBuf;
use text::percent::{decode_strict, pair};

use crate::scenario::Origin;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedUrl {
    /// Scheme, host and port; `localhost` for a Unix socket.
    pub origin: Origin,
    /// Path and query as sent; never empty.
    pub target: String,
    /// The Unix socket, if any.
    pub unix: Option<PathBuf>,
    /// User name and password, percent-decoded, if the URL has them.
    pub user: Option<(String, String)>,
}

/// Parses a URL. Without a scheme it is `http`. Non-ASCII letters in path and query are percent-encoded, as
/// in browsers. A fragment is removed.
///
/// # Errors
/// The mistake, and a description of what is expected.
pub fn url(text: &str) -> Result<ParsedUrl, String> {
    let text = text.trim();
    read(text).map_err(|why| format!("{text:?} is not a usable URL: {why}"))
}

fn read(text: &str) -> Result<ParsedUrl, String> {
    if text.is_empty() {
        return Err("it is empty; expected http://localhost:9292/".to_owned());
    }
    if let Some(rest) = strip_scheme(text, "unix:") {
        return socket(rest);
    }
    let (tls, rest) = scheme(text)?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    let (user, authority) = match authority.rsplit_once('@') {
        Some((user, authority)) => (Some(credentials(user)?), authority),
        None => (None, authority),
    };
    let (host, port) = host_and_port(authority)?;
    let origin = Origin { tls, host, port: port.unwrap_or(if tls { 443 } else { 80 }) };
    Ok(ParsedUrl { origin, target: target(behind)?, unix: None, user })
}

/// Removes a scheme; schemes are case-insensitive.
fn strip_scheme<'a>(text: &'a str, scheme: &str) -> Option<&'a str> {
    let head = text.get(..scheme.len())?;
    head.eq_ignore_ascii_case(scheme).then(|| &text[scheme.len()..])
}

fn scheme(text: &str) -> Result<(bool, &str), String> {
    if let Some(rest) = strip_scheme(text, "http://") {
        return Ok((false, rest));
    }
    if let Some(rest) = strip_scheme(text, "https://") {
        return Ok((true, rest));
    }
    match text.split_once("://") {
        Some((scheme, _))
            if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte)) =>
        {
            Err(format!(
                "the scheme {scheme}:// is not supported; expected http://, https:// or unix:/path.sock"
            ))
        }
        // http:/host and http:host are typing errors; `localhost:9292` is not.
        _ => match ["http:", "https:"].iter().find(|slip| strip_scheme(text, slip).is_some()) {
            Some(slip) => Err(format!("two slashes are missing after {slip}, as in {slip}//localhost:9292/")),
            None => Ok((false, text)),
        },
    }
}

/// Parses the part after `unix:`: the socket, then a colon and the path.
fn socket(rest: &str) -> Result<ParsedUrl, String> {
    let rest = match rest.strip_prefix("//") {
        Some(more) => more,
        None => rest,
    };
    let (socket, path) = match rest.split_once(":/") {
        Some((socket, path)) => (socket, format!("/{path}")),
        None => (rest.strip_suffix(':').unwrap_or(rest), String::new()),
    };
    if socket.is_empty() || socket.contains('\0') {
        return Err("no socket; expected unix:/run/app.sock or unix:/run/app.sock:/path".to_owned());
    }
    let origin = Origin { tls: false, host: "localhost".to_owned(), port: 80 };
    Ok(ParsedUrl { origin, target: target(&path)?, unix: Some(PathBuf::from(socket)), user: None })
}

fn credentials(text: &str) -> Result<(String, String), String> {
    let (name, password) = text.split_once(':').unwrap_or((text, ""));
    Ok((decoded(name)?, decoded(password)?))
}

fn decoded(text: &str) -> Result<String, String> {
    let bytes = decode_strict(text.as_bytes()).ok_or_else(|| percent(text))?;
    String::from_utf8(bytes.into_owned()).map_err(|_| "user name and password are not UTF-8".to_owned())
}

fn percent(text: &str) -> String {
    format!("a % in {text:?} is not followed by two hexadecimal digits; write a percent sign as %25")
}

fn host_and_port(authority: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, behind) = rest
                .split_once(']')
                .ok_or("the bracket of the IPv6 address is not closed; expected http://[::1]:9292/")?;
            let host = ipv6(address)?;
            let port = match behind.strip_prefix(':') {
                Some(port) => Some(number(port)?),
                None if behind.is_empty() => None,
                None => return Err(format!("{behind:?} after the bracket is neither a port nor a path")),
            };
            return Ok((host, port));
        }
        None if authority.matches(':').count() > 1 => {
            return Err(format!("an IPv6 address needs brackets: expected [::1]:9292, found {authority}"));
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    name(host)?;
    let port = port.map(number).transpose()?;
    Ok((host.to_owned(), port))
}

/// Parses an IPv6 address, possibly with the zone of a link-local one: `fe80::1%25eth0` (RFC 6874), or
/// `fe80::1%eth0` as other programs write it. The result has the latter form.
fn ipv6(text: &str) -> Result<String, String> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) => (address, Some(zone.strip_prefix("25").unwrap_or(zone))),
        None => (text, None),
    };
    if address.parse::<Ipv6Addr>().is_err() {
        return Err(format!("[{text}] is not an IPv6 address; expected one such as [::1]"));
    }
    let Some(zone) = zone else { return in_no_zone(address) };
    let zone = decoded(zone)?;
    if zone.is_empty() || !zone.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)) {
        return Err(format!(
            "[{text}]: expected the name or number of a network interface after the %25, such as [fe80::1%25eth0]"
        ));
    }
    Ok(format!("{address}%{zone}"))
}

/// Checks an address without a zone: a link-local one exists on each interface (RFC 4007 section 6).
fn in_no_zone(address: &str) -> Result<String, String> {
    let link_local = address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_unicast_link_local());
    match link_local {
        true => Err(format!(
            "[{address}] is link-local and needs the network interface: expected one such as [{address}%25eth0]"
        )),
        false => Ok(address.to_owned()),
    }
}

fn name(host: &str) -> Result<(), String> {
    if host.is_empty() {
        return Err("no host; expected one such as localhost:9292".to_owned());
    }
    if !host.is_ascii() {
        return Err(format!("the host {host} has letters that are not ASCII; write its xn-- form"));
    }
    let odd = host.chars().find(|c| !(c.is_ascii_alphanumeric() || "-._~:".contains(*c)));
    odd.map_or(Ok(()), |c| Err(format!("a host cannot contain {c:?}")))
}

fn number(port: &str) -> Result<u16, String> {
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = if digits { port.parse().ok() } else { None }.filter(|port| *port > 0);
    port.ok_or_else(|| "the port is not a number from 1 to 65535".to_owned())
}

/// Returns path and query without the fragment, ready to send.
///
/// # Errors
/// The text contains blanks, control characters or a stray percent sign.
pub fn target(text: &str) -> Result<String, String> {
    let text = text.split('#').next().unwrap_or_default();
    let mut sent = String::with_capacity(text.len() + 1);
    if !text.starts_with('/') {
        sent.push('/');
    }
    let bytes = text.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b' ' => return Err("it contains a blank; write it as %20".to_owned()),
            0..=0x1f | 0x7f => {
                return Err(format!("it contains a control character; write it as %{byte:02X}"));
            }
            b'%' if pair(&bytes[at + 1..]).is_none() => return Err(percent(text)),
            0x80.. => sent.push_str(&format!("%{byte:02X}")),
            _ => sent.push(char::from(byte)),
        }
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(text: &str) -> (bool, String, u16, String) {
        let found = url(text).unwrap();
        assert_eq!((found.unix, found.user), (None, None));
        (found.origin.tls, found.origin.host, found.origin.port, found.target)
    }

    #[test]
    fn common_forms() {
        for (text, tls, host, port, target) in [
            ("http://localhost:9292/", false, "localhost", 9292, "/"),
            ("http://localhost:9292", false, "localhost", 9292, "/"),
            ("localhost:9292/a?b=c", false, "localhost", 9292, "/a?b=c"),
            ("HTTPS://example.org", true, "example.org", 443, "/"),
            ("example.org", false, "example.org", 80, "/"),
            ("http://[::1]:3000/x", false, "::1", 3000, "/x"),
            ("[::1]", false, "::1", 80, "/"),
            ("http://[::1%25lo]:3000/x", false, "::1%lo", 3000, "/x"),
            ("http://[fe80::1%25eth0.7]", false, "fe80::1%eth0.7", 80, "/"),
            ("https://[fe80::1%2]/", true, "fe80::1%2", 443, "/"),
            ("http://[fe80::1%eth0]/", false, "fe80::1%eth0", 80, "/"),
            ("http://127.0.0.1?q=1", false, "127.0.0.1", 80, "/?q=1"),
            ("http://h/a#part", false, "h", 80, "/a"),
            ("http://h/a%20b", false, "h", 80, "/a%20b"),
            ("http://h/caf\u{e9}", false, "h", 80, "/caf%C3%A9"),
            ("http://h/?next=http://other/", false, "h", 80, "/?next=http://other/"),
            ("h/?next=http://other/", false, "h", 80, "/?next=http://other/"),
        ] {
            assert_eq!(plain(text), (tls, host.to_owned(), port, target.to_owned()), "{text}");
        }
    }

    #[test]
    fn users_and_sockets() {
        let found = url("http://joe:a%40b@h/").unwrap();
        assert_eq!(found.user, Some(("joe".to_owned(), "a@b".to_owned())));
        for (text, path, target) in [
            ("unix:/run/a.sock", "/run/a.sock", "/"),
            ("unix:/run/a.sock:/x?y", "/run/a.sock", "/x?y"),
            ("unix:///run/a.sock", "/run/a.sock", "/"),
            ("unix:///run/a.sock:/x", "/run/a.sock", "/x"),
            ("unix:a.sock:/x", "a.sock", "/x"),
        ] {
            let found = url(text).unwrap();
            assert_eq!((found.unix, found.target.as_str()), (Some(PathBuf::from(path)), target), "{text}");
        }
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, why) in [
            ("", "http://localhost:9292/"),
            ("http://", "no host"),
            ("http://h/a b", "%20"),
            ("http://h/100%", "%25"),
            ("http://h/%zz", "%25"),
            ("ftp://h/", "not supported"),
            ("http:/h/", "two slashes"),
            ("http://::1/", "brackets"),
            ("http://[::1/", "not closed"),
            ("http://[1.2.3.4]/", "not an IPv6"),
            ("http://[fe80::1]/", "[fe80::1%25eth0]"),
            ("http://[fe80::1%25]/", "after the %25"),
            ("http://[fe80::1%]/", "after the %25"),
            ("http://h:0/", "port"),
            ("http://h:70000/", "port"),
            ("http://h:/", "port"),
            ("http://h:12x/", "port"),
            ("http://b\u{fc}cher.example/", "xn--"),
            ("http://a_b,c/", "','"),
            ("unix:", "no socket"),
            ("http://h/\u{7}", "%07"),
            ("http://%zz@h/", "%25"),
        ] {
            let found = url(text).unwrap_err();
            assert!(found.contains(why), "{text}: {found}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_can_be_sent(text in "(https?://|unix:/)?[a-z\\[\\]:@./?#% \u{e9}0-9]{0,24}") {
            if let Ok(found) = url(&text) {
                prop_assert!(found.target.starts_with('/'));
                prop_assert!(found.target.bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert!(!found.origin.host.is_empty() && found.origin.port > 0);
                // Formatting and parsing again gives the same URL.
                if found.unix.is_none() {
                    let host = if found.origin.host.contains(':') { format!("[{}]", found.origin.host.replace('%', "%25")) } else { found.origin.host.clone() };
                    let again = url(&format!("{}://{host}:{}{}", if found.origin.tls { "https" } else { "http" }, found.origin.port, found.target)).unwrap();
                    prop_assert_eq!((again.origin, again.target), (found.origin, found.target));
                }
            }
        }

        #[test]
        fn any_text_is_accepted_or_rejected(text in any::<String>()) {
            let _ = url(&text);
        }
    }
}
