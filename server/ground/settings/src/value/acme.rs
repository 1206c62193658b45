//! Certificates that the server obtains from a CA.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The directory of the default CA, Let's Encrypt.
pub(crate) const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// The directory of Let's Encrypt for tests, where failures have no consequences.
pub(crate) const LETS_ENCRYPT_STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// Certificates that the server obtains and renews by itself (ACME).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    pub certificates: Vec<CertificateOrder>,
    /// Settings for certificates of unlisted names that clients ask for.
    pub on_demand: Option<OnDemand>,
    pub directory: String,
    /// The directory that is tried first after a refusal.
    pub staging: Option<String>,
    /// A PEM file with the CA of the directory's own certificate; `None`: the system's CAs.
    pub ca: Option<PathBuf>,
    /// The folder for the account and the certificates, absolute.
    pub dir: PathBuf,
    /// URL of a Redis server that replaces the folder.
    pub storage: Option<String>,
    /// The address to which the CA writes.
    pub email: Option<String>,
    /// The account that the CA issued beforehand.
    pub eab: Option<ExternalAccount>,
    /// The command that changes DNS records.
    pub dns_command: Option<String>,
    pub retry: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateOrder {
    /// Host names in lower case, wildcards and IP addresses.
    pub domains: Vec<String>,
    /// The name of a profile of the CA.
    pub profile: Option<String>,
    pub challenge: Challenge,
}

/// Settings for certificates of names that clients ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemand {
    /// The URL that decides whether a name is welcome.
    pub ask: String,
    /// The most orders per hour.
    pub per_hour: u32,
    /// The name of a profile of the CA.
    pub profile: Option<String>,
    pub challenge: Challenge,
}

/// An account that the CA issued beforehand (RFC 8555 section 7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    pub kid: String,
    /// The key in base64url.
    pub hmac: String,
}

/// Leaves out the key, which is secret.
impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount").field("kid", &self.kid).finish_non_exhaustive()
    }
}

/// The way in which a CA verifies names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Challenge {
    /// Any that is possible; another one after a failure.
    #[default]
    Auto,
    /// A file served on port 80.
    Http01,
    /// A TLS handshake on port 443.
    TlsAlpn01,
    /// A DNS record.
    Dns01,
}

impl Challenge {
    pub(crate) const WORDS: &'static [(&'static str, Challenge)] = &[
        ("auto", Challenge::Auto),
        ("http-01", Challenge::Http01),
        ("tls-alpn-01", Challenge::TlsAlpn01),
        ("dns-01", Challenge::Dns01),
    ];
}

impl Acme {
    /// Returns whether there are certificates to obtain.
    pub fn is_on(&self) -> bool {
        !self.certificates.is_empty() || self.on_demand.is_some()
    }

    /// Returns all listed names.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.certificates.iter().flat_map(|order| &order.domains).map(String::as_str)
    }
}

/// The kind of a domain name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainKind {
    Host,
    /// All names one label below a host name: `*.example.com`.
    Wildcard,
    Address,
}

impl DomainKind {
    /// Returns the kind of `name`, or `None` if no CA can issue a certificate for it.
    ///
    /// Host names are lower-case ASCII (international ones as `xn--`), without a final dot, and have at least
    /// two labels.
    pub fn of(name: &str) -> Option<DomainKind> {
        if name.parse::<IpAddr>().is_ok() {
            return Some(DomainKind::Address);
        }
        match name.strip_prefix("*.") {
            Some(below) => is_host(below).then_some(DomainKind::Wildcard),
            None => is_host(name).then_some(DomainKind::Host),
        }
    }
}

fn is_host(name: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    let mut labels = name.split('.');
    // The last label of a name is not a number, because that would be an address (RFC 3696 section 2).
    let last_is_text =
        name.rsplit('.').next().is_some_and(|last| !last.bytes().all(|byte| byte.is_ascii_digit()));
    name.len() <= 253 && name.contains('.') && last_is_text && labels.all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_domains() {
        assert_eq!(DomainKind::of("example.com"), Some(DomainKind::Host));
        assert_eq!(DomainKind::of("xn--bcher-kva.example"), Some(DomainKind::Host));
        assert_eq!(DomainKind::of("*.example.com"), Some(DomainKind::Wildcard));
        assert_eq!(DomainKind::of("192.0.2.1"), Some(DomainKind::Address));
        assert_eq!(DomainKind::of("2001:db8::1"), Some(DomainKind::Address));
        let wrong =
            ["", "localhost", "a..b", "-a.test", "a.test.", "A.test", "a b.test", "*.*.a.test", "1.2.3.999"];
        for wrong in wrong.into_iter().chain(["*", "a_b.test", "*.test"]) {
            assert_eq!(DomainKind::of(wrong), None, "{wrong}");
        }
        assert_eq!(DomainKind::of(&format!("{}.test", "a".repeat(64))), None);
    }
}
