//! Redirects before anything is served: from http to https, and from other host names to the canonical one.
//!
//! Contract:
//! 1. Path and query are kept. The status is 308, so that clients keep the method and the body (RFC 9110
//!    section 15.4.9).
//! 2. The host of a redirect is the canonical host, or one that a certificate of this server covers. If a
//!    proxy terminates TLS and no host is canonical, it is the request's host, if that is a valid host name.
//! 3. Paths in `http_paths` are never redirected.
//! 4. A host whose first certificate is still being obtained is served without TLS until then.
//! 5. If certificates are obtained (`acme`) and `https_only` is not set, hosts with a certificate are
//!    redirected to https. All others are served over http: health checks by address, names of other servers.

use crate::tls::Encryption;
use handler::{Failure, Fields, Request, Response};
use settings::{Https, Settings};
use std::sync::Arc;
use text::percent::{INVISIBLE, encode};

pub(crate) struct Redirects {
    https_only: bool,
    /// Only hosts with a certificate are redirected to https. Requests to other hosts are not refused.
    automatic: bool,
    canonical_host: Option<String>,
    /// The value of `Strict-Transport-Security`.
    hsts: Option<String>,
    /// Paths that are never redirected. A final `*` matches everything below.
    exempt: Vec<String>,
    /// The https port, if configured.
    port: Option<u16>,
    encryption: Arc<Encryption>,
}

impl Redirects {
    /// Returns the redirects of these settings; `None` if there are none.
    pub(crate) fn new(settings: &Settings, encryption: &Arc<Encryption>) -> Option<Redirects> {
        let Https { https_only, canonical_host, hsts, http_paths, https_port, http3: _ } =
            settings.https.clone();
        let automatic = https_only.is_none() && settings.acme.is_on() && encryption.is_used();
        let https_only = https_only.unwrap_or(automatic);
        (https_only || canonical_host.is_some() || hsts.is_some()).then(|| Redirects {
            https_only,
            automatic,
            canonical_host: canonical_host.map(|host| host.to_ascii_lowercase()),
            hsts: hsts.map(|hsts| hsts.to_string()),
            exempt: http_paths,
            port: https_port,
            encryption: encryption.clone(),
        })
    }

    /// Returns the redirect for a request that needs one. `proxied`: a trusted proxy has reported the scheme.
    pub(crate) fn of(&self, request: &Request, proxied: bool) -> Option<Response> {
        if self.is_exempt(request.path()) {
            return None;
        }
        let (name, port) = request.server();
        let own = self.canonical_host.as_deref();
        let upgrade = self.https_only && !request.https;
        let upgrade = upgrade && (!self.automatic || self.has_certificate(own.map_or(name, str::as_bytes)));
        let elsewhere = own.is_some_and(|own| !bare(name).eq_ignore_ascii_case(bare(own.as_bytes())));
        if !upgrade && !elsewhere {
            return None;
        }
        let host = match own {
            Some(own) => own.to_owned(),
            None => match self.known(if request.authority().is_empty() { b"" } else { name }) {
                HostState::Yes(host) => host,
                HostState::Soon => return None,
                HostState::No => return Some(misdirected(name)),
            },
        };
        let https = upgrade || request.https;
        let port = if upgrade { Some(self.https_port(proxied)) } else { digits(port) };
        Some(redirect(&location(https, &host, port, request)))
    }

    /// Adds `Strict-Transport-Security` to responses over https, unless the app has set it.
    pub(crate) fn mark(&self, https: bool, fields: &mut Fields) {
        if let Some(hsts) = self.hsts.as_ref().filter(|_| https)
            && fields.get("strict-transport-security").is_none()
        {
            fields.push(b"Strict-Transport-Security", hsts.as_bytes());
        }
    }

    fn has_certificate(&self, name: &[u8]) -> bool {
        matches!(self.known(name), HostState::Yes(_))
    }

    fn is_exempt(&self, path: &[u8]) -> bool {
        // `OPTIONS *` addresses the server itself.
        path == b"*" || self.exempt.iter().any(|pattern| covers(pattern, path))
    }

    fn known(&self, name: &[u8]) -> HostState {
        let Some(host) = std::str::from_utf8(name).ok().filter(|name| is_host(name)) else {
            return HostState::No;
        };
        let host = host.to_ascii_lowercase();
        if !self.encryption.is_used() {
            return HostState::Yes(host);
        }
        let plain = host.trim_start_matches('[').trim_end_matches(']');
        if self.encryption.covers(plain) {
            HostState::Yes(host)
        } else if self.encryption.certificates.is_expected(plain) {
            HostState::Soon
        } else {
            HostState::No
        }
    }

    fn https_port(&self, proxied: bool) -> u16 {
        let own = self.encryption.port().filter(|_| !proxied);
        self.port.or(own).unwrap_or(443)
    }
}

/// Returns the text of `explain` about the redirects. Empty if none applies to the request.
pub(crate) fn explain(settings: &Settings, https: bool, host: &str, target: &str) -> String {
    let rules = &settings.https;
    let path = target.split(['?', '#']).next().unwrap_or_default();
    if rules.http_paths.iter().any(|pattern| covers(pattern, path.as_bytes())) {
        return String::new();
    }
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name);
    let upgrade = rules.https_only == Some(true) && !https;
    let other = rules.canonical_host.as_ref().filter(|own| !own.eq_ignore_ascii_case(name));
    let rule = match (upgrade, other) {
        (false, None) => return String::new(),
        (true, None) => "https_only",
        (false, Some(_)) => "canonical_host",
        (true, Some(_)) => "https_only and canonical_host",
    };
    let scheme = if upgrade || https { "https" } else { "http" };
    let to = other.map_or(name, |own| own.as_str());
    let port = rules.https_port.filter(|port| upgrade && *port != 443).map(|port| format!(":{port}"));
    let port = port.unwrap_or_default();
    format!(
        "First {rule} of the settings: 308 to {scheme}://{to}{port}{target}; a client that follows it gets:\n\n"
    )
}

/// Whether a host can be the target of a redirect.
enum HostState {
    Yes(String),
    /// The host's certificate is still being obtained.
    Soon,
    No,
}

fn covers(pattern: &str, path: &[u8]) -> bool {
    match pattern.strip_suffix('*') {
        // A `..` in any form must not lead out of the exempt paths.
        Some(below) => path.starts_with(below.as_bytes()) && !climbs(&path[below.len()..]),
        None => path == pattern.as_bytes(),
    }
}

/// Whether a path has a segment `..`, percent-encoded or not.
fn climbs(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/' || byte == b'\\').any(|segment| {
        let text = String::from_utf8_lossy(segment).to_ascii_lowercase().replace("%2e", ".");
        text == ".." || text.contains("%2f") || text.contains("%5c")
    })
}

/// Removes a final dot.
fn bare(name: &[u8]) -> &[u8] {
    name.strip_suffix(b".").unwrap_or(name)
}

fn is_host(name: &str) -> bool {
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    match inner {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            !name.is_empty() && name.len() <= 253 && name.bytes().all(valid)
        }
    }
}

fn digits(port: &[u8]) -> Option<u16> {
    std::str::from_utf8(port).ok()?.parse().ok()
}

fn location(https: bool, host: &str, port: Option<u16>, request: &Request) -> Vec<u8> {
    let (scheme, usual) = if https { ("https", 443) } else { ("http", 80) };
    let bracket = host.contains(':') && !host.starts_with('[');
    let (open, close) = if bracket { ("[", "]") } else { ("", "") };
    let mut to = format!("{scheme}://{open}{host}{close}").into_bytes();
    if let Some(port) = port.filter(|port| *port != usual) {
        to.extend(format!(":{port}").bytes());
    }
    to.extend(encode(request.path(), INVISIBLE).flat_map(str::bytes));
    if !request.query().is_empty() {
        to.push(b'?');
        to.extend(encode(request.query(), INVISIBLE).flat_map(str::bytes));
    }
    to
}

fn redirect(location: &[u8]) -> Response {
    let mut response = Response::text(308, "text/plain; charset=utf-8", "308 Permanent Redirect\n");
    response.fields.push(b"Location", location);
    response
}

fn misdirected(name: &[u8]) -> Response {
    let name = name.escape_ascii();
    Failure::client(421, format!("https_only: no certificate is for the host {name}")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use handler::testing::request_to;
    use proptest::prelude::*;
    use std::path::Path;

    fn redirects(change: impl FnOnce(&mut Settings)) -> Redirects {
        let mut settings = Settings::defaults(Path::new("/"));
        change(&mut settings);
        let encryption = Arc::new(Encryption::read(&settings).unwrap());
        Redirects::new(&settings, &encryption).unwrap()
    }

    fn ask(redirects: &Redirects, host: &str, target: &str, https: bool) -> String {
        let mut request = request_to(host.as_bytes(), b"GET", target.as_bytes(), &[]);
        request.https = https;
        match redirects.of(&request, false) {
            None => "served".to_owned(),
            Some(response) => {
                let to = response.fields.get("location").unwrap_or_default();
                format!("{} {}", response.status, String::from_utf8_lossy(to)).trim_end().to_owned()
            }
        }
    }

    #[test]
    fn http_goes_to_https() {
        let redirects = redirects(|settings| settings.https.https_only = Some(true));
        let ask = |host, target, https| ask(&redirects, host, target, https);
        assert_eq!(ask("a.test", "/x?y=1", false), "308 https://a.test/x?y=1");
        assert_eq!(ask("A.test:8080", "/", false), "308 https://a.test/");
        assert_eq!(ask("[::1]:80", "/", false), "308 https://[::1]/");
        assert_eq!(ask("a.test", "/", true), "served");
        assert_eq!(ask("a.test", "/.well-known/acme-challenge/x", false), "served");
        assert_eq!(ask("a.test", "/.well-known/../admin", false), "308 https://a.test/.well-known/../admin");
        assert_eq!(
            ask("a.test", "/.well-known/%2E%2e/admin", false),
            "308 https://a.test/.well-known/%2E%2e/admin"
        );
        assert_eq!(ask("a/b", "/", false), "421");
        assert_eq!(ask("", "/", false), "421");
    }

    #[test]
    fn where_certificates_are_obtained_hosts_without_one_are_served_as_they_are() {
        let redirects = redirects(|settings| {
            settings.binds = vec![settings::Bind::ssl("127.0.0.1", 0, settings::BindTls::default())];
            let order = settings::CertificateOrder {
                domains: vec!["a.test".to_owned()],
                profile: None,
                challenge: settings::AcmeChallenge::Auto,
            };
            settings.acme.certificates = vec![order];
            settings.tls.ticket_secret_file = None;
        });
        assert_eq!(ask(&redirects, "a.test", "/", false), "served");
        assert_eq!(ask(&redirects, "192.0.2.1", "/up", false), "served");
    }

    #[test]
    fn other_hosts_go_to_the_canonical_one() {
        let redirects = redirects(|settings| settings.https.canonical_host = Some("www.a.test".to_owned()));
        let ask = |host, target, https| ask(&redirects, host, target, https);
        assert_eq!(ask("a.test", "/x", false), "308 http://www.a.test/x");
        assert_eq!(ask("a.test:8080", "/x", false), "308 http://www.a.test:8080/x");
        assert_eq!(ask("a.test", "/x", true), "308 https://www.a.test/x");
        assert_eq!(ask("evil/", "/x", true), "308 https://www.a.test/x");
        assert_eq!(ask("WWW.a.test.:443", "/x", true), "served");
    }

    #[test]
    fn both_are_one_redirect_and_the_port_is_that_of_https() {
        let redirects = redirects(|settings| {
            settings.https.https_only = Some(true);
            settings.https.canonical_host = Some("www.a.test".to_owned());
            settings.https.https_port = Some(8443);
        });
        assert_eq!(ask(&redirects, "a.test:8080", "/x", false), "308 https://www.a.test:8443/x");
    }

    #[test]
    fn hsts_is_for_https_and_does_not_replace_the_apps() {
        let redirects = redirects(|settings| settings.https.hsts = Some("1d".parse().unwrap()));
        let mut fields = Fields::default();
        redirects.mark(false, &mut fields);
        assert!(fields.get("strict-transport-security").is_none());
        redirects.mark(true, &mut fields);
        redirects.mark(true, &mut fields);
        assert_eq!(fields.get("strict-transport-security"), Some(&b"max-age=86400"[..]));
    }

    #[test]
    fn explained() {
        let mut settings = Settings::defaults(Path::new("/"));
        assert_eq!(explain(&settings, false, "a.test", "/x"), "");
        settings.https.https_only = Some(true);
        assert!(
            explain(&settings, false, "a.test:80", "/x?y")
                .contains("https_only of the settings: 308 to https://a.test/x?y")
        );
        assert_eq!(explain(&settings, true, "a.test", "/x"), "");
        assert_eq!(explain(&settings, false, "a.test", "/.well-known/x"), "");
        settings.https.canonical_host = Some("www.a.test".to_owned());
        assert!(
            explain(&settings, true, "a.test", "/x")
                .contains("canonical_host of the settings: 308 to https://www.a.test/x")
        );
    }

    proptest! {
        #[test]
        fn nothing_breaks_out_of_the_location(host in "\\PC{0,20}", path in "/\\PC{0,20}") {
            let redirects = redirects(|settings| settings.https.https_only = Some(true));
            let found = ask(&redirects, &host, &path, false);
            prop_assert!(found.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "{}", found);
            if let Some(rest) = found.strip_prefix("308 https://") {
                let named = rest.split(['/', ':']).next().unwrap_or_default();
                prop_assert!(named.starts_with('[') || host.to_lowercase().starts_with(named), "{}", found);
            }
        }
    }
}
