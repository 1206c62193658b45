//! Proves to a CA that a name belongs to this server: chooses the challenge, and holds the answers that front
//! threads give.
//!
//! Contract:
//! 1. The answer to HTTP-01 follows from the account's thumbprint and the token, so threads and machines
//!    share nothing else. It is given only for names that are obtained; at other hosts, a request for a token
//!    is an ordinary request.
//! 2. TLS-ALPN-01 needs the token. Its certificates are kept by name while an order runs.
//! 3. An answer waits for a lock only as long as it takes to copy a pointer.

use instant_acme::ChallengeType;
use settings::{AcmeChallenge, DomainKind};
use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock};

/// The path of HTTP-01 up to the token (RFC 8555 section 8.3).
pub const HTTP_PATH: &str = "/.well-known/acme-challenge/";
/// The longest token that is answered. CAs use 43 characters.
const MAX_TOKEN: usize = 256;

/// The ways in which this server can answer challenges.
#[derive(Clone, Copy, Debug, Default)]
pub struct Means {
    /// The server listens without TLS.
    pub http: bool,
    /// The server listens with TLS.
    pub tls: bool,
    /// A command that changes DNS records is configured.
    pub dns: bool,
}

/// Chooses the challenge for a name at the `attempt`th try (from 0), of those that the CA offers.
pub fn choose(
    wanted: AcmeChallenge,
    name: &str,
    means: Means,
    attempt: u32,
    offered: impl Fn(&ChallengeType) -> bool,
) -> Option<ChallengeType> {
    use ChallengeType::{Dns01, Http01, TlsAlpn01};
    let kind = DomainKind::of(name)?;
    let possible: Vec<ChallengeType> = match wanted {
        AcmeChallenge::Http01 => vec![Http01],
        AcmeChallenge::TlsAlpn01 => vec![TlsAlpn01],
        AcmeChallenge::Dns01 => vec![Dns01],
        AcmeChallenge::Auto => [(means.http, Http01), (means.tls, TlsAlpn01), (means.dns, Dns01)]
            .into_iter()
            .filter_map(|(can, challenge)| can.then_some(challenge))
            .collect(),
    };
    // RFC 8555 section 8.4, RFC 8738 section 7.
    let fits = |challenge: &ChallengeType| match kind {
        DomainKind::Host => true,
        DomainKind::Wildcard => *challenge == Dns01,
        DomainKind::Address => *challenge != Dns01,
    };
    let usable: Vec<ChallengeType> =
        possible.into_iter().filter(|challenge| fits(challenge) && offered(challenge)).collect();
    let at = (attempt as usize).checked_rem(usable.len())?;
    usable.into_iter().nth(at)
}

/// The answers to HTTP-01. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct HttpAnswers(Arc<RwLock<Answering>>);

#[derive(Debug, Default)]
struct Answering {
    /// The thumbprint of the account's key (RFC 7638).
    thumbprint: Option<Arc<str>>,
    /// Names that are always obtained.
    configured: HashSet<String>,
    /// Names that clients have requested.
    on_demand: HashSet<String>,
    /// Whether other machines may obtain names that this one does not know.
    any: bool,
}

impl HttpAnswers {
    pub fn set_thumbprint(&self, thumbprint: &str) {
        self.change(|answering| answering.thumbprint = Some(thumbprint.into()));
    }

    /// Sets the names that are obtained. `any`: other machines may obtain further names.
    pub fn set_names(&self, names: impl IntoIterator<Item = String>, any: bool) {
        let names = names.into_iter().map(|name| name.to_ascii_lowercase()).collect();
        self.change(|answering| (answering.configured, answering.any) = (names, any));
    }

    /// Adds a name that a client has requested.
    pub fn allow(&self, name: &str) {
        self.change(|answering| answering.on_demand.insert(name.to_ascii_lowercase()));
    }

    /// Reverts [`HttpAnswers::allow`].
    pub fn forbid(&self, name: &str) {
        self.change(|answering| answering.on_demand.remove(&name.to_ascii_lowercase()));
    }

    /// Returns the body of the response to a request for `path` at a host (without port); `None` if that is
    /// not a challenge for this server.
    pub fn answer(&self, host: &str, path: &str) -> Option<String> {
        let token = path.strip_prefix(HTTP_PATH)?;
        let valid = (1..=MAX_TOKEN).contains(&token.len())
            && token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        let answering = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let thumbprint = answering.thumbprint.clone()?;
        (valid && answering.obtains(host)).then(|| format!("{token}.{thumbprint}"))
    }

    fn change<R>(&self, change: impl FnOnce(&mut Answering) -> R) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Answering {
    fn obtains(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
        self.any || self.configured.contains(host) || self.on_demand.contains(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ChallengeType::{Dns01, Http01, TlsAlpn01};

    const ALL: Means = Means { http: true, tls: true, dns: true };

    fn chosen(wanted: AcmeChallenge, name: &str, means: Means, attempt: u32) -> Option<ChallengeType> {
        choose(wanted, name, means, attempt, |_| true)
    }

    #[test]
    fn auto_changes_after_failures() {
        let attempts: Vec<_> =
            (0..4).map(|attempt| chosen(AcmeChallenge::Auto, "a.test", ALL, attempt)).collect();
        assert_eq!(attempts, [Some(Http01), Some(TlsAlpn01), Some(Dns01), Some(Http01)]);
        let tls = Means { tls: true, ..Means::default() };
        assert_eq!(chosen(AcmeChallenge::Auto, "a.test", tls, 1), Some(TlsAlpn01));
        assert_eq!(chosen(AcmeChallenge::Auto, "a.test", Means::default(), 0), None);
    }

    #[test]
    fn wildcards_need_the_dns_and_addresses_cannot_use_it() {
        assert_eq!(chosen(AcmeChallenge::Auto, "*.a.test", ALL, 1), Some(Dns01));
        assert_eq!(chosen(AcmeChallenge::Http01, "*.a.test", ALL, 0), None);
        assert_eq!(chosen(AcmeChallenge::Dns01, "192.0.2.1", ALL, 0), None);
        assert_eq!(chosen(AcmeChallenge::Auto, "192.0.2.1", ALL, 1), Some(TlsAlpn01));
    }

    #[test]
    fn only_what_the_ca_offers() {
        assert_eq!(
            choose(AcmeChallenge::Auto, "a.test", ALL, 0, |offered| *offered == TlsAlpn01),
            Some(TlsAlpn01)
        );
    }

    #[test]
    fn tokens_are_answered_when_there_is_an_account() {
        let answers = HttpAnswers::default();
        answers.set_names(["a.test".to_owned()], false);
        let path = format!("{HTTP_PATH}abc-_1");
        assert_eq!(answers.answer("a.test", &path), None);
        answers.set_thumbprint("print");
        assert_eq!(answers.answer("a.test", &path).as_deref(), Some("abc-_1.print"));
        for wrong in [
            "/",
            HTTP_PATH,
            "/.well-known/acme-challenge/a/b",
            "/.well-known/acme-challenge/a.b",
            "/.well-known/acme-challenge/a%20",
        ] {
            assert_eq!(answers.answer("a.test", wrong), None, "{wrong}");
        }
        assert_eq!(answers.answer("a.test", &format!("{HTTP_PATH}{}", "a".repeat(300))), None);
    }

    #[test]
    fn tokens_are_answered_at_the_names_that_are_obtained() {
        let answers = HttpAnswers::default();
        let path = format!("{HTTP_PATH}abc");
        let answered = |host: &str| answers.answer(host, &path).is_some();
        answers.set_thumbprint("print");
        assert!(!answered("a.test"));
        answers.set_names(["A.test", "2001:db8::1"].map(str::to_owned), false);
        answers.allow("asked.test");
        assert!(["a.test", "A.TEST", "a.test.", "[2001:db8::1]", "asked.test"].into_iter().all(answered));
        assert!(!["b.test", "x.a.test", "", "localhost", "192.0.2.1"].into_iter().any(answered));
        answers.forbid("asked.test");
        assert!(!answered("asked.test"));
        answers.set_names(["a.test".to_owned()], true);
        assert!(answered("b.test"));
    }
}
