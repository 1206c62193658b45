//! Certificates that are obtained from a CA: which, from whom, how.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The CA that is asked when none is named: Let's Encrypt.
pub(crate) const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// Where it lets clients fail without consequences.
pub(crate) const LETS_ENCRYPT_STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// Certificates that the server obtains and renews by itself (ACME).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// The certificates.
    pub certificates: Vec<Order>,
    /// Certificates for names that are not listed, when a client asks for one.
    pub on_demand: Option<OnDemand>,
    /// The address of the CA's directory.
    pub directory: String,
    /// The directory that is asked first after a refusal.
    pub staging: Option<String>,
    /// The authority of the CA's own certificate, a PEM file; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// The folder for the account and the certificates, absolute.
    pub dir: PathBuf,
    /// URL of a Redis server in place of the folder.
    pub storage: Option<String>,
    /// Where the CA writes to.
    pub email: Option<String>,
    /// The account that the CA has given.
    pub eab: Option<ExternalAccount>,
    /// The command that changes records of the DNS.
    pub dns_command: Option<String>,
    /// The first pause after a failure.
    pub retry: Duration,
}

/// One certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its names: host names in lower case, wildcards, IP addresses.
    pub domains: Vec<String>,
    /// The profile of the CA.
    pub profile: Option<String>,
    /// How names are verified.
    pub challenge: Challenge,
}

/// Certificates for names that clients ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnDemand {
    /// The URL that is asked whether a name is welcome.
    pub ask: String,
    /// The most orders in an hour.
    pub per_hour: u32,
    /// The profile of the CA.
    pub profile: Option<String>,
    /// How names are verified.
    pub challenge: Challenge,
}

/// An account that the CA has given (RFC 8555 section 7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Its id.
    pub kid: String,
    /// Its key, in base64url.
    pub hmac: String,
}

/// Without the key, which is secret.
impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount").field("kid", &self.kid).finish_non_exhaustive()
    }
}

/// How a CA verifies names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Challenge {
    /// What is possible; another one after a failure.
    #[default]
    Auto,
    /// A file on port 80.
    Http01,
    /// A handshake on port 443.
    TlsAlpn01,
    /// A record of the DNS.
    Dns01,
}

impl Challenge {
    /// Its words.
    pub(crate) const WORDS: &'static [(&'static str, Challenge)] = &[
        ("auto", Challenge::Auto),
        ("http-01", Challenge::Http01),
        ("tls-alpn-01", Challenge::TlsAlpn01),
        ("dns-01", Challenge::Dns01),
    ];
}

impl Acme {
    /// Whether there is anything to obtain.
    pub fn is_on(&self) -> bool {
        !self.certificates.is_empty() || self.on_demand.is_some()
    }

    /// All names that are listed.
    pub fn domains(&self) -> impl Iterator<Item = &str> {
        self.certificates.iter().flat_map(|order| &order.domains).map(String::as_str)
    }
}

/// What kind of name a domain is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainKind {
    /// A host name.
    Host,
    /// All names one label below a host name: `*.example.com`.
    Wildcard,
    /// An IP address.
    Address,
}

impl DomainKind {
    /// What `name` is; `None` when no CA can issue for it.
    ///
    /// Host names are in lower case ASCII (international ones as `xn--`), without a final dot, with at least two labels.
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
    // The last label of a name is not a number: that would be an address (RFC 3696 section 2).
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
